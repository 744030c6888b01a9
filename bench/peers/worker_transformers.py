"""transformers on torch. CACHE: f32 or bf16 (computing in that type too), quanto4 or quanto2 (computing in f32)."""

import copy
import pathlib
from importlib.metadata import version

import torch
import transformers

from worker import Tokens, elapsed_ns, serve


class Transformers:
    def __init__(self, model, cache, threads, context_tokens):
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        path = pathlib.Path(model)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            path.parent, gguf_file=path.name, attn_implementation="sdpa",
            dtype=torch.bfloat16 if cache == "bf16" else torch.float32).eval()
        if cache.startswith("quanto"):
            self.cache = transformers.QuantizedCache("quanto", self.model.config, nbits=int(cache[6:]), q_group_size=64,
                                                     residual_length=128)
        else:
            self.cache = transformers.DynamicCache(config=self.model.config)
        self.depth = 0
        self.tokens = Tokens(1)

    def about(self):
        return {"version": version("transformers"), "note": f"torch {torch.__version__}, {self.model.dtype}"}

    def _read(self, cache, count, chunk):
        tokens = torch.tensor([self.tokens.take(count)])
        return elapsed_ns(lambda: [self.model(tokens[:, i:i + chunk], past_key_values=cache, use_cache=True,
                                              logits_to_keep=1) for i in range(0, count, chunk)])

    def fill(self, depth):
        taken = self._read(self.cache, depth - self.depth, 512)
        self.depth = depth
        return taken

    # A quantized cache cannot be cut back. A step replaces a layer's tensors and leaves the old ones as
    # they are, so that a copy of the references is enough.
    def _fork(self):
        fork = copy.copy(self.cache)
        fork.layers = [copy.copy(layer) for layer in self.cache.layers]
        return fork

    def prompt(self, count):
        return self._read(self._fork(), count, 512)

    def decode(self, count):
        return self._read(self._fork(), count, 1)


if __name__ == "__main__":
    serve(Transformers)
