"""Windows that reach beyond an axis: what ONNX's formulas give, with known and unknown sizes."""

import numpy as np
import pytest

from tests.e2e.compiled_node import run
from tests.unit.nn import onnx_node

ONE, TWO = np.ones((1, 1, 1), np.float32), np.array([[[1, 2]]], np.float32)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
def test_a_window_larger_than_the_axis_by_less_than_a_stride_leaves_nothing(op):
    for runner in (run, onnx_node.run):
        assert runner(op, ONE, kernel_shape=[2], strides=[7]).shape == (1, 1, 0)


@pytest.mark.parametrize(("op", "value"), [("MaxPool", 2), ("AveragePool", 1.5)])
def test_in_ceil_mode_a_window_may_reach_beyond_the_end(op, value):
    for runner in (run, onnx_node.run):
        y = runner(op, TWO, kernel_shape=[3], strides=[2], ceil_mode=1)
        assert y.tolist() == [[[value]]]


def test_a_convolution_without_windows_is_empty():
    w = np.ones((1, 1, 2), np.float32)
    for runner in (run, onnx_node.run):
        assert runner("Conv", ONE, w, strides=[2]).shape == (1, 1, 0)
