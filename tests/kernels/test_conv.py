"""Direct convolution against float64, on every vector width that this host runs."""

import re

import numpy as np
import pytest

from bench.blocked import CompiledConv, from_blocked, reference
from bench.native import runnable_targets
from xcompile.compiler.schedule import conv
from xcompile.compiler.schedule.conv import ConvProblem, flatten
from xcompile.compiler.schedule.window import Window
from xcompile.compiler.target.target import Target

TARGETS = [pytest.param(t, id=f"{t.lanes(32)} lanes") for t in runnable_targets()]

CASES = {
    "1x1": ConvProblem(1, 64, 14, 13, 32),
    "1x1 flattened": flatten(ConvProblem(2, 40, 9, 11, 24)),
    "1x1 stride 2": ConvProblem(1, 32, 15, 14, 48, Window(strides=(2, 2))),
    "1x1 padded": ConvProblem(1, 8, 5, 6, 16, Window(pads=(1, 2, 0, 1), strides=(1, 2))),
    "1x1 on one pixel": ConvProblem(1, 96, 1, 1, 40),
    "many channels, partial sums": ConvProblem(1, 1100, 7, 7, 64),
    "partial sums of an odd image": ConvProblem(1, 900, 23, 19, 16),
    "3x3": ConvProblem(2, 24, 12, 17, 40, Window((3, 3), pads=(1, 1, 1, 1))),
    "3x3 stride 2, pads differ": ConvProblem(
        1, 16, 13, 10, 16, Window((3, 3), strides=(2, 2), pads=(0, 1, 2, 1))
    ),
    "3x3 many channels": ConvProblem(1, 256, 7, 7, 32, Window((3, 3), pads=(1, 1, 1, 1))),
    "5x3 dilated": ConvProblem(
        1, 16, 20, 15, 8, Window((5, 3), dilations=(2, 3), pads=(4, 3, 4, 3))
    ),
    "1x7": ConvProblem(1, 20, 9, 12, 20, Window((1, 7), pads=(0, 3, 0, 3))),
    "kernel as large as the image": ConvProblem(1, 16, 5, 5, 16, Window((5, 5))),
    "odd channels": ConvProblem(1, 13, 6, 7, 11, Window((2, 2))),
    "groups of whole vectors": ConvProblem(
        1, 64, 8, 9, 32, Window((3, 3), pads=(1, 1, 1, 1)), groups=2
    ),
    "narrow groups": ConvProblem(1, 32, 6, 5, 32, Window((3, 3), pads=(1, 1, 1, 1)), groups=8),
    "groups across vectors": ConvProblem(1, 68, 6, 7, 272, groups=4),
    "groups that shrink": ConvProblem(2, 272, 5, 6, 68, Window((3, 1)), groups=4),
    "groups of many channels": ConvProblem(1, 144, 5, 6, 40, Window((5, 5)), groups=2),
    "groups of three": ConvProblem(1, 9, 5, 6, 15, Window((3, 3)), groups=3),
    "stem 7x7": ConvProblem(
        1, 3, 37, 30, 32, Window((7, 7), strides=(2, 2), pads=(3, 3, 3, 3)), layout="plain"
    ),
    "stem 3x3 without padding": ConvProblem(
        2, 3, 21, 20, 64, Window((3, 3), strides=(2, 2)), layout="plain"
    ),
    "one channel": ConvProblem(1, 1, 9, 28, 6, Window((5, 5), pads=(2, 2, 2, 2)), layout="plain"),
}


def arrays(problem: ConvProblem, shape: tuple[int, int, int, int]) -> list[np.ndarray]:
    """Input, weights and bias."""
    rng = np.random.default_rng(7)
    kernel = (problem.oc, problem.c // problem.groups, *problem.window.kernel)
    return [rng.standard_normal(s).astype(np.float32) for s in (shape, kernel, (problem.oc,))]


def assert_right(
    got: np.ndarray, problem: ConvProblem, x: np.ndarray, weight: np.ndarray, bias: np.ndarray
) -> None:
    want = np.maximum(reference(x, weight, problem) + bias[:, None, None], 0)
    scale = np.sqrt(weight[0].size)
    np.testing.assert_allclose(from_blocked(got, problem.oc), want, rtol=1e-5, atol=2e-6 * scale)
    lanes = got.shape[-1]
    padding = got[:, -1, :, :, problem.oc - (got.shape[1] - 1) * lanes :]
    assert not padding.any()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_a_convolution_is_right(name: str, target: Target) -> None:
    problem = CASES[name]
    if problem.layout == "plain" and problem.c > target.lanes(32):
        pytest.skip("more channels than lanes")
    x, weight, bias = arrays(problem, (problem.n, problem.c, problem.h, problem.w))
    assert_right(CompiledConv(problem, target)(x, weight, bias), problem, x, weight, bias)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("groups", [1, 2])
def test_a_sum_over_4608_taps_errs_by_less_than_7_units(target: Target, groups: int) -> None:
    """One tap after the other it errs by over 15."""
    problem = ConvProblem(1, 512 * groups, 5, 5, 32, Window((3, 3)), groups=groups)
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(1, 512 * groups, 5, 5)).astype(np.float32)
    weight = rng.uniform(size=(32, 512, 3, 3)).astype(np.float32)
    got = from_blocked(CompiledConv(problem, target)(x, weight, np.zeros(32, np.float32)), 32)
    error = np.abs(got / reference(x, weight, problem) - 1).max()
    assert error < 7 * np.finfo(np.float32).eps


