"""Contractions against float64, on every vector width that this host runs."""

import numpy as np
import pytest

from bench.matmul import DTYPES, CompiledContraction
from bench.native import runnable_targets
from xcompile.compiler.schedule.contraction import ContractionProblem as Problem
from xcompile.compiler.schedule.contraction import ContractionSchedule as Schedule
from xcompile.compiler.target.target import Target

TARGETS = [pytest.param(t, id=f"{t.lanes(32)} lanes") for t in runnable_targets()]


def operand(shape: tuple[int, ...], order: tuple[int, ...], seed: int, dtype: str) -> np.ndarray:
    """Random values; `order` lists the axes from the outermost in memory to the innermost."""
    memory = np.random.default_rng(seed).standard_normal([shape[a] for a in order])
    return memory.astype(DTYPES[dtype]).transpose(np.argsort(order))


def element_strides(x: np.ndarray) -> tuple[int, ...]:
    return tuple(s // x.itemsize for s in x.strides)


def check(
    target: Target,
    left: np.ndarray,
    right: np.ndarray,
    *,
    constant: bool = False,
    threads: int = 1,
    schedule: Schedule | None = None,
) -> None:
    """The product of arrays in any memory layout, with strides that are numpy's own."""
    dtype = "f32" if left.dtype == np.float32 else "f64"
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    wide = np.broadcast_to(right, (*batch, *right.shape[-2:]))
    problem = Problem(
        left.shape[-2], right.shape[-1], left.shape[-1], batch,
        element_strides(np.broadcast_to(left, (*batch, *left.shape[-2:]))), element_strides(wide),
        constant, dtype,
    )  # fmt: skip
    compiled = CompiledContraction(problem, target, schedule)
    assert_right(compiled, left, right, threads=threads)


def assert_right(
    compiled: CompiledContraction,
    left: np.ndarray,
    right: np.ndarray,
    sizes: dict[str, int] | None = None,
    threads: int = 1,
) -> None:
    bias = np.linspace(-1, 1, right.shape[-1], dtype=left.dtype)
    got = compiled(left, right, bias, sizes, threads)
    want = np.maximum(left.astype(np.float64) @ right.astype(np.float64) + bias, 0)
    tolerance = np.finfo(left.dtype).eps * (2 + left.shape[-1])
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
    if threads > 1:
        np.testing.assert_array_equal(got, compiled(left, right, bias, sizes))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("constant", [True, False], ids=["constant", "dynamic"])
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(1, 33, 17), (2, 100, 64), (7, 8, 9), (33, 7, 15), (50, 67, 531), (1, 1, 5), (3, 5, 0)],
)
def test_sizes_that_are_no_multiples_of_anything(
    target: Target, constant: bool, m: int, n: int, k: int
) -> None:
    left, right = operand((m, k), (0, 1), 0, "f32"), operand((k, n), (0, 1), 1, "f32")
    check(target, left, right, constant=constant, threads=3)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("constant", [True, False], ids=["constant", "dynamic"])
@pytest.mark.parametrize("m", [1, 20])
def test_a_sum_of_25088_terms_errs_by_less_than_16_units(
    target: Target, m: int, constant: bool
) -> None:
    """One term after the other it errs by over 50."""
    rng, k, n = np.random.default_rng(0), 25088, 32
    left = rng.uniform(size=(m, k)).astype(np.float32)
    right = rng.uniform(size=(k, n)).astype(np.float32)
    compiled = CompiledContraction(Problem(m, n, k, constant_b=constant), target)
    got = compiled(left, right, np.zeros(n, np.float32), None, 1)
    want = left.astype(np.float64) @ right.astype(np.float64)
    assert np.abs(got / want - 1).max() < 16 * np.finfo(np.float32).eps


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("a_order", [(0, 1), (1, 0)], ids=["A", "A transposed"])
@pytest.mark.parametrize("b_order", [(0, 1), (1, 0)], ids=["B", "B transposed"])
def test_transposed_operands(
    target: Target, a_order: tuple[int, int], b_order: tuple[int, int]
) -> None:
    check(target, operand((19, 37), a_order, 0, "f32"), operand((37, 45), b_order, 1, "f32"))


