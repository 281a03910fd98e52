"""Softmax, normalizations and reductions against float64, on every vector width that this host runs."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from bench.native import NativeKernel, aligned, runnable_targets
from xcompile.compiler.codegen.cpu.builder import Buffer, Builder, Index, Signature, Value
from xcompile.compiler.codegen.cpu.rows import emit_rows
from xcompile.compiler.codegen.cpu.windows import index_of
from xcompile.compiler.schedule import rows
from xcompile.compiler.schedule.rows import RowProblem as Problem
from xcompile.compiler.schedule.rows import RowSchedule
from xcompile.compiler.schedule.window import resolve
from xcompile.compiler.target.target import Target

TARGETS = [pytest.param(t, id=f"{t.lanes(32)} lanes") for t in runnable_targets()]
NUMPY = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64}
INF, NAN = np.inf, np.nan


class Compiled:
    """A row kernel on contiguous arrays [outer, length, inner]; the input is multiplied by 2 as it is loaded."""

    def __init__(
        self, problem: Problem, target: Target, schedule: RowSchedule | None = None
    ) -> None:
        self.problem, self.target = problem, target
        self.schedule = schedule or rows.heuristic(problem, target)
        self.symbols = [
            s for s in (problem.outer, problem.length, problem.inner) if isinstance(s, str)
        ]
        dtype = problem.dtype
        signature = Signature((dtype,) * 4 + ("i8",), len(self.symbols), scratch=True)
        b = Builder()
        x, scale, bias, y, scratch = (signature.buffer(i) for i in range(5))
        sizes: dict[str, Index] = {s: signature.size(i) for i, s in enumerate(self.symbols)}
        shape = [index_of(b, s, sizes) for s in (problem.outer, problem.length, problem.inner)]
        norm = problem.kind == "layer_norm"

        def place(b: Builder, at: Sequence[Index], shape: Sequence[Index]) -> Index:
            flat: Index = 0
            for index, size in zip(at, shape, strict=True):
                flat = b.add(b.mul(flat, size), index)
            return flat

        def load(b: Builder, at: Sequence[Index], lanes: int, mask: Value | None) -> Value:
            value = b.load(x, place(b, at, shape), lanes, mask)
            op = "arith.addf" if dtype.startswith("f") else "arith.addi"
            return b.binary(op, value, value, lanes, dtype)

        def sink(
            b: Builder, value: Value, at: Sequence[Index], lanes: int, mask: Value | None
        ) -> None:
            out = [shape[0], shape[2]] if problem.is_reduction else shape
            b.store(value, y, place(b, at, out), lanes, mask)

        def parameter(buffer: Buffer):
            return lambda b, at, lanes, mask: b.load(buffer, at, lanes, mask)

        emit_rows(
            b, problem, self.schedule, target, load, sink, signature.begin, signature.end, sizes,
            scratch, parameter(scale) if norm else None, parameter(bias) if norm else None,
        )  # fmt: skip
        self.kernel = NativeKernel(b, signature, target)
        self.scratch = aligned((rows.scratch_bytes(problem, self.schedule, target) + 64,), np.uint8)
        self.scratch[:] = 255

    def __call__(self, x: np.ndarray, threads: int = 1) -> np.ndarray:
        x = np.ascontiguousarray(x, NUMPY[self.problem.dtype])
        outer, length, inner = x.shape
        names = ("outer", "length", "inner")
        sizes = {
            getattr(self.problem, n): v
            for n, v in zip(names, x.shape, strict=True)
            if isinstance(getattr(self.problem, n), str)
        }
        shape = (outer, inner) if self.problem.is_reduction else x.shape
        flat = np.full(int(np.prod(shape)) + 64, 77, x.dtype)
        out = flat[32 : len(flat) - 32]
        scale, bias = parameters(length, x.dtype)
        extent = rows.extent(self.problem, self.schedule, self.target, sizes)
        assert extent == resolve(extent, sizes)
        cuts = [extent * i // threads for i in range(threads + 1)]
        for begin, end in pairwise(cuts):
            arguments = (x, scale, bias, out, self.scratch, *(sizes[s] for s in self.symbols))
            self.kernel(*arguments, begin, end)
        assert (flat[:32] == 77).all()
        assert (flat[len(flat) - 32 :] == 77).all()
        return out.reshape(shape)


def parameters(length: int, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    return np.linspace(-2, 3, length).astype(dtype), np.linspace(5, 1, length).astype(dtype)


def reference(problem: Problem, x: np.ndarray) -> np.ndarray:
    """In float64 (exact for integers), with the doubling of the load."""
    x = 2 * (x.astype(np.float64) if problem.dtype.startswith("f") else x)
    with np.errstate(all="ignore"):
        lowest = -INF if problem.dtype.startswith("f") else -(2**31)
        shifted = x - x.max(1, keepdims=True, initial=lowest)
        power = np.exp(shifted)
        if problem.kind == "softmax":
            return power / power.sum(1, keepdims=True)
        if problem.kind == "log_softmax":
            return shifted - np.log(power.sum(1, keepdims=True))
        if problem.kind in ("layer_norm", "rms_norm"):
            d = x - x.mean(1, keepdims=True) if problem.kind == "layer_norm" else x
            y = d / np.sqrt((d * d).mean(1, keepdims=True) + problem.epsilon)
            if problem.kind == "rms_norm":
                return y
            scale, bias = parameters(x.shape[1], x.dtype)
            return y * scale[:, None] + bias[:, None]
        return {
            "sum": lambda: x.sum(1), "mean": lambda: x.mean(1), "prod": lambda: x.prod(1),
            "max": lambda: x.max(1), "min": lambda: x.min(1), "l1": lambda: np.abs(x).sum(1),
            "l2": lambda: np.sqrt((x * x).sum(1)), "sum_square": lambda: (x * x).sum(1),
            "log_sum": lambda: np.log(x.sum(1)),
            "log_sum_exp": lambda: np.log(np.exp(x).sum(1)),
        }[problem.kind]()  # fmt: skip


def values(shape: tuple[int, ...], kind: str) -> np.ndarray:
    x = np.random.default_rng(3).uniform(-2, 2, shape)
    if kind == "prod":
        return 0.5 + x / 20
    return np.abs(x) + 0.1 if kind == "log_sum" else x


ALONG = ["softmax", "log_softmax", "layer_norm", "rms_norm", *rows.REDUCTIONS]
ACROSS = ["softmax", "log_softmax", *rows.REDUCTIONS]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ALONG)
def test_contiguous_rows_of_any_length(target: Target, kind: str) -> None:
    problem = Problem(kind, "d0", "d1", epsilon=1e-5)  # type: ignore[arg-type]
    compiled = Compiled(problem, target, RowSchedule(64, 1))  # 64: longer rows are partly kept
    for shape in ((3, 1, 1), (2, 16, 1), (5, 37, 1), (2, 64, 1), (1, 79, 1), (3, 200, 1)):
        x = values(shape, kind)
        np.testing.assert_allclose(compiled(x), reference(problem, x), rtol=4e-5, atol=2e-6)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ACROSS)
def test_an_axis_in_the_middle_of_any_length(target: Target, kind: str) -> None:
    problem = Problem(kind, "d0", "d1", "d2")  # type: ignore[arg-type]
    compiled = Compiled(problem, target)
    for shape in ((1, 1, 2), (2, 7, 33), (1, 12, 64), (2, 3, 100)):
        x = values(shape, kind)
        np.testing.assert_allclose(compiled(x), reference(problem, x), rtol=4e-5, atol=2e-6)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        ("softmax", (3, 21, 1)),
        ("layer_norm", (2, 384, 1)),
        ("mean", (2, 128, 384)),
        ("sum", (4, 50, 1)),
    ],
)
def test_static_sizes(target: Target, kind: str, shape: tuple[int, int, int]) -> None:
    for dtype in ("f32", "f64"):
        problem = Problem(kind, *shape, dtype, 1e-5)  # type: ignore[arg-type]
        x = values(shape, kind)
        tolerance = 4e-5 if dtype == "f32" else 1e-13
        got = Compiled(problem, target)(x.astype(NUMPY[dtype]), threads=3)
        want = reference(problem, x.astype(NUMPY[dtype]))
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance / 10)


@pytest.mark.parametrize(
    ("kind", "inner"),
    [
        ("sum", 1),
        ("sum", 40),
        ("log_sum_exp", 1),
        ("softmax", 1),
        ("softmax", 40),
        ("layer_norm", 1),
    ],
)
def test_bits_depend_neither_on_the_vector_length_nor_on_the_partition(
    kind: str, inner: int
) -> None:
    x = values((6, 333, inner), kind)
    problem = Problem(kind, 6, 333, inner, epsilon=1e-5)  # type: ignore[arg-type]
    results = [Compiled(problem, t)(x, threads) for t in runnable_targets() for threads in (1, 5)]
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("inner", [1, 2])
def test_softmax_of_infinities_and_huge_values(target: Target, inner: int) -> None:
    # The load doubles, which changes none of these rows.
    x = np.array([[-INF, -INF, -INF], [-INF, 0, -INF], [1000, 1000, -1000], [NAN, 1, 2]])
    expected = np.array([[NAN] * 3, [0, 1, 0], [0.5, 0.5, 0], [NAN] * 3])
    shape = (4, 3, inner)
    got = Compiled(Problem("softmax", *shape), target)(np.repeat(x[:, :, None], inner, 2))
    np.testing.assert_array_equal(got, np.repeat(expected[:, :, None], inner, 2))


@pytest.mark.parametrize("inner", [1, 3])
@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("sum", 0),
        ("prod", 1),
        ("max", -INF),
        ("min", INF),
        ("mean", NAN),
        ("l2", 0),
        ("log_sum_exp", -INF),
    ],
)
def test_reductions_of_nothing(kind: str, expected: float, inner: int) -> None:
    problem = Problem(kind, 2, "d0", inner)  # type: ignore[arg-type]
    got = Compiled(problem, runnable_targets()[-1])(np.zeros((2, 0, inner)))
    np.testing.assert_array_equal(got, np.full((2, inner), expected))


@pytest.mark.parametrize("inner", [1, 5])
@pytest.mark.parametrize("kind", ["max", "min", "sum"])
def test_reductions_keep_nan(kind: str, inner: int) -> None:
    x = np.ones((1, 20, inner))
    x[0, 7] = NAN
    assert np.isnan(Compiled(Problem(kind, 1, 20, inner), runnable_targets()[-1])(x)).all()  # type: ignore[arg-type]


def test_log_sum_exp_of_infinities() -> None:
    x = np.array([[[-INF], [-INF]], [[INF], [1]], [[500], [500]], [[-INF], [3]]])
    got = Compiled(Problem("log_sum_exp", 4, 2), runnable_targets()[-1])(x)
    np.testing.assert_allclose(got[:, 0], [-INF, INF, 1000 + np.log(2), 6], rtol=1e-6)


@pytest.mark.parametrize("dtype", ["i32", "i64"])
@pytest.mark.parametrize("kind", rows.INTEGER_REDUCTIONS)
@pytest.mark.parametrize("inner", [1, 3])
def test_integers_are_exact(kind: str, dtype: str, inner: int) -> None:
    problem = Problem(kind, 2, 19, inner, dtype)  # type: ignore[arg-type]
    x = np.random.default_rng(0).integers(-9, 9, (2, 19, inner)).astype(NUMPY[dtype])
    with np.errstate(over="ignore"):
        want = reference(problem, x).astype(NUMPY[dtype])
    np.testing.assert_array_equal(Compiled(problem, runnable_targets()[-1])(x), want)
