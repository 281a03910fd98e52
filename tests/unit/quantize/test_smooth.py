"""Smoothing: what moves from activations into weights, the same bits in float, less noise in 8 bits."""

from collections.abc import Iterator

import numpy as np
import onnx
import pytest

import xcompile
from tests.e2e.compiled_node import shared_pool
from tests.e2e.networks import Network
from tests.unit.quantize.test_plan import cleaned
from xcompile.compiler.calibration.calibrator import Calibrator
from xcompile.compiler.calibration.run import calibrate_model
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.quantize.histogram import ChannelPeaks
from xcompile.compiler.quantize.smooth import smooth_activations, smoothing_exponents
from xcompile.compiler.quantize.table import CalibrationTable
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.interpreter import interpret

RANDOM = np.random.default_rng(0)
SAMPLES = list(RANDOM.standard_normal((24, 1, 6, 16)).astype(np.float32))


def block() -> onnx.ModelProto:
    """Two layers behind a norm whose channels differ a hundredfold; the first is added to the norm's input."""
    n = Network()
    spread = np.geomspace(0.03, 3, 16).astype(np.float32)
    scale, bias = n.constant(spread), n.constant(spread / 2)
    norm = n("LayerNormalization", "x", scale, bias, axis=-1)
    wide = n("Add", n("MatMul", norm, n.weight(16, 32)), n.weight(32))
    hidden = n("Mul", wide, n("Sigmoid", wide))
    y = n("Add", n("MatMul", hidden, n.weight(32, 16)), "x")
    return n.model({"x": ("FLOAT", [1, 6, 16])}, {y: ("FLOAT", [1, 6, 16])})


def test_factors_share_the_spread_between_both_sides_as_powers_of_two() -> None:
    peaks, squares = np.array([64.0, 1.0, 0.0, 4.0]), np.array([100.0, 0.1, 0.0, 1.0])
    weights = np.array([[1.0], [1.0], [1.0], [0.0]])
    assert smoothing_exponents(peaks, squares, weights, 0.5) == (0, -3, 0, 0)
    assert smoothing_exponents(peaks, squares, weights, 1.0) == (0, -6, 0, 0)
    assert smoothing_exponents(peaks, squares, weights, 0.0) == (0, 0, 0, 0)
    assert smoothing_exponents(np.zeros(2), np.zeros(2), np.ones((2, 1)), 0.5) == (0, 0)


def test_large_channels_with_large_weights_are_left_to_the_activation() -> None:
    peaks, squares = np.array([21.0, 1.0, 1.0]), np.array([0.1, 0.05, 0.05])
    small, large = (np.array([[first], [0.1], [0.1]]) for first in (0.1, 4.0))
    assert smoothing_exponents(peaks, squares, small, 0.5) == (0, -2, -2)
    assert smoothing_exponents(peaks, squares, large, 0.5) == (0, 0, 0)


