"""Schedules of Winograd convolutions: what is legal, what the heuristic picks, what is counted."""

from dataclasses import replace
from itertools import islice

import pytest

from xcompile.compiler.schedule.schedule import ScheduleError, from_json, to_json
from xcompile.compiler.schedule.winograd import (
    WinogradProblem,
    WinogradSchedule,
    extent,
    groups,
    heuristic,
    pays,
    scratch_bytes,
    space,
    transformed_shape,
)
from xcompile.compiler.target.registry import targets

AVX2 = targets()["x86-avx2"]
PROBLEM = WinogradProblem(1, 64, 56, 56, 64, 8)
SCHEDULE = WinogradSchedule(
    m=4, tiles=28, oc_block=64, rows=6, vectors=2, k_block=64, unroll=8, strip=14
)


def test_a_schedule_survives_json() -> None:
    assert from_json(WinogradSchedule, to_json(SCHEDULE)) == SCHEDULE
    assert from_json(WinogradProblem, to_json(PROBLEM)) == PROBLEM


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"m": 3}, "m=2 and m=4 only"),
        ({"tiles": 0}, "tiles=0 is not positive"),
        ({"oc_block": 40}, "no multiple of the register tile's 2 vectors of 8"),
        ({"k_block": 12}, "no multiple of the 8 lanes"),
        ({"unroll": 3}, "does not divide the 8 lanes"),
        ({"rows": 7}, "needs 17 vector registers, the target has 16"),
        ({"prefetch": -1}, "negative"),
        ({"stagger": 4096}, "multiple of 64 below 4096"),
    ],
)
def test_an_illegal_schedule_is_refused_with_a_reason(change: dict[str, int], reason: str) -> None:
    with pytest.raises(ScheduleError, match=reason):
        replace(SCHEDULE, **change).check(PROBLEM, AVX2)


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (replace(PROBLEM, pads=(1, 3, 1, 1)), "pads of 0 to 2"),
        (replace(PROBLEM, h=2, pads=(0, 1, 0, 1)), "no row"),
        (replace(PROBLEM, w=1, pads=(1, 1, 1, 0)), "no column"),
        (replace(PROBLEM, c=0), "there must be channels"),
        (replace(PROBLEM, block=16), "blocks of 16 channels; the target has 8 lanes"),
    ],
)
def test_a_problem_outside_the_family_is_refused(problem: WinogradProblem, reason: str) -> None:
    with pytest.raises(ScheduleError, match=reason):
        SCHEDULE.check(problem, AVX2)
    assert not pays(problem, AVX2, "f4")


def test_units_are_blocks_of_tiles_times_groups_of_output_channels() -> None:
    assert extent(PROBLEM, SCHEDULE) == 7  # 14 x 14 tiles in blocks of 28
    assert extent(replace(PROBLEM, n=3, oc=65), SCHEDULE) == 42
    dynamic = replace(PROBLEM, n="d0", h="d1", w="d1")
    assert str(extent(dynamic, SCHEDULE)) == "((((d1 + 3)//4)*((d1 + 3)//4)*d0 + 27)//28)"


def test_weights_are_padded_to_whole_groups_and_channel_blocks() -> None:
    assert transformed_shape(replace(PROBLEM, c=3, oc=65), SCHEDULE) == (2, 36, 4, 8, 16)


@pytest.mark.parametrize("target", ["x86-avx2", "x86-avx512", "arm-neon"])
@pytest.mark.parametrize("h", [1, 7, 13, 56, "d1"])
@pytest.mark.parametrize(("c", "oc"), [(3, 1), (16, 64), (512, 512), (208, 48)])
def test_the_heuristic_and_the_space_are_legal(target: str, h: int | str, c: int, oc: int) -> None:
    machine = targets()[target]
    problem = WinogradProblem(1, c, h, h, oc, machine.lanes(32))
    schedules = list(islice(space(problem, machine), 200))
    assert schedules[0] == heuristic(problem, machine)
    assert len(set(schedules)) == len(schedules)
    for schedule in schedules:
        schedule.check(problem, machine)
        assert groups(problem, schedule) * schedule.oc_block >= oc
        assert scratch_bytes(problem, schedule) > 0


def test_the_mode_decides_the_tile() -> None:
    assert heuristic(PROBLEM, AVX2, "f2").m == 2
    assert heuristic(PROBLEM, AVX2, "f4").m == 4
    assert heuristic(PROBLEM, AVX2, "auto").m == 4
    assert heuristic(replace(PROBLEM, h=7, w=7), AVX2, "auto").m == 2


def test_few_channels_do_not_pay() -> None:
    assert pays(PROBLEM, AVX2, "auto")
    assert not pays(PROBLEM, AVX2, "off")
    assert not pays(replace(PROBLEM, c=3), AVX2, "auto")
    assert pays(replace(PROBLEM, c=3), AVX2, "f4")


def test_sizes_that_are_not_known_are_taken_for_large_ones() -> None:
    assert pays(replace(PROBLEM, n="n", h="n", w="n"), AVX2, "auto")
    assert heuristic(replace(PROBLEM, n="n", h="n", w="n"), AVX2).m == 4


def test_small_images_take_the_direct_algorithm_or_the_small_tile() -> None:
    assert not pays(replace(PROBLEM, h=4, w=4), AVX2, "auto")
    assert pays(replace(PROBLEM, h=7, w=7), AVX2, "auto")
    assert heuristic(replace(PROBLEM, h=13, w=13), AVX2).m == 4


def test_blocks_and_groups_give_every_core_the_same_work() -> None:
    for cores in (1, 2, 4):
        target = replace(AVX2, cores=cores)
        for shape in ((64, 56, 64), (128, 28, 128), (256, 14, 256), (512, 7, 512)):
            problem = replace(PROBLEM, c=shape[0], h=shape[1], w=shape[1], oc=shape[2])
            assert extent(problem, heuristic(problem, target)) % cores == 0
