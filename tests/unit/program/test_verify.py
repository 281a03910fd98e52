"""The verifier of programs: each fault that is planted is named."""

import dataclasses

import pytest

from xcompile.compiler.codegen.program.program import (
    Allocate,
    Check,
    Define,
    Free,
    Give,
    Launch,
    Place,
    Program,
    Read,
)
from xcompile.compiler.codegen.program.verify import verify_program
from xcompile.compiler.support.dims import symbol
from xcompile.compiler.support.errors import CompileError

N, COUNT = symbol("N"), symbol("~count")


def launch(*places, results=1, lengths=None):
    sizes = lengths or (64,) * len(places)
    return Launch("k", places, (), 1, 1, 0, "node", lengths=sizes, results=results)


X, Y, Z = Place("input", 0), Place("output", 0), Place("output", 1)


def arena(offset, value):
    return Place("arena", offset, value=value)


def heap(slot, offset=0):
    return Place("heap", offset, slot)


A, B = arena(0, 1), arena(64, 2)
STATIC = Program(
    "m", ((16,),), ((16,), (16,)), 128, (), (launch(X, A), launch(A, B), launch(A, Y), launch(B, Z))
)
COUNTED = Program(
    "m", ((N,),), ((COUNT,),), 64, (),
    (
        launch(X, A), Read("~count", A, 0, "i64"), Define("bytes", 4 * COUNT), Check(COUNT, COUNT, "text"),
        Allocate(0, symbol("bytes")), launch(X, heap(0), lengths=(4 * N, 4 * COUNT)), Give(0, 0, (COUNT,), 0),
    ),
    heap=1,
)  # fmt: skip


def planted(program, step, *replacement):
    """The program with one step replaced by others."""
    steps = (*program.steps[:step], *replacement, *program.steps[step + 1 :])
    return dataclasses.replace(program, steps=steps)


@pytest.mark.parametrize("program", [STATIC, COUNTED])
def test_a_right_program_verifies(program):
    verify_program(program)
    verify_program(Program.from_json(program.to_json()))


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        (planted(STATIC, 0), r"arena\[0\] does not hold what is read"),
        (planted(STATIC, 1, launch(A, arena(0, 2))), r"arena\[0\] does not hold what is read"),
        (planted(STATIC, 1, launch(A, arena(32, 2))), r"arena\[0\] does not hold what is read"),
        (planted(STATIC, 1, launch(A, arena(96, 2))), r"arena\[96\] leaves the arena of 128"),
        (planted(STATIC, 2), "output 0 is not written"),
        (planted(STATIC, 2, launch(A, Y), launch(A, Y)), "output 0 is written twice"),
        (planted(STATIC, 2, launch(Z, Y)), r"output\[1\] is read before it is written"),
        (planted(STATIC, 0, launch(Place("prepared", 0), A)), r"prepared\[0\] is not prepared"),
        (planted(STATIC, 0, launch(A, X)), "does not hold"),
        (planted(STATIC, 0, launch(X, X)), r"input\[0\] is written"),
        (planted(COUNTED, 1), "the size ~count is not known"),
        (planted(COUNTED, 2), "the size bytes is not known"),
        (planted(COUNTED, 4), r"heap0\[0\] is not allocated"),
        (planted(COUNTED, 4, Allocate(0, 23)), r"heap0\[0\] leaves its 23 bytes"),
        (planted(COUNTED, 4, Allocate(0, 24), Allocate(0, 24)), "heap0 is in use"),
        (planted(COUNTED, 5), "heap0 is not written"),
        (planted(COUNTED, 6), "output 0 is not given"),
        (planted(COUNTED, 6, Free(0)), "output 0 is not given"),
        (planted(COUNTED, 6, launch(X, Y)), "output 0 is not given"),
        (planted(COUNTED, 6, Give(0, 0, (COUNT,), 0), Allocate(0, 8)), "heap0 is not freed"),
        (dataclasses.replace(COUNTED, outputs=((16,),)), "output 0 has a known size"),
        (planted(COUNTED, 6, COUNTED.steps[6], Free(0)), "heap0 is not in use"),
        (planted(COUNTED, 6, Free(0), launch(heap(0), Y)), r"heap0\[0\] is not allocated"),
    ],
)  # fmt: skip
def test_a_planted_fault_is_named(program, problem):
    with pytest.raises(CompileError, match=problem) as caught:
        verify_program(program)
    assert caught.value.code == "XC4012"


