"""ik_llama.cpp, through the wheel ik-llama-cpp-python. CACHE: K/V or one type; "+h" rotates K and V (Hadamard)."""

import ctypes
from importlib.metadata import version

from ik_llama_cpp import _ctypes_api as api
from ik_llama_cpp import _lib_loader
from ik_llama_cpp._internals import IkModel, make_batch_range

from worker import CachePeer, Tokens, elapsed_ns, features_in, serve

TYPES = {"f16": 1, "q4_0": 2, "q8_0": 8, "bf16": 30, "q6_0": 133, "q8_KV": 151}  # ggml_type
# The package does not bind these two; loading the library again gives the same instance.
library = _lib_loader.load_shared_library()
library.llama_kv_cache_seq_rm.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32]
library.llama_kv_cache_seq_rm.restype = ctypes.c_bool
library.llama_print_system_info.restype = ctypes.c_char_p


class IkLlama(CachePeer):
    def __init__(self, model, cache, threads, context_tokens):
        self.model = IkModel(model)
        name, _, rotated = cache.partition("+")
        k, _, v = name.partition("/")
        params = api.llama_context_default_params()
        params.n_ctx = context_tokens
        params.n_batch = params.n_ubatch = 512
        params.n_threads = params.n_threads_batch = threads
        params.type_k, params.type_v = TYPES[k], TYPES[v or k]
        params.flash_attn = True
        params.k_cache_hadamard = params.v_cache_hadamard = rotated == "h"
        self.context = api.llama_init_from_model(self.model.model, params)
        if not self.context:
            raise RuntimeError("ik_llama.cpp refuses the cache type")
        self.depth = 0
        self.tokens = Tokens(1)

    def about(self):
        return {"version": version("ik-llama-cpp-python"),
                "note": features_in(library.llama_print_system_info().decode())}

    def _evaluate(self, tokens, position):
        batch = make_batch_range(tokens, pos_start=position)
        failed = api.llama_decode(self.context, batch)
        api.llama_batch_free(batch)
        if failed:
            raise RuntimeError(f"llama_decode failed with {failed}")
        api.llama_get_logits_ith(self.context, -1)

    def _read(self, count, chunk):
        tokens = self.tokens.take(count)
        return elapsed_ns(lambda: [self._evaluate(tokens[i:i + chunk], self.depth + i)
                                   for i in range(0, count, chunk)])

    def _return(self):
        library.llama_kv_cache_seq_rm(self.context, 0, self.depth, -1)


if __name__ == "__main__":
    serve(IkLlama)
