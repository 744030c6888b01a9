"""onnxruntime-genai. MODEL: a folder that prepare_onnx.py made; its name is the cache's."""

import json
from importlib.metadata import version

import numpy
import onnxruntime_genai

from worker import CachePeer, Tokens, elapsed_ns, serve


class OnnxRuntime(CachePeer):
    def __init__(self, model, cache, threads, context_tokens):
        config = onnxruntime_genai.Config(model)
        # One buffer for the old and the new cache: the folder of a quantized cache says no, but it is
        # faster, gives the same logits, and can be rewound.
        config.overlay(json.dumps({"search": {"past_present_share_buffer": True},
                                   "model": {"decoder": {"session_options": {"intra_op_num_threads": threads}}}}))
        self.model = onnxruntime_genai.Model(config)
        params = onnxruntime_genai.GeneratorParams(self.model)
        params.set_search_options(max_length=context_tokens, do_sample=False)
        self.generator = onnxruntime_genai.Generator(self.model, params)
        self.depth = 0
        self.tokens = Tokens(1)

    def about(self):
        return {"version": version("onnxruntime-genai"), "note": "weights quantized again, int4 in blocks of 32"}

    def _read(self, count, chunk):
        tokens = numpy.array(self.tokens.take(count), dtype=numpy.int32)
        return elapsed_ns(lambda: [self.generator.append_tokens(tokens[i:i + chunk]) for i in range(0, count, chunk)])

    def _return(self):
        self.generator.rewind_to(self.depth)


if __name__ == "__main__":
    serve(OnnxRuntime)
