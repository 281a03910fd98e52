"""Blocks that networks are made of: what is fused, and what stays blocked."""

import numpy as np
import pytest

import xcompile
from tests.e2e.networks import Network, reference
from xcompile.compiler.driver import worker_pool
from xcompile.compiler.support.options import Options


@pytest.fixture(scope="module")
def pool():
    with worker_pool(Options()) as started:
        yield started


def normalized(n, x, channels):
    scale, bias, mean = (n.weight(channels) for _ in range(3))
    variance = n.constant(np.linspace(0.5, 2, channels, dtype=np.float32))
    return n("BatchNormalization", x, scale, bias, mean, variance)


def relu6(n, x):
    return n("Clip", x, n.constant(np.float32(0)), n.constant(np.float32(6)))


def inverted_residual(n, x, channels, *, expansion=6, out=None, stride=1):
    """The block of MobileNetV2."""
    inner, out = channels * expansion, out or channels
    y = relu6(n, normalized(n, n("Conv", x, n.weight(inner, channels, 1, 1)), inner))
    depthwise = n.weight(inner, 1, 3, 3)
    y = n("Conv", y, depthwise, group=inner, pads=[1, 1, 1, 1], strides=[stride, stride])
    y = n("Conv", relu6(n, normalized(n, y, inner)), n.weight(out, inner, 1, 1))
    y = normalized(n, y, out)
    return n("Add", x, y) if out == channels and stride == 1 else y


def squeeze_and_excite(n, x, channels):
    """The block of SENet, MobileNetV3 and EfficientNet."""
    y = n("Relu", n("Conv", n("GlobalAveragePool", x), n.weight(channels // 4, channels, 1, 1)))
    return n("Mul", x, n("HardSigmoid", n("Conv", y, n.weight(channels, channels // 4, 1, 1))))


def mobilenet_v2(batch="N", size=33):
    n = Network()
    x = relu6(n, normalized(n, n("Conv", "x", n.weight(16, 3, 3, 3), strides=[2, 2]), 16))
    x = inverted_residual(n, x, 16)
    x = inverted_residual(n, x, 16, out=24, stride=2)
    x = inverted_residual(n, x, 24)
    x = relu6(n, normalized(n, n("Conv", x, n.weight(64, 24, 1, 1)), 64))
    y = n("Gemm", n("Flatten", n("GlobalAveragePool", x)), n.weight(10, 64), n.weight(10), transB=1)
    return n.model({"x": ("FLOAT", [batch, 3, size, size])}, {y: ("FLOAT", [batch, 10])})


def excited():
    n = Network()
    x = n("Relu", n("Conv", "x", n.weight(32, 3, 3, 3)))
    x = squeeze_and_excite(n, n("Conv", x, n.weight(32, 32, 1, 1)), 32)
    y = n("Conv", x, n.weight(16, 32, 1, 1))
    return n.model({"x": ("FLOAT", ["N", 3, 12, 12])}, {y: ("FLOAT", ["N", 16, 10, 10])})


def families(compiled):
    artifact = compiled.artifact
    return [artifact.kernels[step.symbol].family for step in artifact.program.launches]


def right(model, compiled, shape):
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    np.testing.assert_allclose(compiled(x), reference(model, {"x": x})[0], rtol=1e-4, atol=1e-5)


def test_mobilenet_v2_has_no_elementwise_kernels_and_no_conversions(pool):
    model = mobilenet_v2()
    compiled = xcompile.compile(model, pool=pool)
    right(model, compiled, (2, 3, 33, 33))
    found = families(compiled)
    assert not {"map", "fallback"} & set(found)
    assert len(found) == 1 + 3 * 3 + 1 + 2


def test_squeeze_and_excite_converts_nothing_but_single_pixels(pool):
    model = excited()
    compiled = xcompile.compile(model, pool=pool)
    right(model, compiled, (2, 3, 12, 12))
    steps = [
        (s.node, f)
        for s, f in zip(compiled.artifact.program.launches, families(compiled), strict=True)
    ]
    assert [node for node, family in steps if family not in ("conv", "global-pool")] == [
        "GlobalAveragePool_3",  # the mean of each channel, one pixel an image
        "HardSigmoid_7 + Mul_8",
        "Conv_9",  # the output, in the order of the caller
    ]


def test_threads_that_a_model_is_compiled_for_do_not_change_a_bit():
    n = Network()
    x = n("Relu", n("Conv", "x", n.weight(64, 512, 1, 1)))
    x = n("Relu", n("Conv", x, n.weight(256, 64, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1]))
    y = n("Gemm", n("Flatten", n("Conv", x, n.weight(100, 256, 1, 1))), n.weight(4900, 16))
    model = n.model({"x": ("FLOAT", [1, 512, 13, 13])}, {y: ("FLOAT", [1, 16])})
    x = np.random.default_rng(0).standard_normal((1, 512, 13, 13)).astype(np.float32)
    found = [xcompile.compile(model, threads=threads)(x) for threads in (1, 2, 7)]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_a_resize_between_convolutions_stays_blocked(mode):
    n = Network()
    x = n("Relu", n("Conv", "x", n.weight(32, 16, 3, 3), pads=[1, 1, 1, 1]))
    x = n("Resize", x, "", n.constant(np.array([1, 1, 2, 2], np.float32)), mode=mode)
    y = n("Conv", x, n.weight(32, 32, 1, 1))
    model = n.model({"x": ("FLOAT", [1, 16, 12, 12])}, {y: ("FLOAT", [1, 32, 24, 24])})
    compiled = xcompile.compile(model)
    assert families(compiled)[1] == "map", "the resize"
    assert len(families(compiled)) == 4, "the last writes the row-major result"
    right(model, compiled, (1, 16, 12, 12))
