"""Tensors of the same numbers have one range, as long as none loses more than two bits by it."""

import pytest

from xcompile.compiler.quantize.observers import Range
from xcompile.compiler.quantize.sharing import shared_ranges
from xcompile.compiler.quantize.table import Observed


def shared(
    ties: list[tuple[str, str]], **ranges: tuple[float, float]
) -> dict[str, tuple[float, float]]:
    seen = {name: Observed(Range(*ends), (1.0,)) for name, ends in ranges.items()}
    made = shared_ranges(ties, seen)
    assert all(each.means == (1.0,) for each in made.values())
    return {name: (each.range.low, each.range.high) for name, each in made.items()}


def test_tied_tensors_have_the_range_that_holds_both() -> None:
    found = shared([("a", "b")], a=(-1.0, 2.0), b=(0.0, 3.0), c=(0.0, 1.0))
    assert found == {"a": (-1.0, 3.0), "b": (-1.0, 3.0), "c": (0.0, 1.0)}


def test_ties_go_on_from_tensor_to_tensor() -> None:
    found = shared([("a", "b"), ("b", "c")], a=(0.0, 1.0), b=(0.0, 2.0), c=(-1.0, 0.0))
    assert set(found.values()) == {(-1.0, 2.0)}


@pytest.mark.parametrize(("high", "both"), [(4.0, True), (4.01, False)])
def test_a_tensor_keeps_its_own_range_where_a_step_would_be_more_than_four_of_its_own(
    high: float, both: bool
) -> None:
    found = shared([("a", "b")], a=(0.0, 1.0), b=(0.0, high))
    assert (found["a"] == found["b"]) is both


def test_all_of_a_group_count_for_what_joins_it() -> None:
    found = shared([("a", "b"), ("b", "c")], a=(0.0, 1.0), b=(0.0, 3.0), c=(0.0, 5.0))
    assert found == {"a": (0.0, 3.0), "b": (0.0, 3.0), "c": (0.0, 5.0)}


def test_a_tensor_that_the_table_does_not_have_ties_nothing() -> None:
    assert shared([("a", "x"), ("x", "b")], a=(0.0, 1.0), b=(0.0, 2.0)) == {
        "a": (0.0, 1.0),
        "b": (0.0, 2.0),
    }


def test_a_tensor_of_zeros_keeps_its_own_range() -> None:
    assert shared([("a", "b")], a=(0.0, 0.0), b=(0.0, 2.0))["b"] == (0.0, 2.0)
