"""The command line on Gemma 3 270M, a model whose layers have windows; `scripts/models --gemma` fetches it."""

import json

import pytest

from command_line import ROOT, TEXT, json_of, output_of

GEMMA = ROOT / "models" / "gemma3-270m-q4_k_m.gguf"
pytestmark = pytest.mark.skipif(not GEMMA.exists(), reason=f"no {GEMMA.name}: scripts/models --gemma fetches it")


def run_json(*args):
    return json_of("run", "-m", GEMMA, "--temp", 0, "--json", *args)


def golden(text):
    """llama.cpp's greedy tokens after a prompt."""
    lines = (ROOT / "tests/golden/gemma3_greedy.txt").read_text().splitlines()
    after = lines[lines.index("prompt " + json.dumps(text)):]
    return [int(i) for i in next(line for line in after if line.startswith("llama_cpp ")).split()[1:]]


def test_run_continues_a_text_as_llama_cpp_does():
    text = "The capital of France is"
    assert run_json("-p", text, "-n", 16)["tokens"] == golden(text)[:16]


def test_chat_writes_gemmas_turns():
    question = "What is the capital of France?"
    prompt = f"<start_of_turn>user\n{question}<end_of_turn>\n<start_of_turn>model\n"
    assert run_json("--chat", "-p", question, "-n", 6)["tokens"] == golden(prompt)[:6]


@pytest.mark.parametrize("tokens, kv", [(300, "f16"), (700, "f16"), (300, "int4"), (700, "int4"), (900, "int8")])
def test_ledger_matches_explain(tokens, kv):
    ledger = run_json("-f", TEXT, "--prompt-tokens", tokens, "-n", 1, "--kv", kv)["ledger"]
    estimate = json_of("explain", "-m", GEMMA, "-c", tokens, "--kv", kv, "--json")
    assert estimate["layer_windows_tokens"] == [512, 512, 512, 512, 512, 0] * 3
    assert ledger["kv_bytes"] == estimate["ledger"]["kv_bytes"]
    assert ledger["kv_bytes_read_per_token"] == estimate["ledger"]["read_bytes"]


def test_explain_and_inspect_say_which_layers_have_windows():
    sentence = "15 of 18 layers see only the newest 512 tokens"
    assert sentence in output_of("explain", "-m", GEMMA, "-c", 4096)
    assert sentence in output_of("inspect", GEMMA)
    cost = json_of("explain", "-m", GEMMA, "-c", 4096, "--kv", "f16", "--json")["kv"]
    assert cost["bytes"] == (3 * 4096 + 15 * 640) * 1024 and cost["read_bytes"] == (3 * 4096 + 15 * 512) * 1024


def test_bench_counts_what_windows_leave():
    (row,) = json_of("bench", "-m", GEMMA, "-p", 0, "-n", 1, "-r", 1, "-d", 1024, "--kv", "f16", "-o", "json")
    assert row["kv_bytes_read_per_step"] == (3 * 1025 + 15 * 512) * 1024


def test_eval_compares_caches():
    report = json_of("eval", "-m", GEMMA, "-f", TEXT, "--ctx", 700, "--tokens", 64, "--kv", "int8", "--greedy", 0,
                     "--activations", "f32", "--json")
    (context,) = report["contexts"]
    assert 0 < context["mean_kl"] < 0.01 and context["same_top1"] > 0.9


def test_a_loaded_session_has_one_bos_however_its_prompt_is_cut(tmp_path):
    path, more = tmp_path / "a.kv", "and they went home before it was dark"
    run_json("-p", "It was a fine day,", "-n", 1, "--save-session", path)
    whole = run_json("-p", more, "-n", 4, "--load-session", path)
    cut = run_json("-p", more, "--prompt-tokens", whole["prompt_tokens"], "-n", 4, "--load-session", path)
    assert cut["timeline_tokens"] == whole["timeline_tokens"]
    assert cut["tokens"] == whole["tokens"]
