"""Transposed convolutions that say how large their results are, on images whose size only a run knows."""

import numpy as np
import pytest
from onnx import helper

from tests.e2e.compiled_node import compiled

X = np.random.default_rng(0).standard_normal((2, 4, 5, 6)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((4, 3, 3, 2)).astype(np.float32)
BIAS = np.float32([1, -2, 3])


def run(sizes, x, **attributes):
    node = helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], name="node", **attributes)
    made = compiled([node], {"x": (np.float32, sizes)}, ["y"], {"w": W, "b": BIAS})
    return made.executable.run([x])["y"]


@pytest.mark.parametrize("auto_pad", ["NOTSET", "SAME_UPPER"])
@pytest.mark.parametrize(
    ("wanted", "attributes"),
    [([9, 11], {"strides": [2, 2]}), ([6, 9], {}),
     ([14, 19], {"strides": [2, 3], "dilations": [2, 1], "output_padding": [1, 0]})],
)  # fmt: skip
def test_a_stated_shape_is_that_of_the_result(wanted, attributes, auto_pad):
    attributes = {**attributes, "output_shape": wanted, "auto_pad": auto_pad}
    fixed = run(X.shape, X, **attributes)
    assert fixed.shape == (2, 3, *wanted)
    np.testing.assert_allclose(run(["n", 4, "h", "w"], X, **attributes), fixed, atol=1e-5)


def test_more_than_there_is_without_padding_is_the_bias():
    wide = {"strides": [1, 1], "output_shape": [10, 8], "auto_pad": "SAME_UPPER"}
    y = run(["n", 4, "h", "w"], X, **wide)
    whole = run(X.shape, X)
    assert whole.shape == (2, 3, 7, 7)
    np.testing.assert_allclose(y[:, :, 2:9, 1:], whole, atol=1e-5)
    assert (y[:, :, :2] == BIAS[:, None, None]).all() and (y[..., :1] == BIAS[:, None, None]).all()


def test_several_images_of_different_sizes_give_results_of_one_size():
    attributes = {"strides": [2, 2], "output_shape": [9, 10], "auto_pad": "SAME_UPPER"}
    for h, w in ((5, 6), (4, 5), (6, 7)):
        x = np.random.default_rng(h).standard_normal((1, 4, h, w)).astype(np.float32)
        got = run(["n", 4, "h", "w"], x, **attributes)
        np.testing.assert_allclose(got, run(x.shape, x, **attributes), atol=1e-5)
