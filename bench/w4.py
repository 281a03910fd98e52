"""One row times matrices of 4 bits: how near to the memory's speed, and beside onnxruntime.

    python -m bench.w4 [--size 4096] [--block 32] [--layers 6] [--rows 1] [--threads 1,2] [--seconds 5] [--record FILE]

The model is a row of MatMulNBits layers with weights of their own, more than the last cache holds, so that each layer
reads its packed bytes (codes and scales) from memory. A copy of as many bytes by as many threads is measured in the
same run, calls taking turns; the fastest of each counts. A copy reads and writes: `copied` counts its bytes once,
`moved` twice.
"""

import argparse
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

import xcompile
from bench.int8_gemm import fastest


def model(size: int, block: int, layers: int, rows: int) -> onnx.ModelProto:
    """Square layers, one after the other."""
    rng, blocks = np.random.default_rng(0), size // block
    nodes: list[onnx.NodeProto] = []
    constants: list[onnx.TensorProto] = []
    for i in range(layers):
        codes = rng.integers(0, 256, (size, blocks, block // 2)).astype(np.uint8)
        scales = (rng.uniform(0.5, 1, (size, blocks)) / size**0.5 / 4).astype(np.float32)
        constants += [
            numpy_helper.from_array(codes, f"b{i}"),
            numpy_helper.from_array(scales, f"s{i}"),
        ]
        nodes.append(
            helper.make_node(
                "MatMulNBits",
                [f"x{i}", f"b{i}", f"s{i}"],
                [f"x{i + 1}"],
                domain="com.microsoft",
                K=size,
                N=size,
                bits=4,
                block_size=block,
            )
        )
    value = helper.make_tensor_value_info
    ends = [value(f"x{i}", onnx.TensorProto.FLOAT, [rows, size]) for i in (0, layers)]
    graph = helper.make_graph(nodes, "w4", ends[:1], ends[1:], constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def copying(count: int, threads: int) -> Callable[[], object]:
    """A call that copies `count` bytes with so many threads."""
    pool = ThreadPoolExecutor(threads)
    source = np.split(np.ones(count // threads * threads, np.uint8), threads)
    target = np.split(np.zeros(count // threads * threads, np.uint8), threads)
    return lambda: list(pool.map(np.copyto, target, source))


def main() -> None:
    """Measure each number of threads."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, value in {"size": 4096, "block": 32, "layers": 6, "rows": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each number of threads")
    parser.add_argument("--record", type=Path)
    given = parser.parse_args()
    proto = model(given.size, given.block, given.layers, given.rows)
    packed = given.size * given.size // 2 + 4 * given.size * (given.size // given.block)
    x = np.random.default_rng(1).standard_normal((given.rows, given.size)).astype(np.float32)
    rows: list[dict[str, object]] = []
    for threads in map(int, given.threads.split(",")):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
        compiled = xcompile.compile(proto, given.target, threads=threads)
        times = fastest(
            {
                "xcompile": lambda: compiled.run([x]),  # noqa: B023
                "onnxruntime": lambda: session.run(None, {"x0": x}),  # noqa: B023
                "copy": copying(packed * given.layers, threads),
            },
            given.seconds,
            time.perf_counter,
        )
        rates = {name: packed * given.layers / s / 1e3 for name, s in times.items()}
        ours, theirs = (times[name] / given.layers for name in ("xcompile", "onnxruntime"))
        share = rates["xcompile"] / rates["copy"]
        print(
            f"{threads} threads, {given.rows}x{given.size}x{given.size}, blocks of {given.block}: "
            f"xcompile {ours:.0f} µs a layer, {rates['xcompile']:.1f} GB/s of {packed / 1e6:.1f} MB"
            f" = {share:.2f} of copied and {share / 2:.2f} of moved bytes ({rates['copy']:.1f} GB/s copied); "
            f"onnxruntime {theirs:.0f} µs",
            flush=True,
        )
        rows.append({"threads": threads, "packed_bytes": packed, "microseconds": times})
    if given.record:
        given.record.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
