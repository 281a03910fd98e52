"""Pools: values from the ONNX text and from cases seen in the field."""

import numpy as np
import pytest

from tests.unit.nn.onnx_node import arange, f32, run
from xcompile.compiler.support.errors import CompileError

SQUARE = arange(1, 1, 4, 4) + 1


class TestAveragePool:
    @pytest.mark.parametrize("dynamic", [True, False])
    def test_ceil_mode_with_padding_never_counts_phantom_cells(self, dynamic):
        window = {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}
        y = run("AveragePool", SQUARE, pads=[1] * 4, count_include_pad=1, dynamic=dynamic, **window)
        expected = [[14 / 9, 10 / 3, 2], [19 / 3, 11, 6], [4.5, 7.5, 4]]
        np.testing.assert_allclose(y[0, 0], expected, 1e-6)
        y = run("AveragePool", SQUARE, dynamic=dynamic, **window)
        np.testing.assert_array_equal(y[0, 0], [[6, 7.5], [12, 13.5]])

    @pytest.mark.parametrize("dynamic", [True, False])
    @pytest.mark.parametrize("opset", [11, 19])
    def test_same_lower_counts_its_padding(self, opset, dynamic):
        y = run(
            "AveragePool",
            arange(1, 1, 6, 2),
            kernel_shape=[5, 1],
            auto_pad="SAME_LOWER",
            count_include_pad=1,
            opset=opset,
            dynamic=dynamic,
        )
        expected = [1.2, 1.8, 2.4, 3.2, 4, 5, 6, 7, 5.6, 6.4, 4.8, 5.4]
        np.testing.assert_allclose(y.reshape(-1), expected, 1e-6)

    def test_padding_does_not_count_unless_asked(self):
        y = run("AveragePool", f32([[[2, 4, 9]]]), kernel_shape=[3], pads=[1, 1])
        np.testing.assert_array_equal(y, [[[3, 5, 6.5]]])
        y = run(
            "AveragePool", f32([[[2, 4, 9]]]), kernel_shape=[3], pads=[1, 1], count_include_pad=1
        )
        np.testing.assert_array_equal(y, f32([[[2, 5, 13 / 3]]]))

    def test_dilation(self):
        y = run("AveragePool", f32([[[1, 2, 3, 4, 5]]]), kernel_shape=[2], dilations=[3], opset=19)
        np.testing.assert_array_equal(y, [[[2.5, 3.5]]])


