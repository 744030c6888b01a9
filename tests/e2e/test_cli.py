"""The command line as a user meets it: figures, exit codes, one sentence for every refusal.

eval and tasks: test_eval.py, test_tasks.py.
"""

import json
import os
import pty
import signal
import struct
import subprocess
import time

import pytest

from command_line import KVANT, MODEL, TEXT, assert_refused, json_of, kvant, output_of

GROUP = "0.42,-0.13,0.87,0.05,-0.28,0.61,0.17,-0.02"


# ---- explain


def explain(*args):
    return json_of("explain", "--shape", "32,32,128", "--context", 4096, "--kv", "int4:g128", "--device",
                   "a100-40gb", "--json", *args)


def test_explain_prices_a_llama2_cache():
    report = explain()
    f16, kv = report["f16"], report["kv"]
    assert (f16["bytes_per_token"], f16["bytes"], f16["effective_bits"]) == (524288, 2 * 2**30, 16)
    assert (kv["bytes_per_token"], kv["bytes"], kv["effective_bits"]) == (139264, 544 * 2**20, 4.25)
    assert f16["stream_ms"] == pytest.approx(2**31 / 1.55e12 * 1e3)
    assert kv["stream_ms"] == pytest.approx(0.368, abs=5e-4)
    assert report["ratio"] == pytest.approx(3.765, abs=5e-4)
    assert report["bound"] == "memory bandwidth"
    window, sinks, ledger = report["window"], report["sinks"], report["ledger"]
    assert kv["bytes"] + window["added_bytes"] + sinks["added_bytes"] == ledger["kv_bytes"]


def test_explain_batch_multiplies_bytes_and_time():
    one, eight = explain(), explain("--batch", 8)
    for side in ("f16", "kv"):
        assert eight[side]["bytes"] == 8 * one[side]["bytes"]
        assert eight[side]["stream_ms"] == pytest.approx(8 * one[side]["stream_ms"])
        assert eight[side]["bytes_per_token"] == one[side]["bytes_per_token"]


def test_explain_works_a_group_by_hand():
    group = explain("--group", GROUP)["group"]
    assert group["scale"] == 0.07666015625
    assert group["zero"] == 4
    assert group["codes"] == [9, 2, 15, 5, 0, 12, 6, 4]
    assert group["bytes_hex"] == "29 5F C0 46"
    decoded = [group["scale"] * (code - 4) for code in group["codes"]]
    assert group["decoded"] == pytest.approx(decoded)
    values = [float(x) for x in GROUP.split(",")]
    assert group["errors"] == pytest.approx([d - x for d, x in zip(decoded, values)], abs=1e-6)
    others = {other["offset"]: other["codes"] for other in group["other_conventions"]}
    assert others["min offset"] == others["real zero"] == [9, 2, 15, 4, 0, 12, 6, 3]


def test_explain_shows_what_one_outlier_does():
    group = json_of("explain", "--json", "--group", "0.03,-0.05,0.02,-0.01,0.04,0.01,-0.02,4.80")["group"]
    assert group["decoded"][:7] == [0] * 7
    assert group["decoded"][7] == pytest.approx(4.85, abs=0.01)


def test_explain_text_holds_the_json_figures():
    text = output_of("explain", "--shape", "32,32,128", "--context", 4096, "--kv", "int4:g128", "--device",
                     "a100-40gb", "--group", GROUP)
    for figure in ("524,288", "139,264", "570,425,344", "4.25", "3.765", "0.368 ms", "29 5F C0 46",
                   "9 2 15 5 0 12 6 4", "9 2 15 4 0 12 6 3", "memory bandwidth"):
        assert figure in text, figure


def test_explain_takes_the_geometry_of_a_file():
    report = json_of("explain", "-m", MODEL, "-c", 8192, "--kv", "f16", "--json")
    assert report["geometry"] == {"layers": 30, "kv_heads": 3, "head_dim": 64, "q_heads": 9}
    assert report["kv"]["bytes"] == report["ledger"]["kv_bytes"] == 188743680
    assert len(report["model_xxh64"]) == 16


def test_explain_skips_layers():
    report = json_of("explain", "--shape", "30,3,64,9", "--kv", "int4", "--kv-skip-layers", "0,28-29", "--json")
    assert [layer["layer"] for layer in report["formats"] if layer["k"] == "f16"] == [0, 28, 29]
    assert report["kv"]["bytes_per_token"] == (27 * 6120 + 3 * 23040) / 30


