"""OpenVINO GenAI with its paged cache, reading the GGUF file itself. CACHE: bf16, f16, u8, u4, or K/V.

Its pipeline has no single step: every call is a whole request. With prefix caching the tokens up to
`depth` are found in the cache, so that a request costs what comes after them. With a u4 side prefix
caching corrupts the heap (2026.4.1): there every request begins with an empty cache, and the time of the
shorter one is taken off that of the longer one.
"""

from importlib.metadata import version

import numpy
import openvino
import openvino_genai

from worker import Tokens, elapsed_ns, serve


def precisions(cache):
    """Properties that set it."""
    k, _, v = cache.partition("/")
    return {"KEY_CACHE_PRECISION": k, "VALUE_CACHE_PRECISION": v} if v else {"KV_CACHE_PRECISION": k}


class OpenVino:
    def __init__(self, model, cache, threads, context_tokens):
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.max_num_batched_tokens = 512
        self.finds_prefix = scheduler.enable_prefix_caching = "u4" not in cache
        self.pipeline = openvino_genai.LLMPipeline(
            model, "CPU", ATTENTION_BACKEND="PA", INFERENCE_NUM_THREADS=threads, scheduler_config=scheduler,
            **precisions(cache))
        self.tokens = Tokens(1)
        self.prompt_tokens = self.tokens.take(context_tokens)
        self.depth = 0

    def about(self):
        precision = openvino.Core().get_property("CPU", "INFERENCE_PRECISION_HINT")
        return {"version": version("openvino-genai"), "note": f"computes in {precision.to_string()}"}

    def _request(self, tokens, answer_tokens):
        config = openvino_genai.GenerationConfig(max_new_tokens=answer_tokens, ignore_eos=True, do_sample=False)
        return self.pipeline.generate(openvino.Tensor(numpy.array([tokens], dtype=numpy.int64)), config)

    def fill(self, depth):
        before = self._time_without_prefix()
        self.depth = depth
        return elapsed_ns(lambda: self._request(self.prompt_tokens[:depth], 1)) - before

    def prompt(self, count):
        tokens = self.prompt_tokens[:self.depth] + self.tokens.take(count)  # new ones, so not in the cache
        before = self._time_without_prefix()
        return elapsed_ns(lambda: self._request(tokens, 1)) - before

    # What a request pays for the tokens that the cache of another engine would hold already.
    def _time_without_prefix(self):
        if self.finds_prefix or self.depth == 0:
            return 0
        return elapsed_ns(lambda: self._request(self.prompt_tokens[:self.depth], 1))

    def decode(self, count):
        # The first token belongs to the prompt: what follows it are `count` steps.
        result = self._request(self.prompt_tokens[:self.depth], count + 1)
        times_ms = result.perf_metrics.raw_metrics.m_new_token_times
        return round((times_ms[-1] - times_ms[0]) * 1e6)


if __name__ == "__main__":
    serve(OpenVino)
