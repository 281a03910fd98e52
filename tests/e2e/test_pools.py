"""Maximum pools with indices and norm pools, compiled: where maxima stand, and that vector code finds them."""

import numpy as np
import pytest

from tests.e2e.compiled_node import shared_pool
from tests.e2e.networks import Network, reference
from tests.e2e.test_one_axis import families
from xcompile.compiler.api import compile as compile_model

WINDOWS = {
    "pads and strides": ((3, 2), {"strides": [2, 2], "pads": [1, 0, 1, 1]}),
    "long": ((7, 7), {"strides": [2, 1], "pads": [1, 0, 1, 1]}),
    "dilated, columns first": ((2, 3), {"dilations": [2, 1], "storage_order": 1}),
    "volume": ((2, 3, 2), {"strides": [2, 1, 2], "pads": [0, 1, 0, 1, 1, 1]}),
    "volume, columns first": ((2, 2, 3), {"strides": [1, 2, 2], "storage_order": 1}),
}


def pool(op, channels, rank, dtype="FLOAT", outputs=1, **attributes):
    """A model of one pool over tensors of any size."""
    n = Network()
    made = n(op, "x", outputs=outputs, **attributes)
    names = [made] if outputs == 1 else made
    kinds = (dtype, "INT64")[:outputs]
    shape = ["N", channels, "D", "H", "W"][:2] + ["D", "H", "W"][3 - rank :]
    given = {name: (kind, [None] * (2 + rank)) for name, kind in zip(names, kinds, strict=True)}
    return n.model({"x": (dtype, shape)}, given, opset=18)


@pytest.mark.parametrize(
    ("target", "dtype"), [("x86-avx2", "FLOAT"), ("cpu", "FLOAT"), ("cpu", "UINT8")]
)
@pytest.mark.parametrize("name", WINDOWS)
def test_the_first_maximum_is_found_in_vector_code(name, target, dtype):
    kernel, attributes = WINDOWS[name]
    rank = len(kernel)
    model = pool("MaxPool", 20, rank, dtype, 2, kernel_shape=list(kernel), **attributes)
    made = compile_model(model, target=target, pool=shared_pool(), threads=1)
    for n, *sizes in ((1, 5, 8, 9), (2, 4, 7, 12)):
        shape = (n, 20, *sizes[3 - rank :])
        x = np.random.default_rng(n).integers(0, 4, shape).astype(
            np.float32 if dtype == "FLOAT" else np.uint8
        )  # fmt: skip
        for got, want in zip(made.run({"x": x}).values(), reference(model, {"x": x}), strict=True):
            np.testing.assert_array_equal(got, want)
    assert "indexed-pool" in families(made)
    assert "fallback" not in families(made)


def test_nan_is_the_maximum_and_minus_infinity_has_a_place():
    x = np.full((1, 16, 2, 6), -np.inf, np.float32)
    x[:, :, 1, 2:4] = np.nan, 5
    model = pool(
        "MaxPool", 16, 2, outputs=2, kernel_shape=[2, 2], strides=[2, 2], pads=[0, 0, 0, 0]
    )
    made = compile_model(model, pool=shared_pool(), threads=1)
    y, places = made.run({"x": x}).values()
    np.testing.assert_array_equal(y[0, 3, 0], [-np.inf, np.nan, -np.inf])
    np.testing.assert_array_equal(places[0, 3, 0], 36 + np.array([0, 8, 4]))
    assert "indexed-pool" in families(made)


def test_a_window_in_the_padding_has_no_place():
    x = np.ones((1, 16, 1, 1), np.float32)
    model = pool(
        "MaxPool", 16, 2, outputs=2, kernel_shape=[2, 1], dilations=[2, 1], pads=[1, 0, 1, 0]
    )
    made = compile_model(model, pool=shared_pool(), threads=1)
    y, places = made.run({"x": x}).values()
    assert y.shape == (1, 16, 1, 1)
    assert (places == -1).all()


@pytest.mark.parametrize("target", ["x86-avx2", "cpu"])
@pytest.mark.parametrize("p", [1, 2, 3, 5])
def test_a_norm_pool_is_right_in_vector_code(p, target):
    window = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
    model = pool("LpPool", 20, 2, p=p, **window)
    made = compile_model(model, target=target, pool=shared_pool(), threads=1)
    x = np.random.default_rng(p).standard_normal((2, 20, 6, 7)).astype(np.float32)
    padded = np.pad(np.abs(x.astype(np.float64)) ** p, ((0, 0), (0, 0), (1, 1), (0, 1)))
    view = np.lib.stride_tricks.sliding_window_view(padded, (3, 2), axis=(2, 3))[:, :, ::2]
    np.testing.assert_allclose(made(x), view.sum((-1, -2)) ** (1 / p), rtol=2e-6)
    assert "pool" in families(made)
    assert "fallback" not in families(made)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_a_global_norm_pool_is_right_in_vector_code(p):
    n = Network()
    y = n("GlobalLpPool", "x", p=p)
    model = n.model({"x": ("FLOAT", [2, 20, 5, 7])}, {y: ("FLOAT", [2, 20, 1, 1])}, opset=18)
    made = compile_model(model, pool=shared_pool(), threads=1)
    x = np.random.default_rng(p).standard_normal((2, 20, 5, 7)).astype(np.float32)
    want = (np.abs(x.astype(np.float64)) ** p).sum((2, 3), keepdims=True) ** (1 / p)
    np.testing.assert_allclose(made(x), want, rtol=2e-6)
    assert "fallback" not in families(made)
