"""The arithmetic of quality.py, and the base file that `kvant eval` writes for it."""

import math
import struct

import numpy
import pytest

import quality


def test_kl_is_what_two_coins_differ_by():
    fair, biased = numpy.log([[0.5, 0.5]]), numpy.log([[0.9, 0.1]])
    expected = 0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1)
    assert quality.kl_nats(fair, biased) == pytest.approx([expected])
    assert quality.kl_nats(fair, fair) == pytest.approx([0])


def test_log_softmax_does_not_mind_a_shift():
    logits = numpy.array([[1.0, 2.0, 3.0]], dtype=numpy.float32)
    plain, shifted = quality.log_softmax(logits), quality.log_softmax(logits + 500)
    assert numpy.exp(plain).sum() == pytest.approx(1)
    assert shifted == pytest.approx(plain, abs=1e-4)


def test_chunks_come_out_of_a_base_file(tmp_path):
    path = tmp_path / "base"
    path.write_bytes(b"_logits_" + struct.pack("<iii", 4, 9, 2) + struct.pack("<8i", *range(8)) + b"rows")
    assert quality.read_chunks(path).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(ValueError, match="ends inside its tokens"):
        quality.read_chunks(path)
    path.write_bytes(b"GGUF" + bytes(30))
    with pytest.raises(ValueError, match="not a file of base logits"):
        quality.read_chunks(path)


def test_the_second_half_is_scored_without_the_last_token():
    assert list(quality.scored(8)) == [4, 5, 6]


class Peer:
    """An engine whose cache moves one logit."""

    def __init__(self, _model, cache, _threads, _ctx):
        self.shift = {"f16": 0.0, "q4_0": 1.0}[cache]
        self.about = {"version": "0"}

    def logits(self, tokens, keep):
        rows = numpy.zeros((len(keep), 4), dtype=numpy.float32)
        rows[:, 0] = self.shift
        rows[:, 1] = numpy.asarray(tokens)[list(keep)]
        return rows


def test_every_cache_is_measured_against_the_first(monkeypatch):
    monkeypatch.setitem(quality.ENGINES, "peer", Peer)
    chunks = numpy.array([[0, 0, 0, 0, 5, 0, 5, 0]])
    rows = list(quality.measure("peer", "m", ["f16", "f16", "q4_0"], chunks, 2))
    assert [row["positions"] for row in rows] == [3, 3]
    assert rows[0]["kl_mean_nats"] == 0 and rows[0]["same_top1_pct"] == 100
    uniform = math.log((math.e + 3) / 4) - 0.25
    assert rows[1]["kl_mean_nats"] == pytest.approx((uniform + 2 * _kl_of_a_sharp_row()) / 3, rel=1e-4)


class Generator:
    """onnxruntime's: the logits of the last token, of what has been read."""

    def __init__(self):
        self.read, self.calls = [1, 2, 3], []

    def rewind_to(self, depth):
        del self.read[depth:]

    def append_tokens(self, tokens):
        self.calls.append(len(tokens))
        self.read += tokens.tolist()

    def get_logits(self):
        return numpy.array([[[len(self.read), self.read[-1]]]])


def test_onnxruntime_reads_one_by_one_what_counts():
    peer = quality.OnnxRuntime.__new__(quality.OnnxRuntime)
    peer.generator = Generator()
    tokens = numpy.arange(100, 100 + 1210)
    assert peer.logits(tokens, range(605, 609)).tolist() == [[606, 705], [607, 706], [608, 707], [609, 708]]
    assert peer.generator.calls == [512, 93, 1, 1, 1, 1]


class Request:
    """OpenVINO's: a row for every token that it is given."""

    def infer(self, inputs):
        assert inputs["past_lens"] == inputs["position_ids"][0]
        assert inputs["subsequence_begins"].tolist() == [0, len(inputs["input_ids"])]
        assert inputs["max_context_len"] == inputs["position_ids"][-1] + 1
        return {"logits": numpy.stack([inputs["position_ids"], inputs["input_ids"]], axis=1)[:, None]}


def test_openvino_keeps_the_rows_that_count():
    peer = quality.OpenVino.__new__(quality.OpenVino)
    peer.request, peer.blocks = Request(), 38
    tokens = numpy.arange(100, 100 + 1210)
    kept = peer.logits(tokens, quality.scored(1210))
    assert kept.tolist() == [[i, 100 + i] for i in range(605, 1209)]


def _kl_of_a_sharp_row():
    base = quality.log_softmax(numpy.array([[0.0, 5.0, 0.0, 0.0]]))
    return float(quality.kl_nats(base, quality.log_softmax(numpy.array([[1.0, 5.0, 0.0, 0.0]])))[0])
