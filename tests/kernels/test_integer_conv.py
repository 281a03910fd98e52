"""Convolution of 8-bit integers: every tier gives the sums that numpy's int64 gives, bit for bit."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.blocked import CompiledConv, from_blocked, reference
from bench.native import NARROW
from tests.kernels.test_conv import CASES as FLOAT_CASES
from tests.kernels.test_conv import random_problem
from xcompile.compiler.schedule import conv
from xcompile.compiler.schedule.conv import ConvProblem, ConvSchedule
from xcompile.compiler.schedule.window import Window
from xcompile.compiler.target.host import host_target
from xcompile.compiler.target.registry import targets
from xcompile.compiler.target.target import Target

X86 = (NARROW, *(targets()[name] for name in ("x86-avx2", "x86-avx512", "x86-vnni")))
ARM = tuple(targets()[name] for name in ("arm-neon", "arm-dotprod", "arm-i8mm"))


def tiers() -> list[Target]:
    """The tiers of both architectures: natively where the host can, else, as on ARM, in ordinary vector code."""
    machine = targets()["x86-avx2"]
    return [t if t.runs_on(host_target()) else t.portable(machine) for t in (*X86, *ARM)]


TIERS = [pytest.param(t, id=t.name) for t in tiers()]
MAIN = [p for p in TIERS if p.id in ("x86-avx2", "x86-vnni", "x86-vnni-portable")]
DTYPES: dict[str, Any] = {"i8": np.int8, "ui8": np.uint8}
SAME = Window((3, 3), pads=(1, 1, 1, 1))
CASES = {name: case for name, case in FLOAT_CASES.items() if case.phases is None}


def typed(problem: ConvProblem, target: Target) -> ConvProblem:
    """The problem in the signs that the target has an instruction for."""
    signed = target.has("neon") or target.has("portable-neon")
    return replace(problem, dtype="i8" if signed else "ui8", weights="i8")


def arrays(problem: ConvProblem, seed: int = 7) -> list[np.ndarray]:
    """Input, weights and bias, of the whole range; the input counts from the least number of its type."""
    rng = np.random.default_rng(seed)
    kernel = (problem.oc, problem.c // problem.groups, *problem.window.kernel)
    x = rng.integers(0, 256, (problem.n, problem.c, problem.h, problem.w)).astype(np.uint8)
    w = rng.integers(-128, 128, kernel).astype(np.int8)
    return [x, w, rng.integers(-(1 << 20), 1 << 20, problem.oc).astype(np.int32)]


def quick(problem: ConvProblem, target: Target) -> ConvSchedule:
    """The heuristic's schedule, but with few pixels where expanded instructions are slow to compile."""
    made = conv.heuristic(problem, target)
    return replace(made, pixels=min(made.pixels, 3)) if target.has("portable") else made


def signed_as(x: np.ndarray, problem: ConvProblem) -> np.ndarray:
    """Numbers of 0 to 255, as they are or less 128."""
    low = np.iinfo(DTYPES[problem.dtype]).min
    return (x.astype(np.int16) + low).astype(DTYPES[problem.dtype])


def check(problem: ConvProblem, kernel: CompiledConv, data: list[np.ndarray], threads: int) -> None:
    """Compare with sums in float64, which holds them exactly."""
    x, w, bias = signed_as(data[0], problem), *data[1:]
    got = kernel(x, w, bias, threads=threads)
    want = reference(x, w, problem, kernel.fill or 0)
    want += bias.reshape(-1, *[1] * (x.ndim - 2))
    np.testing.assert_array_equal(from_blocked(got, problem.oc), want)


@pytest.mark.parametrize("target", MAIN)
@pytest.mark.parametrize("name", CASES)
def test_a_convolution_is_exact(name: str, target: Target) -> None:
    problem = typed(CASES[name], target)
    if problem.layout == "plain" and problem.c > target.lanes(32):
        pytest.skip("more channels than lanes")
    fill = None if problem.dtype == "i8" else 131
    check(problem, CompiledConv(problem, target, fill=fill), arrays(problem), 2)


@pytest.mark.parametrize("target", TIERS)
@pytest.mark.parametrize(("x", "w"), [(255, -128), (255, 127), (0, -128), (127, -127), (128, 127)])
def test_extremes_do_not_saturate(x: int, w: int, target: Target) -> None:
    problem = typed(ConvProblem(1, 131, 4, 5, 17, SAME), target)
    data = arrays(problem)
    data[0][:], data[1][:] = x, w
    check(problem, CompiledConv(problem, target, quick(problem, target), fill=7), data, 1)


@pytest.mark.parametrize("fill", [0, 1, 127, 128, 255])
@pytest.mark.parametrize("layout", ["plain", "blocked"])
def test_padding_holds_any_number(fill: int, layout: Any) -> None:
    target = tiers()[1]
    problem = typed(
        ConvProblem(1, 3, 5, 6, 9, replace(SAME, strides=(1, 2)), layout=layout), target
    )
    check(problem, CompiledConv(problem, target, fill=fill), arrays(problem), 1)


