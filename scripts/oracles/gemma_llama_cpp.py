"""Asks llama.cpp what tests/golden/gemma3_*.txt keep of Gemma 3: f16 KV cache, flash attention, two threads."""

import json
from importlib.metadata import version

import llama_cpp
import numpy as np

import golden

MODEL = golden.ROOT / "models/gemma3-270m-q4_k_m.gguf"
SCORED_TOKENS = 640  # past the window of 512
PROMPTS = golden.PROMPTS[:4] + ["The three primary colours are"]
QUESTIONS = ["Name three colours.", "What is the capital of France?", "Write a haiku about the sea.",
             "Translate 'good morning' into German.", "What is 7 times 8?"]


def chat(question):
    return f"<start_of_turn>user\n{question}<end_of_turn>\n<start_of_turn>model\n"


def greedy(model, ids):
    """The most likely tokens and by how much each one's logit beats the runner-up's."""
    model.reset()
    model.eval(ids)
    generated, margins = [], []
    while len(generated) < golden.GREEDY_TOKENS:
        logits = model.scores[model.n_tokens - 1]
        generated.append(int(logits.argmax()))
        best = np.partition(logits, -2)[-2:]
        margins.append(float(best[1] - best[0]))
        model.eval(generated[-1:])
    return generated, margins


def main():
    model = llama_cpp.Llama(str(MODEL), n_ctx=1024, n_batch=1024, n_threads=2, n_threads_batch=2,
                            type_k=llama_cpp.GGML_TYPE_F16, type_v=llama_cpp.GGML_TYPE_F16, flash_attn=True,
                            logits_all=True, verbose=False)

    def tokenize(text):
        return model.tokenize(text.encode(), add_bos=True, special=True)

    tokens = np.array(tokenize(golden.passage())[:SCORED_TOKENS + 1])
    model.eval(tokens.tolist())
    log_probs = golden.log_softmax(np.array(model.scores[:SCORED_TOKENS]))
    texts = PROMPTS + [chat(question) for question in QUESTIONS]
    prompts = [tokenize(text) for text in texts]
    answers = [greedy(model, ids) for ids in prompts]
    path = golden.answer_path("gemma_llama_cpp")
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, versions=f"llama-cpp-python {version('llama-cpp-python')}, f16 KV cache, flash attention",
             tokens=tokens, log_probs=log_probs[np.arange(SCORED_TOKENS), tokens[1:]], texts=json.dumps(texts),
             prompts=json.dumps(prompts), answers=json.dumps(answers))


if __name__ == "__main__":
    main()
