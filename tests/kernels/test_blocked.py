"""Products with packed weights against float64, on every vector width that this host runs."""

from dataclasses import replace

import numpy as np
import pytest

from bench.native import runnable_targets
from bench.packed import CompiledBlocked
from xcompile.compiler.schedule import blocked
from xcompile.compiler.schedule.blocked import BlockedProblem as Problem
from xcompile.compiler.schedule.schedule import ScheduleError
from xcompile.compiler.target.registry import targets
from xcompile.compiler.target.target import Target

TARGETS = [pytest.param(t, id=f"{t.lanes(32)} lanes") for t in runnable_targets()]


def operands(problem: Problem, rows: int) -> tuple[np.ndarray, ...]:
    """Random A, weights, scales and zero points, the extreme codes among the weights."""
    rng, blocks = np.random.default_rng(0), -(-problem.k // problem.block)
    least, most = problem.least, problem.least + 2**problem.bits
    kind = np.int8 if least else np.uint8
    weights = rng.integers(least, most, (problem.k, problem.n)).astype(kind)
    weights.reshape(-1)[[0, -1]] = least, most - 1
    scales = rng.uniform(0.5, 1, (blocks, problem.n))
    zeros = rng.integers(least, most, (blocks, problem.n)).astype(kind)
    left = rng.standard_normal((rows, problem.k)).astype(np.float32)
    return left, weights, scales.astype("f4" if problem.scale == "f32" else "f2"), zeros


def check(compiled: CompiledBlocked, rows: int = 0) -> np.ndarray:
    """The product in one part and in three, against float64."""
    problem = compiled.problem
    count = problem.m if isinstance(problem.m, int) else rows
    sizes = {} if isinstance(problem.m, int) else {problem.m: rows}
    left, weights, scales, zeros = operands(problem, count)
    packed = compiled.prepare(weights, scales, zeros if problem.zero_points else None)
    got = compiled(left, packed, sizes)
    np.testing.assert_array_equal(got, compiled(left, packed, sizes, threads=3))
    places = np.arange(problem.k) // problem.block
    wide = weights.astype(np.float64) - (zeros[places].astype(float) if problem.zero_points else 0)
    factors = wide * scales.astype(np.float64)[places]
    bound = np.abs(left).astype(np.float64) @ np.abs(factors)
    units = (12 + problem.k**0.5) * np.finfo(np.float32).eps
    assert (np.abs(got - left.astype(np.float64) @ factors) <= units * bound).all()
    return got


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m", [3, 17])
@pytest.mark.parametrize(
    ("n", "k", "bits", "block", "least", "scale", "zero_points"),
    [
        (33, 50, 4, 16, -8, "f32", True),
        (100, 512, 4, 32, 0, "f16", True),
        (7, 9, 8, 300, -128, "f32", False),
        (70, 1000, 8, 1000, 0, "f32", True),
        (64, 40, 2, 16, -2, "f16", True),
        (130, 300, 4, 256, -8, "f32", False),
    ],
)
def test_sizes_that_are_no_multiples_of_anything(
    target: Target, m: int, n: int, k: int, bits: int, block: int, least: int, scale: str,
    zero_points: bool,
) -> None:  # fmt: skip
    check(CompiledBlocked(Problem(m, n, k, bits, block, least, scale, zero_points), target))


@pytest.mark.parametrize("target", TARGETS)
def test_one_kernel_serves_few_rows_and_many(target: Target) -> None:
    compiled = CompiledBlocked(Problem("d0", 70, 200, 4, 32, -8), target)
    for rows in (0, 1, 2, 3, 4, 5, 600):
        check(compiled, rows)


@pytest.mark.parametrize("m", [1, 4])
def test_few_rows_are_equal_on_every_target_and_for_any_number_of_rows(m: int) -> None:
    problem = Problem(m, 50, 300, 4, 32, -8)
    found = [check(CompiledBlocked(problem, target)) for target in runnable_targets()]
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
    left, weights, scales, _ = operands(problem, m)
    one = CompiledBlocked(replace(problem, m=1), runnable_targets()[0])
    row = one(left[-1:].copy(), one.prepare(weights, scales))
    np.testing.assert_array_equal(row[0], found[0][-1])


def test_words_hold_the_first_element_in_their_lowest_bits() -> None:
    problem = Problem(1, 2, 10, 4, 16, -8)
    weights = np.array([range(-8, 2), [7] * 10]).T.astype(np.int8)
    packed = blocked.pack_weights(weights, problem, 4).reshape(2, 4)
    assert [hex(word) for word in packed[0]] == ["0x76543210", "0xffffffff", "0x0", "0x0"]
    assert [hex(word) for word in packed[1]] == ["0x98", "0xff", "0x0", "0x0"]


def test_a_large_block_is_summed_in_parts_of_at_most_128() -> None:
    assert Problem(1, 1, 4096, 8, 4096, -128).span == 128
    assert Problem(1, 1, 4096, 4, 256, -8).span == 128
    assert Problem(1, 1, 4096, 4, 144, -8).span == 72
    with pytest.raises(ScheduleError, match="blocks of 20 are not whole words of 8"):
        _ = Problem(1, 1, 4096, 4, 20, -8).span


def test_a_schedule_that_needs_too_many_registers_is_refused() -> None:
    problem, target = Problem(4, 256, 256, 4, 32, -8), targets()["x86-avx2"]
    schedule = replace(blocked.heuristic(problem, target), rows=3)
    with pytest.raises(
        ScheduleError, match="rows=3, vectors=2 need 20 registers; the target has 16"
    ):
        schedule.check(problem, target)


@pytest.mark.parametrize("target", TARGETS)
def test_weights_become_floats_in_registers(target: Target) -> None:
    """What a loop of 16 or 32 multiply-adds stores besides; with vectors of four lanes a word needs more of them."""
    kernel = CompiledBlocked(Problem(1, 256, 512, 4, 32, -8), target).kernel
    assert kernel.calls == []
    assert kernel.stack_stores <= (8 if target.lanes(32) > 4 else 13)
