"""Windows, and the schedules of depthwise convolutions and pools."""

from dataclasses import replace

import numpy as np
import pytest

from xcompile.compiler.schedule import depthwise, pool
from xcompile.compiler.schedule.depthwise import DepthwiseProblem
from xcompile.compiler.schedule.pool import GlobalPoolProblem, GlobalPoolSchedule, PoolProblem
from xcompile.compiler.schedule.schedule import ScheduleError, from_json, to_json
from xcompile.compiler.schedule.window import (
    ColumnTile,
    Window,
    WindowSchedule,
    column_tiles,
    resolve,
)
from xcompile.compiler.support.dims import symbol
from xcompile.compiler.target.registry import targets

AVX2 = targets()["x86-avx2"]
SAME = Window((3, 3), pads=(1, 1, 1, 1))
FILTERS = DepthwiseProblem(1, 20, 14, 14, SAME)


def test_a_window_is_counted_where_it_fits() -> None:
    assert Window((3, 3), (2, 2)).output(0, 224) == 111
    assert Window((7, 7), (2, 2), (3, 3, 3, 3)).output(1, 224) == 112
    assert Window((3, 3), dilations=(2, 1)).output(0, 7) == 3
    assert Window((3, 3), pads=(0, 1, 2, 3)).output(1, 5) == 7


@pytest.mark.parametrize(
    ("window", "size", "count"),
    [
        (Window((2, 2), (2, 2), ceil_mode=True), 5, 3),
        (Window((3, 3), (2, 2), ceil_mode=True), 112, 56),
        (Window((1, 1), (2, 2), (0, 0, 1, 1), ceil_mode=True), 3, 2),
        (Window((2, 2), (3, 3), (1, 1, 1, 1), ceil_mode=True), 4, 2),
    ],
)
def test_in_ceil_mode_a_last_window_starts_inside_the_image(
    window: Window, size: int, count: int
) -> None:
    assert window.output(0, size) == count


def test_sizes_are_integers_symbols_or_products() -> None:
    assert resolve(7, {}) == 7
    assert resolve("d0", {"d0": 5}) == 5
    assert resolve("d0*7*d1", {"d0": 2, "d1": symbol("h")}) == symbol("h") * 14


def test_problems_and_schedules_survive_json() -> None:
    problem = PoolProblem("d0", 8, 5, 5, "average", replace(SAME, ceil_mode=True), True)
    assert from_json(PoolProblem, to_json(problem)) == problem
    schedule = WindowSchedule(7, 2, unroll=True)
    assert from_json(WindowSchedule, to_json(schedule)) == schedule


def test_extents_count_batches_blocks_and_groups_of_rows() -> None:
    assert WindowSchedule(7, 4, unroll=True).extent(FILTERS, AVX2) == 3 * 4
    dynamic = replace(FILTERS, n="d0")
    extent = WindowSchedule(7, 4, unroll=True).extent(dynamic, AVX2, {"d0": symbol("d0")})
    assert extent == symbol("d0") * 12
    assert pool.global_extent(GlobalPoolProblem(2, 20, 7, 7, "max"), AVX2) == 6


@pytest.mark.parametrize(
    ("schedule", "window", "reason"),
    [
        (WindowSchedule(15, 1, True), SAME, "15 pixels need 17 registers; the target has 16"),
        (WindowSchedule(0, 1, True), SAME, "must be positive"),
        (WindowSchedule(1, 1, True), Window(pads=(-1, 0, 0, 0)), "crop the input before"),
        (
            WindowSchedule(1, 1, False, peel=True),
            SAME,
            "peel needs an image of known width and unr",
        ),
    ],
)
def test_an_illegal_schedule_is_refused_with_a_reason(
    schedule: WindowSchedule, window: Window, reason: str
) -> None:
    with pytest.raises(ScheduleError, match=reason):
        schedule.check(replace(FILTERS, window=window), AVX2)


@pytest.mark.parametrize("target", targets().values(), ids=lambda t: t.name)
def test_heuristics_and_spaces_are_legal(target: object) -> None:
    average = PoolProblem("d0", 20, "d1", "d2", "average", SAME)
    for family, problem in [(depthwise, FILTERS), (pool, average)]:
        schedules = list(family.space(problem, target))
        assert schedules[0] == family.heuristic(problem, target)
        assert len(set(schedules)) == len(schedules) > 5
        for schedule in schedules:
            schedule.check(problem, target)


def test_depthwise_weights_are_packed_by_blocks_of_channels() -> None:
    weight = np.arange(20 * 6, dtype=np.float32).reshape(20, 1, 2, 3)
    packed = depthwise.pack(weight, AVX2).reshape(3, 2, 3, 8)
    assert packed[1, 1, 2, 5] == weight[13, 0, 1, 2]
    assert not packed[2, :, :, 4:].any()


def test_edges_are_peeled_where_they_are_few_and_the_width_is_known() -> None:
    assert column_tiles(SAME, 14, 7) == [ColumnTile(0, 7, False), ColumnTile(7, 7, False)]
    assert depthwise.heuristic(FILTERS, AVX2).peel
    assert not depthwise.heuristic(replace(FILTERS, w="d0"), AVX2).peel
    padding = Window((5, 5), pads=(0, 70, 0, 70))
    assert not depthwise.heuristic(replace(FILTERS, window=padding), AVX2).peel


@pytest.mark.parametrize(
    ("chains", "reason"), [(0, "no power"), (3, "no power"), (16, "16 chains need 17 registers")]
)
def test_chains_of_a_global_pool_are_a_power_of_two_and_fit_the_registers(
    chains: int, reason: str
) -> None:
    with pytest.raises(ScheduleError, match=reason):
        GlobalPoolSchedule(chains).check(GlobalPoolProblem(1, 8, 7, 7, "average"), AVX2)


def test_a_global_pool_has_eight_chains_and_may_have_others() -> None:
    problem = GlobalPoolProblem(1, 8, 7, 7, "average")
    assert [s.chains for s in pool.global_space(problem, AVX2)] == [8, 1, 2, 4]
    assert {pool.global_heuristic(problem, target).chains for target in targets().values()} == {8}
