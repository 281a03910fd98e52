"""Reductions, places of extremes, normalizations and softmax: values from the ONNX text and from
cases
seen in the field.
"""

import numpy as np
import pytest

from tests.unit.nn.onnx_node import arange, f32, run
from xcompile.compiler.support.errors import CompileError

INF, NAN = np.inf, np.nan


def reduced(op, x, axes=None, *, opset=18, **attributes):
    """A reduction with constant axes, as an input or, in older opsets, an attribute."""
    if opset >= 18:
        axes = [] if axes is None else [np.array(axes, np.int64)]
        return run(op, x, *axes, opset=opset, constants=(1,), **attributes)
    return run(op, x, opset=opset, **({} if axes is None else {"axes": axes}), **attributes)


class TestReduce:
    @pytest.mark.parametrize("opset", [11, 18])
    @pytest.mark.parametrize("op", ["Sum", "Mean", "Max", "Min", "Prod"])
    def test_axes_and_kept_sizes(self, op, opset):
        if op == "Sum" and opset == 11:
            opset = 12
        x = arange(2, 3, 4)
        function = getattr(np, op.lower())
        for axes in ([1], [-1, 0], [0, 1, 2], None):
            for keep in (0, 1):
                y = reduced(f"Reduce{op}", x, axes, opset=opset, keepdims=keep)
                numpy_axes = None if axes is None else tuple(axes)
                expected = function(x.astype(np.float64), axis=numpy_axes, keepdims=bool(keep))
                assert y.shape == expected.shape
                np.testing.assert_allclose(y, expected, 1e-6)

    @pytest.mark.parametrize(
        ("op", "expected"),
        [
            ("ReduceSum", [1, -2, 3]),
            ("ReduceMean", [1, -2, 3]),
            ("ReduceMax", [1, -2, 3]),
            ("ReduceMin", [1, -2, 3]),
            ("ReduceProd", [1, -2, 3]),
            ("ReduceL1", [1, 2, 3]),
            ("ReduceL2", [1, 2, 3]),
            ("ReduceSumSquare", [1, 4, 9]),
            ("ReduceLogSumExp", [1, -2, 3]),
        ],
    )
    @pytest.mark.parametrize("axes", [None, []])
    def test_no_axes_with_noop_leave_the_pointwise_part(self, op, expected, axes):
        y = reduced(op, f32([1, -2, 3]), axes, noop_with_empty_axes=1)
        np.testing.assert_allclose(y, expected, 1e-6)

    def test_log_sum_with_noop_is_a_logarithm(self):
        y = reduced("ReduceLogSum", f32([1, np.e]), noop_with_empty_axes=1)
        np.testing.assert_allclose(y, [0, 1], 1e-6)

    @pytest.mark.parametrize("axes", [None, []])
    def test_no_axes_without_noop_reduce_everything(self, axes):
        assert reduced("ReduceSum", f32([1, -2, 3]), axes).tolist() == [2]

    @pytest.mark.parametrize(
        ("op", "expected"),
        [
            ("ReduceSum", 0),
            ("ReduceProd", 1),
            ("ReduceMax", -INF),
            ("ReduceMin", INF),
            ("ReduceMean", NAN),
            ("ReduceL1", 0),
            ("ReduceL2", 0),
            ("ReduceSumSquare", 0),
            ("ReduceLogSum", -INF),
            ("ReduceLogSumExp", -INF),
        ],
    )
    def test_reduction_of_nothing(self, op, expected):
        y = reduced(op, np.zeros((2, 0, 2), np.float32), [1])
        np.testing.assert_array_equal(y, np.full((2, 1, 2), expected))
        assert reduced(op, np.zeros(0, np.float32), [0], keepdims=0).shape == ()

    def test_extremes_of_no_integers_and_bools(self):
        assert reduced("ReduceMax", np.zeros((0,), np.int32), [0]).tolist() == [-(2**31)]
        assert reduced("ReduceMin", np.zeros((0,), np.uint8), [0]).tolist() == [255]
        assert reduced("ReduceMax", np.array([False, True]), [0], opset=20).tolist() == [True]

    def test_axes_that_are_computed(self):
        x = arange(2, 3)
        for axes, noop, expected in (([-1], 0, [[3], [12]]), ([], 0, [[15]]), ([], 1, x.tolist())):
            y = run(
                "ReduceSum", x, np.array(axes, np.int64), dynamic=False, noop_with_empty_axes=noop
            )
            assert y.tolist() == expected

    def test_nan_wins_in_extremes(self):
        assert np.isnan(reduced("ReduceMax", f32([1, NAN, 3]), [0]))
        assert np.isnan(reduced("ReduceMin", f32([1, NAN, 3]), [0]))

    def test_log_sum_exp_does_not_overflow(self):
        np.testing.assert_allclose(
            reduced("ReduceLogSumExp", f32([1000, 1000]), [0]), 1000 + np.log(2)
        )
        assert reduced("ReduceLogSumExp", f32([INF, 1]), [0]).tolist() == [INF]

    def test_fp16_means_and_integer_sums_are_exact_inside(self):
        assert reduced("ReduceMean", np.full(4096, 60000, np.float16), [0]).tolist() == [60000]
        assert reduced("ReduceSum", np.array([2**31 - 1, 1], np.int32), [0]).tolist() == [-(2**31)]
        assert reduced("ReduceMean", np.array([-3, -4], np.int32), [0]).tolist() == [-3]

    @pytest.mark.parametrize("axes", [[2], [-3], [2**40]])
    def test_axes_out_of_range_are_refused(self, axes):
        with pytest.raises(CompileError) as caught:
            reduced("ReduceSum", arange(2, 2), axes)
        assert (caught.value.code, caught.value.node) == ("XC2006", "node")


