"""Schedules of contractions, row kernels, attention and recurrent layers: legality, numbers, packed weights."""

from dataclasses import replace

import numpy as np
import pytest

from xcompile.compiler.schedule import attention, contraction, recurrent, rows
from xcompile.compiler.schedule.attention import AttentionProblem, AttentionSchedule
from xcompile.compiler.schedule.contraction import ContractionProblem, ContractionSchedule
from xcompile.compiler.schedule.recurrent import RecurrentProblem, RecurrentSchedule
from xcompile.compiler.schedule.rows import RowProblem, RowSchedule
from xcompile.compiler.schedule.schedule import ScheduleError, from_json, to_json
from xcompile.compiler.support.dims import ceildiv, symbol
from xcompile.compiler.target.registry import targets
from xcompile.compiler.target.target import Target

AVX2, AVX512, NEON = (targets()[name] for name in ("x86-avx2", "x86-avx512", "arm-neon"))
PROBLEM = ContractionProblem("d0", 384, 1536, ("d1", 12), constant_b=True)
LEGAL = ContractionSchedule("tile", 6, 2, 60, 64, 384, 4, "packed")
ATTENTION = AttentionProblem("d0", 100, 32, 40, (12,), mask_strides=(0, 0, 1))
ROWS = RowProblem("softmax", "d0*d1", 100)
LSTM = RecurrentProblem(((0, 1, 2, 3),), 2, "d1", 40)


@pytest.mark.parametrize(
    "value",
    [
        PROBLEM,
        LEGAL,
        ATTENTION,
        ROWS,
        LSTM,
        recurrent.heuristic(LSTM, AVX2),
        attention.heuristic(ATTENTION, AVX2),
        rows.heuristic(ROWS, NEON),
    ],
)
def test_problems_and_schedules_survive_json(value: object) -> None:
    assert from_json(type(value), to_json(value)) == value


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"rows": 7, "m_block": 70}, "rows=7, vectors=2 need 17 registers; the target has 16"),
        ({"m_block": 50}, "blocks of 50 by 64 are not whole tiles of 6 by 16"),
        ({"n_block": 40}, "blocks of 60 by 40 are not whole tiles"),
        ({"b": "direct"}, "packed at compile time exactly when it is constant"),
        ({"unroll": 0}, "must be positive"),
        ({"kind": "dot"}, "a dot product needs n = 1"),
    ],
)
def test_an_illegal_contraction_is_refused_with_a_reason(
    change: dict[str, object], reason: str
) -> None:
    LEGAL.check(PROBLEM, AVX2)
    with pytest.raises(ScheduleError, match=reason):
        replace(LEGAL, **change).check(PROBLEM, AVX2)  # type: ignore[arg-type]


def test_b_is_read_in_place_only_where_it_is_contiguous_along_n() -> None:
    schedule = replace(LEGAL, b="direct")
    schedule.check(ContractionProblem(100, 384, 1536), AVX2)
    with pytest.raises(ScheduleError, match="only where it is contiguous along n"):
        schedule.check(ContractionProblem(100, 384, 1536, (), None, (1, 1536)), AVX2)


def test_an_illegal_attention_or_row_schedule_is_refused_with_a_reason() -> None:
    with pytest.raises(ScheduleError, match="tiles of 8 and 4 by 2 vectors need 19 registers"):
        AttentionSchedule(2, 8, 4, 128, 8).check(ATTENTION, AVX2)
    with pytest.raises(ScheduleError, match="cached=100 is no multiple of 16"):
        RowSchedule(100, 1).check(ROWS, AVX2)
    with pytest.raises(ScheduleError, match="mean is not defined for i32"):
        RowSchedule(0, 1).check(RowProblem("mean", 1, 2, dtype="i32"), AVX2)
    with pytest.raises(ScheduleError, match="layer_norm needs a contiguous axis"):
        RowSchedule(0, 1).check(RowProblem("layer_norm", 1, 2, 3), AVX2)