def test_sizes_that_contradict_each_other_for_made_up_data_are_the_run_s_to_refuse():
    """A view of heap memory: a run checks that it has as many elements."""
    viewed = launch(heap(0), arena(0, 2), lengths=(4 * COUNT + 4, 64))
    fits = Check(COUNT, COUNT + 1, "text")
    verify_program(planted(COUNTED, 5, COUNTED.steps[5], fits, viewed))
    with pytest.raises(CompileError, match=r"heap0\[0\] leaves its 24 bytes"):
        verify_program(planted(COUNTED, 5, COUNTED.steps[5], viewed, fits))


def test_setup_may_only_prepare_what_lies_in_the_weights():
    prepare = launch(Place("weights", 0), Place("prepared", 0))
    uses = planted(STATIC, 0, launch(Place("prepared", 0), A))
    verify_program(dataclasses.replace(uses, setup=(prepare,), prepared=64))
    with pytest.raises(CompileError, match="is read at load"):
        verify_program(dataclasses.replace(uses, setup=(launch(X, Place("prepared", 0)),)))


def test_parts_of_a_value_may_be_written_one_by_one():
    parts = (launch(X, arena(0, 1)), launch(X, arena(64, 1)))
    whole = launch(arena(0, 1), Y, lengths=(128, 64))
    verify_program(Program("m", ((16,),), ((16,),), 128, (), (*parts, whole)))
    with pytest.raises(CompileError, match="does not hold"):
        verify_program(Program("m", ((16,),), ((16,),), 128, (), (parts[0], whole)))


def rows(at, length, *, count=2, pitch=64, value=1, space="arena"):
    """A launch that writes rows of a larger value, and how many bytes these are in all."""
    place = Place(space, at, value=value, rows=count, pitch=pitch)
    if space == "output":
        place = Place(space, 0, at=at, rows=count, pitch=pitch)
    return launch(X, place, lengths=(64, length * count))


WHOLE = launch(A, Y, lengths=(128, 64))
IN_ROWS = Program("m", ((16,),), ((16,),), 128, (), (rows(0, 24), rows(24, 40), WHOLE))
OUTPUT_IN_ROWS = Program(
    "m", ((16,),), ((32,),), 0, (),
    (rows(24, 40, space="output"), rows(0, 24, space="output")),
)  # fmt: skip


def test_what_is_written_in_rows_is_whole_when_the_gaps_are_filled():
    verify_program(IN_ROWS)
    verify_program(OUTPUT_IN_ROWS)
    verify_program(Program.from_json(IN_ROWS.to_json()))
    between = launch(X, arena(128, 2))
    verify_program(
        dataclasses.replace(IN_ROWS, arena=192, steps=(rows(0, 24), between, rows(24, 40), WHOLE))
    )


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        (planted(IN_ROWS, 1), r"arena\[0\] does not hold what is read"),
        (planted(IN_ROWS, 1, rows(24, 36)), r"arena\[0\] does not hold what is read"),
        (planted(IN_ROWS, 1, rows(24, 40, count=1)), r"arena\[0\] does not hold what is read"),
        (planted(IN_ROWS, 1, rows(24, 40, value=2)), r"arena\[0\] does not hold what is read"),
        (planted(IN_ROWS, 1, rows(20, 44)), r"is written over 0"),
        (planted(IN_ROWS, 1, rows(24, 40, pitch=60)), r"is written over 0"),
        (planted(IN_ROWS, 1, rows(24, 40, count=3)), r"leaves the arena of 128"),
        (planted(IN_ROWS, 0, rows(0, 80)), r"has no whole rows"),
        (planted(IN_ROWS, 0, rows(0, 24), launch(X, arena(80, 2), lengths=(64, 8))), r"does not hold what is read"),
        (planted(OUTPUT_IN_ROWS, 1), "output 0 is not written"),
        (planted(OUTPUT_IN_ROWS, 1, rows(24, 40, space="output")), "is written over 24"),
    ],
)  # fmt: skip
def test_rows_that_overlap_or_leave_gaps_are_named(program, problem):
    with pytest.raises(CompileError, match=problem):
        verify_program(program)
