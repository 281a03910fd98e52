"""The benchmark of fused attention and of the row kernels.

    python -m bench.kernel_cases.attention [lanes]

prints microseconds, and GFLOP/s of the two products, next to onnxruntime's (one thread) for the same graph.
"""

import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnxruntime

from bench.fused_attention import CompiledAttention
from bench.kernel_cases.winograd import Row, multiply_add_peak
from bench.native import aligned, runnable_targets
from xcompile.compiler.schedule.attention import AttentionProblem, AttentionSchedule
from xcompile.compiler.target.target import Target


@dataclass(frozen=True)
class Case:
    """Heads that lie between length and depth, with a mask [1, 1, 1, keys] or none."""

    name: str
    heads: int
    queries: int
    keys: int
    depth: int
    mask: bool = True

    @property
    def problem(self) -> AttentionProblem:
        row = self.heads * self.depth
        strides = (self.depth, row, 1)
        mask = (0, 0, 1) if self.mask else None
        return AttentionProblem(
            self.queries, self.keys, self.depth, self.depth, (self.heads,), strides, strides, strides,
            mask, self.depth**-0.5,
        )  # fmt: skip

    @property
    def flops(self) -> int:
        return 4 * self.heads * self.queries * self.keys * self.depth


CASES = [
    Case("minilm", 12, 128, 128, 32),
    Case("bert base", 12, 128, 128, 64),
    Case("bert 512", 12, 512, 512, 64),
    Case("vit", 12, 197, 197, 64, False),
    Case("long", 2, 2048, 2048, 64, False),
    Case("one query", 12, 1, 1024, 64),
]


def operands(case: Case) -> list[np.ndarray]:
    """Q, K, V as [length, head, depth], and the mask."""
    random = np.random.default_rng(0)
    shapes = [(s, case.heads, case.depth) for s in (case.queries, case.keys, case.keys)]
    arrays = [aligned(shape) for shape in [*shapes, (case.keys,)]]
    for array in arrays[:3]:
        array[:] = random.standard_normal(array.shape)
    return arrays


def row(case: Case, target: Target, schedule: AttentionSchedule | None = None) -> Row:
    """The case with warm operands."""
    compiled = CompiledAttention(case.problem, target, (), schedule)
    out = aligned((case.heads, case.queries, case.depth))
    call = compiled.kernel.bind(*operands(case), out, compiled.scratch, 0, compiled.extent({}))
    return Row(case.name, itertools.repeat(call), case.flops)


def peer(case: Case) -> Callable[[], Any]:
    """Transposes, products and softmax in onnxruntime on one thread."""
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    arrays = operands(case)
    names = ["q", "k", "v", "mask"]
    inputs = [
        helper.make_tensor_value_info(n, kind, a.shape) for n, a in zip(names, arrays, strict=True)
    ]
    scale = onnx.numpy_helper.from_array(np.float32(case.depth**-0.5), "scale")
    nodes = [
        helper.make_node("Transpose", ["q"], ["qt"], perm=[1, 0, 2]),
        helper.make_node("Transpose", ["k"], ["kt"], perm=[1, 2, 0]),
        helper.make_node("Transpose", ["v"], ["vt"], perm=[1, 0, 2]),
        helper.make_node("MatMul", ["qt", "kt"], ["s"]),
        helper.make_node("Mul", ["s", "scale"], ["t"]),
        helper.make_node("Add", ["t", "mask"], ["u"]),
        helper.make_node("Softmax", ["u"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "vt"], ["o"]),
    ]
    output = helper.make_tensor_value_info("o", kind, (case.heads, case.queries, case.depth))
    graph = helper.make_graph(nodes, "attention", inputs, [output], [scale])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    feeds = dict(zip(names, arrays, strict=True))
    return lambda: session.run(None, feeds)


def main(lanes: str = "") -> None:
    """Print the rows, the best of many interleaved rounds."""
    for target in runnable_targets():
        if lanes and int(lanes) != target.lanes(32):
            continue
        peak = multiply_add_peak(target)
        rows = [row(case, target) for case in CASES]
        peers = [Row("", itertools.repeat(peer(case)), 1) for case in CASES]
        for _ in range(40):
            for each in [peak, *rows, *peers]:
                each.step()
        for each, other in zip(rows, peers, strict=True):
            print(
                f"{target.lanes(32):2} lanes {each.name:12} {each.best * 1e6:9.1f} us {each.gflops:6.1f} GFLOP/s "
                f"{each.gflops / peak.gflops:5.2f} of peak, onnxruntime {other.best * 1e6:9.1f} us"
            )


if __name__ == "__main__":
    main(*sys.argv[1:2])
