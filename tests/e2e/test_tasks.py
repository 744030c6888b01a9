"""kvant tasks as a user meets it."""

import json
import pathlib
import signal
import subprocess
import time

import pytest

from command_line import KVANT, MODEL, TEXT, assert_refused, json_of, kvant, output_of

# Little enough for a second or two: one short prompt of each kind.
SHORT = ("--lengths", 256, "--depths", 50, "--questions", 1, "--all-lengths")


def tasks_json(*args):
    return json_of("tasks", "-m", MODEL, "-f", TEXT, "--json", *args)


def test_every_task_is_reported_beside_the_base():
    report = tasks_json("--kv", "f16,int2", *SHORT, "--greedy-prompts", 2, "--greedy-prompt-tokens", 200, "--greedy-tokens",
                        8)
    rows = report["results"]
    kinds = ["needle", "multi-key", "multi-value", "sums", "json"]
    assert [(row["task"], row["preset"]) for row in rows] == [
        (task, preset) for task in (*kinds, "greedy") for preset in ("f16", "int2")]
    for row in rows[:-2]:
        assert 0 <= row["score"] <= 1 and row["nll"] > 0 and row["questions"] == 1
        assert row["base_passes"] == (row["base_score"] >= 0.8)
        assert row["kept"] <= row["base_right"] <= row["questions"]
        assert row["score_se"] == pytest.approx(((row["score"] + 1) / 3 * (2 - row["score"]) / 3 / 3) ** 0.5)
        if row["preset"] == "f16":  # the base itself, once more
            assert (row["score"], row["nll"], row["kept"]) == (row["base_score"], row["nll_base"], row["base_right"])
        else:
            assert row["nll"] != row["nll_base"]
    same, other = rows[-2:]
    assert (same["score"], same["median_tokens"], same["mean_equal_tokens"], same["length"]) == (1, 8, 8, 200)
    assert 0 <= other["first_quartile_tokens"] <= other["median_tokens"] <= other["third_quartile_tokens"] <= 8
    assert same["nll"] is None and same["base_passes"] is None
    assert [test["first_divergence"] for test in report["tests"]][0] == [8, 8]
    assert report["sizes"] == {"needles": 4, "digits": 4, "terms": 6, "fields": 4} and report["left_out"] == []
    assert report["seed"] == 1 and report["base"] == "f16" and report["text"] == str(TEXT)
    for field in ("version", "commit", "isa", "threads", "model_xxh64", "activations"):
        assert report[field], field


def test_f16_finds_a_needle_and_rows_put_depths_together():
    report = tasks_json("--kv", "int4", "--tasks", "needle", "--lengths", "256,320", "--depths", "0,100", "--questions", 2,
                        "--all-lengths")
    assert [(cell["length"], cell["depth_pct"]) for cell in report["cells"]] == [(256, 0), (256, 100), (320, 0), (320, 100)]
    for row, cells in zip(report["results"], (report["cells"][:2], report["cells"][2:])):
        assert row["questions"] == 4 and row["length"] == cells[0]["length"]
        for field in ("score", "base_score", "nll", "nll_base"):
            assert row[field] == pytest.approx(sum(cell[field] for cell in cells) / 2)
        for field in ("base_right", "kept"):
            assert row[field] == sum(cell[field] for cell in cells)
    assert report["results"][0]["base_score"] >= 0.5


def test_lengths_at_which_f16_fails_are_left_out_and_named():
    ask = ("--kv", "int4", "--tasks", "sums", "--lengths", "384,256", "--questions", 1, "--terms", 16)
    report = tasks_json(*ask)
    failed, beyond = report["left_out"]
    assert (failed["task"], failed["length"], beyond["length"]) == ("sums", 256, 384)
    assert failed["base_score"] < 0.8 and beyond["base_score"] is None
    assert report["results"] == [] and report["cells"] == []
    done = kvant("tasks", "-m", MODEL, *ask, "-o", "jsonl")
    assert (done.returncode, done.stdout) == (0, b"")
    lines = done.stderr.decode().splitlines()
    assert len(lines) == 2 and "sums at 256 tokens: f16 scores" in lines[0] and "shorter" in lines[1]
    assert [row["length"] for row in tasks_json(*ask, "--all-lengths")["results"]] == [256, 384]