def test_explain_prints_kivis_bookkeeping_beside_the_pages():
    report = json_of("explain", "--shape", "32,32,128", "-c", 513, "--kv", "kivi2", "--json")
    residual = report["kivi_residual"]
    assert (residual["k_f16_tokens"], residual["v_f16_tokens"]) == (1, 128)
    assert residual["mean_bits"] == pytest.approx(4.635, abs=5e-4)
    text = output_of("explain", "--shape", "32,32,128", "-c", 513, "--kv", "kivi2")
    assert "4.635" in text and f"{report['ledger']['effective_bits']:.3f}" in text
    assert explain()["kivi_residual"] is None


def test_explain_counts_a_latent_once():
    shape = ("explain", "--shape", "60,1,576/512,128", "-c", 4096, "--device", "a100-40gb")
    report = json_of(*shape, "--kv", "f16", "--json")
    assert report["geometry"] == {"layers": 60, "kv_heads": 1, "head_dim": 576, "q_heads": 128, "latent_dim": 512}
    assert report["kv"]["bytes_per_token"] == 69120 and report["ledger"]["kv_bytes"] == 69120 * 4096
    assert report["bound"] == "matrix arithmetic"
    text = output_of(*shape, "--kv", "int8")
    for words in ("a latent of 512 channels and a RoPE key of 64", "60 x (512 + 64) = 34,560 values",
                  "V shares 2 bytes of metadata among 512 consecutive channels"):
        assert words in text, words


def test_explain_measures_this_machine():
    report = json_of("explain", "--shape", "1,1,64", "--device", "cpu", "--json")
    assert report["device"]["read_GBps"] > 0 and report["compute_ms"] is None


# ---- refusals before anything is done


