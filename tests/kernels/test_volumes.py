"""Convolutions and pools of volumes: what they sum up against float64, of integers to the last bit, on every width."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.blocked import CompiledConv, CompiledWindow, from_blocked, reference
from bench.native import runnable_targets
from tests.kernels.test_integer_conv import MAIN, typed
from tests.kernels.test_integer_conv import check as check_integers
from tests.kernels.test_windows import pooled
from xcompile.compiler.schedule import conv, depthwise, pool
from xcompile.compiler.schedule.conv import ConvProblem, flatten
from xcompile.compiler.schedule.depthwise import DepthwiseProblem
from xcompile.compiler.schedule.phases import phase_weights, transposed
from xcompile.compiler.schedule.pool import PoolProblem
from xcompile.compiler.schedule.window import Window, of_volume
from xcompile.compiler.target.target import Target

TARGETS = [pytest.param(t, id=f"{t.lanes(32)} lanes") for t in runnable_targets()]
WIDEST = runnable_targets()[-1]


def volume(
    c: int, size: tuple[int, int, int], oc: int, window: Window, n: int = 1, **kinds: Any
) -> ConvProblem:
    """A convolution of a volume of that depth, height and width."""
    depth, image = of_volume(window)
    return ConvProblem(n, c, size[1], size[2], oc, image, d=size[0], depth=depth, **kinds)


def along(
    kernel: tuple[int, ...],
    strides: tuple[int, ...] = (1, 1, 1),
    pads: tuple[int, ...] = (0,) * 6,
    dilations: tuple[int, ...] = (1, 1, 1),
) -> Window:
    return Window(kernel, strides, pads, dilations)


SAME = along((3, 3, 3), pads=(1,) * 6)
CASES = {
    "3x3x3": volume(24, (4, 6, 9), 40, SAME, n=2),
    "3x1x1": flatten(volume(24, (5, 6, 7), 17, along((3, 1, 1), pads=(1, 0, 0, 1, 0, 0)))),
    "1x3x3": volume(16, (3, 8, 7), 16, along((1, 3, 3), pads=(0, 1, 1, 0, 1, 1))),
    "1x1x1": flatten(volume(40, (3, 5, 4), 24, along((1, 1, 1)))),
    "strides and pads differ": volume(
        20, (7, 9, 8), 33, along((3, 2, 5), (2, 1, 3), (1, 0, 2, 2, 1, 1))
    ),
    "dilated": volume(16, (8, 7, 9), 16, along((3, 2, 3), pads=(2, 1, 2) * 2, dilations=(2, 3, 2))),
    "windows that lie in the padding": volume(
        9, (2, 4, 4), 16, along((2, 1, 1), pads=(4, 0, 0, 3, 0, 0))
    ),
    "those of partial sums": volume(
        700, (1, 3, 3), 16, along((2, 1, 1), pads=(2, 0, 0, 1, 0, 0), dilations=(2, 1, 1))
    ),
    "partial sums behind an image of padding": volume(
        700, (2, 4, 4), 16, along((1, 3, 1), pads=(1, 0, 0, 0, 1, 0))
    ),
    "many channels": volume(300, (3, 5, 5), 32, SAME),
    "groups of whole vectors": volume(64, (3, 4, 5), 32, SAME, groups=2),
    "groups across vectors": volume(12, (3, 4, 5), 30, SAME, groups=3),
    "groups of many channels": volume(288, (3, 4, 4), 40, SAME, groups=2),
    "stem": volume(3, (4, 13, 11), 32, along((3, 7, 7), (1, 2, 2), (1, 3, 3) * 2), layout="plain"),
    "stem without padding": volume(2, (5, 6, 7), 16, along((2, 3, 3), (2, 1, 2)), layout="plain"),
}


def arrays(problem: ConvProblem) -> list[np.ndarray]:
    """Input, weights and bias."""
    assert problem.depth is not None
    rng = np.random.default_rng(7)
    shape = (problem.n, problem.c, problem.d, problem.h, problem.w)
    kernel = (
        problem.oc,
        problem.c // problem.groups,
        *problem.depth.kernel,
        *problem.window.kernel,
    )
    return [rng.standard_normal(s).astype(np.float32) for s in (shape, kernel, (problem.oc,))]


def assert_right(got: np.ndarray, problem: ConvProblem, data: list[np.ndarray]) -> None:
    x, weight, bias = data
    want = np.maximum(reference(x, weight, problem) + bias[:, None, None, None], 0)
    scale = np.sqrt(weight[0].size)
    np.testing.assert_allclose(from_blocked(got, problem.oc), want, rtol=1e-5, atol=2e-6 * scale)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_a_convolution_is_right(name: str, target: Target) -> None:
    problem = CASES[name]
    data = arrays(problem)
    assert_right(CompiledConv(problem, target)(*data, threads=3), problem, data)


@pytest.mark.parametrize("target", MAIN)
@pytest.mark.parametrize("name", CASES)
def test_a_convolution_of_integers_is_exact(name: str, target: Target) -> None:
    problem = typed(CASES[name], target)
    rng = np.random.default_rng(5)
    x, weight, bias = (
        rng.integers(low, high, a.shape).astype(dtype)
        for a, low, high, dtype in zip(
            arrays(problem), (0, -128, -1000), (256, 128, 1000), (np.uint8, np.int8, np.int32),
            strict=True,
        )
    )  # fmt: skip
    for fill in (None, 131) if problem.dtype == "ui8" else (None,):
        kernel = CompiledConv(problem, target, fill=fill)
        check_integers(problem, kernel, [x, weight, bias], 2)


def test_one_kernel_serves_all_sizes() -> None:
    known = volume(20, (4, 5, 6), 33, along((3, 3, 2), (2, 1, 1), (1, 1, 0, 1, 2, 1)))
    kernel = CompiledConv(replace(known, n="d0", d="d1", h="d2", w="d3"), WIDEST)
    for n, d, h, w in [(1, 1, 5, 6), (2, 4, 3, 19), (1, 7, 8, 2)]:
        problem = replace(known, n=n, d=d, h=h, w=w)
        data = arrays(problem)
        values = {"d0": n, "d1": d, "d2": h, "d3": w}
        assert_right(kernel(*data, values), problem, data)


TRANSPOSED = {
    "2x2x2": ((2, 2, 2), (2, 2, 2), (0,) * 6, (1, 1, 1), (0, 0, 0), 1),
    "padded": ((3, 4, 3), (2, 2, 3), (1, 1, 0, 2, 1, 1), (1, 1, 2), (1, 0, 1), 1),
    "depth alone": ((3, 1, 1), (2, 1, 1), (1, 0, 0, 1, 0, 0), (1, 1, 1), (1, 0, 0), 1),
    "groups": ((3, 3, 3), (2, 1, 2), (1,) * 6, (1, 1, 1), (0, 0, 1), 2),
}


def transposed_convolution(x: np.ndarray, weight: np.ndarray, name: str) -> np.ndarray:
    """In float64: each input adds the kernel to the output."""
    kernel, strides, pads, dilations, more, groups = TRANSPOSED[name]
    spatial = zip(x.shape[2:], kernel, strides, dilations, more, strict=True)
    full = [s * (n - 1) + d * (k - 1) + 1 + o for n, k, s, d, o in spatial]
    parts = []
    for part, own in zip(np.split(x, groups, 1), np.split(weight, groups), strict=True):
        out = np.zeros((len(x), weight.shape[1], *full))
        for tap in np.ndindex(*kernel):
            added = np.einsum("nc...,co->no...", part.astype(np.float64), own[(..., *tap)])
            at = [
                slice(t * d, t * d + s * n, s)
                for t, d, s, n in zip(tap, dilations, strides, x.shape[2:], strict=True)
            ]
            out[(..., *at)] += added
        parts.append(out)
    kept = [slice(pads[i], full[i] - pads[i + 3]) for i in range(3)]
    return np.concatenate(parts, 1)[(..., *kept)]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", TRANSPOSED)
@pytest.mark.parametrize("dynamic", [False, True], ids=["known sizes", "any size"])
def test_a_transposed_convolution_is_right(name: str, target: Target, dynamic: bool) -> None:
    kernel, *fields, groups = TRANSPOSED[name]
    whole, phases = transposed(kernel, *fields)  # type: ignore[arg-type]
    depth, window = of_volume(whole)
    n, c, d, h, w = shape = (2, 24, 3, 4, 5)
    oc = 18
    sizes: Any = ("d0", "d1", "d2", "d3") if dynamic else (n, d, h, w)
    problem = ConvProblem(
        sizes[0], c, sizes[2], sizes[3], oc, window, groups, phases=phases, d=sizes[1], depth=depth
    )
    rng = np.random.default_rng(11)
    x = rng.standard_normal(shape).astype(np.float32)
    weight = rng.standard_normal((c, oc // groups, *kernel)).astype(np.float32)
    split = [phase_weights(part, phases, fields[2]) for part in np.split(weight, groups)]
    parts = np.concatenate(split, 1).reshape(-1, *split[0].shape[2:])
    values = dict(zip(("d0", "d1", "d2", "d3"), (n, d, h, w), strict=True))
    run = CompiledConv(problem, target, relu=False)
    got = run(x, parts, np.zeros(oc, np.float32), values, threads=3)
    want = transposed_convolution(x, weight, name)
    np.testing.assert_allclose(from_blocked(got, oc), want, rtol=1e-5, atol=2e-5)


WINDOWS = {
    "same": SAME,
    "strides and pads differ": along((3, 2, 3), (2, 2, 1), (1, 0, 1, 1, 1, 0)),
    "dilated": along((2, 3, 2), pads=(1, 2, 0, 2, 1, 1), dilations=(3, 2, 1)),
    "depth alone": along((3, 1, 1), (1, 2, 2), (1, 0, 0) * 2),
    "ceil": replace(along((2, 3, 2), (2, 2, 2)), ceil_mode=True),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", WINDOWS)
def test_pools_and_depthwise_convolutions_are_right(name: str, target: Target) -> None:
    depth, window = of_volume(WINDOWS[name])
    c, d, h, w = shape = 20, 5, 6, 8
    x = np.random.default_rng(3).standard_normal((2, *shape)).astype(np.float32)
    close: Any = {"rtol": 1e-5, "atol": 1e-5}
    for kind, counts in (("max", False), ("average", False), ("average", True)):
        kinds: Any = {"kind": kind, "count_include_pad": counts}
        problem = PoolProblem(2, c, h, w, window=window, d=d, depth=depth, **kinds)
        got = CompiledWindow(problem, target)(x, threads=3)
        np.testing.assert_allclose(from_blocked(got, c), pooled(x, problem), **close)
    if not window.ceil_mode:
        weight = np.random.default_rng(4).standard_normal((c, 1, *WINDOWS[name].kernel))
        weight = weight.astype(np.float32)
        filters = DepthwiseProblem(2, c, h, w, window, d=d, depth=depth)
        got = CompiledWindow(filters, target)(x, weight, threads=3)
        conv3 = ConvProblem(2, c, h, w, c, window, c, d=d, depth=depth)
        np.testing.assert_allclose(from_blocked(got, c), reference(x, weight, conv3), **close)


@pytest.mark.parametrize("target", MAIN)
@pytest.mark.parametrize("name", [name for name in WINDOWS if name != "ceil"])
def test_depthwise_convolutions_of_integers_are_exact(name: str, target: Target) -> None:
    depth, window = of_volume(WINDOWS[name])
    rng = np.random.default_rng(9)
    x = rng.integers(0, 256, (1, 20, 4, 5, 7)).astype(np.uint8)
    weight = rng.integers(-128, 128, (20, 1, *WINDOWS[name].kernel)).astype(np.int8)
    problem = DepthwiseProblem(1, 20, 5, 7, window, "ui8", d=4, depth=depth)
    for fill in (None, 200):
        got = CompiledWindow(problem, target, fill=fill)(x, weight, threads=3)
        same = ConvProblem(1, 20, 5, 7, 20, window, 20, d=4, depth=depth)
        want = reference(x, weight, same, fill or 0)
        np.testing.assert_array_equal(from_blocked(got, 20), want)


def random_window(rng: np.random.Generator) -> Window:
    kernel, dilations = (tuple(map(int, rng.integers(1, 4, 3))) for _ in range(2))
    strides = tuple(map(int, rng.integers(1, 3, 3)))
    pads = tuple(map(int, rng.integers(0, 3, 6))) if rng.random() < 0.6 else (0,) * 6
    return Window(kernel, strides, pads, dilations)


@pytest.mark.full
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", range(40))
def test_any_schedule_of_any_convolution_is_right(seed: int, target: Target) -> None:
    rng = np.random.default_rng(seed)
    window, groups = random_window(rng), int(rng.choice([1, 1, 2, 3]))
    plain = groups == 1 and rng.random() < 0.3
    c, oc = groups * int(rng.integers(1, 5 if plain else 40)), groups * int(rng.integers(1, 40))
    d, h, w = map(int, rng.integers(7, 14, 3))
    kinds: Any = {"layout": "plain" if plain else "blocked", "groups": groups}
    problem = volume(c, (d, h, w), oc, window, int(rng.integers(1, 3)), **kinds)
    schedules = list(conv.space(problem, target))
    data = arrays(problem)
    for schedule in (schedules[0], schedules[int(rng.integers(len(schedules)))]):
        got = CompiledConv(problem, target, schedule)(*data, threads=int(rng.integers(1, 8)))
        assert_right(got, problem, data)


@pytest.mark.full
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", range(20))
def test_any_schedule_of_pools_and_depthwise_convolutions_is_right(
    seed: int, target: Target
) -> None:
    rng = np.random.default_rng(seed)
    whole = random_window(rng)
    pads = tuple(min(p, k - 1) for p, k in zip(whole.pads, whole.kernel * 2, strict=True))
    whole = replace(whole, pads=pads)
    (depth, window), c = of_volume(whole), int(rng.integers(1, 40))
    d, h, w = map(int, rng.integers(7, 14, 3))
    x = rng.standard_normal((1, c, d, h, w)).astype(np.float32)
    if seed % 2:
        weight = rng.standard_normal((c, 1, *whole.kernel)).astype(np.float32)
        filters = DepthwiseProblem(1, c, h, w, window, d=d, depth=depth)
        found: Any = list(depthwise.space(filters, target))
        schedule = found[int(rng.integers(len(found)))]
        got = CompiledWindow(filters, target, schedule)(x, weight, threads=3)
        want = reference(x, weight, ConvProblem(1, c, h, w, c, window, c, d=d, depth=depth))
    else:
        kind: Any = "max" if seed % 4 else "average"
        problem = PoolProblem(1, c, h, w, kind, window, d=d, depth=depth)
        found = list(pool.space(problem, target))
        schedule = found[int(rng.integers(len(found)))]
        got = CompiledWindow(problem, target, schedule)(x, threads=3)
        want = pooled(x, problem)
    np.testing.assert_allclose(from_blocked(got, c), want, rtol=2e-5, atol=2e-5)
