"""Every schedule that a family calls legal gives the right numbers; convolutions have tests of their own.

Problems are random, schedules are drawn from the whole space, so this runs in the full tier.
"""

import numpy as np
import pytest

from bench.blocked import CompiledWindow, from_blocked
from bench.native import runnable_targets
from tests.kernels import test_attention, test_contraction, test_rows, test_windows
from xcompile.compiler.schedule import attention, contraction, depthwise, pool, rows
from xcompile.compiler.schedule.window import Window
from xcompile.compiler.target.target import Target

pytestmark = pytest.mark.full

SHAPES = range(200)
"""The seeds of the random problems of a family; its machines take turns."""


def turn(seed: int) -> Target:
    """The machine that a seed is for."""
    machines = runnable_targets()
    return machines[seed % len(machines)]


def drawn(rng, schedules):
    """One of all schedules, and how many there are."""
    found = list(schedules)
    return found[int(rng.integers(len(found)))], len(found)


@pytest.mark.parametrize("seed", SHAPES)
def test_of_a_contraction(seed: int) -> None:
    rng, target = np.random.default_rng(seed), turn(seed)
    m, n, k = (int(rng.choice([1, 2, 5, 16, 33, 70])) for _ in range(3))
    dtype = str(rng.choice(["f32", "f32", "f64"]))
    orders = [[(0, 1), (1, 0)][int(rng.integers(2))] for _ in range(2)]
    left = test_contraction.operand((m, k), orders[0], seed, dtype)
    right = test_contraction.operand((k, n), orders[1], seed + 1, dtype)
    constant = bool(rng.integers(2))
    seen = [
        np.broadcast_to(x, x.shape) for x in (left, right)
    ]  # as `check` gives them to the kernel
    problem = contraction.ContractionProblem(
        m, n, k, (), *map(test_contraction.element_strides, seen), constant, dtype
    )
    schedule, _ = drawn(rng, contraction.space(problem, target))
    threads = int(rng.integers(1, 5))
    test_contraction.check(
        target, left, right, constant=constant, threads=threads, schedule=schedule
    )


@pytest.mark.parametrize("seed", SHAPES)
def test_of_an_attention(seed: int) -> None:
    rng, target = np.random.default_rng(seed), turn(seed)
    queries, keys, depth, values = (int(rng.choice([1, 3, 16, 40, 65])) for _ in range(4))
    q, k, v = (
        rng.standard_normal((2, *shape)).astype(np.float32)
        for shape in ((queries, depth), (keys, depth), (keys, values))
    )
    mask = rng.standard_normal((1, 1, keys)).astype(np.float32) if rng.integers(2) else None
    strides = test_attention.strides
    shown = None if mask is None else strides(np.broadcast_to(mask, (2, queries, keys)))
    problem = attention.AttentionProblem(
        queries, keys, depth, values, (2,), strides(q), strides(k), strides(v), shown,
        depth**-0.5, "nan", "f32",
    )  # fmt: skip
    schedule, count = drawn(rng, attention.space(problem, target))
    assert count > 1
    threads = int(rng.integers(1, 5))
    test_attention.check(target, q, k, v, mask, threads=threads, schedule=schedule)


@pytest.mark.parametrize("seed", SHAPES)
def test_of_rows(seed: int) -> None:
    rng, target = np.random.default_rng(seed), turn(seed)
    inner = int(rng.choice([1, 1, 2, 33, 64]))
    kind = str(rng.choice(test_rows.ALONG if inner == 1 else test_rows.ACROSS))
    shape = int(rng.integers(1, 5)), int(rng.choice([1, 7, 64, 150])), inner
    problem = rows.RowProblem(kind, *shape, "f32", 1e-5)  # type: ignore[arg-type]
    schedule, _ = drawn(rng, rows.space(problem, target))
    x = test_rows.values(shape, kind).astype(np.float32)
    got = test_rows.Compiled(problem, target, schedule)(x, threads=int(rng.integers(1, 5)))
    np.testing.assert_allclose(got, test_rows.reference(problem, x), rtol=4e-5, atol=4e-6)


def random_window(rng: np.random.Generator) -> Window:
    kernel = tuple(map(int, rng.integers(1, 6, 2)))
    strides, dilations = (tuple(map(int, rng.integers(1, 3, 2))) for _ in range(2))
    pads = tuple(int(rng.integers(0, kernel[i % 2])) for i in range(4))
    return Window(kernel, strides, pads, dilations)


def random_images(rng: np.random.Generator) -> np.ndarray:
    shape = 2, int(rng.integers(1, 40)), *map(int, rng.integers(12, 30, 2))
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("seed", SHAPES)
def test_of_depthwise_convolutions(seed: int) -> None:
    rng, target = np.random.default_rng(seed), turn(seed)
    window, x = random_window(rng), random_images(rng)
    problem = depthwise.DepthwiseProblem(*x.shape, window)
    weight = rng.standard_normal((x.shape[1], 1, *window.kernel)).astype(np.float32)
    schedule, _ = drawn(rng, depthwise.space(problem, target))
    threads = int(rng.integers(1, 5))
    got = CompiledWindow(problem, target, schedule)(x, weight, threads=threads)
    want = test_windows.depthwise(x, weight, window)
    np.testing.assert_allclose(from_blocked(got, x.shape[1]), want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("seed", SHAPES)
def test_of_pools(seed: int) -> None:
    rng, target = np.random.default_rng(seed), turn(seed)
    window, x = random_window(rng), random_images(rng)
    problem = pool.PoolProblem(*x.shape, str(rng.choice(["max", "average"])), window)  # type: ignore[arg-type]
    schedule, _ = drawn(rng, pool.space(problem, target))
    got = CompiledWindow(problem, target, schedule)(x, threads=int(rng.integers(1, 5)))
    want = test_windows.pooled(x, problem)
    np.testing.assert_allclose(from_blocked(got, x.shape[1]), want, rtol=2e-5, atol=2e-5)