@pytest.mark.parametrize("target", [AVX2, AVX512, NEON], ids=lambda t: t.name)
@pytest.mark.parametrize(
    "problem",
    [
        PROBLEM,
        ContractionProblem(1, 1000, 2048, constant_b=True),
        ContractionProblem(1, 4096, 4096),
        ContractionProblem(4096, 1, 4096),
        ContractionProblem(3, 7, 5, (), (1, 3), (1, 5)),
        ContractionProblem("d0", "d1", "d2", ("d3",), dtype="f64"),
    ],
)
def test_every_schedule_of_the_space_is_legal(problem: ContractionProblem, target: object) -> None:
    schedules = list(contraction.space(problem, target))  # type: ignore[arg-type]
    assert schedules[0] == contraction.heuristic(problem, target)  # type: ignore[arg-type]
    assert len(set(schedules)) == len(schedules)
    for schedule in schedules:
        schedule.check(problem, target)  # type: ignore[arg-type]


@pytest.mark.parametrize("target", [AVX2, AVX512, NEON], ids=lambda t: t.name)
def test_the_spaces_of_attention_and_rows_are_legal(target: object) -> None:
    for schedule in attention.space(ATTENTION, target):  # type: ignore[arg-type]
        schedule.check(ATTENTION, target)  # type: ignore[arg-type]
    for problem in (ROWS, replace(ROWS, inner=70), replace(ROWS, kind="mean", inner="d2")):
        for schedule in rows.space(problem, target):  # type: ignore[arg-type]
            schedule.check(problem, target)  # type: ignore[arg-type]


def test_extents_are_expressions_of_the_symbols() -> None:
    n, batch = symbol("n"), symbol("b")
    sizes = {"d0": n, "d1": batch}
    assert contraction.extent(PROBLEM, LEGAL, AVX2, sizes) == batch * 12 * ceildiv(n, 60) * 6
    assert contraction.extent(PROBLEM, LEGAL, AVX2, {"d0": 61, "d1": 2}) == 2 * 12 * 2 * 6
    schedule = AttentionSchedule(2, 4, 4, 64, 8)
    assert attention.extent(ATTENTION, schedule, AVX2, sizes) == 12 * ceildiv(n, 16)
    assert rows.extent(ROWS, RowSchedule(112, 1), AVX2, sizes) == n * batch
    assert rows.extent(replace(ROWS, inner=40), RowSchedule(0, 2), AVX2, sizes) == n * batch * 3


def test_natural_strides_are_products_of_sizes() -> None:
    assert PROBLEM.strides("a") == ("d0*18432", "d0*1536", 1536, 1)
    strided = ContractionProblem(4, 5, 6, (2,), (None, 1, 4), (0, None, None))
    assert strided.strides("a") == (24, 1, 4)
    assert strided.strides("b") == (0, 5, 1)


def test_scratch_holds_a_packed_panel_and_partial_sums() -> None:
    assert contraction.scratch_bytes(PROBLEM, LEGAL, AVX2) == 4 * 60 * 64
    whole = replace(PROBLEM, k=384)
    assert contraction.scratch_bytes(whole, LEGAL, AVX2) == 0
    dynamic = replace(whole, constant_b=False)
    assert contraction.scratch_bytes(dynamic, replace(LEGAL, b="pack"), AVX2) == 4 * 384 * 16
    assert rows.scratch_bytes(ROWS, RowSchedule(112, 1), AVX2) == 4 * (112 + 16)


def test_weights_are_packed_panel_by_panel_with_zeros_past_n() -> None:
    weight = np.arange(2 * 3 * 20, dtype=np.float32).reshape(2, 3, 20)
    problem = ContractionProblem(6, 20, 3, (2,), constant_b=True)
    schedule = ContractionSchedule("tile", 6, 2, 6, 16, 3, 1, "packed")
    packed = contraction.pack(weight, problem, schedule, AVX2).reshape(2, 2, 3, 16)
    np.testing.assert_array_equal(packed[1, 0], weight[1, :, :16])
    np.testing.assert_array_equal(packed[1, 1, :, :4], weight[1, :, 16:])
    assert not packed[:, 1, :, 4:].any()