@pytest.mark.parametrize("args, words", [
    ([], ["subcommand"]),
    (["explain", "--shape", "60,1,576/512,128", "--kv", "int4"], ["the latent is K and V in one", "rotated"]),
    (["explain", "--shape", "60,2,576/512,128"], ["2 KV heads"]),
    (["explain", "--shape", "60,1,576/x,128"], ["[/LATENT]"]),
    (["sing"], ["sing", "run", "explain"]),
    (["explain"], ["--shape"]),
    (["explain", "--shape", "1,2"], ["--shape", "1,2"]),
    (["explain", "--shape", "1,1,63"], ["63"]),
    (["explain", "--shape", "1,2,64,3"], ["3", "2 KV heads"]),
    (["explain", "--shape", "1,1,64", "--context", "0"], ["context of 0"]),
    (["explain", "--shape", "1,1,64", "--batch", "many"], ["--batch", "many"]),
    (["explain", "--shape", "1,1,64", "--device", "abacus"], ["abacus", "a100-40gb"]),
    (["explain", "--shape", "1,1,64", "--frobnicate"], ["--frobnicate"]),
    (["explain", "--shape", "1,1,64", "--kv-skip-layers", "1"], ["layer 1"]),
    (["explain", "--group", "1,x"], ["'x'"]),
    (["explain", "--group", "1,nan"], ["'nan'"]),
    (["run", "-p", "x"], ["model"]),
    (["run", "-m", MODEL], ["-p", "-f"]),
    (["run", "-m", MODEL, "-p", "x", "-f", TEXT], ["-p", "-f"]),
    (["run", "-m", MODEL, "-p", "x", "-ctk", "q7_0"], ["q7_0", "q8_0"]),
    (["run", "-m", MODEL, "-p", "x", "-ctv=int4:g48"], ["g48", "g64"]),
    (["run", "-m", MODEL, "-p", "x", "--kv", "int9"], ["int9"]),
    (["run", "-m", MODEL, "-p", "x", "--kv", "diffkv"], ["diffkv"]),
    (["run", "-m", MODEL, "-p", "x", "--kv-group", "64"], ["--kv-group", "f16"]),
    (["run", "-m", MODEL, "-p", "x", "--kv", "plain4", "--kv-group", "7"], ["group of 7"]),
    (["run", "-m", MODEL, "-p", "x", "--kv-window", "65"], ["65", "multiple of 64"]),
    (["run", "-m", MODEL, "-p", "x", "--kv-sinks", "65"], ["65"]),
    (["run", "-m", MODEL, "-p", "x", "--kv-window", "0,64"], ["--kv-window", "0,64", "eval and tasks"]),
    (["run", "-m", MODEL, "-p", "x", "-ctv", "int2:clip92"], ["int2:clip92", "rotated"]),
    (["run", "-m", MODEL, "-p", "x", "--kv-skip-layers", "30"], ["layer 30", "29"]),
    (["run", "-m", MODEL, "-p", "x", "--kv-budget", "lots"], ["lots"]),
    (["run", "-m", MODEL, "-p", "x", "--kv", "mixed:8=int8:token"], ["mixed:8=int8:token", "--policy"]),
    (["run", "-m", MODEL, "-p", "x", "--kv", "int8", "--policy", "full"], ["--policy full", "mixed:"]),
    (["run", "-m", MODEL, "-p", "x", "--kv", "mixed:8=int8:token", "--policy", "best"], ["best", "keydiff"]),
    (["run", "-m", MODEL, "-p", "x", "--kv", "int8", "--head-classes", "h.json"], ["--head-classes h.json", "mixed:"]),
    (["run", "-m", MODEL, "-p", "x", "--kv", "mixed:8=int9", "--policy", "full"], ["int9"]),
    (["run", "-m", MODEL, "-p", "x", "--kv", "mixed:5=int5", "--policy", "full"], ["'5'"]),
    (["run", "-m", MODEL, "-p", "x", "--kv", "mixed:8=int8", "--policy", "full"], ["int8:channel", "share"]),
    (["run", "-m", MODEL, "-p", "x", "--kv", "mixed:8=int8:token", "--policy", "full", "-ctv", "f16"], ["f16", "beside"]),
    (["run", "-m", MODEL, "-p", "x", "-fa", "off"], ["off", "fused"]),
    (["run", "-m", MODEL, "-p", "x", "-ngl", "99"], ["99", "CPU"]),
    (["run", "-m", MODEL, "-p", "x", "--keep", "8"], ["--keep 8"]),
    (["run", "-m", MODEL, "-p", "x", "--temp", "-1"], ["temperature"]),
    (["run", "-m", MODEL, "-p", "x", "--top-p", "1.5"], ["top-p"]),
    (["run", "-m", MODEL, "-p", "x", "-t", "0"], ["--threads", "'0'"]),
    (["eval", "-m", MODEL], ["file"]),
    (["eval", "-m", MODEL, "-f", TEXT, "--mode", "guess"], ["guess", "prefill"]),
    (["eval", "-m", MODEL, "-f", TEXT, "--ctx", "1"], ["--ctx 1"]),
    (["eval", "-m", MODEL, "-f", TEXT, "--kv-sinks", "0,4,8", "--kv-window", "0,64"], ["0,4,8", "0,64", "pair"]),
    (["eval", "-m", MODEL, "-f", TEXT, "--base", "f15"], ["f15"]),
    (["eval", "-m", MODEL, "-f", TEXT, "--kv", "int4,int9"], ["int9"]),
    (["eval", "-m", MODEL, "-f", TEXT, "--kv", "int4", "--kv-budget", "1M"], ["--kv-budget 1M", "mixed:"]),
    (["eval", "-m", MODEL, "-f", TEXT, "--kv", "int4", "--policy", "full"], ["--policy full", "mixed:"]),
    (["bench", "-m", MODEL, "--kv", "mixed:8=int8:token"], ["--policy", "run and eval"]),
    (["bench"], ["-m"]),
    (["bench", "-m", MODEL, "-o", "xml"], ["xml", "jsonl"]),
    (["bench", "-m", MODEL, "-p", "0", "-n", "0"], ["nothing to measure"]),
    (["bench", "-m", MODEL, "-d", "1,-2"], ["'-2'"]),
    (["bench", "-m", MODEL, "--kv", "f16", "-ctk", "f16"], ["--kv", "-ctk"]),
    (["bench", "attention", "--isa", "mmx"], ["mmx", "scalar"]),
    (["bench", "attention", "--depth", "0"], ["depth of 0"]),
    (["bench", "attention", "--formats", "f16,f17"], ["f17"]),
    (["inspect"], ["file"]),
])
def test_wrong_usage_is_refused_with_exit_code_2(args, words):
    assert_refused(kvant(*args), 2, *words)


