"""Writes tests/golden/gemma3_tokens.txt and tests/golden/sentence_piece_tokens.txt.

Ids are those of Hugging Face's tokenizers, whose BPE is no code of SentencePiece: its merges are made
here from a vocabulary's scores. The second file holds a vocabulary of its own too, small enough to be
read by a unit test and trained by SentencePiece, which must then give the same ids.
"""

import io
import pathlib
from importlib.metadata import version

import gguf
import sentencepiece
from tokenizers import AddedToken, Tokenizer, models, normalizers

import tokenizer_golden

ROOT = tokenizer_golden.ROOT
MODEL = ROOT / "models/gemma3-270m-q4_k_m.gguf"
AUSTEN = ROOT / "models/austen.txt"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  # tokenizer.ggml.token_type
SPACE = "\u2581"

TEXTS = [
    *tokenizer_golden.TEXTS,
    "<start_of_turn>user\nHi there<end_of_turn>\n<start_of_turn>model\n",
    " <end_of_turn> <end_of_turn|><start_of_turn",
    "<b>bold</b> <table><tr><td>1</td></tr></table>",
    "\n" * 40, " " * 40, "\t" * 40, "a" + "\n" * 7 + "b" + " " * 9 + "c",
    "\U0001f9ff \U0001fae8 \U000e0041 \u0378 \ue000",  # characters that few vocabularies have
    SPACE + "a" + SPACE + "b",  # two would be a user-defined token to SentencePiece alone
    "[multimodal] <unused3> <mask>",
]
SMALL_SIZE = 640
SMALL_USER_DEFINED = ["\n", "\n\n", "\n\n\n", SPACE * 2, SPACE * 3, SPACE * 4, "<b>", "</b>"]
SMALL_CONTROL = ["<start_of_turn>", "<end_of_turn>"]


def make_merges(pieces, scores):
    """Every way to make a piece of two others, the best score first."""
    ids = {piece: i for i, piece in enumerate(pieces)}
    merges = []
    for piece, score in zip(pieces, scores):
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in ids and right in ids:
                merges.append((-score, ids[left], ids[right], left, right))
    return [(left, right) for *_, left, right in sorted(merges)]


def make_tokenizer(spellings, types, scores, space_prefix):
    normal = [i for i, kind in enumerate(types) if kind == NORMAL]
    merges = make_merges([spellings[i] for i in normal], [scores[i] for i in normal])
    unknown = next(s for s, kind in zip(spellings, types) if kind == UNKNOWN)
    model = models.BPE({s: i for i, s in enumerate(spellings)}, merges, unk_token=unknown, fuse_unk=True,
                       byte_fallback=BYTE in types)
    tokenizer = Tokenizer(model)
    escape_spaces = normalizers.Replace(" ", SPACE)
    tokenizer.normalizer = (normalizers.Sequence([normalizers.Prepend(SPACE), escape_spaces])
                            if space_prefix else escape_spaces)
    tokenizer.add_special_tokens([AddedToken(s, special=True, normalized=False)
                                  for s, kind in zip(spellings, types) if kind == CONTROL])
    tokenizer.add_tokens([AddedToken(s, special=False, normalized=False)
                          for s, kind in zip(spellings, types) if kind == USER_DEFINED])
    return tokenizer


def ids_of(tokenizer, text):
    return " ".join(map(str, tokenizer.encode(text, add_special_tokens=False).ids))


HEADER = [
    "# Fields are separated by tabs; a byte outside 0x20..0x7e, and a backslash, is \\xHH.",
    "# text TEXT IDS: special tokens in the text are read as such",
]


def write(path, lines):
    path.write_text("\n".join(lines) + "\n", encoding="ascii")
    print(f"wrote {path.relative_to(ROOT)}")


def text_lines(kind, tokenizer, texts):
    return ["\t".join([kind, tokenizer_golden.escape(text), ids_of(tokenizer, text)]) for text in texts]


def write_gemma():
    fields = gguf.GGUFReader(MODEL).fields
    spellings, types, scores = (fields[f"tokenizer.ggml.{key}"].contents()
                                for key in ["tokens", "token_type", "scores"])
    types[fields["tokenizer.ggml.unknown_token_id"].contents()] = UNKNOWN
    tokenizer = make_tokenizer(spellings, types, scores, False)
    write(ROOT / "tests/golden/gemma3_tokens.txt",
          [f"# {MODEL.name}: tokenizers {version('tokenizers')}", *HEADER, "# no bos in front",
           *text_lines("text", tokenizer, TEXTS)])


def train_small():
    """A vocabulary like gemma's, of Jane Austen's words and what the texts above hold besides."""
    lines = AUSTEN.read_text().splitlines()[:3000] + TEXTS * 20
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line for line in lines if line and "\0" not in line), model_writer=model,
        model_type="bpe", vocab_size=SMALL_SIZE, byte_fallback=True, character_coverage=0.98,
        normalization_rule_name="identity", add_dummy_prefix=False, remove_extra_whitespaces=False,
        split_digits=True, user_defined_symbols=SMALL_USER_DEFINED, control_symbols=SMALL_CONTROL, num_threads=1,
        minloglevel=2)
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def type_of(processor, i):
    if processor.is_unknown(i):
        return UNKNOWN
    if processor.is_control(i):
        return CONTROL
    if processor.is_byte(i):
        return BYTE
    return USER_DEFINED if processor.id_to_piece(i) in SMALL_USER_DEFINED else NORMAL


def write_small():
    processor = train_small()
    count = range(processor.get_piece_size())
    pieces = [processor.id_to_piece(i) for i in count]
    types = [type_of(processor, i) for i in count]
    scores = [processor.get_score(i) for i in count]
    # User-defined tokens as GGUF files hold them, with their spaces as they read.
    spellings = [p.replace(SPACE, " ") if t == USER_DEFINED else p for p, t in zip(pieces, types)]
    tokenizer = make_tokenizer(spellings, types, scores, False)
    prefixed = make_tokenizer(spellings, types, scores, True)
    for text in TEXTS:
        if any(control in text for control in SMALL_CONTROL):
            continue  # control tokens are not SentencePiece's to find
        expected = " ".join(map(str, processor.encode(text)))
        if ids_of(tokenizer, text) != expected:
            raise SystemExit(f"{text!r}: tokenizers {ids_of(tokenizer, text)}, SentencePiece {expected}")
    # Around user-defined tokens, and where the space in front makes one of several spaces, the two differ.
    plain = [text for text in TEXTS if not text.startswith((" ", SPACE)) and
             not any(s in text for s, t in zip(spellings, types) if t == USER_DEFINED)]
    write(ROOT / "tests/golden/sentence_piece_tokens.txt",
          [f"# tokenizers {version('tokenizers')}, sentencepiece {version('sentencepiece')}", *HEADER,
           "# prefixed TEXT IDS: the same with a space put in front of text",
           "# token TYPE SCORE SPELLING: the vocabulary, from id 0",
           *("\t".join(["token", str(t), f"{s:g}", tokenizer_golden.escape(p)])
             for t, s, p in zip(types, scores, spellings)),
           *text_lines("text", tokenizer, TEXTS), *text_lines("prefixed", prefixed, plain)])


if __name__ == "__main__":
    write_small()
    write_gemma()
