"""Runs the command line for the tests beside it.

The program is build/release/kvant, or the most recently built preset, or what KVANT_CLI names.
"""

import json
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "models" / "smollm2-135m-instruct-q4_1.gguf"
TEXT = ROOT / "models" / "austen.txt"


def program():
    if "KVANT_CLI" in os.environ:
        return os.environ["KVANT_CLI"]
    presets = ("release", "dev", "asan-ubsan", "tsan", "scalar-only")
    built = [path for preset in presets if (path := ROOT / "build" / preset / "kvant").exists()]
    assert built, "kvant is not built: cmake --preset release && cmake --build --preset release"
    return str(max(built, key=lambda path: path.stat().st_mtime))


KVANT = program()


def kvant(*args, stdin=None, env=None):
    return subprocess.run([KVANT, *map(str, args)], input=stdin, capture_output=True, timeout=600,
                          env={**os.environ, **(env or {})})


def output_of(*args):
    done = kvant(*args)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def json_of(*args):
    return json.loads(output_of(*args))


def assert_refused(done, code, *words):
    """Exit code, nothing on standard output, and one sentence that names the cause."""
    message = done.stderr.decode()
    assert done.returncode == code, message
    assert done.stdout == b""
    assert message.startswith("kvant: ") and message.count("\n") == 1, message
    for word in words:
        assert word in message, message