def test_the_float_model_computes_the_same_bits() -> None:
    calibrator = Calibrator(block(), pool=shared_pool())
    calibrator.observe_all(SAMPLES)
    factors = calibrator.smoothing(0.5)
    assert [len(powers) for powers in factors.values()] == [16, 32]
    assert min(min(powers) for powers in factors.values()) <= -3
    before, module = cleaned(block()), cleaned(block())
    with module.context, ir.Location.unknown():
        done = smooth_activations(module, factors)
        assert sorted(done.values()) == ["folded", "multiplied"]
        found = [interpret(module, [x])[0] for x in SAMPLES[:4]]
    with before.context:
        expected = [interpret(before, [x])[0] for x in SAMPLES[:4]]
    for one, other in zip(found, expected, strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("op", ["Add", "Relu"])
def test_a_column_that_is_broadcast_is_divided_behind(op: str) -> None:
    n = Network()
    column = n("MatMul", "x", n.weight(16, 1))
    wide = n("Add", n("Relu", column) if op == "Relu" else column, n.weight(16))
    y = n("MatMul", wide, n.weight(16, 4))
    assert smoothed(n, wide, y, [0, -3] * 8, SAMPLES[0]) == "multiplied"


@pytest.mark.parametrize(("most", "where"), [(1e38, "folded"), (1e38 * 3, "multiplied")])
def test_constants_that_float32_does_not_hold_are_not_made(most: float, where: str) -> None:
    n = Network()
    large = np.eye(16, dtype=np.float32)
    large[1, 1] = most
    wide = n("MatMul", "x", n.constant(large))
    y = n("MatMul", wide, n.constant(np.full((16, 4), 1e-3, np.float32)))
    assert smoothed(n, wide, y, [0, -1] * 8, SAMPLES[0] / 100) == where


def smoothed(n: Network, name: str, y: str, powers: list[int], x: np.ndarray) -> str:
    """Where the division is; the results are the same bits."""
    model = n.model({"x": ("FLOAT", [1, 6, 16])}, {y: ("FLOAT", None)})
    before, module = cleaned(model), cleaned(model)
    with module.context, ir.Location.unknown():
        (where,) = smooth_activations(module, {name: powers}).values()
        found = interpret(module, [x])[0]
    with before.context:
        assert found.tobytes() == interpret(before, [x])[0].tobytes()
    return where


def test_smoothing_takes_noise_from_channels_that_differ() -> None:
    plain = np.concatenate(
        [np.asarray(xcompile.compile(block(), pool=shared_pool())(x)) for x in SAMPLES]
    )
    errors: list[float] = []
    for smooth in (None, 0.5):
        model = xcompile.compile(
            block(), "cpu-int8", calibrate=SAMPLES, observer="min-max", smooth=smooth,
            pool=shared_pool(), options={"verify-numerics": True},
        )  # fmt: skip
        assert [row.arithmetic for row in model.precisions()] == ["int8", "int8"]
        found = np.concatenate([np.asarray(model(x)) for x in SAMPLES])
        errors.append(float(((found - plain) ** 2).mean()))
    assert errors[1] < 0.8 * errors[0]


def test_the_table_has_the_factors_and_serves_without_samples() -> None:
    table = calibrate_model(block(), SAMPLES, smooth=0.5, pool=shared_pool())
    again = CalibrationTable.from_text(table.to_text())
    assert again.to_text() == table.to_text()
    assert [len(powers) for powers in again.smooth.values()] == [16, 32]
    one, other = (
        xcompile.compile(block(), "cpu-int8", pool=shared_pool(), **given)  # type: ignore[arg-type]
        for given in ({"calibration_table": again}, {"calibrate": SAMPLES, "smooth": 0.5})
    )
    assert np.asarray(one(SAMPLES[0])).tobytes() == np.asarray(other(SAMPLES[0])).tobytes()
    broken = table.to_text().replace('"smooth": {', '"smooth": {"t": [1000], ')
    with pytest.raises(CompileError, match=r"XC6009 .* a factor of 't' is not between"):
        CalibrationTable.from_text(broken)


def test_samples_that_can_be_read_once_are_refused() -> None:
    def generated() -> Iterator[np.ndarray]:
        yield from SAMPLES

    with pytest.raises(CompileError, match=r"XC6009 smoothing runs the samples twice"):
        calibrate_model(block(), generated(), smooth=0.5, pool=shared_pool())
    assert calibrate_model(block(), generated, smooth=0.5, pool=shared_pool()).smooth


def test_smoothing_is_from_0_to_1() -> None:
    calibrator = Calibrator(block(), pool=shared_pool())
    calibrator.observe(SAMPLES[0])
    with pytest.raises(CompileError, match=r"XC6005 smoothing is a number from 0 to 1, not 2"):
        calibrator.smoothing(2)


def test_peaks_are_the_same_in_any_order() -> None:
    one, other = ChannelPeaks(), ChannelPeaks()
    for sample in SAMPLES:
        one.add(sample, -1)
    for sample in reversed(SAMPLES):
        other.add(sample, 2)
    assert one.values.tolist() == np.abs(np.concatenate(SAMPLES)).max(axis=(0, 1)).tolist()
    assert other.values.tolist() == one.values.tolist()
    with pytest.raises(ValueError, match="6 channels instead of 16"):
        one.add(SAMPLES[0], 1)
