"""One compiled model tells what quantizing each product alone costs: the same as a model compiled for each."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import xcompile
from tests.e2e.compiled_node import shared_pool
from tests.e2e.networks import Network
from xcompile.compiler.calibration.calibrator import Calibrator
from xcompile.compiler.calibration.sensitivity import SwitchedModel, output_noise
from xcompile.compiler.quantize.plan import INT8
from xcompile.compiler.target.host import host_target

MODEL = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
IMAGES = np.random.default_rng(0).uniform(0, 16, (20, 1, 8, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def calibrator() -> Calibrator:
    made = Calibrator(MODEL, pool=shared_pool())
    made.observe(IMAGES)
    return made


def compiled(target: str, **named: Any) -> xcompile.CompiledModel:
    return xcompile.compile(MODEL, target, pool=shared_pool(), **named)


def test_noise_is_that_of_models_with_one_integer_product(calibrator: Calibrator) -> None:
    table = calibrator.table("min-max")
    switched = SwitchedModel(MODEL, table, INT8, host_target(), pool=shared_pool())
    costs = switched.costs([{"images": IMAGES}])
    assert [cost.name for cost in costs] == ["c1", "c2", "scores#1"]
    assert [cost.operations for cost in costs] == [
        2 * 9 * 16 * 64,
        2 * 9 * 16 * 32 * 16,
        2 * 512 * 10,
    ]
    plain = np.asarray(compiled("cpu")(IMAGES))
    for cost in costs:
        others = [other.name for other in costs if other is not cost]
        alone = compiled("cpu-int8", calibration_table=table, keep_float=others)
        error = np.asarray(alone(IMAGES)) - plain
        assert cost.noise == pytest.approx((error**2).sum() / (plain**2).sum(), rel=0.3)


def test_a_mean_error_counts_that_no_bias_makes_up_for() -> None:
    """Of inputs around 100 the errors of a column's weights add up."""
    n = Network()
    plain = n("MatMul", "x", n.weight(64, 8))
    biased = n("Add", n("MatMul", "z", n.weight(64, 8)), n.weight(8))
    sizes: dict[str, Any] = dict.fromkeys(("x", "z"), ("FLOAT", ["N", 64]))
    model = n.model(sizes, dict.fromkeys((plain, biased), ("FLOAT", ["N", 8])))
    x = (np.random.default_rng(0).standard_normal((40, 64)) + 100).astype(np.float32)
    sample = {"x": x, "z": x}
    calibrator = Calibrator(model, pool=shared_pool())
    calibrator.observe(sample)
    table = calibrator.table("min-max")
    switched = SwitchedModel(model, table, INT8, host_target(), pool=shared_pool())
    wanted = xcompile.compile(model, pool=shared_pool()).run(sample)
    found = xcompile.compile(model, "cpu-int8", calibration_table=table, pool=shared_pool()).run(
        sample
    )
    noise = [output_noise([{"y": wanted[y]}], [{"y": found[y]}]) for y in (plain, biased)]
    costs = switched.costs([sample])
    assert [2 * cost.noise for cost in costs] == pytest.approx(noise, rel=0.1)


@pytest.mark.parametrize("narrow", ["fp16", "bf16"])
def test_noise_in_16_bits_is_that_of_models_with_one_narrow_product(
    narrow: str, calibrator: Calibrator
) -> None:
    table = calibrator.table("min-max")
    switched = SwitchedModel(MODEL, table, INT8, host_target(), pool=shared_pool(), narrow=narrow)
    costs = switched.costs([{"images": IMAGES}], products=["scores#1", "c2"], narrow=True)
    assert [cost.name for cost in costs] == ["scores#1", "c2"]
    plain = np.asarray(compiled("cpu")(IMAGES))
    for cost in costs:
        alone = compiled("cpu", precisions={cost.name: narrow})
        assert [row.arithmetic for row in alone.precisions()].count("float32") == 2
        error = np.asarray(alone(IMAGES)) - plain
        assert cost.noise == pytest.approx((error**2).sum() / (plain**2).sum(), rel=0.3)


def test_a_product_that_is_ruined_is_the_most_sensitive(calibrator: Calibrator) -> None:
    text = calibrator.table("min-max").to_text()
    table = xcompile.CalibrationTable.from_text(text)
    tensors = dict(table.tensors)
    seen = tensors["p1"]
    tensors["p1"] = type(seen)(type(seen.range)(0.0, seen.range.high / 50), seen.means)
    ruined = type(table)(
        table.model, table.digest, table.observer, table.samples, tensors, table.keep_float
    )
    switched = SwitchedModel(MODEL, ruined, INT8, host_target(), pool=shared_pool())
    noise = {cost.name: cost.noise for cost in switched.costs([{"images": IMAGES}])}
    assert max(noise, key=noise.__getitem__) == "c2"
    assert noise["c2"] > 100 * noise["c1"]


def test_inputs_that_may_be_left_out_stay_the_last_ones() -> None:
    n = Network()
    weight, gain = n.weight(8, 8), n.constant(np.float32([2.0]), "gain")
    y = n("Mul", n("MatMul", "x", weight), gain)
    sizes: dict[str, Any] = {"x": ("FLOAT", [4, 8]), "gain": ("FLOAT", [1])}
    model = n.model(sizes, {y: ("FLOAT", [4, 8])})
    x = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    calibrator = Calibrator(model, pool=shared_pool())
    calibrator.observe(x)
    switched = SwitchedModel(
        model, calibrator.table("min-max"), INT8, host_target(), pool=shared_pool(), overridable=["gain"]
    )  # fmt: skip
    (without,) = switched.costs([{"x": x}])
    (given,) = switched.costs([{"x": x, "gain": np.float32([2.0])}])
    assert 0 < without.noise < 1e-3
    assert given == without


def test_noise_is_of_values_that_are_not_the_same() -> None:
    wanted = np.array([3.0, np.inf, -np.inf, np.nan, 4.0], np.float32)

    def noise(place: int, value: float) -> float:
        found = wanted.copy()
        found[place] = value
        return output_noise([{"y": wanted}], [{"y": found}])

    assert noise(0, 3.0) == 0
    assert noise(0, 8.0) == 1
    for place, value in ((1, -np.inf), (2, 0.0), (3, 0.0), (3, np.inf), (0, np.nan), (0, np.inf)):
        assert noise(place, value) == np.inf
    assert output_noise([{"y": wanted[3:4]}], [{"y": np.zeros(1, np.float32)}]) == np.inf


def test_an_output_of_another_shape_is_all_noise() -> None:
    a, b = np.array([3.0, 4.0], np.float32), np.array([3.0], np.float32)
    assert output_noise([{"y": a}], [{"y": b}]) == 1
    assert output_noise([{"y": a}, {"y": a}], [{"y": a}, {"y": b}]) == 0.5


def test_an_output_of_zeros_that_has_become_something_else_is_all_noise() -> None:
    zeros, ones = np.zeros(2, np.float32), np.float32([1e-6, 3.0])
    assert output_noise([{"y": zeros}], [{"y": zeros}]) == 0
    assert output_noise([{"y": zeros}], [{"y": ones}]) == 1
    assert output_noise([{"y": zeros, "z": ones}], [{"y": ones, "z": ones}]) == 0.5