def test_misspelt_isa_switch_is_refused():
    assert_refused(kvant("explain", "--shape", "1,1,64", env={"KVANT_ISA": "avx9"}), 2, "KVANT_ISA", "avx9")


# ---- bad files


@pytest.mark.parametrize("command", [["inspect"], ["explain", "-m"], ["run", "-p", "x", "-m"],
                                     ["bench", "-m"], ["eval", "-f", TEXT, "-m"]])
def test_missing_model_is_named(command, tmp_path):
    assert_refused(kvant(*command, tmp_path / "none.gguf"), 1, "none.gguf")


def test_missing_prompt_file_is_named(tmp_path):
    assert_refused(kvant("run", "-m", MODEL, "-f", tmp_path / "none.txt"), 1, "none.txt")


@pytest.mark.parametrize("cut", [0, 3, 4, 23, 24, 1000, 1_000_000, 50_000_000])
def test_truncated_model_is_refused(cut, tmp_path):
    path = tmp_path / "cut.gguf"
    path.write_bytes(MODEL.read_bytes()[:cut])
    for command in (["inspect"], ["run", "-p", "x", "-m"]):
        assert_refused(kvant(*command, path), 1, "cut.gguf")


def gguf(*, tensors=0, entries=()):
    """A GGUF head: every entry is (key, type, payload)."""
    data = b"GGUF" + struct.pack("<IQQ", 3, tensors, len(entries))
    for key, kind, payload in entries:
        data += struct.pack("<Q", len(key)) + key + struct.pack("<I", kind) + payload
    return data


def text_value(text):
    return struct.pack("<Q", len(text)) + text


@pytest.mark.parametrize("data", [
    b"not a model at all",
    gguf(tensors=2**40),
    b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60),
    b"GGUF" + struct.pack("<IQQ", 99, 0, 0),
    gguf(entries=[(b"general.architecture", 8, struct.pack("<Q", 2**48))]),
    gguf(entries=[(b"", 4, struct.pack("<I", 1))]),
    gguf(entries=[(b"general.architecture", 8, text_value(b"llama")), (b"llama.block_count", 4, struct.pack("<I", 0))]),
    gguf(entries=[(b"general.architecture", 8, text_value(b"llama")),
                  (b"llama.block_count", 4, struct.pack("<I", 100000))]),
    gguf(entries=[(b"general.architecture", 8, text_value(b"abacus\x1b[2J"))]),
], ids=["text", "tensor count", "entry count", "version", "string length", "empty key", "no layers", "many layers",
        "architecture"])
def test_lying_model_is_refused(data, tmp_path):
    path = tmp_path / "lie.gguf"
    path.write_bytes(data)
    done = kvant("run", "-m", path, "-p", "x")
    assert_refused(done, 1, "lie.gguf")
    assert b"\x1b" not in done.stderr


@pytest.fixture
def other_model(tmp_path):
    """A file that says it is a mamba model: well-formed, described, not one that this version runs."""
    counts = {"block_count": 18, "context_length": 32768, "embedding_length": 640, "feed_forward_length": 2048,
              "attention.head_count": 4, "attention.head_count_kv": 1, "attention.key_length": 256,
              "attention.value_length": 256, "attention.sliding_window": 512}
    entries = [(f"mamba.{key}".encode(), 4, struct.pack("<I", value)) for key, value in counts.items()]
    path = tmp_path / "mamba.gguf"
    path.write_bytes(gguf(entries=[(b"general.architecture", 8, text_value(b"mamba")), *entries]))
    return path


def test_unknown_architecture_is_named(other_model):
    assert_refused(kvant("run", "-m", other_model, "-p", "x"), 1, "mamba", "llama")


def test_budget_that_is_too_small_is_refused():
    assert_refused(kvant("run", "-m", MODEL, "-f", TEXT, "--prompt-tokens", 200, "--kv-budget", "1M"), 1, "1048576")


def test_prompt_longer_than_the_context_is_refused():
    assert_refused(kvant("run", "-m", MODEL, "-p", "one two three four", "-c", 3, "-n", 1), 1, "context of 3")
    assert_refused(kvant("run", "-m", MODEL, "-p", "one", "-c", 8, "-n", 9), 1, "context of 8")


def test_prompt_with_too_few_tokens_is_refused():
    assert_refused(kvant("run", "-m", MODEL, "-p", "one", "--prompt-tokens", 5), 1, "--prompt-tokens 5")