@pytest.mark.parametrize("signs", [("i8", "i8"), ("i8", "ui8"), ("ui8", "ui8")])
@pytest.mark.parametrize("layout", ["plain", "blocked"])
def test_widened_integers_have_any_signs(signs: tuple[Any, Any], layout: Any) -> None:
    target = tiers()[1]
    made = ConvProblem(1, 5, 7, 6, 9, SAME, layout=layout, dtype=signs[0], weights=signs[1])
    data = arrays(made)
    data[1] = data[1].view(DTYPES[signs[1]])
    check(made, CompiledConv(made, target, fill=3), data, 1)


@pytest.mark.parametrize("target", [TIERS[1], TIERS[-1]])
def test_one_kernel_serves_all_sizes(target: Target) -> None:
    problem = typed(ConvProblem("d0", 20, "d1", "d2", 40, replace(SAME, strides=(2, 1))), target)
    kernel = CompiledConv(problem, target, quick(problem, target), fill=9)
    for n, h, w in [(1, 5, 5), (2, 19, 8), (3, 8, 67)]:
        known = replace(problem, n=n, h=h, w=w)
        x, weight, bias = arrays(known)
        x = signed_as(x, known)
        got = kernel(x, weight, bias, {"d0": n, "d1": h, "d2": w})
        want = reference(x, weight, known, 9) + bias[:, None, None]
        np.testing.assert_array_equal(from_blocked(got, 40), want)


@pytest.mark.parametrize(("c", "oc", "h", "w"), [(5, 3, 1, 1), (8, 4, 3, 5), (12, 9, 2, 4)])
@pytest.mark.parametrize("size", [1, 3])
def test_squares_of_pixels_and_channels_have_tails(
    c: int, oc: int, h: int, w: int, size: int
) -> None:
    target = tiers()[-1]
    problem = typed(
        ConvProblem(2, c, h, w, oc, Window((size, size), pads=(size // 2,) * 4)), target
    )
    assert problem.form(target).instruction == "smmla"
    kernel = CompiledConv(problem, target, quick(problem, target), fill=-7)
    check(problem, kernel, arrays(problem), 1)


@pytest.mark.parametrize(
    ("c", "layout", "groups"), [(3, "plain", 1), (4, "blocked", 1), (16, "blocked", 2)]
)
def test_few_input_channels_and_groups_are_not_multiplied_in_squares(
    c: int, layout: Any, groups: int
) -> None:
    target = targets()["arm-i8mm"]
    problem = typed(ConvProblem(1, c, 9, 9, 8, SAME, groups=groups, layout=layout), target)
    assert problem.form(target).instruction == "sdot"


@pytest.mark.parametrize("target", [p for p in TIERS if p.values[0] in X86[1:]])
@pytest.mark.parametrize(
    "problem",
    [
        ConvProblem(1, 256, 1, 196, 256),
        ConvProblem(1, 128, 28, 28, 128, Window((3, 3), strides=(2, 2), pads=(1, 1, 1, 1))),
        ConvProblem(1, 3, 56, 56, 64, Window((7, 7), (2, 2), (3, 3, 3, 3)), layout="plain"),
        ConvProblem("d0", 96, "d1", "d2", 24, SAME),
        ConvProblem("d0", 64, "d1", "d2", 64, SAME),
    ],
    ids=["1x1", "3x3", "stem", "open sizes, few outputs", "open sizes"],
)
def test_the_inner_loop_is_the_instruction_and_spills_nothing(
    problem: ConvProblem, target: Target
) -> None:
    made = typed(problem, target)
    kernel = CompiledConv(made, target).kernel
    name = "vpdpbusd" if made.form(target).instruction == "vpdpbusd" else "vpmaddwd"
    assert kernel.listing.count(name) >= 12
    assert kernel.stack_stores <= 1
    assert kernel.calls == []


def _compare_tiers(seed: int, *, schedules: bool) -> None:
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, 4)
    data = arrays(problem, seed)
    if seed % 4 == 0:
        data[0][:] = rng.choice([0, 127, 128, 255])
        data[1][:] = rng.choice([-128, -127, 127])
    fill = int(rng.integers(0, 128))
    for target in tiers():
        made = typed(problem, target)
        chosen = quick(made, target)
        if schedules:
            possible = list(conv.space(made, target))
            chosen = possible[int(rng.integers(len(possible)))]
        check(made, CompiledConv(made, target, chosen, fill=fill), data, int(rng.integers(1, 8)))


@pytest.mark.parametrize("seed", range(20))
def test_all_tiers_give_the_same_integers(seed: int) -> None:
    _compare_tiers(seed, schedules=False)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(20, 200))
def test_all_tiers_and_schedules_give_the_same_integers(seed: int) -> None:
    _compare_tiers(seed, schedules=True)
