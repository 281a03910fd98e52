"""Rounding by the inputs of products: smaller errors of sums, never larger ones, the same whatever the order."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import xcompile
from tests.e2e.compiled_node import shared_pool
from tests.e2e.networks import Network
from xcompile.compiler.calibration.calibrator import Calibrator
from xcompile.compiler.calibration.sketch import Sketch, Window
from xcompile.compiler.quantize.rounding import (
    adaptive_flips,
    other_side,
    packed_flips,
    unpacked_flips,
)
from xcompile.compiler.quantize.weights import quantize_weights
from xcompile.compiler.support.errors import CompileError


def problem(seed: int, count: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Weights of 12 output channels, and inputs whose 40 channels go together."""
    random = np.random.default_rng(seed)
    mixed = random.standard_normal((8, 40)) + 0.3
    inputs = np.maximum(random.standard_normal((count, 8)) @ mixed, 0).astype(np.float32)
    return random.standard_normal((12, 40)).astype(np.float32), inputs


def errors(
    weights: np.ndarray, integers: np.ndarray, scales: np.ndarray, inputs: np.ndarray
) -> np.ndarray:
    """The square error of each output channel."""
    wrong = integers * scales[:, np.newaxis].astype(np.float64) - weights
    return ((inputs.astype(np.float64) @ wrong.T) ** 2).sum(axis=0)


@pytest.mark.parametrize("seed", range(5))
def test_sums_have_less_than_half_the_error_on_inputs_that_were_not_seen(seed: int) -> None:
    weights, inputs = problem(seed, 1600)
    integers, scales = quantize_weights(weights)
    flips = adaptive_flips(weights, integers, scales, inputs[:800])
    rounded = np.where(flips, other_side(weights, integers, scales), integers)
    before = errors(weights, integers, scales, inputs[800:]).sum()
    assert errors(weights, rounded, scales, inputs[800:]).sum() < 0.5 * before


@pytest.mark.parametrize("count", [1, 2, 5, 40, 400])
def test_no_channel_gets_a_larger_error(count: int) -> None:
    weights, inputs = problem(7, count)
    integers, scales = quantize_weights(weights)
    flips = adaptive_flips(weights, integers, scales, inputs)
    rounded = np.where(flips, other_side(weights, integers, scales), integers)
    before, behind = (errors(weights, q, scales, inputs) for q in (integers, rounded))
    assert (behind <= before).all()
    assert flips.any() == (count >= 5)


def test_rounded_weights_are_the_integers_around_the_weight() -> None:
    weights, inputs = problem(1)
    integers, scales = quantize_weights(weights)
    flips = adaptive_flips(weights, integers, scales, inputs)
    rounded = np.where(flips, other_side(weights, integers, scales), integers)
    assert np.abs(rounded).max() <= 127
    ideal = np.clip(weights / scales[:, np.newaxis], -127, 127)
    assert np.abs(rounded - ideal).max() < 1
    assert (np.abs(rounded - ideal)[flips] >= 0.5 - 1e-6).all()


def test_weights_of_zeros_and_inputs_of_zeros_stay() -> None:
    weights, inputs = problem(2)
    weights[3] = 0
    integers, scales = quantize_weights(weights)
    assert not adaptive_flips(weights, integers, scales, inputs)[3].any()
    assert not adaptive_flips(weights, integers, scales, np.zeros_like(inputs)).any()


def test_flips_are_text_and_back() -> None:
    flips = np.random.default_rng(0).random(1001) < 0.1
    assert (unpacked_flips(packed_flips(flips), 1001) == flips).all()
    for text, count in ((packed_flips(flips), 1016), ("no base64!", 8), ("AAAA", 8)):
        with pytest.raises(ValueError, match=r"bytes of bits|base64|decompress"):
            unpacked_flips(text, count)


