"""llama.cpp, through the C interface that llama-cpp-python binds. CACHE: a type for K and V, or K/V."""

from importlib.metadata import version

import llama_cpp

from worker import Tokens, elapsed_ns, features_in, serve

FLASH_ATTENTION_ON = 1  # llama_flash_attn_type


def types(cache):
    k, _, v = cache.partition("/")
    return [getattr(llama_cpp, "GGML_TYPE_" + name.upper()) for name in (k, v or k)]


class LlamaCpp:
    def __init__(self, model, cache, threads, context_tokens):
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(model.encode(), llama_cpp.llama_model_default_params())
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = context_tokens
        params.n_batch = params.n_ubatch = 512
        params.n_threads = params.n_threads_batch = threads
        params.type_k, params.type_v = types(cache)
        params.flash_attn_type = FLASH_ATTENTION_ON
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        if not self.model or not self.context:
            raise RuntimeError("llama.cpp refuses the model or the cache type")
        self.memory = llama_cpp.llama_get_memory(self.context)
        self.depth = 0
        self.tokens = Tokens(1)

    def about(self):
        return {"version": version("llama-cpp-python"),
                "note": features_in(llama_cpp.llama_print_system_info().decode())}

    def _evaluate(self, tokens):
        array = (llama_cpp.llama_token * len(tokens))(*tokens)
        if llama_cpp.llama_decode(self.context, llama_cpp.llama_batch_get_one(array, len(tokens))):
            raise RuntimeError("llama_decode failed")
        llama_cpp.llama_get_logits_ith(self.context, -1)  # waits for them

    def _read(self, count):
        tokens = self.tokens.take(count)
        return elapsed_ns(lambda: [self._evaluate(tokens[i:i + 512]) for i in range(0, count, 512)])

    def _return(self):
        llama_cpp.llama_memory_seq_rm(self.memory, 0, self.depth, -1)

    def fill(self, depth):
        taken = self._read(depth - self.depth)
        self.depth = depth
        return taken

    def prompt(self, count):
        taken = self._read(count)
        self._return()
        return taken

    def decode(self, count):
        tokens = self.tokens.take(count)
        taken = elapsed_ns(lambda: [self._evaluate([token]) for token in tokens])
        self._return()
        return taken


if __name__ == "__main__":
    serve(LlamaCpp)
