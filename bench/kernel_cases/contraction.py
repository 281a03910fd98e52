"""The benchmark of contractions.

    python -m bench.kernel_cases.contraction [filter [lanes]]

prints, for each shape and vector length, microseconds, GFLOP/s, the share of the peak of multiply-adds measured in the
same process, bytes a second of the larger operand, and the time of onnxruntime's MatMul on one thread.
"""

import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx
import onnx.helper
import onnxruntime

from bench.kernel_cases.winograd import Row, multiply_add_peak
from bench.matmul import CompiledContraction
from bench.native import aligned, runnable_targets
from xcompile.compiler.schedule.contraction import ContractionProblem, ContractionSchedule
from xcompile.compiler.target.target import Target


@dataclass(frozen=True)
class Case:
    """A product of matrices; `transposed` says that B lies in memory with k innermost."""

    name: str
    m: int
    n: int
    k: int
    batch: int = 1
    constant: bool = True
    transposed: bool = False

    @property
    def problem(self) -> ContractionProblem:
        strides = (self.k * self.n, 1, self.k) if self.transposed else None
        return ContractionProblem(
            self.m, self.n, self.k, (self.batch,), None, strides, self.constant
        )


CASES = [
    Case("minilm projection", 128, 384, 384),
    Case("minilm expand", 128, 1536, 384),
    Case("minilm contract", 128, 384, 1536),
    Case("minilm scores", 128, 128, 32, 12, False, True),
    Case("minilm values", 128, 32, 128, 12, False),
    Case("large", 512, 512, 512),
    Case("large power", 1024, 1024, 1024),
    Case("dynamic B", 512, 512, 512, 1, False),
    Case("dynamic B transposed", 512, 512, 512, 1, False, True),
    Case("few rows 4", 4, 1536, 384),
    Case("few rows 8", 8, 1536, 384),
    Case("row", 1, 4096, 4096),
    Case("row dynamic", 1, 4096, 4096, 1, False),
    Case("column", 4096, 1, 4096, 1, False),
    Case("classifier", 1, 1000, 2048),
]


def row(case: Case, target: Target, schedule: ContractionSchedule | None = None) -> Row:
    """The case with warm operands (what does not fit the caches is streamed)."""
    compiled = CompiledContraction(case.problem, target, schedule, epilogue=False)
    left, right = operands(case)
    right = compiled.prepare(right.transpose(0, 2, 1) if case.transposed else right)
    out, bias = aligned((case.batch, case.m, case.n)), aligned((case.n,))
    call = compiled.bind(left, right, bias, out)
    flops = 2 * case.batch * case.m * case.n * case.k
    return Row(f"{case.name} {case.m}x{case.n}x{case.k}", itertools.repeat(call), flops)


def operands(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Aligned random A and B, B as it lies in memory."""
    random = np.random.default_rng(0)
    left = aligned((case.batch, case.m, case.k))
    right = aligned(
        (case.batch, case.n, case.k) if case.transposed else (case.batch, case.k, case.n)
    )
    left[:], right[:] = random.random(left.shape), random.random(right.shape)
    return left, right


def peer(case: Case) -> Callable[[], object]:
    """The same product in onnxruntime on one thread, with outputs it allocates itself."""
    left, right = operands(case)
    right = np.ascontiguousarray(right.transpose(0, 2, 1)) if case.transposed else right
    if case.constant:
        right = right[0]
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    value = helper.make_tensor_value_info
    inputs = [value("a", kind, left.shape)]
    weights = [onnx.numpy_helper.from_array(right, "b")] if case.constant else []
    if not case.constant:
        inputs.append(value("b", kind, right.shape))
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["a", "b"], ["c"])], "g", inputs,
        [value("c", kind, (case.batch, case.m, case.n))], weights,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    feeds = {"a": left} if case.constant else {"a": left, "b": right}
    return lambda: session.run(None, feeds)


def main(pattern: str = "", lanes: str = "") -> None:
    """Print the rows whose name contains `pattern`, the best of many interleaved rounds."""
    for target in runnable_targets():
        if lanes and int(lanes) != target.lanes(32):
            continue
        peak = multiply_add_peak(target)
        cases = [case for case in CASES if pattern in case.name]
        rows = [row(case, target) for case in cases]
        peers = [Row("", itertools.repeat(peer(case)), 1) for case in cases]
        for _ in range(60):
            for each in [peak, *rows, *peers]:
                each.step()
        for case, each, other in zip(cases, rows, peers, strict=True):
            memory = 4 * case.batch * max(case.k * case.n, case.m * case.k)
            print(
                f"{target.lanes(32):2} lanes {each.name:36} {each.best * 1e6:9.1f} us {each.gflops:6.1f} GFLOP/s "
                f"{each.gflops / peak.gflops:5.2f} of peak {memory / each.best / 1e9:6.1f} GB/s "
                f"onnxruntime {other.best * 1e6:9.1f} us"
            )


if __name__ == "__main__":
    main(*sys.argv[1:3])
