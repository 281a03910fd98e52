"""Networks of 1-D convolutions, and transposed convolutions with few channels or groups, compiled."""

import numpy as np
import pytest

from tests.e2e.compiled_node import shared_pool
from tests.e2e.networks import Network, reference
from xcompile.compiler.api import compile as compile_model


def families(model):
    artifact = model.artifact
    return [artifact.kernels[step.symbol].family for step in artifact.program.launches]


def u_net():
    """Two scales of a signal, with pools, a transposed convolution, a concatenation and a mean."""
    n = Network()
    x = n("Relu", n("Conv", "x", n.weight(16, 2, 7), n.weight(16), pads=[3, 3]))
    scale, bias, mean = n.weight(16), n.weight(16), n.weight(16)
    variance = n.constant(np.linspace(0.5, 2, 16, dtype=np.float32))
    x = n("BatchNormalization", x, scale, bias, mean, variance)
    down = n("MaxPool", x, kernel_shape=[2], strides=[2])
    down = n("Conv", down, n.weight(32, 16, 3), n.weight(32), pads=[2, 2], dilations=[2])
    down = n("Mul", down, n("Sigmoid", down))
    up = n("ConvTranspose", down, n.weight(32, 16, 2), n.weight(16), strides=[2])
    x = n("Concat", x, up, axis=-2)
    x = n("Conv", n("Add", x, n.weight(32, 1)), n.weight(16, 32, 3), pads=[1, 1])
    weights = n("Conv", n("GlobalAveragePool", x), n.weight(16, 16, 1))
    y = n("Conv", n("Mul", x, n("HardSigmoid", weights)), n.weight(8, 16, 1))
    return n.model({"x": ("FLOAT", ["N", 2, "W"])}, {y: ("FLOAT", ["N", 8, "W"])})


def test_a_network_over_one_axis_is_one_of_images_and_has_no_fallback_kernels():
    model = u_net()
    made = compile_model(model, pool=shared_pool(), threads=1)
    for n, w in [(1, 64), (2, 30), (3, 2)]:
        x = np.random.default_rng(w).standard_normal((n, 2, w)).astype(np.float32)
        np.testing.assert_allclose(made(x), reference(model, {"x": x})[0], rtol=1e-4, atol=2e-5)
    found = families(made)
    assert "fallback" not in found
    assert found.count("conv") == 5
    assert found.count("conv-transpose") == 1


@pytest.mark.parametrize(
    ("channels", "weight", "attributes"),
    [
        (24, (24, 1, 2, 2), {"strides": [2, 2]}),
        (5, (5, 2, 4, 3), {"strides": [2, 2], "pads": [1, 1, 0, 1], "output_padding": [1, 0]}),
        (6, (6, 3, 3, 3), {"strides": [3, 3], "group": 2, "pads": [0, 1, 1, 2]}),
        (16, (16, 1, 4, 4), {"strides": [2, 2], "group": 16, "pads": [1, 1, 1, 1]}),
        (4, (4, 2, 2, 2), {"strides": [2, 2], "dilations": [2, 1]}),
    ],
    ids=["one channel", "odd sizes", "groups", "depthwise", "dilated"],
)
def test_transposed_convolutions_of_few_channels_or_groups_are_right(channels, weight, attributes):
    rng = np.random.default_rng(3)
    x = rng.standard_normal((2, channels, 5, 6)).astype(np.float32)
    w = rng.standard_normal(weight).astype(np.float32)
    bias = rng.standard_normal(weight[1] * attributes.get("group", 1)).astype(np.float32)
    n = Network()
    y = n("ConvTranspose", "x", n.constant(w), n.constant(bias), **attributes)
    model = n.model({"x": ("FLOAT", ["N", channels, "H", "W"])}, {y: ("FLOAT", [None] * 4)})
    made = compile_model(model, pool=shared_pool(), threads=1)
    np.testing.assert_allclose(made(x), reference(model, {"x": x})[0], rtol=1e-5, atol=2e-5)
    assert "fallback" not in families(made)
