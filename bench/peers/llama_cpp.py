"""Decode speed of llama.cpp (PyPI: llama-cpp-python) by KV type and depth, one JSON line a case.

usage: llama_cpp.py [-m MODEL.gguf] [-ctk f16,q8_0,q4_0] [-d 0,1024,8192] [-n 32] [-t 2]

K and V have the same type. A case fills the cache with `n_depth` random tokens, then times `n_gen`
single-token steps. Field names are llama-bench's; `median_ns` is the figure to compare, since a busy
machine spoils the mean. llama.cpp rotates K and V (Hadamard) before it stores them in a quantized type
when head_dim is a multiple of 64; LLAMA_ATTN_ROT_DISABLE=1 in the environment turns that off.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import sys
import time
from importlib.metadata import version

sys.path.pop(0)  # this folder, where this very file would pass for the package
import llama_cpp

ROOT = pathlib.Path(__file__).resolve().parents[2]
TYPES = {name: getattr(llama_cpp, "GGML_TYPE_" + name.upper())
         for name in ("f32", "f16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")}


def cpu_name():
    with open("/proc/cpuinfo") as info:
        return next((line.split(":")[1].strip() for line in info if line.startswith("model name")), "unknown")


def seconds(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def random_tokens(count, vocabulary):
    return [random.randrange(100, vocabulary - 100) for _ in range(count)]


class Case:
    """One llama.cpp context of one KV type, deepened step by step."""

    def __init__(self, options, kv_type):
        self.type = kv_type
        self.threads = options.threads
        context = max(options.depths) + len(options.depths) * options.n_gen + 8
        self.model = llama_cpp.Llama(str(options.model), n_ctx=context, n_batch=512, n_threads=self.threads,
                                     n_threads_batch=self.threads, type_k=TYPES[kv_type],
                                     type_v=TYPES[kv_type], flash_attn=True, verbose=False)

    def evaluate(self, tokens):
        self.model.eval(tokens)
        llama_cpp.llama_synchronize(self.model.ctx)

    def measure(self, depth, n_gen):
        vocabulary = self.model.n_vocab()
        missing = random_tokens(max(0, depth - self.model.n_tokens), vocabulary)
        prompt_s = seconds(lambda: self.evaluate(missing)) if missing else None
        steps_ns = [seconds(lambda: self.evaluate([token])) * 1e9
                    for token in random_tokens(n_gen, vocabulary)]
        self.model.n_tokens = depth  # the next case starts from its own depth, not from these steps
        return {
            "engine": f"llama-cpp-python {version('llama-cpp-python')}",
            "type_k": self.type, "type_v": self.type, "flash_attn": True,
            "kv_rotation": self.type.startswith("q") and os.environ.get("LLAMA_ATTN_ROT_DISABLE", "0") in ("", "0"),
            "n_depth": depth, "n_gen": n_gen, "n_threads": self.threads,
            "median_ns": round(statistics.median(steps_ns)), "min_ns": round(min(steps_ns)),
            "avg_ns": round(statistics.fmean(steps_ns)), "stddev_ns": round(statistics.pstdev(steps_ns)),
            "prompt_tokens_per_s": round(len(missing) / prompt_s, 1) if prompt_s else None,
            "cpu_info": cpu_name(), "load_average": os.getloadavg()[0],
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-m", "--model", type=pathlib.Path, default=ROOT / "models/smollm2-135m-instruct-q4_1.gguf")
    parser.add_argument("-ctk", "--cache-type-k", dest="types", default="f16,q8_0,q4_0", type=lambda s: s.split(","))
    parser.add_argument("-d", "--n-depth", dest="depths", default="0,1024,8192",
                        type=lambda s: sorted(int(d) for d in s.split(",")))
    parser.add_argument("-n", "--n-gen", type=int, default=32)
    parser.add_argument("-t", "--threads", type=int, default=2)
    options = parser.parse_args()
    for kv_type in options.types:
        if kv_type not in TYPES:
            parser.error(f"no KV type '{kv_type}'; there are {' '.join(TYPES)}")
    random.seed(1)
    for kv_type in options.types:
        case = Case(options, kv_type)
        case.evaluate(random_tokens(8, case.model.n_vocab()))  # pages the weights in
        case.model.reset()
        for depth in options.depths:
            print(json.dumps(case.measure(depth, options.n_gen)), flush=True)
        case.model.close()


if __name__ == "__main__":
    main()
