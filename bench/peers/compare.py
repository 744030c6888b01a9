#!/usr/bin/env python3
"""Speed of kvant and of other engines on one model file, in turns, with ratios of medians.

Every engine is a process of its own that holds its cache. At each depth all of them fill their caches, then
each round gives every engine one turn at a prompt, and then one turn at decoding, while the others are
stopped; the first of a round is another one each time. So a slow moment of the machine hits all of them.
An engine that is not installed, fails or would take too long is left out, and the report says why.
"""

import argparse
import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import engines
import report
from machine import LoadMeter, cpu_name, wait_until_quiet

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEFAULT_ENGINES = ("kvant:int4,kvant:int8,kvant:f16,llama.cpp:f16,llama.cpp:q8_0,llama.cpp:q4_0,ik_llama.cpp:f16,"
                   "ik_llama.cpp:q8_KV/q4_0,ik_llama.cpp:q4_0+h,openvino:bf16,openvino:u8,openvino:u4,"
                   "onnxruntime:f32,onnxruntime:int4,transformers:f32,transformers:quanto4")


def install(venv):
    """Makes the environment if there is none; returns its python."""
    python = venv / "bin" / "python"
    if python.exists():
        return python
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    for line in (engines.HERE / "requirements.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            print(f"installing {line}", flush=True)
            if subprocess.run([python, "-m", "pip", "install", "-q", *line.split()], check=False,
                              env={**os.environ, "CMAKE_ARGS": "-DGGML_NATIVE=ON"}).returncode:
                print(f"did not install: {line}", flush=True)
    return python


class Comparison:
    def __init__(self, options, python):
        self.options = options
        self.samples = []
        self.left_out = {}
        self.running = {}
        self.about = {}
        self.ended_cpu_s = 0.0
        logs = pathlib.Path(tempfile.mkdtemp(prefix="kvant-peers-"))
        for spec in options.engines:
            try:
                log = logs / (spec.replace("/", "_").replace(":", "_") + ".log")
                self.running[spec] = engines.start(spec, str(options.model), options, str(options.kvant), python, log)
            except engines.EngineFailed as why:
                self.leave_out(spec, str(why))

    def leave_out(self, spec, why):
        print(f"{spec}: left out: {why}", flush=True)
        self.left_out[spec] = why
        if spec in self.running:
            self.end(spec)

    def end(self, spec):
        engine = self.running.pop(spec)
        self.ended_cpu_s += engine.process.cpu_s()
        self.about[spec] = engine.about
        engine.process.close()

    def own_cpu_s(self):
        return time.process_time() + self.ended_cpu_s + sum(e.process.cpu_s() for e in self.running.values())

    def turn(self, spec, work, tokens, depth, round_number):
        wait_until_quiet(self.options.wait_s)
        meter = LoadMeter(self.own_cpu_s)
        try:
            ns, count = self.running[spec].do(work, tokens)
        except engines.EngineFailed as why:
            return self.leave_out(spec, f"{work} at depth {depth}: {why}")
        sample = {"engine": spec, "work": work, "depth": depth, "round": round_number, "ns_per_token": ns / count,
                  **meter.read()}
        self.samples.append(sample)
        print(f"{depth:6} {work:6} {round_number:2} {spec:26} {ns / count / 1e6:10.3f} ms a token "
              f"({sample['disturbed_pct']:.0f} % others)", flush=True)
        return None

    def fill(self, spec, depth, missing):
        """Left out if the fill would take too long, judged by its last fill; deeper ones are slower still."""
        last = [s["ns_per_token"] for s in self.samples if s["engine"] == spec and s["work"] == "fill"]
        if last and last[-1] * missing > self.options.fill_limit_s * 1e9:
            self.leave_out(spec, f"filling to {depth} tokens would take over {self.options.fill_limit_s} s")
        else:
            self.turn(spec, "fill", depth, depth, 0)

    def rounds(self, work, tokens, depth):
        for number in range(self.options.rounds if tokens else 0):
            specs = list(self.running)
            first = number % max(1, len(specs))
            for spec in specs[first:] + specs[:first]:
                self.turn(spec, work, tokens, depth, number)

    def run(self):
        filled = 0
        for depth in self.options.depths:
            for spec in list(self.running):
                self.fill(spec, depth, depth - filled)
            filled = depth
            self.rounds("prompt", self.options.prompt_tokens, depth)
            self.rounds("decode", self.options.answer_tokens, depth)

    def close(self):
        for spec in list(self.running):
            self.end(spec)


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", type=pathlib.Path, default=ROOT / "models/smollm2-135m-instruct-q4_1.gguf")
    parser.add_argument("--kvant", type=pathlib.Path, default=ROOT / "build/release/kvant", help="the program")
    parser.add_argument("--venv", type=pathlib.Path, help="environment of the peers; made if there is none")
    parser.add_argument("--engines", type=lambda text: text.split(","), default=DEFAULT_ENGINES.split(","),
                        help=f"engine:cache, a list [{DEFAULT_ENGINES}]")
    parser.add_argument("--reference", help="what ratios refer to [the first engine]")
    parser.add_argument("-d", "--depths", type=lambda text: sorted({int(d) for d in text.split(",")}),
                        default=[128, 1024, 4096, 8192], help="cached tokens, a list [128,1024,4096,8192]")
    parser.add_argument("-p", "--prompt-tokens", type=int, default=512, help="of the prompt at a depth, 0: none [512]")
    parser.add_argument("-n", "--answer-tokens", type=int, default=32, help="decoded in a turn [32]")
    parser.add_argument("-r", "--rounds", type=int, default=5, help="turns of every engine [5]")
    parser.add_argument("-t", "--threads", type=int, default=os.cpu_count())
    parser.add_argument("--fill-limit-s", type=float, default=300, help="longest fill of a cache [300]")
    parser.add_argument("--wait-s", type=float, default=0, help="before a turn, wait so long for a quiet machine [0]")
    parser.add_argument("--drop-above-pct", type=float, default=100,
                        help="drop turns in which others took more of the cores, stolen time included [100]")
    parser.add_argument("--timeout-s", type=float, default=1800, help="longest wait for one answer [1800]")
    parser.add_argument("-o", "--output", type=pathlib.Path, default=pathlib.Path("peers"),
                        help="writes OUTPUT.md and OUTPUT.json [peers]")
    options = parser.parse_args(arguments)
    if min(options.depths) < 1:
        parser.error("a depth of 0 has no cache to fill: depths begin at 1")
    if options.depths[0] < 1:
        parser.error("depths begin at 1: every engine has something in its cache")
    if not options.model.exists():
        parser.error(f"no model {options.model}")
    options.reference = options.reference or options.engines[0]
    return options


def main(arguments=None):
    options = parse(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):  # both end a run in the background too, with a report
        signal.signal(number, signal.default_int_handler)
    python = install(options.venv) if options.venv else None
    load_average = os.getloadavg()[0]
    comparison = Comparison(options, python)
    meter = LoadMeter(comparison.own_cpu_s)
    try:
        comparison.run()
    except KeyboardInterrupt:
        print("interrupted: the report has what was measured so far", flush=True)
    finally:
        load = meter.read()
        comparison.close()
    kept = [s for s in comparison.samples if s["disturbed_pct"] <= options.drop_above_pct]
    measured = [spec for spec in options.engines if any(s["engine"] == spec for s in comparison.samples)]
    result = {
        "model": options.model.name, "model_sha256": hashlib.sha256(options.model.read_bytes()).hexdigest(),
        "cpu": cpu_name(), "threads": options.threads, "rounds": options.rounds, "depths": options.depths,
        "prompt_tokens": options.prompt_tokens, "answer_tokens": options.answer_tokens,
        "reference": options.reference, "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "load": load,
        "load_average_begin": load_average, "load_average_end": os.getloadavg()[0],
        "engines": {spec: comparison.about[spec] for spec in measured if comparison.about.get(spec)},
        "left_out": comparison.left_out,
        "dropped_turns": len(comparison.samples) - len(kept), "drop_above_pct": options.drop_above_pct,
        "summary": report.summarise(kept, measured, options.depths, options.reference),
        "samples": comparison.samples,
    }
    text = report.markdown(result)
    pathlib.Path(f"{options.output}.json").write_text(json.dumps(result, indent=1) + "\n")
    pathlib.Path(f"{options.output}.md").write_text(text)
    print("\n" + text)


if __name__ == "__main__":
    main()
