"""kvant calibrate and what reads its file, as a user meets them."""

import pytest

from command_line import MODEL, TEXT, assert_refused, json_of, kvant, output_of

FIT = "fit3:mean:bal:n8/fit3:n8"
SMOOTH = ("-ctk", "int4:token:rzero:smooth", "-ctv", "int4:token:rzero")


@pytest.fixture(scope="module")
def calibration(tmp_path_factory):
    path = tmp_path_factory.mktemp("calibration") / "smollm2.cal"
    said = output_of("calibrate", "-m", MODEL, "-f", TEXT, "-o", path, "--tokens", 512, "-c", 256)
    assert "512 tokens of 30 layers" in said
    return path


def test_every_command_takes_a_calibration(calibration):
    use = ("--calibration", calibration)
    (context,) = json_of("eval", "-m", MODEL, "-f", TEXT, *use, "--kv", FIT, "--ctx", 256, "--tokens", 32,
                         "--greedy", 0, "--json")["contexts"]
    assert 0 < context["mean_kl"] < 1
    report = json_of("run", "-m", MODEL, "-p", "Once upon a time", "-n", 4, *use, *SMOOTH, "--json")
    assert report["formats"]["k"] == "int4:token:rzero:smooth"
    explained = json_of("explain", "-m", MODEL, *use, "--kv", FIT, "--json")
    assert explained["kv"]["bytes_per_token"] == json_of("explain", "-m", MODEL, "--kv", "int3", "--json")[
        "kv"]["bytes_per_token"]
    out = output_of("bench", "-m", MODEL, *use, "--kv", FIT, "-p", 8, "-n", 2, "-d", 0, "-r", 1, "-o", "jsonl")
    assert "fit3:n8" in out


def test_a_format_without_its_calibration_is_refused_by_name():
    for command in (["eval", "-m", MODEL, "-f", TEXT], ["run", "-m", MODEL, "-p", "x"], ["explain", "-m", MODEL]):
        assert_refused(kvant(*command, "--kv", FIT), 2, "fit3:mean:bal:n8", "--calibration")
    assert_refused(kvant("run", "-m", MODEL, "-p", "x", *SMOOTH), 2, "int4:token:rzero:smooth", "--calibration")
    assert_refused(kvant("run", "-m", MODEL, "-p", "x", "--kv", "auto"), 2, "auto", "--calibration")


def test_files_that_do_not_fit_are_refused(calibration, tmp_path):
    data = calibration.read_bytes()
    bad = tmp_path / "bad.cal"

    def refused(bytes_, code, *words):
        bad.write_bytes(bytes_)
        assert_refused(kvant("run", "-m", MODEL, "-p", "x", "--kv", FIT, "--calibration", bad), code, *words)

    refused(data[:-1], 1, "bad.cal", "checksum")
    refused(data[:1000] + bytes([data[1000] ^ 1]) + data[1001:], 1, "bad.cal", "checksum")
    refused(MODEL.read_bytes()[:4096], 1, "bad.cal", "no calibration file")
    assert_refused(kvant("run", "-m", MODEL, "-p", "x", "--kv", FIT, "--calibration", tmp_path / "none.cal"), 1,
                   "none.cal")
    assert_refused(kvant("run", "-m", MODEL, "-p", "x", "--kv", "auto", "--calibration", calibration), 2,
                   "--budget-bits")


def test_calibrate_refuses_what_it_cannot_do(tmp_path):
    short = tmp_path / "short.txt"
    short.write_text("A few words.")
    assert_refused(kvant("calibrate", "-m", MODEL, "-f", short, "-o", tmp_path / "x.cal"), 1, "2048")
    assert_refused(kvant("calibrate", "-m", MODEL, "-f", TEXT, "-o", tmp_path / "no" / "x.cal"), 1, "x.cal")
    # 1 MiB over 8,192 tokens of 11,520 values is .0889 bits a value.
    assert_refused(kvant("calibrate", "-m", MODEL, "-f", TEXT, "-o", tmp_path / "x.cal", "--tokens", 512, "-c", 256,
                         "--kv-budget", "1M"), 2, "a budget of 0.0888", "2-bit codes everywhere")
    for flags in (("--kv-budget", "1M", "--budget-bits", 3), ("--budget-tokens", 10)):
        assert_refused(kvant("calibrate", "-m", MODEL, "-f", TEXT, "-o", tmp_path / "x.cal", *flags), 2, "--kv-budget")
    assert not list(tmp_path.glob("*.cal"))
