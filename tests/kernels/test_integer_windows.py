"""Depthwise convolution and maximum pools of 8-bit integers: every tier gives the numbers that numpy gives."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.blocked import CompiledWindow, from_blocked
from tests.kernels.test_integer_conv import DTYPES, TIERS, X86, tiers
from tests.kernels.test_windows import DEPTHWISE, POOLS, SAME, depthwise, pooled
from xcompile.compiler.schedule.depthwise import DepthwiseProblem, takes_dots
from xcompile.compiler.schedule.window import Window
from xcompile.compiler.target.target import Target


def integers(dtype: str, *shape: int, seed: int = 3) -> np.ndarray:
    """Numbers of the whole range of a type."""
    info = np.iinfo(DTYPES[dtype])
    drawn = np.random.default_rng(seed).integers(info.min, info.max + 1, shape)
    return drawn.astype(info.dtype)


def outside(x: np.ndarray, window: Window, fill: int) -> tuple[np.ndarray, Window]:
    """The image with its padding, and the window without."""
    top, left, bottom, right = window.pads
    around = ((0, 0), (0, 0), (top, bottom), (left, right))
    return np.pad(x, around, constant_values=fill), replace(window, pads=(0, 0, 0, 0))


def check(
    problem: DepthwiseProblem, target: Target, x: np.ndarray, weight: np.ndarray, fill: int | None
) -> None:
    kernel = CompiledWindow(problem, target, fill=fill)
    image, window = outside(x, problem.window, fill or 0)
    want = depthwise(image, weight, window)
    got = kernel(x, weight, threads=3)
    np.testing.assert_array_equal(from_blocked(got, problem.c), want)


@pytest.mark.parametrize("target", TIERS)
@pytest.mark.parametrize("name", DEPTHWISE)
def test_a_depthwise_convolution_is_exact(name: str, target: Target) -> None:
    window, size = DEPTHWISE[name]
    for dtype, fill in (("ui8", None), ("ui8", 200), ("i8", -128)):
        kind: Any = dtype
        problem = DepthwiseProblem(1, 20, size, size + 3, window, kind)
        x, weight = integers(dtype, 1, 20, size, size + 3), integers("i8", 20, 1, *window.kernel)
        check(problem, target, x, weight, fill)


@pytest.mark.parametrize("x", [0, 255])
@pytest.mark.parametrize("weight", [-128, 127])
@pytest.mark.parametrize("fill", [0, 255])
def test_extremes_do_not_saturate(x: int, weight: int, fill: int) -> None:
    problem = DepthwiseProblem(1, 5, 6, 7, Window((5, 5), pads=(2, 2, 2, 2)), "ui8")
    image, filters = np.full((1, 5, 6, 7), x, np.uint8), np.full((5, 1, 5, 5), weight, np.int8)
    for target in tiers():
        check(problem, target, image, filters, fill)


def test_one_kernel_serves_all_sizes() -> None:
    target = tiers()[1]
    problem = DepthwiseProblem("d0", 20, "d1", "d2", SAME, "ui8")
    kernel, weight = CompiledWindow(problem, target, fill=9), integers("i8", 20, 1, 3, 3)
    for n, h, w in [(1, 1, 2), (2, 5, 40), (1, 16, 17)]:
        x = integers("ui8", n, 20, h, w)
        got = from_blocked(kernel(x, weight, {"d0": n, "d1": h, "d2": w}), 20)
        image, window = outside(x, SAME, 9)
        np.testing.assert_array_equal(got, depthwise(image, weight, window))


@pytest.mark.parametrize("target", [p for p in TIERS if p.values[0] in X86[1:]])  # type: ignore[attr-defined]
def test_the_inner_loop_multiplies_groups_and_spills_nothing(target: Target) -> None:
    problem = DepthwiseProblem(1, 32, 28, 28, SAME, "ui8")
    kernel = CompiledWindow(problem, target, fill=3).kernel
    instruction = "vpdpbusd" if target.has("avx512vnni") else "vpmaddwd"
    assert kernel.listing.count(instruction) >= 12
    assert kernel.stack_stores <= 1
    assert kernel.calls == []


@pytest.mark.parametrize("columns", [2, 3, 4, 5, 8, 9])
@pytest.mark.parametrize("width", [1, 4, 5, 33])
def test_groups_of_columns_are_cut_at_the_edges(columns: int, width: int) -> None:
    window = Window((2, columns), strides=(1, 1 + columns % 2), pads=(1, columns - 1, 0, columns))
    for target in tiers():
        problem = DepthwiseProblem(1, 5, 3, width, window, _signs(target))
        if not takes_dots(problem, target):
            continue
        x = integers(problem.dtype, 1, 5, 3, width)
        check(problem, target, x, integers("i8", 5, 1, *window.kernel), 77)


def test_groups_of_columns_of_images_of_any_size() -> None:
    window = Window((3, 5), pads=(2, 2, 0, 4))
    weight = integers("i8", 20, 1, 3, 5)
    for target in tiers():
        problem = DepthwiseProblem("d0", 20, "d1", "d2", window, _signs(target))
        if not takes_dots(problem, target):
            continue
        kernel = CompiledWindow(problem, target, fill=9)
        for n, h, w in [(1, 1, 1), (2, 5, 40), (1, 4, 17), (2, 3, 0)]:
            x = integers(problem.dtype, n, 20, h, w)
            got = from_blocked(kernel(x, weight, {"d0": n, "d1": h, "d2": w}), 20)
            image, inside = outside(x, window, 9)
            np.testing.assert_array_equal(got, depthwise(image, weight, inside))


def _signs(target: Target) -> Any:
    """The type of images that the target multiplies."""
    return "i8" if target.has("neon") or target.has("portable-neon") else "ui8"


@pytest.mark.parametrize("target", TIERS)
@pytest.mark.parametrize("name", [name for name in POOLS if POOLS[name].kind == "max"])
@pytest.mark.parametrize("dtype", ["i8", "ui8"])
def test_a_maximum_of_integers_is_exact_and_vector_code(
    dtype: Any, name: str, target: Target
) -> None:
    problem = replace(POOLS[name], dtype=dtype)
    x = integers(dtype, problem.n, problem.c, problem.h, problem.w)
    kernel = CompiledWindow(problem, target)
    np.testing.assert_array_equal(
        from_blocked(kernel(x), problem.c), pooled(x.astype(np.float32), problem)
    )
    assert ("vpmaxub" if dtype == "ui8" else "vpmaxsb") in kernel.kernel.listing
