"""Products of 8-bit matrices against onnxruntime, each in its default mode, on one thread.

    python -m bench.int8_gemm [--targets x86-avx2,cpu] [--seconds 3] [--record FILE]

A is uint8 data, B int8 weights. The forms are MatMulInteger (int32 result), QLinearMatMul and a product between
DequantizeLinear and QuantizeLinear (uint8 result). Calls take turns; what counts is the processor time of each
engine's fastest one, so that a busy machine spoils little. onnxruntime runs the instructions of this machine,
whatever our target is.
"""

import argparse
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

import xcompile

SHAPES = ((1, 4096, 4096), (1, 1024, 1024), (64, 1024, 1024), (512, 1024, 1024))
"""Rows, depth, columns."""

FORMS = ("MatMulInteger", "QLinearMatMul", "QDQ")


def model(form: str, m: int, k: int, n: int) -> onnx.ModelProto:
    """A model of one product."""
    weights = np.random.default_rng(0).integers(-128, 128, (k, n)).astype(np.int8)
    constants = {
        "w": weights,
        "scale": np.float32(1 / 64),
        "w_scale": np.float32(1 / 128),
        "y_scale": np.float32(k**0.5 / 4),
        "middle": np.uint8(128),
        "zero": np.int8(0),
    }
    nodes = {
        "MatMulInteger": [helper.make_node("MatMulInteger", ["x", "w"], ["y"])],
        "QLinearMatMul": [
            helper.make_node(
                "QLinearMatMul",
                ["x", "scale", "middle", "w", "w_scale", "zero", "y_scale", "middle"],
                ["y"],
            )
        ],
        "QDQ": [
            helper.make_node("DequantizeLinear", ["x", "scale", "middle"], ["xf"]),
            helper.make_node("DequantizeLinear", ["w", "w_scale", "zero"], ["wf"]),
            helper.make_node("MatMul", ["xf", "wf"], ["yf"]),
            helper.make_node("QuantizeLinear", ["yf", "y_scale", "middle"], ["y"]),
        ],
    }[form]
    result = onnx.TensorProto.INT32 if form == "MatMulInteger" else onnx.TensorProto.UINT8
    used = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes,
        form,
        [helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, [m, k])],
        [helper.make_tensor_value_info("y", result, [m, n])],
        [numpy_helper.from_array(np.asarray(a), c) for c, a in constants.items() if c in used],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def runners(
    form: str, shape: tuple[int, int, int], targets: list[str]
) -> dict[str, Callable[[], object]]:
    """A call of each engine on the same data, the results in memory that is there before."""
    m, k, n = shape
    proto = model(form, m, k, n)
    x = np.random.default_rng(1).integers(0, 256, (m, k)).astype(np.uint8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    calls: dict[str, Callable[[], object]] = {"onnxruntime": lambda: session.run(None, {"x": x})}
    for target in targets:
        compiled = xcompile.compile(proto, target, threads=1)
        y = np.empty((m, n), np.int32 if form == "MatMulInteger" else np.uint8)

        def call(compiled: xcompile.CompiledModel = compiled, y: np.ndarray = y) -> object:
            return compiled.run([x], {"y": y})

        calls[target] = call
    return calls


def fastest(
    calls: Mapping[str, Callable[[], object]],
    seconds: float,
    clock: Callable[[], float] = time.thread_time,
) -> dict[str, float]:
    """Microseconds, of processor time by default, of the fastest call of each, which take turns for some seconds."""
    best = dict.fromkeys(calls, float("inf"))
    for call in calls.values():
        call()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, call in calls.items():
            start = clock()
            call()
            best[name] = min(best[name], 1e6 * (clock() - start))
    return best


def main() -> None:
    """Compare the engines on each shape and form."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--targets", default="x86-avx2,cpu")
    parser.add_argument("--seconds", type=float, default=3.0, help="for each shape and form")
    parser.add_argument("--record", type=Path)
    arguments = parser.parse_args()
    rows: list[dict[str, object]] = []
    for shape in SHAPES:
        for form in FORMS:
            targets = arguments.targets.split(",")
            times = fastest(runners(form, shape, targets), arguments.seconds)
            products = shape[0] * shape[1] * shape[2]
            shown = "  ".join(
                f"{name} {us:.1f} µs {products / us / 1e3:.0f} GMAC/s" for name, us in times.items()
            )
            ratios = "  ".join(f"{times[t] / times['onnxruntime']:.2f}" for t in targets)
            print(
                f"{'x'.join(map(str, shape))} {form}: {shown} | ours / theirs {ratios}", flush=True
            )
            rows.append({"shape": shape, "form": form, "us": times})
    if arguments.record:
        arguments.record.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
