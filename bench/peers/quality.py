#!/usr/bin/env python3
"""What the caches of other engines cost in quality: KL to the same engine's own 16-bit cache (onnxruntime: 32-bit), on
the text of a base file.

    kvant eval -m MODEL -f models/austen.txt --ctx 2048 --tokens 2046 --kv int4 --write-base base.bin
    VENV/bin/python bench/peers/quality.py --model MODEL --base base.bin --engine llama.cpp --caches q8_0,q4_0,q8_0/q4_0
    VENV/bin/python bench/peers/quality.py --model MODEL --base base.bin --engine openvino --caches u8,u4

The file (llama.cpp's --kl-divergence-base layout, src/eval/logit_base.h) gives the tokens and where chunks begin; its
logits are not used, each engine is measured against its own cache. As `kvant eval` does, the second half of each chunk
is scored, and a chunk begins with the model's bos where the model asks for one. Run by the Python of the environment
that compare.py makes.
"""

import argparse
import json
import pathlib
import struct
import sys
import tempfile
from importlib.metadata import version

import numpy

import engines

HEAD = struct.Struct("<8siii")
BATCH_TOKENS = 512
BLOCK_TOKENS = 32  # of OpenVINO's paged cache on a CPU


def read_chunks(path):
    """int32 [chunks][ctx] of a base file."""
    with pathlib.Path(path).open("rb") as file:
        head = file.read(HEAD.size)
        if len(head) < HEAD.size or head[:8] != b"_logits_":
            raise ValueError(f"{path} is not a file of base logits: it does not begin with '_logits_'")
        _, ctx, _, chunks = HEAD.unpack(head)
        tokens = numpy.fromfile(file, dtype="<i4", count=ctx * chunks)
    if len(tokens) != ctx * chunks:
        raise ValueError(f"{path} ends inside its tokens")
    return tokens.reshape(chunks, ctx)


def log_softmax(logits):
    """float32 [rows][vocab]."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - numpy.log(numpy.exp(shifted).sum(axis=1, keepdims=True))


def kl_nats(base, tested):
    """KL(base || tested) of each row; log probabilities [rows][vocab]."""
    return (numpy.exp(base) * (base - tested)).sum(axis=1, dtype=numpy.float64)


def scored(ctx):
    """Positions whose predictions count: the second half, less the last, which has no next token."""
    return range(ctx // 2, ctx - 1)


class LlamaCpp:
    base = "f16"

    def __init__(self, model, cache, threads, ctx):
        import llama_cpp
        from worker_llama_cpp import LlamaCpp as Worker
        self.api, self.worker = llama_cpp, Worker(model, cache, threads, ctx)
        self.vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.worker.model))
        self.about = self.worker.about()

    def logits(self, tokens, keep):
        """float32 [len(keep)][vocab] of one chunk, read from an empty cache."""
        api, context = self.api, self.worker.context
        api.llama_memory_clear(self.worker.memory, True)
        kept = []
        for first in range(0, len(tokens), BATCH_TOKENS):
            part = tokens[first:first + BATCH_TOKENS]
            batch = api.llama_batch_init(len(part), 0, 1)
            batch.n_tokens = len(part)
            for i, token in enumerate(part):
                batch.token[i], batch.pos[i] = int(token), first + i
                batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = 1, 0, first + i in keep
            failed = api.llama_decode(context, batch)
            api.llama_batch_free(batch)
            if failed:
                raise RuntimeError(f"llama_decode failed with {failed}")
            kept += [self._row(api.llama_get_logits_ith(context, i))
                     for i in range(len(part)) if first + i in keep]
        return numpy.stack(kept)

    def _row(self, pointer):
        return numpy.ctypeslib.as_array(pointer, shape=(self.vocab,)).copy()


class IkLlama:
    """Its wheel binds batches that keep the last token's logits only, so tokens are read one by one."""

    base = "f16"

    def __init__(self, model, cache, threads, ctx):
        import worker_ik_llama
        self.api, self.library = worker_ik_llama.api, worker_ik_llama.library
        self.worker = worker_ik_llama.IkLlama(model, cache, threads, ctx)
        self.vocab = self.worker.model.n_vocab
        self.about = self.worker.about()

    def logits(self, tokens, keep):
        self.library.llama_kv_cache_seq_rm(self.worker.context, 0, 0, -1)
        kept = []
        for position, token in enumerate(tokens):
            self.worker._evaluate([int(token)], position)
            if position in keep:
                row = self.api.llama_get_logits_ith(self.worker.context, -1)
                kept.append(numpy.ctypeslib.as_array(row, shape=(self.vocab,)).copy())
        return numpy.stack(kept)


