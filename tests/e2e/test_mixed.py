"""Caches of several widths as a user meets them: --kv mixed:..., --policy, --kv-budget."""

import pytest

from command_line import MODEL, TEXT, assert_refused, json_of, kvant, output_of

POOLS = "mixed:8=int8:token+4=tq4+2=tq2"
LAYER_HEADS = 30 * 3  # of SmolLM2


def run_mixed(*args):
    return json_of("run", "-m", MODEL, "-f", TEXT, "--prompt-tokens", 400, "-n", 2, "--temp", 0, "--json", "--kv", POOLS, *args)


def test_run_accounts_for_each_width_and_for_what_was_dropped():
    report = run_mixed("--policy", "streaming:4,128")
    ledger = report["ledger"]
    assert report["formats"] == {
        "pools": [{"width": 8, "k": "int8:token:min", "v": "int8:token:min"},
                  {"width": 4, "k": "tq4", "v": "tq4"}, {"width": 2, "k": "tq2", "v": "tq2"}],
        "policy": "streaming:4,128", "once": False, "budget_bytes": None}
    # 401 tokens: five of the seven pages have left the window, of which four tokens are sinks. At 384 tokens
    # the newest 128 begin at 256.
    assert [width["width"] for width in ledger["widths"]] == [8, 4, 2]
    assert [width["head_tokens"] for width in ledger["widths"]] == [(320 - 256) * LAYER_HEADS, 0, 0]
    assert ledger["dropped_head_tokens"] == (256 - 4) * LAYER_HEADS
    assert ledger["kv_bytes"] == sum(ledger[f"{part}_bytes"] for part in ("code", "metadata", "padding", "window", "sink"))


def test_budget_lowers_widths_until_it_fits():
    free, tight = run_mixed("--policy", "full"), run_mixed("--policy", "full:2,4", "--kv-budget", "4M")
    assert free["ledger"]["dropped_head_tokens"] == 0 and free["ledger"]["widths"][0]["head_tokens"] == 316 * LAYER_HEADS
    assert tight["formats"]["budget_bytes"] == 4 * 2**20
    widths = [width["head_tokens"] for width in tight["ledger"]["widths"]]
    assert sum(widths) + tight["ledger"]["dropped_head_tokens"] == 316 * LAYER_HEADS
    assert widths[0] < 316 * LAYER_HEADS and widths[1] + widths[2] > 0
    assert tight["ledger"]["effective_bits"] < free["ledger"]["effective_bits"]


@pytest.mark.parametrize("policy", ["full:2,4", "h2o:0.3,0.2"])
def test_a_loaded_session_goes_on_where_the_saved_one_ended(tmp_path, policy):
    path = tmp_path / "mixed.kv"
    cache = ("--kv", POOLS, "--policy", policy, "--kv-budget", "4M")

    def run(*args):
        return json_of("run", "-m", MODEL, "--json", "--temp", 0, "--ignore-eos", *cache, *args)

    prompt = ("-f", TEXT, "--prompt-tokens", 500)
    whole = run(*prompt, "-n", 80)
    first = run(*prompt, "-n", 10, "--save-session", path)
    then = run("-n", 70, "--load-session", path)
    assert first["tokens"] + then["tokens"] == whole["tokens"]
    held = json_of("inspect", path, "--json")
    assert held["formats"] == first["formats"]
    assert held["bytes_by_format"] == []
    for saved, ran in zip(held["widths"], first["ledger"]["widths"], strict=True):
        assert (saved["width"], saved["head_tokens"], saved["bytes"]) == (ran["width"], ran["head_tokens"], ran["page_bytes"])
    assert sum(width["bytes"] for width in held["widths"]) + held["window_bytes"] + held["sink_bytes"] + \
        held["other_bytes"] == path.stat().st_size
    assert "width 4: tq4 / tq4" in output_of("inspect", path)
    load = ("run", "-m", MODEL, "-n", 1, "--load-session", path)
    assert_refused(kvant(*load, "--kv", POOLS, "--policy", "full"), 2, policy, "budget")
    assert_refused(kvant(*load, "--kv", "int4"), 2, str(path))


@pytest.mark.parametrize("pools, policy", [
    ("mixed:8=int8:token+4=int4:token", ("full:4", "--kv-budget", "6M")),
    ("mixed:8=int8:token+4=int4:token", ("mikv:0.3,8,4", "--kv-budget", "6M")),
    ("mixed:8=int8+4=int4+once", ("full",))])
