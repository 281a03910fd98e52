"""Winograd convolutions against a float64 direct convolution."""

from dataclasses import replace

import numpy as np
import pytest

from bench.kernel_cases.winograd import Convolution, weight_kernel
from bench.native import aligned, runnable_targets
from xcompile.compiler.codegen.cpu.winograd_pack import pack, transform_weights
from xcompile.compiler.schedule.winograd import (
    ERROR_BOUNDS,
    WinogradProblem,
    WinogradSchedule,
    groups,
    heuristic,
    transformed_shape,
)
from xcompile.compiler.target.target import Target

TARGETS = [pytest.param(t, id=f"{t.lanes(32)}-lanes") for t in runnable_targets()]
MATRIX = {
    2: np.array([[1, 0, 0], [1 / 2, 1 / 2, 1 / 2], [1 / 2, -1 / 2, 1 / 2], [0, 0, 1]]),
    4: np.array(
        [
            [1 / 4, 0, 0],
            [-1 / 6, -1 / 6, -1 / 6],
            [-1 / 6, 1 / 6, -1 / 6],
            [1 / 24, 1 / 12, 1 / 6],
            [1 / 24, -1 / 12, 1 / 6],
            [0, 0, 1],
        ]
    ),
}


def direct(x: np.ndarray, weight: np.ndarray, pads: tuple[int, int, int, int]) -> np.ndarray:
    top, left, bottom, right = pads
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (top, bottom), (left, right)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.einsum("ocij,nchwij->nohw", weight.astype(np.float64), windows, optimize=True)


def data(
    n: int, c: int, h: int, w: int, oc: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    x = random.standard_normal((n, c, h, w), np.float32)
    weight = random.standard_normal((oc, c, 3, 3), np.float32) * np.float32(np.sqrt(2 / (9 * c)))
    return x, weight, random.standard_normal(oc, np.float32)


def error(convolution: Convolution, n: int, h: int, w: int, parts: tuple[int, ...] = (1,)) -> float:
    """The largest error over the largest magnitude; every partition must give the same bits."""
    problem = convolution.problem
    x, weight, bias = data(n, problem.c, h, w, problem.oc)
    first, *others = (convolution(x, weight, bias, part) for part in parts)
    for other in others:
        assert np.array_equal(first, other)
    assert not first[:, problem.oc :].any()
    expected = np.maximum(direct(x, weight, problem.pads) + bias[:, None, None], 0)
    return float(np.abs(first[:, : problem.oc] - expected).max() / np.abs(expected).max())


def small(m: int, target: Target) -> WinogradSchedule:
    """Blocks so small that every loop has a first, a middle and a last trip."""
    lanes = target.lanes(32)
    return WinogradSchedule(
        m=m, tiles=7, oc_block=4 * lanes, rows=3, vectors=2, k_block=lanes, unroll=lanes // 2, strip=3
    )  # fmt: skip


@pytest.mark.parametrize("m", [2, 4])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("n", "c", "h", "w", "oc", "pads"),
    [
        pytest.param(2, 5, 13, 6, 11, (0, 2, 1, 0), id="uneven-pads-and-tails"),
        pytest.param(3, 20, 3, 22, 40, (1, 1, 1, 1), id="wide-image"),
    ],
)
def test_a_convolution_is_right_and_does_not_depend_on_the_partition(
    m: int, target: Target, n: int, c: int, h: int, w: int, oc: int,
    pads: tuple[int, int, int, int],
) -> None:  # fmt: skip
    problem = WinogradProblem(n, c, h, w, oc, target.lanes(32), pads)
    convolution = Convolution(problem, small(m, target), target)
    assert error(convolution, n, h, w, parts=(1, 2, 3, 7)) < ERROR_BOUNDS[m]


@pytest.mark.parametrize("m", [2, 4])
@pytest.mark.parametrize("target", TARGETS[-1:])
def test_one_kernel_of_dynamic_sizes_serves_all_sizes(m: int, target: Target) -> None:
    problem = WinogradProblem("d0", 17, "d1", "d2", 19, target.lanes(32), (1, 1, 1, 1))
    convolution = Convolution(problem, small(m, target), target)
    for n, h, w in ((1, 1, 1), (2, 5, 14), (1, 30, 9), (3, 4, 4), (1, 2, 33)):
        assert error(convolution, n, h, w, parts=(1, 2)) < ERROR_BOUNDS[m], (n, h, w)


