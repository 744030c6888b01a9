"""Asks llama.cpp the golden questions: f16 KV cache, flash attention, two threads.

llama.cpp multiplies Q4_1 weights with activations rounded to 8 bits, which is most of its distance
from transformers in f32.
"""

from importlib.metadata import version

import llama_cpp
import numpy as np

import golden


def make_model():
    return llama_cpp.Llama(str(golden.MODEL), n_ctx=1024, n_batch=1024, n_threads=2, n_threads_batch=2,
                           type_k=llama_cpp.GGML_TYPE_F16, type_v=llama_cpp.GGML_TYPE_F16, flash_attn=True,
                           logits_all=True, verbose=False)


def greedy(model, ids):
    model.reset()
    model.eval(ids)
    generated = []
    while len(generated) < golden.GREEDY_TOKENS:
        generated.append(int(model.scores[model.n_tokens - 1].argmax()))
        model.eval(generated[-1:])
    return generated


def main():
    model = make_model()

    def tokenize(text):
        return model.tokenize(text.encode(), add_bos=False, special=True)

    tokens = tokenize(golden.passage())[:golden.SCORED_TOKENS + 1]
    model.eval(tokens)
    logits = np.array(model.scores[:golden.SCORED_TOKENS])
    prompt_ids = [tokenize(prompt) for prompt in golden.PROMPTS]
    golden.save_answer("llama_cpp", f"llama-cpp-python {version('llama-cpp-python')}, f16 KV cache, "
                       "flash attention", np.array(tokens), logits, prompt_ids,
                       [greedy(model, ids) for ids in prompt_ids])


if __name__ == "__main__":
    main()
