"""The loop that all peers share: one engine with one cache, doing what the driver asks, one line each.

A peer is a class with
    __init__(model, cache, threads, context_tokens)
    about()             what the figures depend on: version, precision, ...
    fill(depth)         extends the cache to `depth` tokens
    prompt(count)       reads `count` more tokens, then the cache is as deep as before
    decode(count)       decodes `count` tokens, one at a time, then the cache is as deep as before
The last three return nanoseconds; the driver is told for how many tokens. Restoring the depth is never part of them.
"""

import argparse
import json
import os
import random
import re
import sys
import time


class Tokens:
    """Random tokens below any vocabulary's end and above its control tokens; the same for every engine."""

    def __init__(self, seed):
        self._random = random.Random(seed)

    def take(self, count):
        return [self._random.randrange(100, 40000) for _ in range(count)]


def elapsed_ns(function):
    begin = time.perf_counter_ns()
    function()
    return time.perf_counter_ns() - begin


def features_in(system_info):
    """"AVX2 AVX512" out of "CPU : AVX2 = 1 | AVX512 = 1 | SVE = 0 |"."""
    return " ".join(re.findall(r"(\w+) = 1", system_info))


class CachePeer:
    """A peer whose cache can be cut back: it has `depth`, _read(count, chunk) in nanoseconds, and _return() to depth."""

    def fill(self, depth):
        taken = self._read(depth - self.depth, 512)
        self.depth = depth
        return taken

    def prompt(self, count):
        return self._pass_over(count, 512)

    def decode(self, count):
        return self._pass_over(count, 1)

    def _pass_over(self, count, chunk):
        taken = self._read(count, chunk)
        self._return()
        return taken


def serve(peer_class):
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--cache", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--context-tokens", type=int, required=True)
    options = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the engine prints is no answer

    def answer(**fields):
        print(json.dumps(fields), file=answers, flush=True)

    try:
        peer = peer_class(options.model, options.cache, options.threads, options.context_tokens)
        filled = 8
        peer.fill(filled)  # pages the weights in
        peer.decode(2)
        answer(about=peer.about())
        for line in sys.stdin:
            request = json.loads(line)
            ns, tokens = getattr(peer, request["do"])(request["tokens"]), request["tokens"]
            if request["do"] == "fill":
                filled, tokens = tokens, tokens - filled
            answer(ns=ns, tokens=tokens)
    except Exception as error:  # the driver goes on without this engine, and says why
        answer(error=" ".join(f"{type(error).__name__}: {error}".split())[:400])
        raise
