"""Writes tests/golden/smollm2_tokens.txt: ids by Hugging Face's tokenizers, prompts by Jinja.

Vocabulary, merges and chat template are those of the GGUF file; the pre-tokenizer is the one that
SmolLM2 was trained with: each digit apart, then byte level.
"""

import pathlib
from importlib.metadata import version

import gguf
import jinja2.sandbox
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "models/smollm2-135m-instruct-q4_1.gguf"
GOLDEN = ROOT / "tests/golden/smollm2_tokens.txt"
CONTROL = 3  # tokenizer.ggml.token_type

TEXTS = [
    "",
    " ",
    "Hello, world!",
    "It is a truth universally acknowledged, that a single man in possession of a good fortune, must be",
    "1234567",
    "x 1234567 y",
    "3.14159265358979",
    "2024-11-29T22:21:26Z",
    "a   1",
    "a   b",
    "price: $1,299.00 (-15%)",
    "٣½²Ⅷ",
    "naïve café, Ångström, Zoë, São Paulo",
    "cafe\u0301 e\u0301a\u0308",
    "Straße ÆØÅ ŁÓDŹ İstanbul",
    "Привет, мир! Здравствуйте",
    "Γειά σου Κόσμε",
    "你好，世界。今天天气很好",
    "日本語のテキスト、カタカナ",
    "안녕하세요 세계",
    "שלום עולם",
    "مرحبا بالعالم",
    "नमस्ते दुनिया",
    "สวัสดีชาวโลก",
    "😀",
    "👍🏽 👩‍👩‍👧‍👦 🇩🇪 🏳️‍🌈",
    "emoji😀between🎉words",
    "∑∞≠≤ → ← ∀x∈ℝ",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟙𝟚𝟛",
    "  two", "   three", "    four", "                sixteen", "trailing   ",
    "a\tb\t\tc", "\t\tindented",
    "line\nline\n\nline\n\n\nline\n",
    "a\r\nb\r\n\r\nc\r\n",
    " \n \n x",
    "\u00a0nbsp\u00a0 \u2003em\u3000ideographic",
    "nel\u0085\u0085 ogham\u1680 mvs\u180e zwsp\u200b bom\ufeff",
    "control \u0000\u0001\u0007\u001b[0m",
    "I'm you're he'd we'll they've it's don't",
    "I'M YOU'RE HE'D WE'LL THEY'VE IT'S DON'T",
    "''s 'S 's's 'tis 'ſ",
    "rock'n'roll 'quoted' \"double\" `tick`",
    "...!!!???---___***",
    "a.b,c;d:e/f\\g|h",
    "C++20 std::vector<int> v{1, 2, 3};",
    "def fibonacci(n):\n    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)\n",
    "for (int i = 0; i < 10; ++i) {\n\tprintf(\"%d\\n\", i);\n}\r\n",
    "{\"key\": [1, 2.5e-3, null], \"nested\": {\"a\": \"b\"}}",
    "<html><body class=\"x\">&nbsp;</body></html>",
    "SELECT * FROM t WHERE id = 42 -- comment",
    "https://example.com/path?q=1&r=%20#frag",
    "user.name+tag@example.co.uk",
    "snake_case camelCase PascalCase SCREAMING_CASE kebab-case",
    "pneumonoultramicroscopicsilicovolcanoconiosis",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    " <|im_end|> <|im_end|x|><|endoftext|><|im_start",
    "<repo_name>r<file_sep>f<filename>g",
]

CHATS = [
    [("system", "You are terse."), ("user", "Name three colours.")],
    [("user", "Name three colours.")],
    [("user", "one"), ("user", "two")],
    [("user", "")],
    [("system", ""), ("user", "")],
    [("user", "  leading\n"), ("assistant", "\ntrailing  "), ("user", "12 é 😀")],
    [("assistant", "I begin"), ("system", "late")],
]


def make_tokenizer(tokens, types, merges):
    model = models.BPE({t: i for i, t in enumerate(tokens)}, [tuple(m.split(" ")) for m in merges])
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    ])
    tokenizer.add_special_tokens([
        AddedToken(t, special=True, normalized=False) for t, kind in zip(tokens, types) if kind == CONTROL
    ])
    return tokenizer


def escape(text):
    return "".join(chr(b) if 0x20 <= b < 0x7f and b != 0x5c else f"\\x{b:02x}" for b in text.encode())


def main():
    fields = gguf.GGUFReader(MODEL).fields
    tokens, types, merges = (fields[f"tokenizer.ggml.{key}"].contents()
                             for key in ["tokens", "token_type", "merges"])
    tokenizer = make_tokenizer(tokens, types, merges)
    # The two options that transformers sets for every model's template.
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(fields["tokenizer.chat_template"].contents())

    def ids(text):
        return " ".join(map(str, tokenizer.encode(text, add_special_tokens=False).ids))

    lines = [
        f"# {MODEL.name}: tokenizers {version('tokenizers')}, jinja2 {version('jinja2')}",
        "# Fields are separated by tabs; a byte outside 0x20..0x7e, and a backslash, is \\xHH.",
        "# text TEXT IDS: special tokens in the text are read as such",
        "# chat GENERATION_PROMPT IDS RENDERED [ROLE CONTENT]...",
    ]
    lines += ["\t".join(["text", escape(text), ids(text)]) for text in TEXTS]
    for i, chat in enumerate(CHATS):
        generation = i % 3 != 2
        messages = [{"role": role, "content": content} for role, content in chat]
        rendered = template.render(messages=messages, add_generation_prompt=generation)
        turns = [escape(field) for message in chat for field in message]
        lines.append("\t".join(["chat", str(int(generation)), ids(rendered), escape(rendered), *turns]))
    GOLDEN.write_text("\n".join(lines) + "\n", encoding="ascii")
    print(f"{len(TEXTS)} texts and {len(CHATS)} chats in {GOLDEN.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
