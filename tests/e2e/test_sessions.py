"""Saved sessions and shifted contexts on the command line."""

import os
import resource
import signal
import subprocess

import pytest

from command_line import KVANT, MODEL, assert_refused, json_of, kvant, output_of

PROMPT = "It is a truth universally acknowledged, that a single man in possession of a good fortune"
GREEDY = ("--temp", 0, "--ignore-eos")


def run(*args):
    return json_of("run", "-m", MODEL, "--json", *args)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A run of 8 tokens that was saved, and its report."""
    path = tmp_path_factory.mktemp("saved") / "a.kv"
    return path, run("--kv", "int4", "-p", PROMPT, "-n", 8, *GREEDY, "--save-session", path)


@pytest.mark.parametrize("kv", ["int4", "f16", "kvquant4"])
def test_a_loaded_session_goes_on_where_the_saved_one_ended(kv, tmp_path):
    path = tmp_path / "a.kv"
    whole = run("--kv", kv, "-p", PROMPT, "-n", 24, *GREEDY)
    first = run("--kv", kv, "-p", PROMPT, "-n", 10, *GREEDY, "--save-session", path)
    then = run("--kv", kv, "-n", 14, *GREEDY, "--load-session", path, "--save-session", path)
    assert first["tokens"] + then["tokens"] == whole["tokens"]
    assert then["prompt_tokens"] == 0
    assert then["timeline_tokens"] == first["timeline_tokens"] + 14
    third = run("--kv", kv, "-n", 1, *GREEDY, "--load-session", path)
    assert third["timeline_tokens"] == whole["timeline_tokens"] + 1


def test_a_prompt_is_appended_to_a_loaded_session(saved):
    path, report = saved
    more = run("--kv", "int4", "-p", " Indeed.", "-n", 6, *GREEDY, "--load-session", path)
    assert more["timeline_tokens"] == report["timeline_tokens"] + more["prompt_tokens"] + 5


def test_inspect_shows_what_was_saved(saved):
    path, report = saved
    held = json_of("inspect", path, "--json")
    assert held["timeline_tokens"] == report["timeline_tokens"] == len(held["tokens"])
    assert held["tokens"][-8:] == report["tokens"]
    assert held["model_xxh64"] == report["model_xxh64"]
    assert held["formats"] == report["formats"]
    assert held["has_logits"] is True
    parts = sum(part["bytes"] for part in held["bytes_by_format"])
    parts += held["window_bytes"] + held["sink_bytes"] + held["other_bytes"]
    assert parts == held["session_bytes"] == path.stat().st_size
    text = output_of("inspect", path)
    for word in ("tq4:mean:bal:n8 / tq4:n8", "30 layers", held["model_xxh64"], "ready to go on"):
        assert word in text
    assert_refused(kvant("inspect", path, "--tensors"), 2, "--tensors")


def test_another_format_or_a_damaged_file_is_refused(saved, tmp_path):
    path, _ = saved
    load = ("run", "-m", MODEL, "-n", 1, "--load-session")
    assert_refused(kvant(*load, path, "--kv", "int3"), 2, str(path), "layer 0", "tq4:n8", "tq3:n8")
    assert_refused(kvant(*load, path, "--kv", "int4", "--kv-window", 128), 2, "window of 128")
    bad = bytearray(path.read_bytes())
    bad[len(bad) // 2] ^= 1
    (tmp_path / "bad.kv").write_bytes(bad)
    assert_refused(kvant(*load, tmp_path / "bad.kv", "--kv", "int4"), 1, "bad.kv", "layer", "damaged")
    assert_refused(kvant("inspect", tmp_path / "bad.kv"), 1, "bad.kv", "layer", "damaged")
    (tmp_path / "cut.kv").write_bytes(path.read_bytes()[:100000])
    assert_refused(kvant(*load, tmp_path / "cut.kv", "--kv", "int4"), 1, "layer", "bytes are left in the file")
    assert_refused(kvant(*load, MODEL), 1, "no saved session")
    assert_refused(kvant(*load, tmp_path / "none.kv"), 1, "none.kv", "no such file")


def test_a_session_of_another_model_is_refused(saved, tmp_path):
    path, report = saved
    other = bytearray(path.read_bytes())
    assert other[24:32] == bytes.fromhex(report["model_xxh64"])[::-1]
    gemma = MODEL.parent / "gemma3-270m-q4_k_m.gguf"
    if gemma.exists():
        done = kvant("run", "-m", gemma, "-n", 1, "--load-session", path, "--kv", "int4")
        assert_refused(done, 2, "another model", report["model_xxh64"])


def test_a_full_disk_leaves_the_old_file_whole(saved, tmp_path):
    path = tmp_path / "a.kv"
    path.write_bytes(saved[0].read_bytes())

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    done = subprocess.run(
        [KVANT, "run", "-m", MODEL, "--kv", "int4", "-n", "1", "--load-session", path, "--save-session", path],
        capture_output=True, preexec_fn=limit, timeout=600)
    assert done.returncode == 1
    assert "cannot be written: File too large" in done.stderr.decode()
    assert path.read_bytes() == saved[0].read_bytes()
    assert os.listdir(tmp_path) == ["a.kv"]


def test_where_nothing_can_be_saved_is_known_before_the_run(tmp_path):
    done = kvant("run", "-m", MODEL, "-p", "x", "-n", 1, "--save-session", tmp_path / "no" / "a.kv")
    assert_refused(done, 1, "a.kv")


# ---- Shifts


@pytest.mark.parametrize("kv,recodes", [("f16", False), ("int4", True), ("kvquant4", False)])
def test_a_shifted_context_goes_on(kv, recodes):
    report = run("--kv", kv, "-p", PROMPT, "-c", 256, "-n", 400, *GREEDY, "--context-shift", "--keep", 4)
    assert report["stop"] == "length" and len(report["tokens"]) == 400
    # 4 sinks stay, (256 - 4) / 2 in whole pages go.
    drop = 64
    cached = report["prompt_tokens"] + 399
    assert report["shifts"] == -(-(cached - 256) // drop)
    assert report["timeline_tokens"] == cached - report["shifts"] * drop
    assert (report["ledger"]["recoded_tokens"] > 0) == recodes
    assert report["ledger"]["tokens"] == report["timeline_tokens"]


def test_a_shifted_session_can_be_saved_and_goes_on(tmp_path):
    flags = ("--kv", "int4", "-c", 256, *GREEDY, "--context-shift")
    whole = run(*flags, "-p", PROMPT, "-n", 320)
    first = run(*flags, "-p", PROMPT, "-n", 290, "--save-session", tmp_path / "a.kv")
    assert first["ledger"]["tokens"] == first["timeline_tokens"]
    then = run(*flags, "-n", 30, "--load-session", tmp_path / "a.kv")
    assert then["tokens"] == whole["tokens"][290:]


def test_what_no_shift_can_do_is_refused():
    short = ("run", "-m", MODEL, "-p", PROMPT, "-n", 500, "--kv", "int4")
    assert_refused(kvant(*short, "-c", 128, "--context-shift"), 1, "128 tokens cannot drop")
    assert_refused(kvant(*short, "--keep", 5), 2, "--keep 5", "--context-shift")
    assert_refused(kvant(*short, "-c", 256), 1, "do not fit the context of 256")
