"""Asks transformers the golden questions: the weights dequantized to f32, all arithmetic in f32."""

from importlib.metadata import version

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache
from transformers.utils.logging import disable_progress_bar

import golden


def greedy(model, ids):
    """The generated ids and, for each, by how much its log-probability beats the runner-up's."""
    inputs, cache, generated, margins = torch.tensor([ids]), DynamicCache(config=model.config), [], []
    while len(generated) < golden.GREEDY_TOKENS:
        best = model(inputs, cache=cache, use_cache=True).logits[0, -1].topk(2)
        generated.append(int(best.indices[0]))
        margins.append(float(best.values[0] - best.values[1]))
        inputs = torch.tensor([generated[-1:]])
    return generated, margins


@torch.no_grad()
def main():
    torch.set_num_threads(2)
    disable_progress_bar()
    folder, file = str(golden.MODEL.parent), golden.MODEL.name
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file)
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32).eval()

    def tokenize(text):
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    tokens = tokenize(golden.passage())[:golden.SCORED_TOKENS + 1]
    logits = model(torch.tensor([tokens])).logits[0].numpy()
    prompt_ids = [tokenize(prompt) for prompt in golden.PROMPTS]
    generated = [greedy(model, ids) for ids in prompt_ids]
    golden.save_answer("transformers", f"transformers {version('transformers')}, torch {version('torch')}, f32",
                       np.array(tokens), logits, prompt_ids, [ids for ids, _ in generated],
                       greedy_margins=np.array([margins for _, margins in generated]))


if __name__ == "__main__":
    main()