@pytest.mark.parametrize("target", TARGETS)
def test_heuristic_schedules_give_right_results(target: Target) -> None:
    problem = WinogradProblem(1, 24, 29, 23, 72, target.lanes(32))
    convolution = Convolution(problem, heuristic(problem, target), target)
    assert error(convolution, 1, 29, 23, parts=(1, 2)) < ERROR_BOUNDS[4]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m", [2, 4])
def test_the_main_loop_keeps_its_accumulators_in_registers(m: int, target: Target) -> None:
    problem = WinogradProblem(1, 256, 28, 28, 128, target.lanes(32))
    schedule = heuristic(problem, target, "f2" if m == 2 else "f4")
    kernel = Convolution(problem, schedule, target).kernel
    assert kernel.stack_stores == 0
    assert kernel.calls == []


@pytest.mark.parametrize("m", [2, 4])
@pytest.mark.parametrize("target", TARGETS)
def test_the_weight_kernel_gives_the_bits_of_the_numpy_transform(m: int, target: Target) -> None:
    problem = WinogradProblem(1, 13, 8, 8, 45, target.lanes(32))
    schedule = small(m, target)
    _, weight, _ = data(1, 13, 8, 8, 45)
    packed = aligned(pack(weight, problem, schedule).shape)
    packed[:] = pack(weight, problem, schedule)
    u = aligned(transformed_shape(problem, schedule))
    u[:] = np.nan
    kernel = weight_kernel(problem, schedule, target)
    for group in range(groups(problem, schedule)):
        kernel(packed, u, group, group + 1)
    assert np.array_equal(u, transform_weights(packed, problem, schedule))


@pytest.mark.parametrize("m", [2, 4])
def test_transformed_weights_are_g_w_gt_in_the_order_of_use(m: int) -> None:
    problem = WinogradProblem(1, 5, 8, 8, 40, 8)
    schedule = WinogradSchedule(
        m=m, tiles=4, oc_block=32, rows=4, vectors=2, k_block=8, unroll=8, strip=4
    )
    _, weight, _ = data(1, 5, 8, 8, 40)
    u = transform_weights(pack(weight, problem, schedule), problem, schedule)
    expected = np.einsum("ia,ocab,jb->ijoc", MATRIX[m], weight.astype(np.float64), MATRIX[m])
    output_channel, input_channel = 37, 3  # group 1, panel 0, lane 5 of its 16
    found = u[1, :, 0, input_channel, 5].reshape(m + 2, m + 2)
    np.testing.assert_allclose(found, expected[:, :, output_channel, input_channel], rtol=1e-6)
    assert not u[1, :, 0, :, 8:].any()
    assert not u[1, :, 0, 5:, :].any()


@pytest.mark.full
@pytest.mark.parametrize("m", [2, 4])
@pytest.mark.parametrize("channels", [64, 128, 256, 512])
def test_the_error_stays_below_the_stated_bound(m: int, channels: int) -> None:
    target = runnable_targets()[-1]
    problem = WinogradProblem(1, channels, 14, 14, 64, target.lanes(32))
    schedule = heuristic(problem, target, "f2" if m == 2 else "f4")
    assert error(Convolution(problem, schedule, target), 1, 14, 14) < ERROR_BOUNDS[m]


@pytest.mark.full
@pytest.mark.parametrize("seed", range(200))
def test_random_convolutions_with_random_blocks_are_right(seed: int) -> None:
    random = np.random.default_rng(seed)
    target = runnable_targets()[seed % len(runnable_targets())]
    lanes, m = target.lanes(32), int(random.choice([2, 4]))
    pads = tuple(int(p) for p in random.integers(0, 3, 4))
    n, c, oc = (int(v) for v in random.integers(1, (4, 50, 90)))
    h, w = (int(v) for v in random.integers(3, 40, 2))
    schedule = replace(
        small(m, target),
        tiles=int(random.integers(1, 60)),
        oc_block=2 * lanes * int(random.integers(1, 4)),
        rows=int(random.integers(1, 7)),
        k_block=lanes * int(random.integers(1, 5)),
        strip=int(random.integers(1, 30)),
        prefetch=int(random.integers(0, 3)),
    )
    symbolic = bool(random.integers(0, 2))
    sizes = ("d0", "d1", "d2") if symbolic else (n, h, w)
    problem = WinogradProblem(
        sizes[0], c, sizes[1], sizes[2], oc, lanes, (pads[0], pads[1], pads[2], pads[3])
    )
    convolution = Convolution(problem, schedule, target)
    assert error(convolution, n, h, w, parts=(1, 2, 5)) < ERROR_BOUNDS[m]
