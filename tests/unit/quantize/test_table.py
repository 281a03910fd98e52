"""Calibration tables: readable JSON, the same when read back, refused with a reason when wrong."""

import json
from pathlib import Path

import pytest

from xcompile.compiler.quantize.observers import Range
from xcompile.compiler.quantize.table import CalibrationTable, Observed
from xcompile.compiler.support.errors import CompileError

TABLE = CalibrationTable(
    model="digits",
    digest="ab12",
    observer="entropy",
    samples=797,
    tensors={'a"b ü': Observed(Range(-0.1, 2.5), (0.25, -1.0)), "y": Observed(Range(0.0, 0.0))},
    keep_float=("conv*",),
)


def test_a_table_is_what_its_text_says() -> None:
    assert CalibrationTable.from_text(TABLE.to_text()) == TABLE


def test_a_table_is_a_line_a_tensor() -> None:
    assert '    "y": {"low": 0.0, "high": 0.0}\n' in TABLE.to_text()
    assert json.loads(TABLE.to_text())["samples"] == 797


def test_a_table_is_saved_whole(tmp_path: Path) -> None:
    TABLE.save(tmp_path / "t.json")
    assert CalibrationTable.load(tmp_path / "t.json") == TABLE
    assert [p.name for p in tmp_path.iterdir()] == ["t.json"]
    with pytest.raises(CompileError, match=r"XC6009 .* cannot be written: No such file"):
        TABLE.save(tmp_path / "missing" / "t.json")


def test_paths_are_texts_too_and_nothing_else(tmp_path: Path) -> None:
    TABLE.save(str(tmp_path / "t.json"))
    assert CalibrationTable.load(str(tmp_path / "t.json")) == TABLE
    for use in (TABLE.save, CalibrationTable.load):
        with pytest.raises(CompileError, match="XC6009 a file has a path, not int"):
            use(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{", "", "XC6009 .* cannot be used"),
        ('"version": 1', '"version": 2', "is not a xcompile calibration table of version 1"),
        ('"low": -0.1', '"low": 0.1', "the range of 'a\"b ü' goes from 0.1 to 2.5; 0 lies"),
        ('"high": 2.5', '"high": NaN', "goes from -0.1 to nan"),
        ('"high": 2.5', '"high": Infinity', "goes from -0.1 to inf"),
        ("-1.0]", "NaN]", "a mean of 'a\"b ü' is not finite"),
        ('"digest": "ab12",', "", "'digest' is missing"),
        ('"tensors": {', '"tensors": 3, "x": {', "cannot be used"),
    ],
)
def test_a_wrong_table_is_refused(old: str, new: str, message: str) -> None:
    text = TABLE.to_text()
    text = text.replace("\\u00fc", "ü").replace(old, new, 1)
    with pytest.raises(CompileError, match=message):
        CalibrationTable.from_text(text)


def test_a_table_that_is_not_there_is_named() -> None:
    with pytest.raises(CompileError, match=r"XC6009 the calibration table no\.json: No such file"):
        CalibrationTable.load(Path("no.json"))
