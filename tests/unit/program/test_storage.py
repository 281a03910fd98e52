"""The arena planner, against a checker that knows only what overlapping means."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xcompile.compiler.codegen.program.storage import Life, place
from xcompile.compiler.support.dims import evaluate, symbol
from xcompile.compiler.support.errors import CompileError

lives = st.lists(
    st.tuples(st.integers(1, 5000), st.integers(0, 20), st.integers(0, 8)).map(
        lambda t: Life(t[0], t[1], t[1] + t[2])
    ),
    max_size=30,
)


def overlap(a, b):
    return a[0] < b[0] + b[1] and b[0] < a[0] + a[1]


def live_at_once(found):
    """The most bytes that are live at the same step, each rounded up to a cache line."""
    steps = range(max((life.last for life in found), default=0) + 1)
    return max(
        (
            sum(-(-life.size // 64) * 64 for life in found if life.first <= s <= life.last)
            for s in steps
        ),
        default=0,
    )


@given(lives)
def test_tensors_that_live_at_once_do_not_overlap(found):
    layout = place(found)
    offsets, total = layout.offsets, layout.total
    for i, a in enumerate(found):
        assert offsets[i] % 64 == 0
        assert offsets[i] + a.size <= total
        for j, b in enumerate(found[:i]):
            together = a.first <= b.last and b.first <= a.last
            assert not (together and overlap((offsets[i], a.size), (offsets[j], b.size)))


@given(lives)
def test_the_arena_is_never_smaller_than_what_is_live_at_once(found):
    total = place(found).total
    assert total >= live_at_once(found)


def test_a_chain_of_equal_tensors_takes_two():
    total = place([Life(640, i, i + 1) for i in range(10)]).total
    assert total == 1280


@given(lives, st.integers(1, 300))
def test_symbolic_tensors_that_live_at_once_do_not_overlap(found, n):
    size = symbol("N")
    symbolic = [Life(size * life.size + 3, life.first, life.last) for life in found]
    layout, env = place(symbolic), {"N": n}
    for name, dim in layout.definitions:
        env[name] = evaluate(dim, env)
    at, total = [evaluate(o, env) for o in layout.offsets], evaluate(layout.total, env)
    bytes_of = [evaluate(life.size, {"N": n}) for life in symbolic]
    for i, a in enumerate(symbolic):
        assert at[i] % 64 == 0
        assert at[i] + bytes_of[i] <= total
        for j, b in enumerate(symbolic[:i]):
            together = a.first <= b.last and b.first <= a.last
            assert not (together and overlap((at[i], bytes_of[i]), (at[j], bytes_of[j])))


def test_a_chain_of_equal_symbolic_tensors_takes_two_definitions():
    layout = place([Life(64 * symbol("N"), i, i + 1) for i in range(100)])
    assert [name for name, _ in layout.definitions] == ["@0", "@1"]
    assert set(layout.offsets) == {0, symbol("@0")}


@pytest.mark.parametrize("size", [640, 640 * symbol("N")])
def test_8000_tensors_that_all_live_at_once_are_placed_in_seconds(size):
    start = time.process_time()
    layout = place([Life(size, i, 8000) for i in range(8000)])
    assert len(set(layout.offsets)) == 8000
    assert time.process_time() - start < 8


def test_more_bytes_than_there_are_addresses_are_refused():
    with pytest.raises(CompileError, match="XC2008"):
        place([Life(1 << 62, 0, 1), Life(1 << 62, 1, 2)])