class TestPlaces:
    def test_first_or_last_of_equals(self):
        x = f32([[2, 1, 2], [3, 3, 3]])
        assert run("ArgMax", x, axis=1).tolist() == [[0], [0]]
        assert run("ArgMax", x, axis=1, select_last_index=1).tolist() == [[2], [2]]
        assert run("ArgMin", x, axis=-1, keepdims=0).tolist() == [1, 0]
        assert run("ArgMin", x, axis=0, keepdims=0, select_last_index=1).tolist() == [0, 0, 0]

    def test_empty_axis_has_no_extreme(self):
        with pytest.raises(CompileError) as caught:
            run("ArgMax", np.zeros((2, 0), np.float32), axis=1, dynamic=False)
        assert caught.value.code == "XC2008"

    def test_topk_orders_and_prefers_lower_places(self):
        x, k = f32([[1, 3, 2, 3]]), np.array([3])
        values, places = run("TopK", x, k, outputs=2)
        assert (values.tolist(), places.tolist()) == ([[3, 3, 2]], [[1, 3, 2]])
        values, places = run("TopK", x, k, largest=0, outputs=2)
        assert (values.tolist(), places.tolist()) == ([[1, 2, 3]], [[0, 2, 1]])
        values, _ = run("TopK", np.array([0, 255, 7], np.uint8), np.array([1]), outputs=2)
        assert values.tolist() == [255]

    def test_topk_of_old_opsets_has_an_attribute(self):
        values, _ = run("TopK", f32([1, 3, 2]), k=2, opset=9, outputs=2)
        assert values.tolist() == [3, 2]

    def test_topk_of_nothing(self):
        values, places = run("TopK", f32([1, 2]), np.array([0]), outputs=2)
        assert (values.shape, places.shape) == ((0,), (0,))

    @pytest.mark.parametrize(("constants", "code"), [((1,), "XC2007"), ((), "XC2011")])
    @pytest.mark.parametrize("k", [4, -1, 2**62])
    def test_topk_of_more_than_there_are_is_refused(self, k, constants, code):
        with pytest.raises(CompileError) as caught:
            run(
                "TopK", f32([1, 2, 3]), np.array([k]), outputs=2, constants=constants, dynamic=False
            )
        assert (caught.value.code, caught.value.node) == (code, "node")


class TestSoftmax:
    def test_infinities_and_large_values(self):
        x = f32([[-INF, -INF, -INF], [-INF, 0, -INF], [1000, 1000, -1000]])
        expected = f32([[NAN, NAN, NAN], [0, 1, 0], [0.5, 0.5, 0]])
        np.testing.assert_array_equal(run("Softmax", x), expected)
        np.testing.assert_array_equal(run("LogSoftmax", f32([[0, -INF]])), [[0, -INF]])

    @pytest.mark.parametrize("dynamic", [True, False])
    @pytest.mark.parametrize("axis", [0, 1, 2, -1, -3, None])
    def test_before_opset_13_the_input_is_a_matrix(self, axis, dynamic):
        x = arange(2, 3, 2) / 4
        attributes = {} if axis is None else {"axis": axis}
        rows = int(np.prod(x.shape[: 1 if axis is None else axis % 3]))
        flat = np.exp(x.reshape(rows, -1).astype(np.float64))
        expected = (flat / flat.sum(axis=1, keepdims=True)).reshape(x.shape)
        y = run("Softmax", x, opset=11, dynamic=dynamic, **attributes)
        np.testing.assert_allclose(y, expected, 1e-6)
        hard = run("Hardmax", x, opset=11, dynamic=dynamic, **attributes)
        assert hard.sum() == rows

    def test_hardmax_marks_the_first_maximum(self):
        assert run("Hardmax", f32([[1, 3, 3]])).tolist() == [[0, 1, 0]]