@pytest.mark.parametrize(
    "problem",
    [
        ConvProblem("d0", 24, "d1", "d2", 40, Window((3, 3), pads=(1, 1, 1, 1), strides=(2, 1))),
        ConvProblem("d0", 400, 1, "d1*d2", 16),
        ConvProblem(
            "d0",
            3,
            "d1",
            "d2",
            16,
            Window((5, 5), pads=(0, 2, 1, 2), strides=(2, 2)),
            layout="plain",
        ),
    ],
    ids=["3x3", "flattened", "stem"],
)
def test_one_kernel_serves_all_sizes(problem: ConvProblem) -> None:
    target = runnable_targets()[-1]
    kernel = CompiledConv(problem, target)
    for n, h, w in [(1, 5, 5), (2, 19, 8), (3, 8, 67)]:
        values = {"d0": n, "d1": h, "d2": w}
        shape = (n, problem.c, 1, h * w) if problem.h == 1 else (n, problem.c, h, w)
        x, weight, bias = arrays(problem, shape)
        assert_right(kernel(x, weight, bias, values), problem, x, weight, bias)


@pytest.mark.parametrize("name", ["3x3", "many channels, partial sums", "stem 7x7"])
def test_any_partition_gives_the_same_bits(name: str) -> None:
    problem = CASES[name]
    kernel = CompiledConv(problem, runnable_targets()[-1])
    data = arrays(problem, (problem.n, problem.c, problem.h, problem.w))
    whole = kernel(*data)
    for threads in (2, 7):
        np.testing.assert_array_equal(kernel(*data, threads=threads), whole)


def test_padding_lanes_of_the_input_do_not_matter_but_infinity_stays_in_its_channel() -> None:
    target = runnable_targets()[-1]
    problem = ConvProblem(1, 8, 4, 4, 8, Window((3, 3), pads=(1, 1, 1, 1)))
    x, weight, bias = arrays(problem, (1, 8, 4, 4))
    x[0, 3, 0, 0] = np.inf
    got = from_blocked(CompiledConv(problem, target, relu=False)(x, weight, bias), 8)
    assert np.isfinite(got[..., 2:, :]).all()
    assert not np.isfinite(got[..., 0, 0]).any()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["narrow groups", "groups across vectors", "groups of three"])
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_what_is_not_finite_stays_in_its_group(name: str, target: Target, value: float) -> None:
    problem = CASES[name]
    x, weight, bias = arrays(problem, (problem.n, problem.c, problem.h, problem.w))
    channel, oc = problem.c // problem.groups, problem.oc // problem.groups
    x[:, channel : 2 * channel] = value
    got = from_blocked(CompiledConv(problem, target, relu=False)(x, weight, bias), problem.oc)
    assert not np.isfinite(got[:, oc : 2 * oc]).all(axis=(0, 2, 3)).any()
    assert np.isfinite(got[:, :oc]).all() and np.isfinite(got[:, 2 * oc :]).all()


@pytest.mark.parametrize("target", TARGETS[1:])
@pytest.mark.parametrize(
    "problem",
    [
        ConvProblem(1, 256, 1, 196, 256),
        ConvProblem(1, 128, 28, 28, 128, Window((3, 3), strides=(2, 2), pads=(1, 1, 1, 1))),
        ConvProblem(
            1, 3, 112, 112, 64, Window((7, 7), strides=(2, 2), pads=(3, 3, 3, 3)), layout="plain"
        ),
        ConvProblem("d0", 96, "d1", "d2", 24, Window((3, 3), pads=(1, 1, 1, 1))),
        ConvProblem("d0", 64, "d1", "d2", 64, Window((3, 3), pads=(1, 1, 1, 1))),
    ],
    ids=["1x1", "3x3", "stem", "open sizes, few outputs", "open sizes"],
)
def test_no_accumulator_is_spilled(problem: ConvProblem, target: Target) -> None:
    kernel = CompiledConv(problem, target).kernel
    body, _, _ = kernel.listing.partition("kernel_task:")  # which hands arguments on, on the stack
    assert not re.search(r"%[yz]mm\d+, -?\d*\(%rsp\)", body)
    assert kernel.calls == []


def random_problem(rng: np.random.Generator, lanes: int) -> ConvProblem:
    """Any small convolution that the family takes."""
    while True:
        groups = int(rng.choice([1, 1, 1, 2, 3, 8]))
        plain = groups == 1 and rng.random() < 0.3
        c = groups * int(rng.integers(1, 5 if plain else 40))
        window = Window(
            kernel=tuple(map(int, rng.integers(1, 6, 2))),
            strides=tuple(map(int, rng.integers(1, 4, 2))),
            pads=tuple(map(int, rng.integers(0, 4, 4))) if rng.random() < 0.6 else (0, 0, 0, 0),
            dilations=tuple(map(int, rng.integers(1, 3, 2))),
        )
        n, h, w = int(rng.integers(1, 3)), *map(int, rng.integers(1, 24, 2))
        if window.output(0, h) < 1 or window.output(1, w) < 1 or (plain and c > lanes):
            continue
        oc = groups * int(rng.integers(1, 40))
        return ConvProblem(n, c, h, w, oc, window, groups, "plain" if plain else "blocked")


@pytest.mark.full
@pytest.mark.parametrize("seed", range(200))
def test_any_schedule_of_any_convolution_is_right(seed: int) -> None:
    rng, target = np.random.default_rng(seed), runnable_targets()[seed % len(runnable_targets())]
    problem = random_problem(rng, target.lanes(32))
    schedules = list(conv.space(problem, target))
    data = arrays(problem, (problem.n, problem.c, problem.h, problem.w))
    for schedule in (schedules[0], schedules[int(rng.integers(len(schedules)))]):
        got = CompiledConv(problem, target, schedule)(*data, threads=int(rng.integers(1, 8)))
        assert_right(got, problem, *data)