def test_context_shift_keeps_the_widths_of_tokens(pools, policy):
    report = json_of("run", "-m", MODEL, "-p", "Once upon a time", "-n", 400, "-c", 384, "--temp", 0, "--ignore-eos", "--json",
                     "--kv", pools, "--policy", *policy, "--context-shift")
    ledger = report["ledger"]
    assert report["shifts"] == 1 and ledger["recoded_tokens"] > 0
    heads = 90 * (report["timeline_tokens"] - 4)
    pooled = sum(width["head_tokens"] for width in ledger["widths"])
    assert 0 < pooled < heads and ledger["dropped_head_tokens"] == 0


def test_caches_of_one_width_have_no_widths():
    ledger = json_of("run", "-m", MODEL, "-p", "x", "-n", 1, "--json", "--kv", "int8")["ledger"]
    assert (ledger["widths"], ledger["dropped_head_tokens"], ledger["requantised_head_tokens"]) == (None, None, None)


def test_ledger_for_people_names_the_widths():
    done = kvant("run", "-m", MODEL, "-f", TEXT, "--prompt-tokens", 200, "-n", 1, "--kv", POOLS, "--policy", "keydiff:0.5")
    text = done.stderr.decode()
    assert done.returncode == 0 and "width 8" in text and "dropped" in text and "keydiff:0.5" in text, text


def test_eval_compares_mixed_caches_with_others():
    report = json_of("eval", "-m", MODEL, "-f", TEXT, "--kv", f"int4,{POOLS}", "--policy", "full", "--kv-budget", "3M",
                     "--ctx", 400, "--tokens", 32, "--no-floor", "--no-speed", "--json")
    int4, mixed = report["contexts"]
    assert mixed["preset"] == POOLS and mixed["mean_kl"] > 0
    assert [test["bytes_per_token"] is None for test in report["tests"]] == [False, True]
    assert int4["mean_kl"] == pytest.approx(
        json_of("eval", "-m", MODEL, "-f", TEXT, "--kv", "int4", "--ctx", 400, "--tokens", 32, "--no-floor", "--greedy", 0,
                "--json")["contexts"][0]["mean_kl"], rel=1e-12)


def test_policy_that_judges_by_attention_drops_and_lowers():
    h2o, mikv = run_mixed("--policy", "h2o:0.3,0.2")["ledger"], run_mixed("--policy", "mikv:0.3,8,2")["ledger"]
    # Asked last at 384 tokens, of which 316 lie between sinks and window: 94 of them stay. The recent ones are in the window.
    assert [width["head_tokens"] for width in h2o["widths"]] == [94 * LAYER_HEADS, 0, 0]
    assert h2o["dropped_head_tokens"] == (316 - 94) * LAYER_HEADS
    # What became narrow early stays so, wherever it ranks later.
    high, none, low = [width["head_tokens"] for width in mikv["widths"]]
    assert 0 < high <= 94 * LAYER_HEADS and none == 0 and high + low == 316 * LAYER_HEADS and mikv["dropped_head_tokens"] == 0


def test_heads_that_stream_hold_less(tmp_path):
    classes = tmp_path / "heads.json"
    done = kvant("heads", "-m", MODEL, "-f", TEXT, "-c", 320, "--depths", 40, "--questions", 1, "--sinks", 8, "--recent", 96,
                 "-o", classes)
    assert done.returncode == 0, done.stderr.decode()
    report = run_mixed("--head-classes", classes)
    assert report["formats"]["policy"] == "full" and report["formats"]["streaming"] == "streaming:8,96"
    streaming = report["formats"]["streaming_heads"]
    assert streaming == LAYER_HEADS // 2
    # At 384 tokens the newest 96 begin at 288; pages before 320 have left the window, four tokens are sinks.
    kept = (LAYER_HEADS - streaming) * 316 + streaming * (4 + 320 - 288)
    assert report["ledger"]["widths"][0]["head_tokens"] == kept
    assert report["ledger"]["dropped_head_tokens"] == 316 * LAYER_HEADS - kept


def test_policies_prints_the_front_of_bytes_and_loss():
    report = json_of("policies", "-m", MODEL, "-f", TEXT, "--ctx", 320, "--tokens", 32, "--shares", "40,80", "--uniform", "int4",
                     "--only", "mixed:4=tq4@h2o:all,0.1", "--only", "mixed:4=tq4+2=tq2@mikv:all,4,2", "--questions", 0, "--json")
    rows = report["results"]
    assert sorted((row["policy"] or "", row["share_percent"] or 0) for row in rows) == [
        ("", 0), ("h2o:all,0.1", 40), ("h2o:all,0.1", 80), ("mikv:all,4,2", 40), ("mikv:all,4,2", 80)]
    assert [row["kv_bytes"] for row in rows] == sorted(row["kv_bytes"] for row in rows)
    best = float("inf")
    for row in rows:
        assert row["is_front"] == (row["mean_kl"] < best)
        best = min(best, row["mean_kl"])
        assert row["mean_kl"] > 0 and row["needle_score"] is None
