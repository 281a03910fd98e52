"""Depthwise convolution and pools against float64, on every vector width that this host runs."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from bench.blocked import CompiledWindow, from_blocked, reference, whole_window
from bench.native import runnable_targets
from xcompile.compiler.schedule.conv import ConvProblem
from xcompile.compiler.schedule.depthwise import DepthwiseProblem
from xcompile.compiler.schedule.pool import GlobalPoolProblem, GlobalPoolSchedule, PoolProblem
from xcompile.compiler.schedule.window import Window
from xcompile.compiler.target.target import Target

TARGETS = [pytest.param(t, id=f"{t.lanes(32)} lanes") for t in runnable_targets()]
SAME = Window((3, 3), pads=(1, 1, 1, 1))


def image(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def pooled(x: np.ndarray, problem: PoolProblem) -> np.ndarray:
    """The pool in float64, window by window."""
    window, (n, c, *spatial) = whole_window(problem.window, problem.depth), x.shape
    counts = [window.output(axis, size) for axis, size in enumerate(spatial)]
    out = np.zeros((n, c, *counts))
    for place in itertools.product(*map(range, counts)):
        taps = [
            i * stride - before + np.arange(kernel) * dilation
            for i, stride, before, kernel, dilation in zip(
                place, window.strides, window.pads, window.kernel, window.dilations, strict=False
            )
        ]
        inside = [t[(t >= 0) & (t < size)] for t, size in zip(taps, spatial, strict=True)]
        taken = x[np.ix_(np.arange(n), np.arange(c), *inside)].astype(np.float64).reshape(n, c, -1)
        if problem.kind == "max":
            out[(..., *place)] = taken.max(-1)
            continue
        count = taken.shape[-1]
        if problem.count_include_pad:
            ends = [size + window.after(axis) for axis, size in enumerate(spatial)]
            count = np.prod([(t < end).sum() for t, end in zip(taps, ends, strict=True)])
        out[(..., *place)] = taken.sum(-1) / count
    return out


def depthwise(x: np.ndarray, weight: np.ndarray, window: Window) -> np.ndarray:
    n, c, h, w = x.shape
    return reference(x, weight, ConvProblem(n, c, h, w, c, window, groups=c))


DEPTHWISE = {
    "3x3": (SAME, 14),
    "3x3 stride 2": (Window((3, 3), strides=(2, 2), pads=(0, 0, 1, 1)), 28),
    "5x5 on a small image": (Window((5, 5), pads=(2, 2, 2, 2)), 7),
    "dilated, pads differ": (Window((3, 2), dilations=(2, 3), pads=(1, 3, 2, 0)), 17),
    "7x7": (Window((7, 7), pads=(3, 3, 3, 3)), 19),
    "wide padding": (Window((3, 3), pads=(4, 4, 4, 4)), 9),
    "1x1": (Window(strides=(2, 2)), 9),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", DEPTHWISE)
def test_a_depthwise_convolution_is_right(name: str, target: Target) -> None:
    window, size = DEPTHWISE[name]
    x, weight = image(2, 20, size, size + 3), image(20, 1, *window.kernel)
    kernel = CompiledWindow(DepthwiseProblem(2, 20, size, size + 3, window), target)
    got = kernel(x, weight)
    np.testing.assert_allclose(
        from_blocked(got, 20), depthwise(x, weight, window), rtol=1e-5, atol=1e-5
    )
    np.testing.assert_array_equal(kernel(x, weight, threads=7), got)


POOLS = {
    "max 3x3 stride 2": PoolProblem(1, 24, 13, 17, "max", Window((3, 3), (2, 2), (1, 1, 1, 1))),
    "max 2x2": PoolProblem(2, 12, 8, 10, "max", Window((2, 2), (2, 2))),
    "max with ceiling": PoolProblem(1, 8, 10, 13, "max", Window((3, 3), (2, 2), ceil_mode=True)),
    "max 9x9": PoolProblem(1, 8, 13, 12, "max", Window((9, 9), pads=(4, 4, 4, 4))),
    "average": PoolProblem(1, 16, 9, 8, "average", SAME),
    "average with padding": PoolProblem(1, 16, 9, 8, "average", SAME, count_include_pad=True),
    "average with ceiling": PoolProblem(
        1, 8, 8, 11, "average", Window((3, 3), (2, 2), (0, 1, 0, 1), ceil_mode=True)
    ),
    "average with ceiling and padding": PoolProblem(
        1, 8, 8, 11, "average", Window((3, 2), (2, 3), (1, 0, 1, 1), ceil_mode=True), True
    ),
    "average dilated": PoolProblem(
        1, 8, 12, 15, "average", Window((3, 3), dilations=(2, 2), pads=(2, 2, 2, 2))
    ),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", POOLS)
def test_a_pool_is_right(name: str, target: Target) -> None:
    problem = POOLS[name]
    x = image(problem.n, problem.c, problem.h, problem.w) - 2
    got = CompiledWindow(problem, target)(x)
    np.testing.assert_allclose(
        from_blocked(got, problem.c), pooled(x, problem), rtol=1e-5, atol=1e-6
    )


def test_average_of_a_window_over_the_edge_in_ceil_mode() -> None:
    window = Window((2, 2), (2, 2), (0, 0, 0, 0), ceil_mode=True)
    x = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)
    for include in (False, True):
        problem = PoolProblem(1, 1, 3, 3, "average", window, count_include_pad=include)
        got = from_blocked(CompiledWindow(problem, runnable_targets()[-1])(x), 1)
        np.testing.assert_array_equal(got[0, 0], [[2, 3.5], [6.5, 8]])


def test_nan_is_the_maximum() -> None:
    x = image(1, 8, 4, 4)
    x[0, 2, 1, 1] = np.nan
    problem = PoolProblem(1, 8, 4, 4, "max", Window((2, 2), (2, 2)))
    got = from_blocked(CompiledWindow(problem, runnable_targets()[-1])(x), 8)
    assert np.isnan(got[0, 2, 0, 0])
    assert np.isnan(got).sum() == 1


@pytest.mark.parametrize("kind", ["max", "average"])
def test_one_kernel_serves_all_sizes(kind: str) -> None:
    target = runnable_targets()[-1]
    pool = CompiledWindow(PoolProblem("d0", 20, "d1", "d2", kind, SAME), target)
    whole = CompiledWindow(GlobalPoolProblem("d0", 20, "d1", "d2", kind), target)
    filters = CompiledWindow(DepthwiseProblem("d0", 20, "d1", "d2", SAME), target)
    weight = image(20, 1, 3, 3)
    for n, h, w in [(1, 1, 2), (2, 5, 40), (1, 16, 17)]:
        x, values = image(n, 20, h, w), {"d0": n, "d1": h, "d2": w}
        close = {"rtol": 1e-5, "atol": 1e-5}
        got = from_blocked(pool(x, None, values), 20)
        np.testing.assert_allclose(got, pooled(x, PoolProblem(n, 20, h, w, kind, SAME)), **close)
        got = from_blocked(whole(x, None, values), 20)[..., 0, 0]
        wide = x.astype(np.float64)
        want = wide.max((2, 3)) if kind == "max" else wide.mean((2, 3))
        np.testing.assert_allclose(got, want, **close)
        got = from_blocked(filters(x, weight, values), 20)
        np.testing.assert_allclose(got, depthwise(x, weight, SAME), **close)


@pytest.mark.parametrize("kind", ["max", "average"])
def test_a_global_pool_is_right(kind: str) -> None:
    x = image(2, 20, 5, 7)
    got = CompiledWindow(GlobalPoolProblem(2, 20, 5, 7, kind), runnable_targets()[-1])(x)
    wide = x.astype(np.float64)
    want = wide.max((2, 3)) if kind == "max" else wide.mean((2, 3))
    np.testing.assert_allclose(from_blocked(got, 20)[..., 0, 0], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("chains", [1, 2, 8])
def test_a_global_pool_takes_any_number_of_chains(chains: int) -> None:
    x = image(1, 8, 5, 7)
    problem = GlobalPoolProblem(1, 8, 5, 7, "average")
    got = CompiledWindow(problem, runnable_targets()[-1], GlobalPoolSchedule(chains))(x)
    want = x.astype(np.float64).mean((2, 3))
    np.testing.assert_allclose(from_blocked(got, 8)[..., 0, 0], want, rtol=1e-5, atol=1e-6)


def test_peeled_edges_have_the_same_bits() -> None:
    x, weight = image(1, 8, 9, 20), image(8, 1, 3, 3)
    peeled = CompiledWindow(DepthwiseProblem(1, 8, 9, 20, SAME), runnable_targets()[-1])
    assert peeled.schedule.peel
    loops = CompiledWindow(peeled.problem, peeled.target, replace(peeled.schedule, peel=False))
    assert (peeled(x, weight) == loops(x, weight)).all()