class TestMaxPool:
    def test_padding_never_wins(self):
        y = run("MaxPool", f32([[[-5, -7]]]), kernel_shape=[3], pads=[1, 1])
        np.testing.assert_array_equal(y, [[[-5, -5]]])
        x = np.array([[[-128, -7]]], np.int8)
        assert run("MaxPool", x, kernel_shape=[2], pads=[1, 0]).tolist() == [[[-128, -7]]]

    def test_nan_wins(self):
        y = run("MaxPool", f32([[[1, np.nan, 3, 4]]]), kernel_shape=[2], strides=[2])
        np.testing.assert_array_equal(y, [[[np.nan, 4]]])

    @pytest.mark.parametrize("dynamic", [True, False])
    def test_last_window_of_ceil_mode_starts_inside(self, dynamic):
        window = {"kernel_shape": [1], "strides": [2], "ceil_mode": 1, "dynamic": dynamic}
        assert run("MaxPool", arange(1, 1, 4), **window).tolist() == [[[0, 2]]]
        assert run("MaxPool", arange(1, 1, 5), **window).tolist() == [[[0, 2, 4]]]
        window |= {"kernel_shape": [2], "pads": [1, 1]}
        assert run("MaxPool", arange(1, 1, 4), **window).tolist() == [[[0, 2, 3]]]
        assert run("MaxPool", arange(1, 1, 3), **window).tolist() == [[[0, 2]]]

    def test_indices_count_over_the_whole_input(self):
        x = np.stack([SQUARE[0], -SQUARE[0]])
        y, places = run("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2], outputs=2)
        assert places.dtype == np.int64
        np.testing.assert_array_equal(x.reshape(-1)[places], y)
        assert places.tolist() == [[[[5, 7], [13, 15]]], [[[16, 18], [24, 26]]]]

    def test_column_major_indices_count_rows_first(self):
        x = arange(2, 1, 2, 3)
        _, places = run("MaxPool", x, kernel_shape=[1, 1], storage_order=1, outputs=2)
        assert places.reshape(-1).tolist() == [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11]

    def test_first_of_equal_maxima_has_the_index_and_padding_has_none(self):
        x = f32([[[-np.inf, -np.inf, 3, 3]]])
        _, places = run("MaxPool", x, kernel_shape=[2], strides=[2], outputs=2)
        assert places.tolist() == [[[0, 2]]]
        _, places = run("MaxPool", x, kernel_shape=[2], pads=[1, 0], outputs=2)
        assert places.tolist() == [[[0, 0, 2, 2]]]

    @pytest.mark.parametrize(
        ("attributes", "code"),
        [
            ({"kernel_shape": [6]}, "XC2008"),
            ({"kernel_shape": [0]}, "XC2007"),
            ({"kernel_shape": [2, 2]}, "XC2007"),
            ({"kernel_shape": [2], "strides": [0]}, "XC2007"),
            ({"kernel_shape": [2], "dilations": [-1]}, "XC2007"),
            ({"kernel_shape": [2], "pads": [1, 1, 1]}, "XC2007"),
        ],
    )
    def test_windows_that_do_not_fit_are_refused(self, attributes, code):
        with pytest.raises(CompileError) as caught:
            run("MaxPool", arange(1, 1, 4), dynamic=False, **attributes)
        assert (caught.value.code, caught.value.node) == (code, "node")


class TestOtherPools:
    def test_lp_pool_is_the_root_of_summed_powers(self):
        y = run("LpPool", f32([[[3, -4, 0, 2]]]), kernel_shape=[2], strides=[2])
        np.testing.assert_array_equal(y, [[[5, 2]]])
        y = run("LpPool", f32([[[3, -4, 0, 2]]]), kernel_shape=[2], strides=[2], p=1)
        np.testing.assert_array_equal(y, [[[7, 2]]])

    def test_global_pools_reduce_the_spatial_axes(self):
        x = f32([[[[3, -4], [0, 0]], [[1, 1], [1, 1]]]])
        assert run("GlobalAveragePool", x).tolist() == [[[[-0.25]], [[1]]]]
        assert run("GlobalMaxPool", x).tolist() == [[[[3]], [[1]]]]
        assert run("GlobalLpPool", x).tolist() == [[[[5]], [[2]]]]
        np.testing.assert_allclose(
            run("GlobalLpPool", x, p=3, dynamic=False).reshape(-1),
            [91 ** (1 / 3), 4 ** (1 / 3)],
            1e-6,
        )

    def test_unpool_puts_maxima_back(self):
        y, places = run("MaxPool", SQUARE, kernel_shape=[2, 2], strides=[2, 2], outputs=2)
        back = run("MaxUnpool", y, places, kernel_shape=[2, 2], strides=[2, 2])
        expected = np.where(np.isin(SQUARE, [6, 8, 14, 16]), SQUARE, 0)
        np.testing.assert_array_equal(back, expected)
        wider = run(
            "MaxUnpool", y, places, np.array([1, 1, 5, 5]), kernel_shape=[2, 2], strides=[2, 2]
        )
        np.testing.assert_array_equal(wider[:, :, :4, :4], expected)
        assert wider.shape == (1, 1, 5, 5)
        assert wider.sum() == expected.sum()

    @pytest.mark.parametrize("index", [-1, 4, 2**40, -(2**40)])
    def test_unpool_refuses_indices_outside(self, index):
        with pytest.raises(CompileError) as caught:
            run(
                "MaxUnpool",
                f32([[[1, 2]]]),
                np.array([[[0, index]]]),
                kernel_shape=[2],
                strides=[2],
            )
        assert (caught.value.code, caught.value.node) == ("XC2011", "node")
