"""Makes a model folder for onnxruntime-genai out of a GGUF file.

usage: prepare_onnx.py MODEL.gguf f32|int8|int4 FOLDER

The weights are dequantized and quantized again, to int4 in blocks of 32, which is near what Q4_0 and Q4_1
hold. int8 and int4 caches have a scale a channel, which a calibration finds on a text: the tool's own.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

SCHEMES = {"f32": None, "int8": "int8_per_channel", "int4": "int4_per_channel"}
CONTEXT_TOKENS = 40960  # decoding past the trained length is refused otherwise
CALIBRATION_BYTES = 200000


def dequantize(gguf, folder):
    import torch
    import transformers

    source = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    quantized = transformers.AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    settings = quantized.config.to_dict()
    settings.pop("quantization_config", None)
    config = type(quantized.config)(**settings)
    config.max_position_embeddings = CONTEXT_TOKENS
    model = type(quantized)(config)
    model.load_state_dict(quantized.state_dict())
    model.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(**source).save_pretrained(folder)


def run(module, *arguments, **options):
    settings = [f"{name}={value}" for name, value in options.items()]
    subprocess.run([sys.executable, "-m", f"onnxruntime_genai.models.{module}", *map(str, arguments),
                    *(["--extra_options", *settings] if settings else [])], check=True)


def build(source, folder, **cache_options):
    run("builder", "-i", source, "-o", folder, "-p", "int4", "-e", "cpu", "-c", source / "cache",
        accuracy_level=4, block_size=32, prune_lm_head="true", **cache_options)


def calibration_text(folder):
    """Python's own documentation: English, and everywhere."""
    from pydoc_data.topics import topics

    text = folder / "text.txt"
    text.write_text("\n".join(topics.values())[:CALIBRATION_BYTES])
    return text


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("gguf", type=pathlib.Path)
    parser.add_argument("cache", choices=SCHEMES)
    parser.add_argument("folder", type=pathlib.Path)
    options = parser.parse_args()
    scheme = SCHEMES[options.cache]
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        dequantize(options.gguf.resolve(), work / "hf")
        if scheme is None:
            build(work / "hf", work / "made")
        else:
            build(work / "hf", work / "plain")
            run("quantization.kv_cache_calibration", "--model", work / "plain", "--tokenizer", work / "hf", "--out",
                work / "scales.json", "--quant-type", scheme, "--corpus-file", calibration_text(work))
            build(work / "hf", work / "made", kv_cache_quant_scheme=scheme, kv_cache_scale_file=work / "scales.json")
        options.folder.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mv", work / "made", options.folder], check=True)


if __name__ == "__main__":
    main()
