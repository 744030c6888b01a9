"""kvant eval as a user meets it."""

import math
import struct

import pytest

from command_line import MODEL, TEXT, assert_refused, json_of, kvant, output_of


def test_eval_modes_agree_and_greedy_is_counted():
    report = json_of("eval", "-m", MODEL, "-f", TEXT, "--kv", "int4", "--ctx", "256", "--tokens", 64, "--mode", "both",
                     "--greedy", 2, "--greedy-tokens", 8, "--json")
    prefill, decode = report["contexts"]
    assert (prefill["mode"], decode["mode"]) == ("prefill", "decode")
    assert prefill["mean_nll"] == pytest.approx(decode["mean_nll"], abs=1e-6)
    assert prefill["mean_kl"] > 0 and prefill["max_kl"] >= prefill["p99_kl"] >= prefill["median_kl"]
    assert prefill["ppl"] == pytest.approx(math.exp(prefill["mean_nll"]))
    assert prefill["effective_bits"] < prefill["effective_bits_base"] or prefill["ctx"] < 512
    assert len(report["greedy"]["first_divergence"]) == 2


def test_eval_of_a_cache_against_itself_finds_nothing():
    report = json_of("eval", "-m", MODEL, "-f", TEXT, "--kv", "f16", "--ctx", "128", "--tokens", 64, "--greedy", 1,
                     "--greedy-tokens", 4, "--json")
    (context,) = report["contexts"]
    assert context["max_kl"] == 0 and context["same_top1"] == 1 and context["ppl_ratio"] == 1
    assert report["greedy"]["share_equal"] == 1


def eval_json(*args):
    return json_of("eval", "-m", MODEL, "--greedy", 0, "--json", *args)


def test_eval_prints_the_noise_floor_beside_the_loss():
    (context,) = eval_json("-f", TEXT, "--kv", "q4_0", "--ctx", 256, "--tokens", 64, "--activations", "f32")["contexts"]
    assert 0 < context["floor_kl"] < 1e-4 < context["mean_kl"]
    assert context["floor_p99_kl"] < context["p99_kl"] <= context["p999_kl"] <= context["max_kl"]
    assert all(bucket["floor_kl"] > 0 for bucket in context["by_position"])
    (context,) = eval_json("-f", TEXT, "--ctx", 128, "--tokens", 8, "--no-floor")["contexts"]
    assert context["floor_kl"] is None
    (context,) = eval_json("-f", TEXT, "--ctx", 128, "--tokens", 8, "--base", "f32")["contexts"]
    assert context["floor_kl"] is None


def test_eval_of_several_caches_is_one_table_and_one_report(tmp_path):
    page = tmp_path / "report.html"
    report = json_of("eval", "-m", MODEL, "-f", TEXT, "--kv", "f16,q8_0,q4_0", "--ctx", "256,320", "--tokens", 16,
                     "--report", page, "--json")
    assert [(c["ctx"], c["preset"]) for c in report["contexts"]] == [
        (ctx, preset) for ctx in (256, 320) for preset in ("f16", "q8_0", "q4_0")]
    assert [test["bytes_per_token"] for test in report["tests"]] == [23040, 12240, 6480]
    assert all(test["ns_per_cached_token"] > 0 and test["greedy"] is None for test in report["tests"])
    html = page.read_text()
    assert html.count("<svg") == 2 * 2 + 30  # bits and positions of each context, channels of each layer
    assert "<script" not in html and "http" not in html and "q4_0" in html
    alone = eval_json("-f", TEXT, "--kv", "q4_0", "--ctx", 320, "--tokens", 16)
    assert alone["contexts"][0]["mean_kl"] == report["contexts"][5]["mean_kl"]


