"""Transposed convolutions of integers: QDQ models and models that are quantized after training."""

import numpy as np
import pytest
from ml_dtypes import float8_e4m3fn

from tests.e2e.compiled_node import shared_pool
from tests.e2e.networks import Network, reference
from tests.e2e.test_one_axis import families
from xcompile.compiler.api import compile as compile_model

CASES = {
    "2x2": ((24, 12, 2, 2), (24, 5, 6), {"strides": [2, 2]}, 0, False),
    "any size, zero points": ((24, 12, 2, 2), (24, 5, 6), {"strides": [2, 2]}, 5, True),
    "padded": (
        (24, 12, 4, 3), (24, 5, 6),
        {"strides": [2, 2], "pads": [1, 1, 1, 0], "output_padding": [1, 0]}, -3, False,
    ),
    "groups": ((24, 6, 3, 3), (24, 5, 6), {"strides": [2, 2], "group": 4, "pads": [1] * 4}, 0, True),
    "strides differ": ((24, 6, 3, 3), (24, 5, 6), {"strides": [3, 2]}, 0, False),
    "stride 1": ((24, 6, 3, 3), (24, 5, 6), {"pads": [1] * 4}, 0, True),
    "one axis": ((24, 6, 4), (24, 9), {"strides": [2], "pads": [1, 1]}, 0, True),
    "volume": ((24, 6, 2, 2, 2), (24, 3, 5, 6), {"strides": [2, 2, 2]}, 0, False),
}  # fmt: skip


def quantized_transpose(weight, shape, attributes, zero, dynamic):
    """A ReLU behind it, and scales for each output channel."""
    rng, n = np.random.default_rng(1), Network()
    sx, zx = n.constant(np.float32(0.05)), n.constant(np.uint8(100))
    x = n("DequantizeLinear", n("QuantizeLinear", "x", sx, zx), sx, zx)
    scales = rng.uniform(0.01, 0.03, weight[1]).astype(np.float32)
    codes = rng.integers(-100, 100, weight).astype(np.int8)
    parameters = [n.constant(a) for a in (codes, scales, np.full(weight[1], zero, np.int8))]
    w = n("DequantizeLinear", *parameters, axis=1)
    bias = n.weight(weight[1] * attributes.get("group", 1), scale=1)
    y = n("Relu", n("ConvTranspose", x, w, bias, **attributes))
    sy, zy = n.constant(np.float32(0.4)), n.constant(np.uint8(120))
    y = n("DequantizeLinear", n("QuantizeLinear", y, sy, zy), sy, zy)
    sizes = ["D", "H", "W"][4 - len(shape) :] if dynamic else list(shape[1:])
    rank = len(shape) + 1
    return n.model({"x": ("FLOAT", ["N", shape[0], *sizes])}, {y: ("FLOAT", [None] * rank)})


@pytest.mark.parametrize("name", CASES)
def test_a_transposed_convolution_of_integers_is_that_of_onnxruntime(name):
    model = quantized_transpose(*CASES[name])
    made = compile_model(model, pool=shared_pool(), threads=1)
    x = np.random.default_rng(2).standard_normal((2, *CASES[name][1])).astype(np.float32) * 5
    got, want = made(x), reference(model, {"x": x})[0]
    steps = np.abs(got - want) / 0.4
    assert steps.max() < 1.01  # a float32 sum may be rounded to the other side
    assert (steps > 0.5).mean() < 1e-3
    assert "integer-conv" in families(made)
    assert not {"conv-transpose", "fallback"} & set(families(made))


def test_quantization_after_training_takes_transposed_convolutions():
    n = Network()
    y = n("Relu", n("Conv", "x", n.weight(16, 3, 3, 3), n.weight(16), pads=[1] * 4))
    y = n("Relu", n("ConvTranspose", y, n.weight(16, 12, 2, 2), n.weight(12), strides=[2, 2]))
    y = n("Conv", y, n.weight(8, 12, 3, 3), n.weight(8), pads=[1] * 4)
    model = n.model({"x": ("FLOAT", [1, 3, 8, 8])}, {y: ("FLOAT", None)})
    rng = np.random.default_rng(3)
    samples = [{"x": rng.standard_normal((1, 3, 8, 8)).astype(np.float32)} for _ in range(8)]
    made = compile_model(model, target="cpu-int8", calibrate=samples, pool=shared_pool(), threads=1)
    got, want = made(samples[0]["x"]), reference(model, samples[0])[0]
    assert np.abs(got - want).max() < 0.03 * np.abs(want).max()
    assert families(made).count("integer-conv") == 3


@pytest.mark.parametrize(
    ("codes", "scale"),
    [
        (np.random.default_rng(4).integers(-100_000, 100_000, (8, 4, 2, 2)).astype(np.int32), 1e-5),
        (np.random.default_rng(4).standard_normal((8, 4, 2, 2)).astype(float8_e4m3fn), 0.5),
    ],
    ids=["int32", "float8_e4m3fn"],
)
def test_weights_of_codes_that_int16_does_not_hold_are_not_moved(codes, scale):
    def network(quantized):
        n = Network()
        sx, zx = n.constant(np.float32(0.05)), n.constant(np.uint8(100))
        x = n("DequantizeLinear", n("QuantizeLinear", "x", sx, zx), sx, zx)
        if quantized:
            w = n("DequantizeLinear", n.constant(codes), n.constant(np.float32(scale)))
        else:
            w = n.constant(codes.astype(np.float32) * np.float32(scale))
        y = n("ConvTranspose", x, w, strides=[2, 2])
        return n.model({"x": ("FLOAT", [1, 8, 4, 4])}, {y: ("FLOAT", None)}, opset=19)

    x = np.random.default_rng(5).standard_normal((1, 8, 4, 4)).astype(np.float32)
    made = compile_model(network(quantized=True), pool=shared_pool(), threads=1)
    want = reference(network(quantized=False), {"x": x})[0]
    assert np.abs(made(x) - want).max() < 1e-4 * np.abs(want).max()
