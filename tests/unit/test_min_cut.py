"""Minimum cuts against trying every side."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from xcompile.compiler.support.min_cut import min_cut

edges = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(0, 9)), max_size=24)


def capacity(found, side):
    return sum(c for a, b, c in found if a in side and b not in side)


@given(edges)
def test_no_other_side_has_a_smaller_capacity(found):
    side = min_cut(found, 0, 6)
    assert 0 in side
    assert 6 not in side
    every = itertools.product((False, True), repeat=5)
    sides = [{0, *(i + 1 for i in range(5) if choice[i])} for choice in every]
    assert capacity(found, side) == min(capacity(found, each) for each in sides)


def test_a_chain_is_cut_at_its_narrowest_place():
    assert min_cut([("s", "a", 3), ("a", "b", 1), ("b", "t", 2)], "s", "t") == {"s", "a"}


def test_a_sink_that_is_not_reached_costs_nothing():
    assert min_cut([("s", "a", 3), ("b", "t", 2)], "s", "t") == {"s", "a"}