def test_a_table_of_many_caches_has_a_line_for_each():
    text = output_of("tasks", "-m", MODEL, "-f", TEXT, "--kv", "int8,int4", "--tasks", "sums,json", *SHORT, "-o", "md")
    head, _, *caches = ([cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()[:5])
    assert head == ["score, nats/token", "sums 256", "json 256"]
    assert [line[0] for line in caches] == ["f16, the base", "int8", "int4"]
    assert all("%, " in cell for line in caches for cell in line[1:])


def test_a_seed_makes_the_same_questions_and_another_one_others():
    def nll(seed):
        return tasks_json("--kv", "int4", "--tasks", "json", *SHORT, "--seed", seed)["results"][0]["nll"]

    assert nll(1) == nll(1) != nll(2)


def test_sums_need_no_text_and_have_no_depth():
    report = json_of("tasks", "-m", MODEL, "--kv", "int8", "--tasks", "sums", *SHORT, "--json")
    assert report["text"] is None
    assert [cell["depth_pct"] for cell in report["cells"]] == [None]


@pytest.mark.parametrize("form, marks", [
    ("table", ["Seed    1", "f16 passes", "sums", "never diverge"]), ("md", ["| task", "| greedy"]),
    ("csv", ["task,length,preset,", "\ngreedy,"]), ("jsonl", ['{"task":"sums"', '{"task":"greedy"'])])
def test_tasks_rows_come_in_any_format(form, marks):
    text = output_of("tasks", "-m", MODEL, "-f", TEXT, "--kv", "q8_0", "--tasks", "sums,greedy", *SHORT, "--greedy-prompts",
                     1, "--greedy-prompt-tokens", 16, "--greedy-tokens", 2, "-o", form)
    for mark in marks:
        assert mark in text, text
    if form == "jsonl":
        assert [json.loads(line)["task"] for line in text.splitlines()] == ["sums", "greedy"]


def test_tasks_report_has_a_grid_for_the_base_and_every_cache(tmp_path):
    page = tmp_path / "tasks.html"
    json_of("tasks", "-m", MODEL, "-f", TEXT, "--kv", "int4,int2", "--tasks", "needle,json,sums,greedy", *SHORT,
            "--greedy-prompts", 1, "--greedy-prompt-tokens", 16, "--greedy-tokens", 2, "--report", page, "--json")
    html = page.read_text()
    assert "<th>json 256</th>" in html and "multi" not in html
    assert html.count("<svg") == 2 * 3 + 1  # needle and json: f16, int4, int2; how long greedy answers stay equal
    assert html.count('class="cell') == 2 * 3
    assert "<script" not in html and "http" not in html and "<h3>int2</h3>" in html
    assert list(tmp_path.iterdir()) == [page]


# ---- planted keys


def planted(*args):
    return [json.loads(line) for line in output_of("tasks", "--planted", *args, "-o", "jsonl").splitlines()]


def test_planted_keys_are_found_and_offsets_are_stood_or_not():
    rows = planted("--kv", "f16,int4,int4:token:none", "--offset", "0,200", "--cache-tokens", 512)
    assert [(row["preset"], row["channel_offset"]) for row in rows] == [
        (preset, offset) for preset in ("f16", "int4", "int4:token:none") for offset in (0, 200)]
    hits = [row["hit_rate"] for row in rows]
    assert hits[:4] == [1, 1, 1, 1] and hits[4] > 0.9 and hits[5] < 0.5
    for row in rows:
        assert row["queries"] == 32 and row["seed"] == 1 and row["exact_mass"] > 0.7 and row["head_dim"] == 64


def test_planted_sweeps_every_preset_and_prints_its_seed():
    text = output_of("tasks", "--planted", "--sweep", "--cache-tokens", 512, "--offset", 0, "--seed", 5)
    assert "Seed 5" in text
    for preset in ("f16", "int4", "trellis2s", "kivi2", "nvfp4"):
        assert f"\n{preset} " in text, text


# ---- refusals, interrupts


@pytest.mark.parametrize("args, words", [
    ([], ["model"]),
    (["-m", MODEL], ["--file"]),
    (["-m", MODEL, "--tasks", "greedy"], ["--file"]),
    (["-m", MODEL, "-f", TEXT, "--tasks", "needles"], ["needles", "multi-key"]),
    (["-m", MODEL, "-f", TEXT, "--kv", "int9"], ["int9"]),
    (["-m", MODEL, "-f", TEXT, "--base", "f15"], ["f15"]),
    (["-m", MODEL, "-f", TEXT, "--lengths", "0"], ["--lengths 0"]),
    (["-m", MODEL, "-f", TEXT, "--lengths", "512,9000"], ["9000", "8192"]),
    (["-m", MODEL, "-f", TEXT, "--depths", "101"], ["--depths", "'101'"]),
    (["-m", MODEL, "-f", TEXT, "--questions", "0"], ["--questions", "'0'"]),
    (["-m", MODEL, "-f", TEXT, "--needles", "1"], ["--needles", "'1'"]),
    (["-m", MODEL, "-f", TEXT, "--digits", "10"], ["--digits", "'10'"]),
    (["--planted", "--all-lengths"], ["--planted", "--all-lengths"]),
    (["-m", MODEL, "-f", TEXT, "--head-dim", "64"], ["--head-dim", "--planted"]),
    (["--planted", "-m", MODEL], ["--planted", "--model"]),
    (["--planted", "--cache-tokens", "100"], ["512"]),
    (["--planted", "--head-dim", "63"], ["63"]),
    (["--planted", "--offset", "70000"], ["70000"]),
    (["--planted", "--margin", "nan"], ["margin"]),
])
def test_wrong_usage_of_tasks_is_refused_with_exit_code_2(args, words):
    assert_refused(kvant("tasks", *args), 2, *words)


def test_what_cannot_be_asked_is_one_sentence(tmp_path):
    text = tmp_path / "short.txt"
    text.write_text("A few words. And no more.")

    def refused(*args, words):
        assert_refused(kvant("tasks", "-m", MODEL, *args), 1, *words)

    refused("-f", text, "--tasks", "needle", *SHORT, words=["too short", "256"])
    refused("-f", text, "--tasks", "greedy", words=["256"])
    refused("--tasks", "sums", "--lengths", 20, words=["20 tokens"])
    refused("-f", tmp_path / "none.txt", words=["none.txt"])
    refused("-f", TEXT, "--report", tmp_path / "none" / "page.html", words=["page.html"])
    assert_refused(kvant("tasks", "--tasks", "sums", "-m", tmp_path / "none.gguf"), 1, "none.gguf")


def catches(pid, number):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(status.split("SigCgt:")[1].split()[0], 16) >> (number - 1) & 1


def test_an_interrupt_ends_tasks_without_a_page(tmp_path):
    page = tmp_path / "page.html"
    process = subprocess.Popen([KVANT, "tasks", "-m", MODEL, "-f", TEXT, "--kv", "int4", "--questions", "1000", "--report",
                                page], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while not catches(process.pid, signal.SIGINT):  # the model loads
        time.sleep(0.05)
    time.sleep(0.5)  # the first of some hundred thousand answers
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=120)
    assert (process.returncode, stdout, stderr) == (130, b"", b"kvant: interrupted\n")
    assert list(tmp_path.iterdir()) == []


def test_a_closed_pipe_ends_tasks_quietly():
    process = subprocess.Popen([KVANT, "tasks", "--planted", "--sweep", "--cache-tokens", "512", "-o", "jsonl"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=120) == -signal.SIGPIPE