class OpenVino:
    """Its pipeline keeps the logits to itself, so this runs what is inside it: the graph that it makes of a GGUF file,
    with paged attention. The caches are inputs there, and their types and shapes say what a token takes."""

    base = "bf16"

    def __init__(self, model, cache, threads, ctx):
        import openvino
        from worker_openvino import precisions
        with tempfile.TemporaryDirectory() as folder:
            graph = self._graph(openvino.Core(), pathlib.Path(model).resolve(), pathlib.Path(folder))
            compiled = openvino.Core().compile_model(graph, "CPU",
                                                     {"INFERENCE_NUM_THREADS": threads, **precisions(cache)})
        self.request = compiled.create_infer_request()
        self.blocks = -(-ctx // BLOCK_TOKENS)
        cache_bytes = 0
        for port in compiled.inputs:
            if "_cache." in port.get_any_name():
                shape = [self.blocks, *(size.get_length() for size in list(port.partial_shape)[1:])]
                tensor = openvino.Tensor(port.element_type, openvino.Shape(shape))
                self.request.set_tensor(port, tensor)
                cache_bytes += tensor.byte_size
        self.about = {"version": version("openvino-genai"),
                      "bytes_a_token": cache_bytes // (self.blocks * BLOCK_TOKENS)}

    @staticmethod
    def _graph(core, model, folder):
        import openvino_genai
        from openvino._offline_transformations import paged_attention_transformation
        (folder / "model.gguf").symlink_to(model)
        openvino_genai.LLMPipeline(folder / "model.gguf", "CPU", ATTENTION_BACKEND="SDPA", enable_save_ov_model=True)
        graph = core.read_model(folder / "openvino_model.xml")  # saved beside the file
        paged_attention_transformation(graph)
        return graph

    def logits(self, tokens, keep):
        return numpy.concatenate([self._read(tokens, first, keep) for first in range(0, len(tokens), BATCH_TOKENS)])

    def _read(self, tokens, first, keep):
        end = min(first + BATCH_TOKENS, len(tokens))
        inputs = {"past_lens": [first], "subsequence_begins": [0, end - first], "block_indices": range(self.blocks),
                  "block_indices_begins": [0, self.blocks], "max_context_len": end}
        result = self.request.infer({"input_ids": numpy.array(tokens[first:end], dtype=numpy.int64),
                                     "position_ids": numpy.arange(first, end, dtype=numpy.int64),
                                     **{name: numpy.array(value, dtype=numpy.int32) for name, value in inputs.items()}})
        return result["logits"][[i - first for i in keep if first <= i < end], 0]


class OnnxRuntime:
    """It hands out the last token's logits only, so tokens are read one by one from the first position that counts."""

    base = "f32"

    def __init__(self, model, cache, threads, ctx):
        from worker_onnxruntime import OnnxRuntime as Worker
        self.generator = Worker(str(engines.onnx_folder(model, cache, sys.executable)), cache, threads, ctx).generator
        self.about = {"version": version("onnxruntime-genai")}

    def logits(self, tokens, keep):
        self.generator.rewind_to(0)
        tokens = numpy.array(tokens, dtype=numpy.int32)
        for first in range(0, keep[0], BATCH_TOKENS):
            self.generator.append_tokens(tokens[first:min(first + BATCH_TOKENS, keep[0])])
        kept = []
        for position in keep:
            self.generator.append_tokens(tokens[position:position + 1])
            kept.append(self.generator.get_logits().reshape(-1).astype(numpy.float32))
        return numpy.stack(kept)


ENGINES = {"llama.cpp": LlamaCpp, "ik_llama.cpp": IkLlama, "openvino": OpenVino, "onnxruntime": OnnxRuntime}


def measure(engine, model, caches, chunks, threads):
    """One line a cache; the first is what the others are compared with."""
    keep = scored(chunks.shape[1])
    base = None
    for cache in caches:
        peer = ENGINES[engine](model, cache, threads, chunks.shape[1])
        rows = [log_softmax(peer.logits(chunk, keep)) for chunk in chunks]
        if base is None:
            base = rows
            continue
        kl = numpy.concatenate([kl_nats(b, t) for b, t in zip(base, rows)])
        same = numpy.concatenate([b.argmax(axis=1) == t.argmax(axis=1) for b, t in zip(base, rows)])
        yield {"engine": engine, "version": peer.about["version"], "cache": cache, "base": caches[0],
               **{name: peer.about[name] for name in ("bytes_a_token",) if name in peer.about},
               "positions": len(kl), "kl_mean_nats": kl.mean(), "kl_median_nats": float(numpy.median(kl)),
               "kl_p99_nats": float(numpy.quantile(kl, 0.99)), "same_top1_pct": 100 * same.mean()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--base", required=True, help="a file of `kvant eval --write-base`")
    parser.add_argument("--engine", choices=sorted(ENGINES), default="llama.cpp")
    parser.add_argument("--caches", default="q8_0,q4_0", help="cache types, K/V as two [%(default)s]")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--bos", type=int, help="token that takes the first place of each chunk")
    options = parser.parse_args()
    try:
        chunks = read_chunks(options.base)
    except (OSError, ValueError) as error:
        sys.exit(f"quality.py: {error}")
    if options.bos is not None:
        chunks[:, 0] = options.bos
    caches = [ENGINES[options.engine].base, *options.caches.split(",")]
    for row in measure(options.engine, options.model, caches, chunks, options.threads):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
