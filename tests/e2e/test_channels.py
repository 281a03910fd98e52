"""Channels that move in blocked layouts: shuffles, concatenations, slices and padding, compiled."""

import numpy as np
import pytest

from tests.e2e.compiled_node import shared_pool
from tests.e2e.networks import Network, reference
from xcompile.compiler.api import compile as compile_model


def steps(model):
    """The family of each launch but the last, which converts the output."""
    artifact = model.artifact
    return [artifact.kernels[step.symbol].family for step in artifact.program.launches][:-1]


def assert_right(n, y, c, oc, h, w, dynamic=True):
    """The network behind a convolution of 3 channels to c is right; what its kernels are."""
    sizes = ["H", "W"] if dynamic else [h, w]
    model = n.model({"x": ("FLOAT", ["N", 3, *sizes])}, {y: ("FLOAT", ["N", oc, None, None])})
    made = compile_model(model, pool=shared_pool(), threads=1)
    x = np.random.default_rng(c).standard_normal((2, 3, h, w)).astype(np.float32)
    np.testing.assert_allclose(made(x), reference(model, {"x": x})[0], rtol=1e-4, atol=1e-5)
    return steps(made)


def convolution(n, x, c, oc):
    return n("Conv", x, n.weight(oc, c, 1, 1))


@pytest.mark.parametrize(("c", "groups"), [(112, 4), (34, 2), (24, 3), (16, 16)])
def test_a_shuffle_of_channels_is_one_kernel_between_convolutions(c, groups):
    n = Network()
    y = n("Relu", convolution(n, "x", 3, c))
    y = n("Reshape", y, n.constant(np.array([0, groups, c // groups, 6, 7], np.int64)))
    y = n("Transpose", y, perm=[0, 2, 1, 3, 4])
    y = n("Reshape", y, n.constant(np.array([0, c, 6, 7], np.int64)))
    y = convolution(n, y, c, 16)
    assert assert_right(n, y, c, 16, 6, 7, dynamic=False) == ["conv", "map", "conv"]


@pytest.mark.parametrize("parts", [(24, 24, 24), (20, 12, 33), (15, 18), (5, 3, 7)])
def test_concatenations_of_odd_channels_stay_blocked(parts):
    n = Network()
    ends = [convolution(n, "x", 3, c) for c in parts]
    y = n("Relu", n("Concat", *ends, axis=1))
    y = convolution(n, y, sum(parts), 16)
    found = assert_right(n, y, sum(parts), 16, 5, 6)
    assert found == ["conv"] * len(parts) + ["map", "conv"]


@pytest.mark.parametrize(("start", "end"), [(0, 16), (16, 40), (7, 30), (33, 40), (3, 4)])
def test_slices_of_channels_stay_blocked(start, end):
    n = Network()
    bounds = [n.constant(np.array([v], np.int64)) for v in (start, end, 1)]
    y = n("Slice", n("Relu", convolution(n, "x", 3, 40)), *bounds)
    y = convolution(n, n("Relu", y), end - start, 16)
    assert assert_right(n, y, 40, 16, 5, 6) == ["conv", "map", "conv"]


@pytest.mark.parametrize("pads", [[0, 0, 1, 2, 0, 0, 3, 0], [0, 5, 0, 0, 0, 4, 0, 1]])
def test_padded_images_stay_blocked(pads):
    n = Network()
    y = n("Relu", convolution(n, "x", 3, 24))
    value = n.constant(np.float32(0.5))
    y = n("Pad", y, n.constant(np.array(pads, np.int64)), value)
    c = 24 + pads[1] + pads[5]
    y = convolution(n, y, c, 16)
    assert assert_right(n, y, 24, 16, 5, 6) == ["conv", "map", "conv"]