@pytest.mark.parametrize("target", TARGETS)
def test_heads_between_length_and_depth_as_attention_has_them(target: Target) -> None:
    order = (0, 2, 1, 3)  # memory: batch, length, head, depth
    q, k = (operand((2, 3, 21, 12), order, seed, "f32") for seed in (0, 1))
    check(target, q, k.swapaxes(-1, -2), threads=2)
    probabilities = operand((2, 3, 21, 21), (0, 1, 2, 3), 2, "f32")
    check(target, probabilities, k)


@pytest.mark.parametrize("target", TARGETS)
def test_no_unit_stride_at_all(target: Target) -> None:
    left = operand((9, 11, 2), (0, 1, 2), 0, "f32")[..., 0]
    right = operand((11, 20, 3), (0, 1, 2), 1, "f32")[..., 1]
    assert left.base is not None
    check(target, left, right)


@pytest.mark.parametrize("constant", [True, False])
def test_batches_broadcast_by_a_stride_of_zero(constant: bool) -> None:
    target = runnable_targets()[-1]
    left = operand((3, 1, 5, 6), (0, 1, 2, 3), 0, "f32")
    check(target, left, operand((6, 18), (0, 1), 1, "f32"), constant=constant, threads=7)
    if not constant:
        check(target, left, operand((2, 6, 18), (0, 1, 2), 1, "f32"), threads=7)


def test_a_constant_with_a_batch() -> None:
    left, right = (
        operand((4, 9, 10), (0, 1, 2), 0, "f32"),
        operand((4, 10, 21), (0, 1, 2), 1, "f32"),
    )
    check(runnable_targets()[-1], left, right, constant=True, threads=2)


@pytest.mark.parametrize("target", TARGETS)
def test_matrix_times_column_sums_along_k(target: Target) -> None:
    for k in (1, 16, 100, 4099):
        check(
            target, operand((13, k), (0, 1), 0, "f32"), operand((k, 1), (0, 1), 1, "f32"), threads=2
        )


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("constant", [True, False])
def test_double_precision(target: Target, constant: bool) -> None:
    left, right = operand((20, 300), (0, 1), 0, "f64"), operand((300, 21), (0, 1), 1, "f64")
    check(target, left, right, constant=constant)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("b", ["pack", "direct", "packed"])
def test_blocks_of_k_rows_and_columns(target: Target, b: str) -> None:
    width = 2 * target.lanes(32)
    schedule = Schedule("tile", 3, 2, 6, 2 * width, 12, 4, b)  # type: ignore[arg-type]
    left, right = operand((23, 50), (0, 1), 0, "f32"), operand((50, 75), (0, 1), 1, "f32")
    check(target, left, right, constant=b == "packed", threads=5, schedule=schedule)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("transposed", [False, True], ids=["B", "B transposed"])
def test_one_kernel_serves_all_sizes(target: Target, transposed: bool) -> None:
    strides = ("d0*d2*d3", 1, "d2") if transposed else None
    problem = Problem("d1", "d3", "d2", ("d0",), None, strides)
    compiled = CompiledContraction(problem, target)
    for batch, m, k, n in ((1, 1, 1, 1), (2, 13, 40, 33), (3, 6, 0, 16), (1, 7, 1000, 70)):
        left = operand((batch, m, k), (0, 1, 2), 0, "f32")
        right = operand((batch, k, n), (0, 2, 1) if transposed else (0, 1, 2), 1, "f32")
        if transposed and batch > 1:
            continue
        sizes = {"d0": batch, "d1": m, "d2": k, "d3": n}
        assert_right(compiled, left, right, sizes, threads=2)


@pytest.mark.parametrize("target", TARGETS)
def test_rows_may_be_dynamic_with_constant_weights(target: Target) -> None:
    compiled = CompiledContraction(Problem("d0", 40, 70, constant_b=True), target)
    right = operand((70, 40), (0, 1), 1, "f32")
    for m in (0, 1, 5, 128, 1030):
        assert_right(compiled, operand((m, 70), (0, 1), 0, "f32"), right, {"d0": m}, threads=3)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("constant", [True, False])
def test_the_register_tile_does_not_spill(target: Target, constant: bool) -> None:
    compiled = CompiledContraction(Problem(240, 384, 384, constant_b=constant), target)
    assert compiled.kernel.stack_stores == 0
    assert compiled.kernel.calls == []
