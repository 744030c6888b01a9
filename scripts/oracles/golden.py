"""What the two oracles are asked, and how their answers become tests/golden/smollm2_*.txt.

golden_llama_cpp.py and golden_transformers.py each leave build/oracles/ENGINE.npz; running this file
joins them, writes the golden files and prints how far the engines are apart: no implementation can be
asked to agree with either more closely than they agree with each other.
"""

import hashlib
import json
import pathlib

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "models/smollm2-135m-instruct-q4_1.gguf"
TEXT = ROOT / "models/austen.txt"
ENGINES = ["llama_cpp", "transformers"]

SCORED_TOKENS = 512
PASSAGE_START = b"It is a truth universally acknowledged"  # Pride and Prejudice, chapter 1
PASSAGE_BYTES = 4000

GREEDY_TOKENS = 32
PROMPTS = [
    "The capital of France is",
    "Once upon a time, there was a little girl who",
    "def fibonacci(n):\n",
    "Water boils at 100 degrees Celsius, which is",
    "<|im_start|>user\nName three colours.<|im_end|>\n<|im_start|>assistant\n",
]


def passage():
    text = TEXT.read_bytes()
    start = text.index(PASSAGE_START)
    return text[start:start + PASSAGE_BYTES].decode()


def answer_path(engine):
    return ROOT / f"build/oracles/{engine}.npz"


def log_softmax(logits):
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def save_answer(engine, versions, tokens, logits, prompt_ids, greedy_ids, **more):
    """tokens: the SCORED_TOKENS + 1 ids of the passage; logits: [SCORED_TOKENS, vocabulary]."""
    path = answer_path(engine)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, versions=versions, tokens=tokens, logits=logits[:SCORED_TOKENS],
             prompt_ids=json.dumps(prompt_ids), greedy_ids=np.array(greedy_ids), **more)
    print(f"{engine}: {versions}: wrote {path.relative_to(ROOT)}")


def header(answers):
    lines = [f"{engine}: {answers[engine]['versions']}" for engine in ENGINES]
    lines.append(f"model: {MODEL.name}, SHA-256 {hashlib.sha256(MODEL.read_bytes()).hexdigest()}")
    return lines


def apart(answers, tokens):
    """The engines' log-probabilities of the next tokens; transformers' most likely tokens and by how
    much each beats the runner-up; and lines that say how far the engines are apart."""
    log_probs = [log_softmax(answers[engine]["logits"]) for engine in ENGINES]
    rows = np.arange(SCORED_TOKENS)
    scored = [lp[rows, tokens[1:]] for lp in log_probs]
    difference = np.abs(scored[0] - scored[1])
    kl = (np.exp(log_probs[1]) * (log_probs[1] - log_probs[0])).sum(axis=1)
    top1 = [lp.argmax(axis=1) for lp in log_probs]
    best_two = np.sort(log_probs[1], axis=1)[:, -2:]
    return scored, top1[1], best_two[:, 1] - best_two[:, 0], [
        f"mean |log-probability difference| {difference.mean():.6f}, 99 % {np.quantile(difference, .99):.6f}, "
        f"largest {difference.max():.6f}",
        f"KL(transformers || llama_cpp) in nats: mean {kl.mean():.6f}, median {np.median(kl):.6f}, "
        f"99 % {np.quantile(kl, .99):.6f}, largest {kl.max():.6f}",
        f"same most likely token: {(top1[0] == top1[1]).mean():.4f}",
        f"perplexity: llama_cpp {np.exp(-scored[0].mean()):.5f}, transformers {np.exp(-scored[1].mean()):.5f}",
    ]


def write(name, comments, rows):
    path = ROOT / "tests/golden" / name
    path.write_text("".join(f"# {line}\n" for line in comments) + "".join(f"{row}\n" for row in rows))
    print(f"wrote {path.relative_to(ROOT)}")


def write_log_probs(answers):
    tokens = answers["transformers"]["tokens"]
    scored, top1, margin, distance = apart(answers, tokens)
    comments = ["Log-probability (natural) that each engine gives the next token of a passage.", *header(answers),
                f"text: {TEXT.name}, from '{PASSAGE_START.decode()}', no token put before it", *distance,
                "next: the token whose log-probability stands in the row, after tokens 0..position",
                "top1: the most likely next token according to transformers; margin: its lead over the second in log-probability",
                "position token next llama_cpp transformers top1 margin"]
    rows = [f"{i} {tokens[i]} {tokens[i + 1]} {scored[0][i]:.6g} {scored[1][i]:.6g} {top1[i]} {margin[i]:.4g}"
            for i in range(SCORED_TOKENS)]
    write("smollm2_logprobs.txt", comments, rows)
    print(*distance, sep="\n")


def write_greedy(answers):
    comments = [f"The {GREEDY_TOKENS} most likely tokens after each prompt, one by one, end tokens not heeded.",
                *header(answers), "for each prompt: its text as a JSON string, its token ids, each engine's tokens,",
                "and by how much each of transformers' tokens beats the runner-up in log-probability"]
    prompt_ids = json.loads(str(answers["transformers"]["prompt_ids"]))
    rows = []
    for i, prompt in enumerate(PROMPTS):
        rows += [f"prompt {json.dumps(prompt)}", "ids " + " ".join(map(str, prompt_ids[i]))]
        rows += [f"{engine} " + " ".join(map(str, answers[engine]["greedy_ids"][i])) for engine in ENGINES]
        rows.append("margin " + " ".join(f"{m:.4g}" for m in answers["transformers"]["greedy_margins"][i]))
        first, second = (answers[engine]["greedy_ids"][i] for engine in ENGINES)
        agreed = next((n for n in range(GREEDY_TOKENS) if first[n] != second[n]), GREEDY_TOKENS)
        print(f"prompt {i}: the first {agreed} of {GREEDY_TOKENS} greedy tokens agree")
    write("smollm2_greedy.txt", comments, rows)


def main():
    answers = {engine: dict(np.load(answer_path(engine))) for engine in ENGINES}
    first, second = (answers[engine] for engine in ENGINES)
    if not np.array_equal(first["tokens"], second["tokens"]):
        raise SystemExit("the engines do not tokenize the passage alike")
    if str(first["prompt_ids"]) != str(second["prompt_ids"]):
        raise SystemExit("the engines do not tokenize the prompts alike:\n"
                         f"{first['prompt_ids']}\n{second['prompt_ids']}")
    write_log_probs(answers)
    write_greedy(answers)


if __name__ == "__main__":
    main()
