"""Contractions of 8-bit integers: the same exact sums from every instruction and its portable expansion."""

import numpy as np
import pytest

from bench.matmul import CompiledContraction
from bench.native import runnable_targets
from xcompile.compiler.schedule.contraction import ContractionProblem as Problem
from xcompile.compiler.schedule.contraction import ContractionSchedule as Schedule
from xcompile.compiler.target.host import host_target
from xcompile.compiler.target.registry import targets
from xcompile.compiler.target.target import Target

SIGNS = {"x86": ("ui8", "i8"), "arm": ("i8", "i8")}
DTYPES = {"i8": np.int8, "ui8": np.uint8}


def portable(name: str) -> Target:
    """A named target whose instructions are expanded."""
    return targets()[name].portable(targets()["x86-avx2"])


RUN_HERE = [t for t in (*runnable_targets(), targets()["x86-vnni"]) if t.runs_on(host_target())]
EXPANDED = [
    portable(name) for name in ("x86-avx2", "x86-vnni", "arm-neon", "arm-dotprod", "arm-i8mm")
]
ALL = [pytest.param(t, id=t.name) for t in (*RUN_HERE, *EXPANDED)]
GROUPS = [
    pytest.param(t, id=t.name) for t in (*RUN_HERE, portable("arm-dotprod"), portable("arm-i8mm"))
]
"""Targets whose units have 2, 4 and 8 elements, and one that takes two rows at a time."""


def operand(
    shape: tuple[int, ...], order: tuple[int, ...], seed: int, dtype: str, extreme: bool = False
) -> np.ndarray:
    """Random values, or only the least and the greatest; `order` lists axes from the outermost in memory on."""
    random, info = np.random.default_rng(seed), np.iinfo(DTYPES[dtype])
    memory = [shape[a] for a in order]
    if extreme:
        values = random.choice([info.min, info.max], memory)
    else:
        values = random.integers(info.min, info.max, memory, endpoint=True)
    return values.astype(DTYPES[dtype]).transpose(np.argsort(order))


def signs(target: Target) -> tuple[str, str]:
    arm = target.has("neon") or target.has("portable-neon")
    return SIGNS["arm" if arm else "x86"]


def check(
    target: Target,
    left: np.ndarray,
    right: np.ndarray,
    *,
    constant: bool = False,
    threads: int = 1,
    schedule: Schedule | None = None,
) -> None:
    """The product of arrays in any memory layout against numpy's int64."""
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    types = tuple("ui8" if x.dtype == np.uint8 else "i8" for x in (left, right))
    problem = Problem(
        left.shape[-2], right.shape[-1], left.shape[-1], batch,
        np.broadcast_to(left, (*batch, *left.shape[-2:])).strides,
        np.broadcast_to(right, (*batch, *right.shape[-2:])).strides,
        constant, "i32", types,  # type: ignore[arg-type]
    )  # fmt: skip
    assert_right(CompiledContraction(problem, target, schedule), left, right, threads=threads)


def assert_right(
    compiled: CompiledContraction,
    left: np.ndarray,
    right: np.ndarray,
    sizes: dict[str, int] | None = None,
    threads: int = 1,
) -> None:
    bias = np.arange(right.shape[-1], dtype=np.int32) * 1001 - 5000
    want = left.astype(np.int64) @ right.astype(np.int64) + bias
    np.testing.assert_array_equal(compiled(left, right, bias, sizes, threads), want)


@pytest.mark.parametrize("target", GROUPS)
@pytest.mark.parametrize("constant", [True, False], ids=["constant", "dynamic"])
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(1, 33, 17), (2, 100, 64), (50, 67, 531), (1, 1, 5), (3, 5, 0)],
)
def test_sizes_that_are_no_multiples_of_anything(
    target: Target, constant: bool, m: int, n: int, k: int
) -> None:
    a, b = signs(target)
    left, right = operand((m, k), (0, 1), 0, a), operand((k, n), (0, 1), 1, b)
    check(target, left, right, constant=constant, threads=3)


@pytest.mark.parametrize("target", ALL)
def test_extremes_do_not_saturate(target: Target) -> None:
    a, b = signs(target)
    problem = Problem(9, 20, 130, constant_b=True, dtype="i32", operands=(a, b))  # type: ignore[arg-type]
    compiled = CompiledContraction(problem, target)
    low, high = np.iinfo(DTYPES[a]), np.iinfo(DTYPES[b])
    for x in (low.min, low.max):
        for y in (high.min, high.max):
            left, right = np.full((9, 130), x, DTYPES[a]), np.full((130, 20), y, DTYPES[b])
            assert_right(compiled, left, right)
    left = operand((9, 130), (0, 1), 0, a, extreme=True)
    assert_right(compiled, left, operand((130, 20), (0, 1), 1, b, extreme=True))


def random_shape(number: int) -> tuple[int, int, int]:
    m, n, k = np.random.default_rng(7000 + number).integers(1, 80, 3)
    return int(m), int(n), int(k)


