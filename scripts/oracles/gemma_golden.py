"""Writes tests/golden/gemma3_logprobs.txt and gemma3_greedy.txt from gemma_llama_cpp.py's answers.

Beside them stand the log-probabilities of a forward pass written here with numpy, in f32 from the
file's dequantised weights, whole rows at once and without a cache. (Gemma 3, arXiv 2503.19786.)
"""

import hashlib
import json
from importlib.metadata import version

import gguf
import numpy as np

import golden

MODEL = golden.ROOT / "models/gemma3-270m-q4_k_m.gguf"
FULL_EVERY, WINDOW_ROPE_BASE = 6, 10000.0  # what no key of the file says


class Gemma:
    def __init__(self):
        reader = gguf.GGUFReader(MODEL)
        self.tensors = {t.name: gguf.quants.dequantize(t.data, t.tensor_type) for t in reader.tensors}
        key = lambda name: reader.fields[f"gemma3.{name}"].contents()
        self.layers, self.heads, self.kv_heads = key("block_count"), key("attention.head_count"), key("attention.head_count_kv")
        self.dim, self.epsilon = key("attention.key_length"), key("attention.layer_norm_rms_epsilon")
        self.window, self.rope_base = key("attention.sliding_window"), key("rope.freq_base")

    def norm(self, x, name):
        x = x.astype(np.float64)
        mean = (x * x).mean(-1, keepdims=True)
        return (x / np.sqrt(mean + self.epsilon) * self.tensors[name + ".weight"]).astype(np.float32)

    def rope(self, x, base):
        """x: [tokens][heads][dim]; channels i and i + dim / 2 turn together."""
        half = self.dim // 2
        angle = np.arange(len(x))[:, None] * base ** (-np.arange(half) / half)
        c, s = (f(angle)[:, None].astype(np.float32) for f in (np.cos, np.sin))
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * c - b * s, a * s + b * c], -1)

    def attend(self, x, block, layer):
        windowed = (layer + 1) % FULL_EVERY != 0
        base = WINDOW_ROPE_BASE if windowed else self.rope_base
        project = lambda name, heads: (x @ self.tensors[f"{block}{name}.weight"].T).reshape(len(x), heads, self.dim)
        q = self.rope(self.norm(project("attn_q", self.heads), block + "attn_q_norm"), base)
        k = self.rope(self.norm(project("attn_k", self.kv_heads), block + "attn_k_norm"), base)
        v = project("attn_v", self.kv_heads)
        age = np.arange(len(x))[:, None] - np.arange(len(x))
        visible = (age >= 0) & ((age < self.window) | (not windowed))
        out = np.empty_like(q)
        for head in range(self.heads):
            kv = head * self.kv_heads // self.heads
            scores = np.where(visible, q[:, head] @ k[:, kv].T / np.sqrt(self.dim), -np.inf).astype(np.float64)
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            out[:, head] = (weights / weights.sum(-1, keepdims=True)).astype(np.float32) @ v[:, kv]
        return out.reshape(len(x), -1) @ self.tensors[block + "attn_output.weight"].T

    def feed_forward(self, x, block):
        gate = (x @ self.tensors[block + "ffn_gate.weight"].T).astype(np.float64)
        gelu = gate / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)))
        return (gelu.astype(np.float32) * (x @ self.tensors[block + "ffn_up.weight"].T)) @ self.tensors[block + "ffn_down.weight"].T

    def log_probs(self, tokens):
        """Of each token that follows another."""
        embedding = self.tensors["token_embd.weight"]
        x = embedding[tokens[:-1]] * np.float32(np.sqrt(embedding.shape[1]))
        for layer in range(self.layers):
            block = f"blk.{layer}."
            x = x + self.norm(self.attend(self.norm(x, block + "attn_norm"), block, layer), block + "post_attention_norm")
            x = x + self.norm(self.feed_forward(self.norm(x, block + "ffn_norm"), block), block + "post_ffw_norm")
        x = self.norm(x, "output_norm")
        rows = [golden.log_softmax(x[i:i + 64] @ embedding.T)[np.arange(len(x[i:i + 64])), tokens[i + 1:i + 65]]
                for i in range(0, len(x), 64)]
        return np.concatenate(rows)


def main():
    answers = dict(np.load(golden.answer_path("gemma_llama_cpp")))
    header = [f"llama_cpp: {answers['versions']}", f"numpy: {version('numpy')}, f32",
              f"model: {MODEL.name}, SHA-256 {hashlib.sha256(MODEL.read_bytes()).hexdigest()}"]
    tokens, llama_cpp = answers["tokens"], answers["log_probs"]
    numpy = Gemma().log_probs(tokens)
    apart = np.abs(numpy - llama_cpp)
    golden.write("gemma3_logprobs.txt", [
        "Log-probability (natural) that each engine gives the next token of a passage.", *header,
        f"text: {golden.TEXT.name}, from '{golden.PASSAGE_START.decode()}', bos before it",
        f"mean |log-probability difference| {apart.mean():.6f}, largest {apart.max():.6f}",
        "position token next llama_cpp numpy",
    ], [f"{i} {tokens[i]} {tokens[i + 1]} {llama_cpp[i]:.6g} {numpy[i]:.8g}" for i in range(len(numpy))])
    rows = []
    for text, ids, (greedy, margins) in zip(*(json.loads(str(answers[k])) for k in ["texts", "prompts", "answers"])):
        rows += [f"prompt {json.dumps(text)}", "ids " + " ".join(map(str, ids)),
                 "llama_cpp " + " ".join(map(str, greedy)), "margin " + " ".join(f"{m:.4g}" for m in margins)]
    golden.write("gemma3_greedy.txt", [
        f"The {golden.GREEDY_TOKENS} most likely tokens after each prompt, one by one, end tokens not heeded.", *header,
        "for each prompt: its text as a JSON string, its token ids, llama.cpp's tokens, and by how much the",
        "logit of each beats the runner-up's"], rows)


if __name__ == "__main__":
    main()
