"""Networks of 3-D convolutions and pools, compiled: right for all sizes, in vector kernels."""

import numpy as np

from tests.e2e.compiled_node import shared_pool
from tests.e2e.networks import Network, reference
from tests.e2e.test_one_axis import families
from xcompile.compiler.api import compile as compile_model


def video_network():
    """A stem, a factored convolution, pools, a depthwise one, a transposed one, a residual and a mean."""
    n = Network()
    x = n("Conv", "x", n.weight(16, 3, 3, 5, 5), pads=[1, 2, 2] * 2, strides=[1, 2, 2])
    scale, bias, mean = n.weight(16), n.weight(16), n.weight(16)
    variance = n.constant(np.linspace(0.5, 2, 16, dtype=np.float32))
    x = n("Relu", n("BatchNormalization", x, scale, bias, mean, variance))
    y = n("Relu", n("Conv", x, n.weight(24, 16, 1, 3, 3), n.weight(24), pads=[0, 1, 1] * 2))
    y = n("Conv", y, n.weight(16, 24, 3, 1, 1), pads=[1, 0, 0] * 2)
    x = n("Relu", n("Add", x, y))
    down = n("MaxPool", x, kernel_shape=[2, 2, 2], strides=[2, 2, 2])
    down = n("Conv", down, n.weight(16, 1, 3, 3, 3), n.weight(16), pads=[1] * 6, group=16)
    down = n("Mul", down, n("Sigmoid", down))
    up = n("ConvTranspose", down, n.weight(16, 16, 2, 2, 2), n.weight(16), strides=[2, 2, 2])
    x = n("Concat", n("AveragePool", x, kernel_shape=[3] * 3, pads=[1] * 6), up, axis=1)
    weights = n("Conv", n("GlobalAveragePool", x), n.weight(32, 32, 1, 1, 1))
    x = n("Conv", n("Mul", x, n("HardSigmoid", weights)), n.weight(8, 32, 1, 1, 1))
    y = n("Flatten", n("GlobalAveragePool", n("Relu", x)))
    return n.model({"x": ("FLOAT", ["N", 3, "D", "H", "W"])}, {y: ("FLOAT", ["N", 8])})


def test_a_network_of_volumes_has_no_fallback_kernels_and_takes_all_sizes():
    model = video_network()
    made = compile_model(model, pool=shared_pool(), threads=1)
    for n, d, h, w in [(1, 4, 16, 12), (2, 2, 8, 20)]:
        x = np.random.default_rng(w).standard_normal((n, 3, d, h, w)).astype(np.float32)
        np.testing.assert_allclose(made(x), reference(model, {"x": x})[0], rtol=1e-4, atol=2e-5)
    found = families(made)
    assert "fallback" not in found
    names = ("conv", "conv-transpose", "depthwise", "pool", "global-pool")
    assert {name: found.count(name) for name in names} == {
        "conv": 5, "conv-transpose": 1, "depthwise": 1, "pool": 2, "global-pool": 2,
    }  # fmt: skip
