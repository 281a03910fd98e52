"""Schedules of direct convolution: legality, numbers, weights."""

from dataclasses import replace

import numpy as np
import pytest

from xcompile.compiler.schedule.conv import (
    ConvProblem,
    ConvSchedule,
    extent,
    flatten,
    heuristic,
    pack,
    scratch_bytes,
    space,
)
from xcompile.compiler.schedule.conv_problem import panel_groups, panel_reach
from xcompile.compiler.schedule.schedule import ScheduleError, from_json, to_json
from xcompile.compiler.schedule.window import Window
from xcompile.compiler.support.dims import symbol
from xcompile.compiler.target.registry import targets

AVX2, VNNI = targets()["x86-avx2"], targets()["x86-vnni"]
SAME = Window((3, 3), pads=(1, 1, 1, 1))
PROBLEM = ConvProblem(1, 64, 56, 56, 64, SAME)
LEGAL = ConvSchedule(2, 6, 4, 56, 8, 8, stage=True, prefetch=False, prefetch_input=False)


def test_problems_and_schedules_survive_json() -> None:
    assert from_json(ConvProblem, to_json(PROBLEM)) == PROBLEM
    assert from_json(ConvSchedule, to_json(LEGAL)) == LEGAL


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"pixels": 7}, "7 pixels by 2 vectors need 18 registers; the target has 16"),
        ({"stage": False}, "padding needs a staged input"),
        ({"unroll": 3}, "unroll=3 does not divide 8"),
        ({"tile_h": 0}, "must be positive"),
        ({"prefetch_input": True}, "only input read in place"),
    ],
)
def test_an_illegal_schedule_is_refused_with_a_reason(change: dict[str, int], reason: str) -> None:
    LEGAL.check(PROBLEM, AVX2)
    with pytest.raises(ScheduleError, match=reason):
        replace(LEGAL, **change).check(PROBLEM, AVX2)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"groups": 3}, "3 groups do not divide 64 and 64 channels"),
        ({"layout": "plain"}, "a plain input has one group of at most 8 channels, not 64 in 1"),
        ({"window": Window(pads=(0, -1, 0, 0))}, "crop the input before"),
    ],
)
def test_a_problem_the_family_does_not_take_is_refused(
    change: dict[str, object], reason: str
) -> None:
    with pytest.raises(ScheduleError, match=reason):
        heuristic(replace(PROBLEM, **change), AVX2)


def test_the_extent_counts_batches_tiles_and_panels() -> None:
    assert extent(PROBLEM, LEGAL, AVX2) == 14 * 4
    batched = replace(PROBLEM, n="d0")
    assert extent(batched, LEGAL, AVX2, {"d0": symbol("d0")}) == symbol("d0") * 56


def test_scratch_holds_the_staged_tile_and_the_partial_sums() -> None:
    staged = 8 * 6 * 58 * 8 * 4
    assert scratch_bytes(PROBLEM, LEGAL, AVX2) == staged
    assert scratch_bytes(PROBLEM, replace(LEGAL, k_blocks=4), AVX2) == staged + 4 * 56 * 16 * 4


def test_weights_are_packed_in_the_order_of_use() -> None:
    problem = ConvProblem(1, 9, 4, 4, 20, Window((1, 2)))
    schedule = replace(LEGAL, stage=False)
    weight = np.arange(20 * 9 * 2, dtype=np.float32).reshape(20, 9, 1, 2)
    packed = pack(weight, problem, schedule, AVX2).reshape(2, 2, 2, 8, 16)
    assert packed[1, 0, 1, 5, 3] == weight[19, 5, 0, 1]
    assert packed[0, 1, 0, 0, 7] == weight[7, 8, 0, 0]
    assert not packed[:, 1, :, 1:].any()
    assert not packed[1, :, :, :, 4:].any()