@pytest.mark.parametrize(
    ("window", "groups"),
    [
        (Window("x", 1, (3, 3), (2, 1), (1, 2), (1, 2, 0, 2)), 1),
        (Window("x", 4, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)), 4),
    ],
)
def test_rows_of_convolutions_are_what_the_window_sees(window: Window, groups: int) -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((2, 4, 7, 6)).astype(np.float32)
    weights = random.standard_normal((8, 4 // groups, 3, 3)).astype(np.float32)
    rows = window.rows(x, np.random.default_rng(1))
    sums = np.einsum("rgk,gmk->rgm", rows, weights.reshape(groups, 8 // groups, -1)).reshape(
        len(rows), 8
    )
    reference = convolution(x, weights, window)
    found = reference.transpose(0, 2, 3, 1).reshape(-1, 8)
    nearest = np.abs(sums[:, np.newaxis] - found).max(axis=2).min(axis=1)
    assert nearest.max() < 1e-4
    assert len({tuple(row) for row in sums.round(3).tolist()}) > 8


def convolution(x: np.ndarray, weights: np.ndarray, window: Window) -> np.ndarray:
    n = Network()
    y = n(
        "Conv", "x", n.constant(weights), strides=list(window.strides), pads=list(window.pads),
        dilations=list(window.dilations), group=window.groups,
    )  # fmt: skip
    model = n.model({"x": ("FLOAT", list(x.shape))}, {y: ("FLOAT", None)})
    return np.asarray(xcompile.compile(model, pool=shared_pool())(x))


def test_a_sketch_is_the_same_in_any_order_and_from_any_parts() -> None:
    random = np.random.default_rng(0)
    arrays = random.standard_normal((150, 5, 3)).astype(np.float32)
    whole, first, second = (Sketch({"y": Window("x")}) for _ in range(3))
    for array in arrays:
        whole.add({"x": array}, {"x": array})
    for array in arrays[100:]:
        first.add({"x": array}, {"x": array})
    for array in arrays[110::-1]:
        second.add({"x": array}, {"x": array})
    first.merge(second)
    assert whole.rows("y").shape == (64 * 16, 1, 3)
    assert first.rows("y").tobytes() == whole.rows("y").tobytes()
    again = Sketch({"y": Window("x")})
    again.restore(first.state())
    assert again.rows("y").tobytes() == whole.rows("y").tobytes()
    assert Sketch({"y": Window("x")}).rows("y").shape == (0, 1, 0)


@pytest.mark.parametrize("size", [0, 1, 2])
def test_a_sample_without_pixels_for_a_convolution_is_left_out(size: int) -> None:
    window = Window("x", 1, (3, 3), (2, 2), (1, 1), (0, 0, 0, 0))
    sketch = Sketch({"conv": window, "product": Window("y")})
    y = np.ones((1, 4), np.float32)
    small, large = (np.ones((1, 2, n, 5), np.float32) for n in (size, 3))
    sketch.add({"x": small}, {"x": small, "y": y})
    assert sketch.rows("conv").shape == (0, 1, 0)
    sketch.add({"x": large}, {"x": large, "y": y})
    assert sketch.rows("conv").shape == (16, 1, 18)
    assert sketch.rows("product").shape == (16, 1, 4)


def layers() -> onnx.ModelProto:
    """A convolution, a depthwise one and a product; channels go together."""
    n = Network()
    first = n("Relu", n("Conv", "x", n.weight(12, 3, 3, 3), n.weight(12), pads=[1] * 4))
    second = n(
        "Relu", n("Conv", first, n.weight(12, 1, 3, 3), n.weight(12), pads=[1] * 4, group=12)
    )
    y = n(
        "Gemm", n("Flatten", n("GlobalAveragePool", second)), n.weight(6, 12), n.weight(6), transB=1
    )
    return n.model({"x": ("FLOAT", ["N", 3, 8, 8])}, {y: ("FLOAT", ["N", 6])})


def samples(seed: int, count: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    return np.cumsum(random.standard_normal((count, 3, 8, 8)), axis=3).astype(np.float32)


def test_the_table_has_the_flips_and_the_model_is_closer_with_them() -> None:
    calibrator = Calibrator(layers(), rounding="adaround", pool=shared_pool())
    calibrator.observe(samples(0, 80))
    table = calibrator.table()
    assert len(table.rounded) == 3
    assert set(json.loads(table.to_text())["rounded"]) == set(table.rounded)
    x = samples(1, 64)
    plain = np.asarray(xcompile.compile(layers(), pool=shared_pool())(x))
    powers = [
        float(((np.asarray(model(x)) - plain) ** 2).mean())
        for model in (
            xcompile.compile(layers(), "cpu-int8", calibration_table=given, pool=shared_pool())
            for given in (replace(table, rounded={}), table)
        )
    ]
    assert powers[1] < powers[0]


def test_tables_are_the_same_for_any_order_batches_and_from_a_state(tmp_path: Path) -> None:
    arrays = samples(0, 80)
    texts: list[str] = []
    for parts in (np.split(arrays, 4), np.split(arrays[::-1], 2)):
        calibrator = Calibrator(layers(), rounding="adaround", pool=shared_pool())
        calibrator.observe(parts[0])
        calibrator.save(tmp_path / "state.npz")
        calibrator = Calibrator(layers(), rounding="adaround", pool=shared_pool())
        calibrator.restore(tmp_path / "state.npz")
        calibrator.observe_all(parts[1:])
        texts.append(calibrator.table().to_text())
    assert texts[0] == texts[1]


def test_flips_of_another_number_of_weights_are_refused() -> None:
    calibrator = Calibrator(layers(), rounding="adaround", pool=shared_pool())
    calibrator.observe(samples(0, 8))
    table = calibrator.table()
    wrong = replace(table, rounded=dict.fromkeys(table.rounded, packed_flips(np.ones(3, bool))))
    with pytest.raises(CompileError, match=r"XC6009 the table cannot round the weights of"):
        xcompile.compile(layers(), "cpu-int8", calibration_table=wrong, pool=shared_pool())


def test_other_names_of_roundings_are_refused() -> None:
    with pytest.raises(CompileError, match="XC6005 there is no rounding 'up'"):
        xcompile.compile(layers(), "cpu-int8", calibrate=samples(0, 4), rounding="up")