def test_empty_prompt_is_refused():
    assert_refused(kvant("run", "-m", MODEL, "-p", ""), 1, "no tokens")


def test_statistics_that_cannot_be_written_are_refused_before_the_run(tmp_path):
    path = tmp_path / "none" / "stats.json"
    assert_refused(kvant("run", "-m", MODEL, "-p", "x", "--stats", path), 1, "stats.json")


# ---- run


def run_json(*args):
    return json_of("run", "-m", MODEL, "--temp", 0, "--json", *args)


def test_run_streams_text_alone_and_writes_the_same_in_json(tmp_path):
    stats = tmp_path / "stats.json"
    done = kvant("run", "-m", MODEL, "-p", "Once upon a time", "-n", 8, "--temp", 0, "--stats", stats)
    assert done.returncode == 0
    report = json.loads(stats.read_text())
    assert done.stdout.decode() == report["text"] + "\n"
    assert len(report["tokens"]) == 8 and report["stop"] == "length"
    assert b"KV cache of 11 tokens" in done.stderr
    assert run_json("-p", "Once upon a time", "-n", 8)["tokens"] == report["tokens"]


@pytest.mark.parametrize("tokens, flags", [
    (3, ["--kv", "int4"]),
    (64, ["--kv", "f16"]),
    (130, ["--kv", "int8", "--kv-window", "0", "--kv-sinks", "0"]),
    (300, ["--kv", "int4", "--kv-skip-layers", "29"]),
    (300, ["--kv", "int4:g128", "--kv-window", "128", "--kv-sinks", "20"]),
    (200, ["-ctk", "q8_0", "-ctv", "f16"]),
    (300, ["--kv", "trellis3", "--kv-skip-layers", "0-9"]),
], ids=str)
def test_run_ledger_adds_up_and_matches_explain(tokens, flags):
    report = run_json("-f", TEXT, "--prompt-tokens", tokens, "-n", 1, *flags)
    ledger = report["ledger"]
    parts = ("code_bytes", "metadata_bytes", "window_bytes", "sink_bytes", "padding_bytes")
    assert ledger["kv_bytes"] == sum(ledger[part] for part in parts)
    unused = ledger["allocated_bytes"] - ledger["kv_bytes"]  # the rest of the last slabs
    assert 0 <= unused <= max(0.01 * ledger["kv_bytes"], 2**19)
    estimate = json_of("explain", "-m", MODEL, "-c", tokens, *flags, "--json")
    for part in (*parts, "kv_bytes", "effective_bits"):
        assert ledger[part] == estimate["ledger"][part], part
    assert ledger["kv_bytes_read_per_token"] == estimate["ledger"]["read_bytes"]
    assert ledger["bytes_read_per_token"] == (ledger["kv_bytes_read_per_token"] +
                                              ledger["weight_bytes_read_per_token"])


def test_run_skips_layers():
    formats = run_json("-p", "x", "-n", 1, "--kv", "int4", "--kv-skip-layers", 29)["formats"]
    assert formats[29]["k"] == "f16" and formats[28]["k"] != "f16"


def test_run_reports_what_made_it():
    report = run_json("-p", "x", "-n", 1, "-t", 1)
    for field in ("version", "commit", "cpu", "isa", "threads", "model_xxh64", "formats"):
        assert report[field], field
    assert report["threads"] == 1
    assert report["ledger"]["decode_tokens_per_s"] is None  # one token is the prompt's, nothing was decoded
    assert "git" not in report["commit"]


def test_run_seed_decides():
    def text(seed):
        return json_of("run", "-m", MODEL, "-p", "The", "-n", 12, "--temp", 1.5, "-s", seed, "--json")["text"]

    assert text(7) == text(7)
    assert len({text(seed) for seed in range(3)}) > 1


def test_run_chat_answers_in_the_template():
    report = run_json("--chat", "-p", "Say hello.", "-n", 40)
    assert "<|im_end|>" not in report["text"]
    assert report["prompt_tokens"] > 10


def test_run_stops_before_a_reverse_prompt():
    whole = run_json("-p", "Once upon a time", "-n", 20)["text"]
    word = whole.split()[4]
    stopped = run_json("-p", "Once upon a time", "-n", 20, "-r", word)
    assert stopped["stop"] == "stop"
    assert whole.startswith(stopped["text"]) and word not in stopped["text"]