class TestNormalizations:
    def test_layer_norm_of_fp16_has_its_statistics_in_float32(self):
        x = np.array([[1000, -1000, 1000, -1000, 500, -500, 2000, -2000]], np.float16)
        one = np.ones(8, np.float16)
        expected = [[0.8, -0.8, 0.8, -0.8, 0.4, -0.4, 1.6, -1.6]]
        np.testing.assert_allclose(run("LayerNormalization", x, one), expected, 1e-3)
        np.testing.assert_allclose(run("RMSNormalization", x, one, opset=23), expected, 1e-3)
        tiny = np.array([[1e-4, -1e-4]], np.float16)
        y = run("LayerNormalization", tiny, np.ones(2, np.float16), epsilon=1e-12)
        np.testing.assert_allclose(y, [[1, -1]], 1e-2)

    def test_layer_norm_over_several_axes_with_bias_and_statistics(self):
        x = arange(2, 2, 3)
        y, mean, deviation = run(
            "LayerNormalization", x, arange(2, 3), f32([1, 2, 3]), axis=1, epsilon=0.0, outputs=3
        )
        assert mean.tolist() == [[[2.5]], [[8.5]]]
        np.testing.assert_allclose(deviation.reshape(-1), [(6 / 17.5) ** 0.5] * 2, 1e-6)
        expected = (x - mean) * deviation * arange(2, 3) + f32([1, 2, 3])
        np.testing.assert_allclose(y, expected, 1e-6)

    def test_batch_norm_uses_the_given_statistics(self):
        x = f32([[[-2, 4]], [[0, 1]]])
        y = run("BatchNormalization", x, f32([3]), f32([1]), f32([0.5]), f32([1]), epsilon=0.0)
        np.testing.assert_array_equal(y, [[[-6.5, 11.5]], [[-0.5, 2.5]]])

    @pytest.mark.parametrize("opset", [9, 17])
    def test_outputs_of_training_without_the_mode_are_refused(self, opset):
        one = f32([1])
        with pytest.raises(CompileError) as caught:
            run("BatchNormalization", arange(1, 1, 2), one, one, one, one, opset=opset, outputs=3)
        assert caught.value.code == "XC1006"

    def test_batch_norm_in_training_uses_and_moves_the_statistics(self):
        x = f32([[[1, 3]], [[5, 7]]])  # mean 4, variance 5
        y, mean, variance = run(
            "BatchNormalization", x, f32([2]), f32([1]), f32([0]), f32([1]),
            outputs=3, training_mode=1, epsilon=4.0, momentum=0.5,
        )  # fmt: skip
        np.testing.assert_allclose(y.reshape(-1), [-1, 1 / 3, 5 / 3, 3], 1e-6)
        assert (mean.tolist(), variance.tolist()) == ([2], [3])

    def test_batch_norm_of_other_channels_is_refused(self):
        one = f32([1])
        with pytest.raises(CompileError) as caught:
            run("BatchNormalization", arange(1, 2, 2), one, one, one, one, dynamic=False)
        assert (caught.value.code, caught.value.node) == ("XC2004", "node")

    def test_instance_and_group_norm(self):
        x = f32([[[1, 3], [10, 30]]])
        y = run("InstanceNormalization", x, f32([1, 2]), f32([0, 5]), epsilon=0.0)
        np.testing.assert_array_equal(y, [[[-1, 1], [3, 7]]])
        scale, bias = f32([1, 2]), f32([0, 5])
        grouped = run("GroupNormalization", x, scale, bias, num_groups=2, epsilon=0.0, opset=21)
        np.testing.assert_array_equal(grouped, y)

    def test_group_norm_until_opset_21_scales_by_group(self):
        x = f32([[[1], [3], [10], [30]]])
        scale, bias = f32([1, 2]), f32([0, 5])
        y = run(
            "GroupNormalization", x, scale, bias, num_groups=2, epsilon=0.0, opset=18, dynamic=False
        )
        np.testing.assert_array_equal(y, [[[-1], [1], [3], [7]]])

    def test_lrn_window_of_an_even_size_reaches_further_up(self):
        x = f32([[[1], [2], [3]]])
        y = run("LRN", x, size=2, alpha=2.0, beta=1.0, bias=0.0)
        np.testing.assert_allclose(y.reshape(-1), [1 / 5, 2 / 13, 3 / 9], 1e-6)

    def test_lp_norm_of_zeros_is_zero(self):
        y = run("LpNormalization", f32([[3, 4], [0, 0]]), opset=22)
        np.testing.assert_array_equal(y, f32([[0.6, 0.8], [0, 0]]))
        np.testing.assert_array_equal(run("LpNormalization", f32([[3, -1]]), p=1), [[0.75, -0.25]])

    def test_mean_variance_norm(self):
        y = run("MeanVarianceNormalization", f32([[[[1, 3]]], [[[1, 3]]]]))
        np.testing.assert_allclose(y.reshape(-1), [-1, 1, -1, 1], 1e-6)
