"""The engines that compare.py can run: what each needs, and a process that does what it is asked, line by line."""

import ctypes
import json
import os
import pathlib
import select
import signal
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
# name: its worker, the package without which there is none
PEERS = {
    "llama.cpp": ("worker_llama_cpp.py", "llama_cpp"),
    "ik_llama.cpp": ("worker_ik_llama.py", "ik_llama_cpp"),
    "openvino": ("worker_openvino.py", "openvino_genai"),
    "onnxruntime": ("worker_onnxruntime.py", "onnxruntime_genai"),
    "transformers": ("worker_transformers.py", "transformers"),
}
CONTEXT_SLACK_TOKENS = 256
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


class EngineFailed(Exception):
    """Why an engine takes no part, in one sentence."""


def die_with_parent():
    """A stopped process would otherwise outlive a driver that is killed, for ever."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Process:
    """A program that answers one JSON line to each line it gets, and sleeps in between: stopped by a signal,
    since the thread pools of some engines spin while they wait."""

    def __init__(self, command, log, timeout_s):
        self.timeout_s = timeout_s
        self.log = pathlib.Path(log)
        with self.log.open("wb") as errors:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                                            start_new_session=True, bufsize=0, preexec_fn=die_with_parent)
        self.signal(signal.SIGSTOP)
        self.rest = b""

    def signal(self, number):
        if self.process.poll() is None:
            os.killpg(self.process.pid, number)

    def ask(self, line):
        """Sends a line (None: only waits for what comes) and returns the answer."""
        self.signal(signal.SIGCONT)
        try:
            if line is not None:
                self.process.stdin.write(line.encode() + b"\n")
            return json.loads(self._read_line())
        except BrokenPipeError:
            raise EngineFailed(self._last_words()) from None
        finally:
            self.signal(signal.SIGSTOP)

    def _read_line(self):
        while b"\n" not in self.rest:
            if not select.select([self.process.stdout], [], [], self.timeout_s)[0]:
                raise EngineFailed(f"no answer within {self.timeout_s} s")
            more = self.process.stdout.read(1 << 16)
            if not more:
                raise EngineFailed(self._last_words())
            self.rest += more
        line, _, self.rest = self.rest.partition(b"\n")
        return line

    def _last_words(self):
        code = self.process.wait()
        lines = self.log.read_text(errors="replace").split("\n")
        said = next((line for line in reversed(lines) if line.strip()), "without a word")
        return f"ended with code {code}: {said.strip()[:300]}"

    def cpu_s(self):
        """Processor time of all its threads so far."""
        try:
            fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self):
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGKILL)
        self.process.wait()


def installed(package, python):
    look = f"import importlib.util, sys; sys.exit(importlib.util.find_spec('{package}') is None)"
    return subprocess.run([python, "-c", look], check=False).returncode == 0


class Peer:
    """Another engine: a worker in the environment that has its package."""

    def __init__(self, spec, model, plan, python, log):
        name, _, cache = spec.partition(":")
        worker, package = PEERS[name]
        if not python or not installed(package, python):
            raise EngineFailed(f"the package {package} is not installed")
        if name == "onnxruntime":
            model = onnx_folder(model, cache, python)
        context = plan.depths[-1] + max(plan.prompt_tokens, plan.answer_tokens + 1) + CONTEXT_SLACK_TOKENS
        self.process = Process([python, HERE / worker, "--model", model, "--cache", cache,
                                "--threads", str(plan.threads), "--context-tokens", str(context)], log, plan.timeout_s)
        self.about = None

    def _ask(self, line):
        answer = self.process.ask(line)
        if "error" in answer:
            raise EngineFailed(answer["error"])
        return answer

    def do(self, work, tokens):
        """`work` is fill (to `tokens`), prompt or decode; nanoseconds, and of how many tokens."""
        if self.about is None:
            self.about = self._ask(None)["about"]
        answer = self._ask(json.dumps({"do": work, "tokens": tokens}))
        return answer["ns"], answer["tokens"]


class Kvant:
    """kvant bench, which does its fixed sequence of fills, prompts and answers one line at a time."""

    def __init__(self, spec, model, plan, program, log):
        k, _, v = spec.partition(":")[2].partition("/")
        cache = ["-ctk", k, "-ctv", v] if v else ["--kv", k]
        self.process = Process([program, "bench", "-m", model, *cache, "-d", ",".join(map(str, plan.depths)),
                                "-p", str(plan.prompt_tokens), "-n", str(plan.answer_tokens), "-r", str(plan.rounds),
                                "-t", str(plan.threads), "--paced", "-o", "jsonl"], log, plan.timeout_s)
        self.about = None

    def do(self, work, tokens):
        row = self.process.ask("")
        if tokens not in (row["n_gen"], row["n_prompt"], row["n_depth"] + row["n_prompt"]):
            raise EngineFailed(f"did {row['test']} instead of a {work} of {tokens} tokens")
        self.about = {"version": row["version"], "note": f"{row['type_k']} / {row['type_v']}",
                      **{name: row[name] for name in ("commit", "isa", "model_xxh64", "read_bw_GBps")}}
        return row["samples_ns"][0], row["n_prompt"] + row["n_gen"]


def start(spec, model, plan, kvant, python, log):
    name = spec.partition(":")[0]
    if name == "kvant":
        if not pathlib.Path(kvant).exists():
            raise EngineFailed(f"{kvant} is not built")
        return Kvant(spec, model, plan, kvant, log)
    if name not in PEERS:
        raise EngineFailed(f"there is no such engine; there are kvant {' '.join(PEERS)}")
    return Peer(spec, model, plan, python, log)


def onnx_folder(model, cache, python):
    """The folder that prepare_onnx.py makes of a GGUF file, kept beside the environment's programs."""
    folder = pathlib.Path(python).parents[1] / "onnx" / f"{pathlib.Path(model).stem}-{cache}"
    if not (folder / "genai_config.json").exists():
        print(f"onnxruntime:{cache}: making {folder}, which takes some minutes", flush=True)
        done = subprocess.run([python, HERE / "prepare_onnx.py", model, cache, folder], capture_output=True, text=True,
                              check=False)
        if done.returncode:
            raise EngineFailed(f"prepare_onnx.py failed: {(done.stderr.strip().splitlines() or ['?'])[-1][:300]}")
    return folder
