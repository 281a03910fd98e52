"""Schedules as JSON."""

import pickle
from dataclasses import dataclass
from typing import Literal

import pytest

from xcompile.compiler.schedule.schedule import ScheduleError, from_json, to_json


@dataclass(frozen=True)
class Inner:
    rows: int | str
    order: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outer:
    inner: Inner
    pads: tuple[int, int]
    layout: Literal["blocked", "plain"] = "plain"
    grain: float | None = None


VALUE = Outer(Inner("d0", ("m", "n")), (1, 2), "blocked", 0.5)
TEXT = '{"grain":0.5,"inner":{"order":["m","n"],"rows":"d0"},"layout":"blocked","pads":[1,2]}'


def test_the_text_has_sorted_fields_and_no_spaces() -> None:
    assert to_json(VALUE) == TEXT


def test_reading_gives_an_equal_value() -> None:
    assert from_json(Outer, TEXT) == VALUE


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('"grain":0.5,', "", "Outer needs the fields grain, inner, layout, pads"),
        ('"blocked"', '"tiled"', "Outer.layout cannot be 'tiled'"),
        ("[1,2]", "[1]", r"Outer.pads needs 2 values, got \[1\]"),
        ("[1,2]", "[1,true]", r"Outer.pads\[1\] cannot be True"),
        ('"d0"', "null", "Outer.inner.rows cannot be None"),
        ("{", "", "Outer is not JSON"),
    ],
)
def test_a_wrong_text_is_refused_with_the_field_to_blame(old: str, new: str, reason: str) -> None:
    with pytest.raises(ScheduleError, match=reason):
        from_json(Outer, TEXT.replace(old, new, 1))


def test_a_schedule_error_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(ScheduleError("too many registers")))
    assert (error.code, error.message) == ("XC4007", "too many registers")
