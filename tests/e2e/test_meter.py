"""kvant meter and kvant roofline: what they print agrees with itself, and refusals name their cause."""

import pathlib

import pytest
from command_line import assert_refused, json_of, kvant, output_of

LLAMA3 = ["--shape", "32,8,128,32", "--parameters", 8.03e9]


def steps(*args):
    return json_of("roofline", "--device", "H200", *LLAMA3, *args, "--json")["steps"]


def test_roofline_adds_up_and_names_the_larger_part():
    for step in steps("--kernel", "all"):
        assert step["kv_ms"] == max(step["kv_read_ms"], step["kv_compute_ms"])
        assert step["total_ms"] == pytest.approx(step["weight_ms"] + step["kv_ms"])
        kv_binds = step["kv_ms"] >= step["weight_ms"]
        assert ("KV" in step["bound"]) == kv_binds, step
        assert (step["equal_context_tokens"] <= step["context_tokens"]) == kv_binds


def test_roofline_batch_and_context_move_the_limit():
    few, many = steps("--batch", "1,64", "--kv", "f16", "-c", 32768)
    assert few["bound"] == "reading weights" and many["bound"] == "reading KV"
    assert many["kv_ms"] == pytest.approx(64 * few["kv_ms"])
    assert not many["fits"]
    crossing = round(many["equal_context_tokens"])
    below, above = steps("--batch", 64, "--kv", "f16", "-c", f"{crossing - 9},{crossing + 9}")
    assert (below["bound"], above["bound"]) == ("reading weights", "reading KV")


def test_roofline_fastest_is_of_all_and_speed_up_is_against_f16():
    fastest = steps("--batch", 64, "--kv", "int4:g128", "-c", 32768)
    every = steps("--batch", 64, "--kv", "int4:g128", "-c", 32768, "--kernel", "all")
    assert len(fastest) == 1 and len(every) == 3
    assert fastest[0]["total_ms"] == min(step["total_ms"] for step in every)
    (f16,) = steps("--batch", 64, "--kv", "f16", "-c", 32768)
    assert fastest[0]["speed_up"] == pytest.approx(f16["total_ms"] / fastest[0]["total_ms"])


def test_roofline_budgets_are_the_devices_own():
    device = json_of("roofline", "--device", "h200", *LLAMA3, "--json")["device"]
    per_byte = device["multiprocessors"] * 128 * device["clock_GHz"] / device["read_GBps"]
    assert device["issue_budget_per_byte"] == pytest.approx(per_byte) == pytest.approx(6.97, abs=0.01)


def test_roofline_check_prints_predicted_beside_measured():
    for step in json_of("roofline", "--check", "--json"):
        assert step["predicted_ms"] / step["measured_ms"] == pytest.approx(1, abs=0.2)
    assert "predicted ms" in output_of("roofline", "--check")


@pytest.mark.parametrize("args, words", [
    (["roofline"], ["--device"]),
    (["roofline", "--device", "h100"], ["--shape"]),
    (["roofline", "--device", "abacus", *LLAMA3], ["abacus", "b200"]),
    (["roofline", "--device", "h100", *LLAMA3, "--kernel", "best"], ["'best'", "tensor"]),
    (["roofline", "--device", "h100", *LLAMA3, "--kv", "int3"], ["int3", "widths"]),
    (["meter"], ["file"]),
    (["meter", "x.cubin", "--arch", "sm_eighty"], ["--arch", "eighty"]),
    (["meter", "x.cubin", "--bytes-per-iteration", "0"], ["--bytes-per-iteration"]),
])
def test_wrong_usage_is_refused(args, words):
    assert_refused(kvant(*args), 2, *words)


def test_meter_refuses_what_is_no_machine_code(tmp_path):
    text = tmp_path / "a b;c.cubin"
    text.write_text("no cubin")
    done = kvant("meter", text)
    message = done.stderr.decode()
    assert done.returncode == 1 and message.count("\n") == 1
    assert "cubin" in message or "nvdisasm" in message  # not one, or nothing to read it with
    assert list(tmp_path.iterdir()) == [pathlib.Path(text)]