def test_a_panel_of_narrow_groups_has_the_weights_of_one_group_after_the_other() -> None:
    problem = ConvProblem(1, 32, 4, 4, 32, groups=8)
    packed = pack(np.ones((32, 4, 1, 1), np.float32), problem, replace(LEGAL, vectors=1), AVX2)
    panel = packed.reshape(4, 2, 4, 8)[1]  # [panel][group][channel][V]
    np.testing.assert_array_equal(panel[0], [[1, 1, 1, 1, 0, 0, 0, 0]] * 4)
    np.testing.assert_array_equal(panel[1], [[0, 0, 0, 0, 1, 1, 1, 1]] * 4)


def test_a_panel_across_two_groups_has_the_channels_of_both() -> None:
    problem = ConvProblem(1, 68, 4, 4, 68, groups=4)
    weight = np.arange(68 * 17, dtype=np.float32).reshape(68, 17, 1, 1) + 1
    schedule = replace(LEGAL, vectors=1, stage=False, k_blocks=17, unroll=1)
    assert list(map(len, panel_groups(problem, 1, 8))) == [1, 1, 2, 1, 2, 1, 2, 1, 1]
    panel = pack(weight, problem, schedule, AVX2).reshape(9, 2, 17, 8)[6]  # channels 48 to 55
    assert panel[0, 5, 2] == weight[50, 5, 0, 0]  # of group 2, which has outputs 34 to 50
    assert panel[1, 5, 3] == weight[51, 5, 0, 0]
    assert not panel[0, :, 3:].any() and not panel[1, :, :3].any()


def test_four_channels_of_integers_are_neighbours() -> None:
    problem = ConvProblem(1, 9, 4, 4, 20, Window((1, 2)), dtype="ui8", weights="i8")
    weight = np.arange(20 * 9 * 2).astype(np.int8).reshape(20, 9, 1, 2)
    schedule = replace(LEGAL, vectors=1, stage=False, unroll=4)
    packed = pack(weight, problem, schedule, VNNI).reshape(2, 1, 2, 4, 16, 4)
    np.testing.assert_array_equal(packed[1, 0, 1, 1, 3], weight[19, 4:8, 0, 1])
    np.testing.assert_array_equal(packed[0, 0, 0, 2, 7], [weight[7, 8, 0, 0], 0, 0, 0])


def test_a_panel_of_integers_has_the_units_of_all_its_groups_at_once() -> None:
    problem = ConvProblem(1, 15, 4, 4, 20, groups=5, dtype="ui8", weights="i8")
    reach = panel_reach(problem, 1, VNNI)
    assert (reach.units, reach.blocks, reach.last) == (
        1,
        3,
        1,
    )  # groups 0 to 3 read channels 0 to 11
    weight = np.arange(60).astype(np.int8).reshape(20, 3, 1, 1) + 1
    panels = pack(weight, problem, replace(LEGAL, vectors=1, unroll=1), VNNI).reshape(2, 3, 16, 4)
    np.testing.assert_array_equal(panels[0, :, 0], [[1, 2, 3, 0], [0] * 4, [0] * 4])
    np.testing.assert_array_equal(panels[0, :, 4], [[0, 0, 0, 13], [14, 15, 0, 0], [0] * 4])
    np.testing.assert_array_equal(panels[1, :, 0], [[0] * 4, [0] * 4, [49, 50, 51, 0]])


def test_pointwise_convolutions_are_flattened_and_others_are_not() -> None:
    assert flatten(ConvProblem(1, 8, 5, 6, 8)) == ConvProblem(1, 8, 1, 30, 8)
    assert flatten(ConvProblem(1, 8, "d0", 6, 8)).w == "d0*6"
    assert flatten(PROBLEM) == PROBLEM


@pytest.mark.parametrize("target", targets().values(), ids=lambda t: t.name)
@pytest.mark.parametrize(
    "problem",
    [PROBLEM, ConvProblem(1, 2048, 1, 49, 512), ConvProblem("d0", 24, "d1", "d2", 10, SAME)],
    ids=["3x3", "1x1", "dynamic"],
)
def test_the_heuristic_and_the_space_are_legal(problem: ConvProblem, target: object) -> None:
    schedules = list(space(problem, target))
    assert schedules[0] == heuristic(problem, target)
    assert len(set(schedules)) == len(schedules) > 5
    for schedule in schedules:
        schedule.check(problem, target)