def test_a_panel_is_no_longer_than_k_and_no_larger_than_scratch_memory_may_be() -> None:
    schedule = replace(LEGAL, b="pack", k_block=1 << 30)
    known, unknown = ContractionProblem(100, 384, 1536), ContractionProblem(100, 384, "d0")
    schedule.check(known, AVX2)
    assert contraction.scratch_bytes(known, schedule, AVX2) == 4 * 1536 * 16
    with pytest.raises(ScheduleError, match="a panel of 1073741824 rows is more than 64 MiB"):
        schedule.check(unknown, AVX2)


@pytest.mark.parametrize("target", [AVX2, AVX512, NEON], ids=lambda t: t.name)
@pytest.mark.parametrize(("m", "n", "k"), [(128, 384, 384), (128, 384, 1536), ("d0", 384, 384)])
def test_all_cores_have_work_and_sums_do_not_depend_on_their_number(
    m: int | str, n: int, k: int, target: Target
) -> None:
    problem = ContractionProblem(m, n, k, constant_b=True)
    alone = contraction.heuristic(problem, replace(target, cores=1))
    for cores in (2, 4):
        several = replace(target, cores=cores)
        chosen = contraction.heuristic(problem, several)
        units = contraction.extent(problem, chosen, several, {"d0": 128})
        rounds = -(-units // cores)
        assert units >= 0.75 * rounds * cores
        assert rounds >= 2
        assert chosen == replace(alone, n_block=chosen.n_block)


@pytest.mark.parametrize(
    ("schedule", "reason"),
    [
        (RecurrentSchedule(4, (1,), 4, 4), "vectors=1 of 4 gates need 21 registers; the target has 16"),
        (RecurrentSchedule(2, (1,), 3, 4), "3 sequences are not whole tiles of 2"),
        (RecurrentSchedule(2, (1, 1), 2, 4), "1 products need as many numbers of vectors"),
        (RecurrentSchedule(2, (1,), 2, 0), "must be positive"),
    ],
)  # fmt: skip
def test_an_illegal_recurrent_schedule_is_refused_with_a_reason(
    schedule: RecurrentSchedule, reason: str
) -> None:
    with pytest.raises(ScheduleError, match=reason):
        schedule.check(LSTM, AVX2)


@pytest.mark.parametrize("target", [AVX2, AVX512, NEON])
@pytest.mark.parametrize("batch", [1, 3, 50, "d0"])
@pytest.mark.parametrize("products", [((0,),), ((0, 1), (2,)), ((0, 1, 2, 3),)])
def test_recurrent_heuristics_and_spaces_are_legal(
    products: tuple[tuple[int, ...], ...], batch: int | str, target: Target
) -> None:
    for hidden in (1, 33, 1024):
        problem = RecurrentProblem(products, 1, batch, hidden)
        for schedule in recurrent.space(problem, target):
            schedule.check(problem, target)


def test_packed_r_lies_as_panels_of_all_gates() -> None:
    """Two gates of three elements in vectors of four: k, then gate, then element."""
    problem = RecurrentProblem(((0, 1),), 1, 1, 3, "f32")
    r = np.arange(18, dtype=np.float32).reshape(1, 6, 3)
    packed = recurrent.pack(r, problem, RecurrentSchedule(1, (1,), 1, 1), NEON).reshape(3, 2, 4)
    assert packed[1].tolist() == [[1, 4, 7, 0], [10, 13, 16, 0]]


def test_sequences_share_panels_that_leave_the_second_level_cache() -> None:
    resident = recurrent.heuristic(RecurrentProblem(((0, 1, 2, 3),), 1, 64, 128), AVX2)
    large = recurrent.heuristic(RecurrentProblem(((0, 1, 2, 3),), 1, 64, 1024), AVX2)
    assert resident.sequences == resident.rows
    assert large.sequences > large.rows


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_a_product_with_a_column_has_a_legal_schedule_on_any_machine(dtype: str) -> None:
    problem = ContractionProblem(16, 1, 16, (), (16, 1), (1, 0), False, dtype)
    for machine in (*targets().values(), replace(targets()["x86-avx2"], vector_bits=128)):
        schedule = contraction.heuristic(problem, machine)
        assert schedule.kind == "dot"
        schedule.check(problem, machine)
