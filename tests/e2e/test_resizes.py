"""Resizes of blocked images and of row-major ones, compiled, against float64."""

import numpy as np
import pytest

from tests.e2e.compiled_node import shared_pool
from tests.e2e.networks import Network
from xcompile.compiler.api import compile as compile_model


def families(model):
    artifact = model.artifact
    return [artifact.kernels[step.symbol].family for step in artifact.program.launches]


def interpolated(x, factor, mode, coordinates, rule):
    """Along height and width, from the formulas of ONNX."""
    for axis in (2, 3):
        size = x.shape[axis]
        i = np.arange(int(size * factor), dtype=np.float64)
        place = i / factor if coordinates == "asymmetric" else (i + 0.5) / factor - 0.5
        if mode == "nearest":
            round_ = {"floor": np.floor, "round_prefer_floor": lambda v: np.ceil(v - 0.5)}[rule]
            x = x.take(np.clip(round_(place), 0, size - 1).astype(int), axis)
            continue
        low = np.floor(place)
        weight = (place - low).reshape([-1 if a == axis else 1 for a in range(4)])
        left, right = (x.take(np.clip(p, 0, size - 1).astype(int), axis) for p in (low, low + 1))
        x = left * (1 - weight) + right * weight
    return x


@pytest.mark.parametrize("size", [(7, 9), ("H", "W")], ids=["known sizes", "any size"])
@pytest.mark.parametrize(
    ("factor", "mode", "coordinates", "rule"),
    [
        (2.0, "nearest", "asymmetric", "floor"),
        (3.0, "nearest", "half_pixel", "round_prefer_floor"),
        (2.0, "nearest", "half_pixel", "floor"),
        (1.5, "nearest", "asymmetric", "floor"),
        (2.0, "linear", "half_pixel", "floor"),
        (0.6, "linear", "asymmetric", "floor"),
    ],
)
def test_a_resize_of_a_blocked_image_is_right_and_vectorized(factor, mode, coordinates, rule, size):
    n = Network()
    scales = n.constant(np.array([1, 1, factor, factor], np.float32))
    x = n("Relu", n("Conv", "x", n.weight(24, 3, 1, 1)))
    attributes = {"mode": mode, "coordinate_transformation_mode": coordinates, "nearest_mode": rule}
    y = n("Resize", x, "", scales, **attributes)
    y = n("Conv", y, n.constant(np.eye(24, dtype=np.float32).reshape(24, 24, 1, 1)))
    outputs = {y: ("FLOAT", [1, 24, None, None]), x: ("FLOAT", [1, 24, None, None])}
    made = compile_model(
        n.model({"x": ("FLOAT", [1, 3, *size])}, outputs), pool=shared_pool(), threads=1
    )
    data = np.random.default_rng(0).standard_normal((1, 3, 7, 9)).astype(np.float32)
    got, before = made.executable.run([data]).values()
    want = interpolated(before.astype(np.float64), factor, mode, coordinates, rule)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    assert "fallback" not in families(made)