def test_run_reads_standard_input():
    done = kvant("run", "-m", MODEL, "-f", "-", "-n", 1, "--temp", 0, stdin=b"Once upon a time")
    assert done.returncode == 0 and done.stdout


def test_run_verbose_names_every_layer():
    done = kvant("run", "-m", MODEL, "-p", "x", "-n", 1, "--kv", "int8", "--verbose")
    assert done.stderr.decode().count("K int8:channel:g64:min") == 30 + 1


@pytest.mark.parametrize("prompt_tokens", [8000, 100])
def test_interrupt_ends_with_the_ledger(prompt_tokens):
    process = subprocess.Popen([KVANT, "run", "-m", MODEL, "-f", TEXT, "--prompt-tokens", str(prompt_tokens), "-n",
                                "-1", "--ignore-eos", "--verbose"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while b"layer 29" not in process.stderr.readline():  # set up, the handler stands
        pass
    if prompt_tokens == 100:
        process.stdout.read(20)  # decoding
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 130
    assert b"KV cache of" in stderr


def test_closed_output_ends_quietly():
    process = subprocess.Popen([KVANT, "run", "-m", MODEL, "-p", "x", "-n", "400", "--ignore-eos"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.read(4)
    process.stdout.close()
    stderr = process.stderr.read()
    process.wait(timeout=120)
    assert stderr == b""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_full_disk_is_an_error():
    with open("/dev/full", "wb") as full:
        done = subprocess.run([KVANT, "explain", "--shape", "1,1,64"], stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1 and b"cannot write" in done.stderr


def test_progress_is_drawn_on_a_terminal_only(tmp_path):
    stats = tmp_path / "stats.json"
    args = [KVANT, "run", "-m", str(MODEL), "-f", str(TEXT), "--prompt-tokens", "1500", "-n", "1", "-b", "32", "--stats",
            str(stats)]
    assert b"prompt [" not in subprocess.run(args, capture_output=True).stderr
    master, slave = pty.openpty()
    process = subprocess.Popen(args, stdout=subprocess.DEVNULL, stderr=slave)
    os.close(slave)
    seen = b""
    try:
        while part := os.read(master, 4096):
            seen += part
    except OSError:  # the program has closed its end
        pass
    os.close(master)
    assert process.wait(timeout=300) == 0
    # Work of less than two seconds has no bar; a machine that fast is not tested here.
    assert b"prompt [" in seen or json.loads(stats.read_text())["prefill_ms"] < 3000


# ---- bench, inspect


BENCH_FIELDS = ("n_prompt n_gen n_depth n_threads n_batch type_k type_v avg_ns stddev_ns avg_ts stddev_ts model_type "
                "model_size model_n_params median_ns kv_bytes_per_token kv_effective_bits kv_read_GBps read_bw_GBps "
                "roofline_pct samples_ns test version commit cpu isa threads model_xxh64").split()


def test_bench_gives_llama_benchs_fields():
    lines = output_of("bench", "-m", MODEL, "-p", 16, "-n", 4, "-d", "0,64", "-ctk", "f16,int4", "-r", 2, "-o", "jsonl")
    rows = [json.loads(line) for line in lines.splitlines()]
    assert [row["test"] for row in rows] == ["pp16"] * 2 + ["tg4"] * 2 + ["pp16 @ d64"] * 2 + ["tg4 @ d64"] * 2
    for row in rows:
        assert not [field for field in BENCH_FIELDS if field not in row]
        assert len(row["samples_ns"]) == 2
        assert (row["roofline_pct"] is None) == (row["step_p99_ns"] is None) == (row["n_gen"] == 0)
        if row["n_gen"] > 0:
            assert 0 < row["step_median_ns"] <= row["step_p99_ns"] <= row["step_max_ns"] < max(row["samples_ns"])
        assert row["kv_bytes_per_token"] == (23040 if row["type_k"] == "f16" else (23040 + 6480) / 2)


def test_bench_runs_sequences_side_by_side():
    rows = json_of("bench", "-m", MODEL, "-p", 0, "-n", 2, "-d", 16, "-npl", "1,3", "-r", 1, "-o", "json")
    assert [row["n_parallel"] for row in rows] == [1, 3]


def test_bench_counts_what_sequences_share_once():
    def kv_bytes(*more):
        rows = json_of("bench", "-m", MODEL, "-p", 0, "-ntg", 1, "-npp", 640, "--kv", "f16", "-npl", "1,3", "-r", 1, *more,
                       "-o", "json")
        assert [row["test"] for row in rows] == ["tg1 @ d640", "tg1 x3 @ d640" + (" s512" if more else "")]
        assert [row["n_shared"] for row in rows] == [512 if more else 640] * 2
        return [row["kv_bytes_read_per_step"] for row in rows]

    token = 23040
    assert kv_bytes() == [641 * token, (640 + 3) * token]
    assert kv_bytes("--shared-prefix", 512) == [641 * token, (512 + 3 * 129) * token]


@pytest.mark.parametrize("form, marker", [("table", "times f16"), ("md", "| --"), ("csv", "format_k"),
                                          ("json", '"format_k"'), ("jsonl", '{"version"')])
def test_bench_attention_prints_every_form(form, marker):
    text = output_of("bench", "attention", "--shape", "2,2,64,4", "--formats", "f16,int4", "--depth", "100", "-r", 3, "-o",
                     form)
    assert marker in text


def test_bench_attention_counts_bytes_and_compares_with_f16():
    rows = json_of("bench", "attention", "--shape", "2,2,64,4", "--formats", "f16,int8,int4,int2", "--depth", "64,512",
                   "--batch", 2, "-r", 3, "--isa", "scalar", "--json")
    assert [row["depth"] for row in rows] == [64] * 4 + [512] * 4
    for row in rows:
        assert row["isa"] == "scalar" and row["batch"] == 2
        assert row["ratio_f16_p25"] <= row["ratio_f16"] <= row["ratio_f16_p75"]
        assert row["GBps"] == pytest.approx(row["kv_bytes"] / row["median_ns"])
    assert rows[4]["kv_bytes"] == 2 * 2 * 2 * 64 * 2 * 2 * 512
    assert rows[4]["kv_bytes"] > rows[5]["kv_bytes"] > rows[6]["kv_bytes"] > rows[7]["kv_bytes"]
    assert rows[4]["ratio_f16"] == 1


def test_bench_mixed_compares_pools_with_widths_in_line():
    rows = json_of("bench", "mixed", "--shape", "1,2,32,4", "--depth", 600, "--shares", "0,1,2,1", "--evict", "0.25", "-r", 2,
                   "--json")
    assert [row["width"] for row in rows] == [16, 8, 4, 2] * 2 + [None] * 8
    assert [row["layout"] for row in rows[8:]] == ["pools", "stream", "indexed", "slots"] * 2
    for row in rows[8:]:
        assert row["over_one_width_p25"] <= row["over_one_width"] <= row["over_one_width_p75"]
        assert row["sector_bytes"] <= row["line_bytes"] and row["answer_difference"] < 0.04
    assert [row["evicted"] for row in rows[8:]] == [False] * 4 + [True] * 4
    assert rows[8]["head_tokens"] == 1200 > rows[12]["head_tokens"]
    failed = kvant("bench", "mixed", "--shares", "1,2")
    assert failed.returncode == 2 and b"four numbers" in failed.stderr


def test_inspect_lists_what_the_file_holds():
    report = json_of("inspect", MODEL, "--json")
    assert report["architecture"] == "llama" and report["context_tokens"] == 8192
    assert sum(kind["bytes"] for kind in report["types"]) < report["model_bytes"] == MODEL.stat().st_size
    assert sum(kind["tensors"] for kind in report["types"]) == len(report["tensors"]) == 272
    assert report["kv_bytes_per_token"]["f16"] == 23040 and report["kv_bytes_per_token"]["int4"] == 6120
    text = output_of("inspect", MODEL, "--tensors")
    assert "blk.29.attn_k.weight" in text and "23,040" in text


def test_inspect_takes_a_model_that_cannot_run(other_model):
    report = json_of("inspect", other_model, "--json")
    assert report["sliding_window_tokens"] == 512 and report["geometry"]["head_dim"] == 256
    assert_refused(kvant("explain", "-m", other_model), 1, "mamba", "512")


# ---- help


@pytest.mark.parametrize("command", [[], ["run"], ["eval"], ["tasks"], ["bench"], ["bench", "attention"], ["explain"],
                                     ["inspect"]])
def test_help_has_examples(command):
    text = output_of(*command, "--help")
    assert "Examples:" in text and "Usage: kvant" in text


def test_version_names_the_commit():
    assert output_of("--version").startswith("kvant 0.")