def test_eval_takes_lists_of_sinks_and_windows():
    report = eval_json("-f", TEXT, "--kv", "tq2,int2:token:had:clip92", "--kv-sinks", "0,16", "--kv-window", "0,128",
                       "--ctx", 256, "--tokens", 16, "--no-speed", "--no-floor")
    assert [(t["preset"], t["kv_sinks_tokens"], t["kv_window_tokens"]) for t in report["tests"]] == [
        ("tq2@0+0", 0, 0), ("int2:token:had:clip92@0+0", 0, 0),
        ("tq2@16+128", 16, 128), ("int2:token:had:clip92@16+128", 16, 128)]
    kl = [c["mean_kl"] for c in report["contexts"]]
    assert kl[0] > kl[2] > 0 and kl[1] > kl[3] > 0
    one = eval_json("-f", TEXT, "--kv", "tq2", "--kv-window", "64,128", "--ctx", 64, "--tokens", 2, "--no-speed")
    assert [t["preset"] for t in one["tests"]] == ["tq2@4+64", "tq2@4+128"]


def test_eval_sweeps_every_preset():
    report = eval_json("-f", TEXT, "--sweep", "--no-speed", "--no-floor", "--ctx", 64, "--tokens", 2)
    names = [test["preset"] for test in report["tests"]] + [skipped["preset"] for skipped in report["skipped"]]
    assert len(set(names)) == len(names) >= 7 and {"f16", "int8", "int4", "int2"} <= set(names)
    assert len(report["contexts"]) == len(report["tests"])
    assert all(test["ns_per_cached_token"] is None for test in report["tests"])


def test_eval_writes_and_reads_a_base_file(tmp_path):
    base = tmp_path / "base.kld"
    made = eval_json("-f", TEXT, "--kv", "q4_0", "--ctx", 64, "--tokens", 60, "--write-base", base)["contexts"][0]
    assert made["tokens"] == 62  # two whole chunks
    data = base.read_bytes()
    ctx, vocab, chunks = struct.unpack_from("<iii", data, 8)
    assert (data[:8], ctx, vocab, chunks) == (b"_logits_", 64, 49152, 2)
    assert len(data) == 20 + 4 * 128 + 62 * (8 + 2 * 49152)
    step, least = struct.unpack_from("<ff", data, 20 + 4 * 128)
    codes = struct.unpack_from("<49152H", data, 20 + 4 * 128 + 8)
    assert sum(math.exp(least + step * code) for code in codes if code) == pytest.approx(1, abs=0.01)
    read = eval_json("--kv", "q4_0", "--read-base", base)["contexts"][0]
    assert read["mean_kl"] == pytest.approx(made["mean_kl"], rel=0.01) and read["mean_nll"] == made["mean_nll"]
    assert read["ctx"] == 64 and read["effective_bits_base"] is None and read["floor_kl"] < 1e-6

    def refused(code, *words, args=("-f", TEXT)):
        assert_refused(kvant("eval", "-m", MODEL, *args, "--read-base", base), code, *words)

    refused(2, "context of 64", args=("-f", TEXT, "--ctx", 128))
    other = tmp_path / "other.txt"
    other.write_text("Quite another text. " * 100)
    refused(2, "another text", args=("-f", other))
    base.write_bytes(data[:-1])
    refused(1, "base.kld", "cut")
    base.write_bytes(b"_logits_")
    refused(1, "base.kld")


@pytest.mark.parametrize("form, first", [("md", "| preset"), ("csv", "preset,"), ("jsonl", '{"preset":')])
def test_eval_rows_come_in_any_format(form, first):
    text = output_of("eval", "-m", MODEL, "-f", TEXT, "--kv", "q8_0", "--ctx", 64, "--tokens", 4, "--greedy", 0, "-o", form)
    assert text.startswith(first) and "q8_0" in text


def test_eval_text_shorter_than_the_context_is_refused(tmp_path):
    path = tmp_path / "short.txt"
    path.write_text("A few words.")
    assert_refused(kvant("eval", "-m", MODEL, "-f", path, "--ctx", 512), 1, "512")
