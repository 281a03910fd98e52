"""The digits network quantized after training: calibrated, compiled for int8, as accurate as before."""

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import xcompile
from tests.e2e.compiled_node import shared_pool
from xcompile.compiler.calibration.calibrator import Calibrator
from xcompile.compiler.cli.main import execute
from xcompile.compiler.quantize.table import CalibrationTable

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits"
MODEL = EXAMPLE / "digits.onnx"


def _digits() -> tuple[Any, Any]:
    spec = importlib.util.spec_from_file_location("digits_data", EXAMPLE / "data.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.load()


@pytest.fixture(scope="module")
def digits() -> tuple[Any, Any]:
    return _digits()


@pytest.fixture(scope="module")
def calibrator(digits: tuple[Any, Any]) -> Calibrator:
    """Of the 797 digits that the model was trained on."""
    made = Calibrator(MODEL, pool=shared_pool())
    made.observe(digits[0].images)
    return made


def compiled(*arguments: Any, **named: Any) -> xcompile.CompiledModel:
    """Compile with the workers that all tests share."""
    return xcompile.compile(*arguments, pool=shared_pool(), **named)


def accuracy(model: xcompile.CompiledModel, digits: tuple[Any, Any]) -> float:
    """Of the 1,000 digits that are held out, in percent."""
    scores = np.asarray(model(digits[1].images))
    return 100 * float((scores.argmax(axis=1) == digits[1].labels).mean())


@pytest.mark.parametrize(
    ("observer", "lost"), [("entropy", 0.5), ("mse", 0.5), ("min-max", 1.0), ("percentile", 1.0)]
)
def test_int8_loses_at_most_half_a_point_of_988(
    calibrator: Calibrator, digits: tuple[Any, Any], observer: str, lost: float
) -> None:
    table = calibrator.table(observer)
    model = compiled(MODEL, "cpu-int8", calibration_table=table)
    assert accuracy(model, digits) >= 98.8 - lost


def test_the_table_is_that_of_the_inputs_of_products(calibrator: Calibrator) -> None:
    table = calibrator.table("min-max")
    assert list(table.tensors) == ["images", "p1", "flat"]
    assert table.tensors["images"].range.high == 16.0
    assert (table.samples, table.model) == (797, "digits")
    assert [len(seen.means) for seen in table.tensors.values()] == [1, 16, 512]


@pytest.mark.parametrize("observer", ["percentile", "entropy", "mse"])
def test_tables_are_the_same_for_any_order_and_batches(
    calibrator: Calibrator, digits: tuple[Any, Any], observer: str, tmp_path: Path
) -> None:
    images = digits[0].images[np.random.default_rng(0).permutation(797)]
    other, half = (Calibrator(MODEL, pool=shared_pool()) for _ in range(2))
    for start in range(0, 300, 37):
        other.observe({"images": images[start : min(start + 37, 300)]})
    other.save(str(tmp_path / "state.npz"))
    half.restore(str(tmp_path / "state.npz"))
    other.observe(images[300:600])
    rest = Calibrator(MODEL, pool=shared_pool())
    rest.observe([images[600:]])
    other.merge(rest)
    assert half.samples == 300
    assert other.table(observer).to_text() == calibrator.table(observer).to_text()


def test_samples_may_come_from_a_generator(digits: tuple[Any, Any]) -> None:
    def images() -> Iterator[np.ndarray]:
        yield from np.split(digits[0].images[:100], 100)

    told: list[tuple[str, int, int]] = []
    model = compiled(MODEL, "cpu-int8", calibrate=images, progress=lambda *what: told.append(what))
    assert accuracy(model, digits) >= 98.3
    assert ("calibration", 100, 100) in told


def test_a_sample_that_is_not_finite_is_refused_with_the_tensors_name(
    calibrator: Calibrator,
) -> None:
    before = calibrator.table("mse").to_text()
    wrong = np.full((1, 1, 8, 8), np.nan, np.float32)
    with pytest.raises(xcompile.CompileError, match="sample 797 makes the tensor 'images' NaN"):
        calibrator.observe(wrong)
    assert calibrator.table("mse").to_text() == before


def test_a_blank_image_calibrates_to_finite_numbers(digits: tuple[Any, Any]) -> None:
    blank = np.zeros((1, 1, 8, 8), np.float32)
    model = compiled(MODEL, "cpu-int8", calibrate=[blank])
    assert np.isfinite(np.asarray(model(digits[1].images))).all()


def test_a_float_model_needs_calibration() -> None:
    with pytest.raises(xcompile.CompileError, match=r"XC6008 .* --calibrate=DATA"):
        compiled(MODEL, "cpu-int8")


def test_a_table_serves_its_own_model_only(calibrator: Calibrator) -> None:
    table = calibrator.table()
    other = CalibrationTable(table.model, "0" * 64, "mse", 1, table.tensors)
    with pytest.raises(xcompile.CompileError, match=r"XC6009 .* made for another model"):
        compiled(MODEL, "cpu-int8", calibration_table=other)


def test_calibration_is_for_int8_targets(calibrator: Calibrator) -> None:
    for arguments in ({"calibrate": []}, {"calibration_table": calibrator.table()}):
        with pytest.raises(xcompile.CompileError, match=r"XC6005 .* cpu-int8"):
            compiled(MODEL, "cpu", **arguments)


def test_nothing_to_calibrate_with_is_an_error() -> None:
    with pytest.raises(xcompile.CompileError, match="XC6009 there are no samples"):
        compiled(MODEL, "cpu-int8", calibrate=[])
    with pytest.raises(xcompile.CompileError, match="XC6005 there is no observer 'best'"):
        compiled(MODEL, "cpu-int8", calibrate=[], observer="best")


def test_nodes_that_are_kept_in_float_compute_as_before(
    calibrator: Calibrator, digits: tuple[Any, Any]
) -> None:
    images = digits[1].images[:50]
    plain = np.asarray(compiled(MODEL)(images))
    table = calibrator.table()
    kept = compiled(MODEL, "cpu-int8", calibration_table=table, keep_float=["*"])
    assert np.asarray(kept(images)).tobytes() == plain.tobytes()
    some = compiled(MODEL, "cpu-int8", calibration_table=table, keep_float="conv*")
    error = np.abs(np.asarray(some(images)) - plain).max()
    assert 0 < error < 0.02 * np.abs(plain).max()


@pytest.mark.parametrize("target", ["x86-vnni-int8", "arm-dotprod-int8"])
def test_libraries_for_other_machines_are_written(
    calibrator: Calibrator, target: str, tmp_path: Path
) -> None:
    model = compiled(MODEL, target, calibration_table=calibrator.table())
    model.save(tmp_path / "digits.so")
    assert 10_000 < (tmp_path / "digits.so").stat().st_size < 300_000


def test_the_products_are_told_with_what_they_compute_in_and_why(calibrator: Calibrator) -> None:
    table = calibrator.table()
    model = compiled(MODEL, "cpu-int8", calibration_table=table, keep_float="dense")
    rows = model.precisions()
    assert [row.arithmetic == "float32" for row in rows] == [False, False, True]
    assert [row.why for row in rows] == ["", "", "kept in floating point by 'dense'"]
    assert rows[2].operations == 2 * 512 * 10 + 10
    assert [row.arithmetic for row in compiled(MODEL).precisions()] == ["float32"] * 3


def test_one_command_calibrates_and_compiles(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], digits: tuple[Any, Any]
) -> None:
    table, library = tmp_path / "t.json", tmp_path / "digits.so"
    words = [
        str(MODEL),
        "--target=cpu-int8",
        f"--calibrate={EXAMPLE / 'data.py'}:calibration_samples",
    ]
    assert (
        execute(
            [
                *words,
                f"--calibration-table={table}",
                "--observer=mse",
                f"--metric={EXAMPLE / 'data.py'}:accuracy",
                "-o",
                str(library),
            ]
        )
        == 0
    )
    printed = capsys.readouterr().out
    assert re.search(r"the metric: float 98\.8, int8 98\.\d", printed)
    assert "int8: 3 of 3 products, 100.0% of their operations" in printed
    assert CalibrationTable.load(table).observer == "mse"
    scores = xcompile.load(library).run([digits[1].images])["scores"]
    assert (scores.argmax(axis=1) == digits[1].labels).mean() >= 0.983
    again = ["run", str(MODEL), "--target=cpu-int8", f"--calibration-table={table}"]
    assert execute([*again, "--input=random:1x1x8x8"]) == 0
    assert execute([str(MODEL), f"--calibrate={table}"]) == 1
    assert "XC6005 calibration is for the precision int8" in capsys.readouterr().err


