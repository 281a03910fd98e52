"""Quantized models against other engines: the same file for all, each in its default mode, in one interleaved run.

    python -m bench.quantized [NAME ...] [--threads 1] [--rounds 15] [--record FILE]

The models are those of the corpus in 32 bits, quantized by onnxruntime's own tool: explicit QuantizeLinear and
DequantizeLinear, uint8 activations, int8 weights for each output channel, ranges from three inputs. Ours is printed
beside the peers, with the figure of the float model.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bench import corpus
from bench.entries import ENTRIES
from bench.models import measured, parser_of, write_record
from bench.peers import onnxruntime_runner, openvino_runner, xcompile_runner

_PER_CHANNEL = 13
"""The first opset in which DequantizeLinear has an axis."""

NAMES = ("resnet50", "squeezenet", "pp-ocr-rec", "minilm")


def quantized(name: str) -> Path:
    """The path of a corpus model with Q/DQ pairs, which is made when it is not there."""
    import onnx
    from onnx import version_converter
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_static,
    )
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Samples(CalibrationDataReader):
        def __init__(self) -> None:
            self.left: list[Mapping[str, np.ndarray]] = [ENTRIES[name](size) for size in (1, 2, 3)]

        def get_next(self) -> Any:
            return self.left.pop() if self.left else None

    path = corpus.folder() / f"{name}-qdq.onnx"
    if not path.exists():
        prepared = path.with_suffix(f".{os.getpid()}.prepared")
        part = path.with_suffix(f".{os.getpid()}")
        model = onnx.load(corpus.model(name))
        opset = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
        if opset < _PER_CHANNEL:
            model = version_converter.convert_version(model, _PER_CHANNEL)
        onnx.save(model, part)
        quant_pre_process(str(part), str(prepared), skip_symbolic_shape=True)
        quantize_static(
            str(prepared),
            str(part),
            Samples(),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
        prepared.unlink()
        part.replace(path)
    return path


def main() -> None:
    """Compare the engines on each model."""
    parser = parser_of(__doc__, NAMES)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name in arguments.names:
        feeds, threads = ENTRIES[name](1), arguments.threads
        runners = {
            "xcompile": xcompile_runner(quantized(name), feeds, threads),
            "onnxruntime": onnxruntime_runner(quantized(name), feeds, threads),
            "openvino": openvino_runner(quantized(name), feeds, threads),
            "xcompile float": xcompile_runner(corpus.model(name), feeds, threads),
        }
        medians, dropped = measured(runners, arguments.rounds, noisy=arguments.noisy)
        ratio = medians["xcompile"] / min(medians["onnxruntime"], medians["openvino"])
        shown = "  ".join(f"{engine} {ms:.2f}" for engine, ms in medians.items())
        print(f"{name} threads {threads}: {shown} | ours / best other {ratio:.2f}", flush=True)
        rows.append({"model": name, "ms": medians, "ratio": ratio, "dropped": dropped})
    write_record(arguments.record, rows)


if __name__ == "__main__":
    main()