def random_operands(target: Target, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Left and right of a random shape, one in four with extremes only."""
    (m, n, k), (a, b) = random_shape(number), signs(target)
    left = operand((m, k), (0, 1), number, a, extreme=number % 4 == 0)
    return left, operand((k, n), (0, 1), number + 1, b, extreme=number % 4 == 1)


@pytest.mark.parametrize("target", ALL)
def test_random_shapes(target: Target) -> None:
    a, b = signs(target)
    problem = Problem("d0", "d1", "d2", dtype="i32", operands=(a, b))  # type: ignore[arg-type]
    compiled = CompiledContraction(problem, target)
    for number in range(20):
        m, n, k = random_shape(number)
        sizes = {"d0": m, "d1": n, "d2": k}
        assert_right(compiled, *random_operands(target, number), sizes)


@pytest.mark.full
@pytest.mark.parametrize("number", range(200))
def test_many_random_shapes_known_at_compile_time(number: int) -> None:
    for target in (*RUN_HERE, *EXPANDED):
        check(target, *random_operands(target, number), constant=number % 2 == 0)


@pytest.mark.parametrize("target", GROUPS)
@pytest.mark.parametrize("left_sign", ["i8", "ui8"])
@pytest.mark.parametrize("right_sign", ["i8", "ui8"])
def test_any_signs(target: Target, left_sign: str, right_sign: str) -> None:
    left, right = operand((13, 70), (0, 1), 0, left_sign), operand((70, 21), (0, 1), 1, right_sign)
    check(target, left, right)
    check(target, left, right, constant=True)


@pytest.mark.parametrize("target", GROUPS)
@pytest.mark.parametrize("a_order", [(0, 1), (1, 0)], ids=["A", "A transposed"])
@pytest.mark.parametrize("b_order", [(0, 1), (1, 0)], ids=["B", "B transposed"])
def test_transposed_operands(
    target: Target, a_order: tuple[int, int], b_order: tuple[int, int]
) -> None:
    a, b = signs(target)
    check(target, operand((19, 37), a_order, 0, a), operand((37, 45), b_order, 1, b))


@pytest.mark.parametrize("target", GROUPS)
def test_heads_between_length_and_depth_as_attention_has_them(target: Target) -> None:
    a, b = signs(target)
    order = (0, 2, 1, 3)  # memory: batch, length, head, depth
    q, k = operand((2, 3, 21, 12), order, 0, a), operand((2, 3, 21, 12), order, 1, b)
    check(target, q, k.swapaxes(-1, -2), threads=2)
    check(target, operand((2, 3, 21, 21), (0, 1, 2, 3), 2, a), k)


@pytest.mark.parametrize("target", GROUPS)
def test_no_unit_stride_at_all(target: Target) -> None:
    a, b = signs(target)
    left = operand((9, 11, 2), (0, 1, 2), 0, a)[..., 0]
    right = operand((11, 20, 3), (0, 1, 2), 1, b)[..., 1]
    check(target, left, right)


@pytest.mark.parametrize("constant", [True, False])
def test_batches_broadcast_by_a_stride_of_zero(constant: bool) -> None:
    target = targets()["x86-avx2"]
    left = operand((3, 1, 5, 6), (0, 1, 2, 3), 0, "ui8")
    check(target, left, operand((6, 18), (0, 1), 1, "i8"), constant=constant, threads=7)
    if not constant:
        check(target, left, operand((2, 6, 18), (0, 1, 2), 1, "i8"), threads=7)


@pytest.mark.parametrize("target", GROUPS)
def test_a_constant_with_a_batch(target: Target) -> None:
    a, b = signs(target)
    left, right = operand((4, 9, 10), (0, 1, 2), 0, a), operand((4, 10, 21), (0, 1, 2), 1, b)
    check(target, left, right, constant=True, threads=2)


@pytest.mark.parametrize("target", GROUPS)
@pytest.mark.parametrize("b", ["pack", "packed"])
@pytest.mark.parametrize("transposed", [False, True], ids=["B", "B transposed"])
def test_blocks_of_k_rows_and_columns(target: Target, b: str, transposed: bool) -> None:
    signs_ = signs(target)
    width = target.lanes(32)
    schedule = Schedule("tile", 2, 1, 8, 2 * width, 16, 2, b)  # type: ignore[arg-type]
    right = operand((53, 75), (1, 0) if transposed else (0, 1), 1, signs_[1])
    left = operand((23, 53), (0, 1), 0, signs_[0])
    check(target, left, right, constant=b == "packed", threads=5, schedule=schedule)


@pytest.mark.parametrize("target", GROUPS)
@pytest.mark.parametrize("transposed", [False, True], ids=["B", "B transposed"])
def test_one_kernel_serves_all_sizes(target: Target, transposed: bool) -> None:
    a, b = signs(target)
    strides = ("d0*d2*d3", 1, "d2") if transposed else None
    problem = Problem(
        "d1",
        "d3",
        "d2",
        ("d0",),
        None,
        strides,
        dtype="i32",
        operands=(a, b),  # type: ignore[arg-type]
    )
    compiled = CompiledContraction(problem, target)
    for batch, m, k, n in (
        (1, 1, 1, 1),
        (2, 13, 40, 33),
        (3, 6, 0, 16),
        (1, 7, 1000, 70),
        (1, 5, 4099, 9),
    ):
        left = operand((batch, m, k), (0, 1, 2), 0, a)
        right = operand((batch, k, n), (0, 2, 1) if transposed else (0, 1, 2), 1, b)
        if transposed and batch > 1:
            continue
        sizes = {"d0": batch, "d1": m, "d2": k, "d3": n}
        assert_right(compiled, left, right, sizes, threads=2)


@pytest.mark.parametrize("target", GROUPS)
def test_rows_may_be_dynamic_with_constant_weights(target: Target) -> None:
    a, b = signs(target)
    problem = Problem("d0", 40, 70, constant_b=True, dtype="i32", operands=(a, b))  # type: ignore[arg-type]
    compiled = CompiledContraction(problem, target)
    right = operand((70, 40), (0, 1), 1, b)
    for m in (0, 1, 5, 128, 1030):
        assert_right(compiled, operand((m, 70), (0, 1), 0, a), right, {"d0": m}, threads=3)
