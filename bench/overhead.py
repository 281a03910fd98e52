"""What a call costs besides the kernels: Python over the native entry, and a launch of almost nothing.

python -m bench.overhead [--record FILE]
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

import xcompile


def chain(ops: int) -> onnx.ModelProto:
    """A model of so many additions on one element."""
    nodes = [helper.make_node("Add", [f"v{i}", "x"], [f"v{i + 1}"]) for i in range(ops)]
    graph = helper.make_graph(
        nodes, "chain",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in ("v0", "x")],
        [helper.make_tensor_value_info(f"v{ops}", TensorProto.FLOAT, [1])],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def fastest(call: Callable[[], object], count: int = 2000, rounds: int = 15) -> float:
    """Seconds of one call, the fastest of some rounds."""
    call()
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(count):
            call()
        best = min(best, (time.perf_counter() - start) / count)
    return best


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--record", type=Path)
    arguments = parser.parse_args()
    x = np.ones(1, np.float32)
    one = xcompile.compile(chain(1), threads=1)
    y = np.empty(1, np.float32)
    name = one.outputs[0].name
    call = fastest(lambda: one.run([x, x], {name: y}))
    thousand = xcompile.compile(chain(1000), threads=1, passes="kernel-form{fuse=false}")
    launches = len(thousand.artifact.program.launches)
    run = fastest(lambda: thousand.run([x, x], {thousand.outputs[0].name: y}), 100)
    assert y[0] == 1001, y
    per_launch = (run - call) / launches
    print(f"model.run with preallocated outputs, one element: {call * 1e6:.2f} µs")
    print(f"{launches} launches of one element: {run * 1e6:.1f} µs, {per_launch * 1e9:.0f} ns each")
    if arguments.record:
        record = {"call_s": call, "launches": launches, "run_s": run, "launch_s": per_launch}
        arguments.record.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
