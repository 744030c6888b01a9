"""The comparison's own arithmetic, and its turns with kvant and with a peer that is a few lines of Python."""

import json
import os
import pathlib
import sys
import time
import types

import pytest

import compare
import engines
import machine
import report

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "models" / "smollm2-135m-instruct-q4_1.gguf"
KVANT = os.environ.get("KVANT_CLI", ROOT / "build" / "release" / "kvant")


def samples(engine, depth, values, work="decode"):
    return [{"engine": engine, "work": work, "depth": depth, "round": i, "ns_per_token": value}
            for i, value in enumerate(values)]


def test_a_slow_round_that_hits_both_engines_leaves_their_ratio_alone():
    own = samples("a", 8, [10, 11, 100, 10]) + samples("b", 8, [30, 33, 300, 30])
    rows = report.summarise(own, ["a", "b"], [8], "a")
    ratio = rows[1]["depths"][8]["decode_ratio"]
    assert ratio == {"of_medians": 3, "p25": 3, "p75": 3, "n": 4}


def test_ratios_pair_only_rounds_that_both_engines_have():
    own = samples("a", 8, [10, 20]) + samples("b", 8, [30, 40, 90])
    ratio = report.summarise(own, ["a", "b"], [8], "a")[1]["depths"][8]["decode_ratio"]
    assert (ratio["n"], ratio["p25"], ratio["p75"]) == (2, 2.25, 2.75)
    assert ratio["of_medians"] == pytest.approx(40 / 15)
    assert report.summarise(own, ["b"], [8], "c")[0]["depths"][8]["decode_ratio"] is None


def test_slope_is_the_time_a_cached_token_adds_and_ignores_prompts():
    own = samples("a", 1024, [1_000_000] * 3) + samples("a", 8192, [1_000_000 + 7168 * 250] * 3)
    own += samples("a", 8192, [5] * 3, work="prompt")
    assert report.slope(own, "a")["of_medians"] == 250
    assert report.slope(own[:3], "a") is None


def test_rates_turn_the_spread_round_with_the_unit():
    assert report.rate(report.middle([1e6, 2e6, 4e6])) == "500 (333–667)"
    assert report.rate(report.middle([2e6])) == "500"
    assert report.rate(None) == "–"


def test_stolen_time_is_no_work_and_waiting_is_none_either():
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    busy_s, steal_s = machine.core_times("cpu  1000 50 200 9000 100 5 10 20 700 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n")
    assert busy_s == pytest.approx(1265 * tick_s)
    assert steal_s == pytest.approx(20 * tick_s)


def state(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def fake(tmp_path, code):
    script = tmp_path / "fake.py"
    script.write_text("import json, sys\n" + code)
    return engines.Process([sys.executable, script], tmp_path / "log", 60)


def test_a_worker_that_is_not_asked_does_not_run(tmp_path):
    process = fake(tmp_path, "for line in sys.stdin:\n    print(json.dumps({'got': line.strip()}), flush=True)\n")
    try:
        assert process.ask("one") == {"got": "one"}
        deadline = time.monotonic() + 10  # the signal takes a moment to arrive
        while state(process.process.pid) not in "Tt":
            assert time.monotonic() < deadline, "still running"
        assert process.ask("two") == {"got": "two"}
    finally:
        process.close()


def test_a_worker_that_dies_says_why(tmp_path):
    process = fake(tmp_path, "sys.exit('no such cache type')\n")
    with pytest.raises(engines.EngineFailed, match="code 1: no such cache type"):
        process.ask(None)


def test_an_engine_that_is_not_installed_is_left_out_aloud(capsys):
    plan = types.SimpleNamespace(engines=["openvino:u4", "kvant:int4", "abacus:int4"], model=MODEL,
                                 kvant="/nowhere/kvant", depths=[8], prompt_tokens=0, answer_tokens=1, threads=1,
                                 rounds=1, timeout_s=60)
    comparison = compare.Comparison(plan, None)
    assert comparison.running == {}
    said = capsys.readouterr().out
    assert "openvino:u4: left out: the package openvino_genai is not installed" in said
    assert "/nowhere/kvant is not built" in said and "no such engine" in said


def test_two_caches_of_kvant_take_turns_on_a_real_model(tmp_path):
    compare.main(["-m", str(MODEL), "--kvant", str(KVANT), "--engines", "kvant:f16,kvant:int4,openvino:u4",
                  "-d", "16,24", "-p", "8", "-n", "2", "-r", "2", "-o", str(tmp_path / "out")])
    result = json.loads((tmp_path / "out.json").read_text())
    order = [(s["depth"], s["work"], s["round"], s["engine"]) for s in result["samples"] if s["depth"] == 16]
    f16, int4 = "kvant:f16", "kvant:int4"
    assert order == [(16, "fill", 0, f16), (16, "fill", 0, int4),
                     (16, "prompt", 0, f16), (16, "prompt", 0, int4), (16, "prompt", 1, int4), (16, "prompt", 1, f16),
                     (16, "decode", 0, f16), (16, "decode", 0, int4), (16, "decode", 1, int4), (16, "decode", 1, f16)]
    assert all(s["ns_per_token"] > 0 for s in result["samples"])
    assert result["engines"][int4]["isa"] and len(result["engines"][int4]["model_xxh64"]) == 16
    assert set(result["left_out"]) == {"openvino:u4"}
    text = (tmp_path / "out.md").read_text()
    assert "| kvant:int4 |" in text and "package openvino_genai is not installed" in text