def test_a_budget_computes_products_in_16_bits_that_need_it(
    calibrator: Calibrator, digits: tuple[Any, Any]
) -> None:
    def negative_error(model: Any) -> float:
        scores = np.asarray(model(digits[1].images))
        return -float(np.abs(scores - floating).max())

    floating = np.asarray(compiled(MODEL)(digits[1].images))
    table = calibrator.table("mse")
    whole = compiled(MODEL, "cpu-int8", calibration_table=table)
    budget = -negative_error(whole) * 0.9
    model = compiled(
        MODEL, "cpu-int8", calibration_table=table, accuracy_budget=budget, metric=negative_error
    )
    assert negative_error(model) >= -budget
    kept = [row.arithmetic for row in model.precisions()]
    assert kept.count("int8") in (1, 2)
    assert set(kept) <= {"int8", "float16", "bfloat16"}
    with pytest.raises(xcompile.CompileError, match="XC6010 no choice of int8 products stays"):
        compiled(
            MODEL, "cpu-int8", calibration_table=table, accuracy_budget=0, metric=negative_error
        )


def test_passes_behind_quantization_are_checked_by_numbers(calibrator: Calibrator) -> None:
    table = calibrator.table()
    model = compiled(MODEL, "cpu-int8", calibration_table=table, options={"verify-numerics": True})
    assert [row.arithmetic for row in model.precisions()] == ["int8"] * 3
