"""Integer products: values stated by the field cases, and the meaning of fills and zero points."""

import numpy as np
import pytest

from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.integer import ConvInteger, MatMulInteger

WINDOW = {"strides": (1, 1), "dilations": (1, 1), "x_zero_point": None, "w_zero_point": None}


def u8(values):
    return np.asarray(values, np.uint8)


def s8(values):
    return np.asarray(values, np.int8)


def product(run, a, b, za=None, zb=None, **fields):
    return run(MatMulInteger, a=a, b=b, a_zero_point=za, b_zero_point=zb, **fields)


class TestMatMul:
    def test_nothing_saturates_at_16_bits(self, run):
        assert product(run, u8([[255, 255]]), s8([[127], [127]])) == [[64770]]
        got = product(run, np.full((1, 64), 255, np.uint8), np.full((64, 3), -128, np.int8))
        np.testing.assert_array_equal(got, [[-2088960] * 3])

    @pytest.mark.parametrize("transpose", [False, True])
    def test_a_zero_point_may_leave_8_bits(self, run, transpose):
        a = u8([[238, 115, 94], [245, 111, 102], [158, 225, 48]])
        b = s8([[25, 36, 125], [42, -123, 76], [-81, -86, 35]])
        given = (a.T.copy(), b.T.copy()) if transpose else (a, b)
        got = product(run, *given, u8(42), s8(-26), transpose_a=transpose, transpose_b=transpose)
        want = [[12100, 1951, 40214], [11745, 2293, 41351], [18030, -10919, 36548]]
        np.testing.assert_array_equal(got, want)

    def test_each_row_and_column_has_a_zero_point_of_its_own(self, run):
        a, b = u8([[10, 10], [20, 20]]), s8([[1, 2], [3, 4]])
        np.testing.assert_array_equal(product(run, a, b, u8([10, 20])), np.zeros((2, 2)))
        got = product(run, a.T.copy(), b, u8([10, 20]), transpose_a=True)
        np.testing.assert_array_equal(got, np.zeros((2, 2)))
        got = product(run, a, b, None, s8([1, 2]))
        np.testing.assert_array_equal(got, [[20, 20], [40, 40]])

    def test_sums_wrap_around(self, run):
        k = 70000
        got = product(run, np.full((1, k), 255, np.uint8), np.full((k, 1), 127, np.int8))
        assert got == np.array([[255 * 127 * k]]).astype(np.int32)

    def test_zero_points_that_do_not_fit(self, run):
        a, b = u8(np.zeros((2, 3))), s8(np.zeros((3, 4)))
        for zeros in ((u8([1, 2, 3]), None), (None, s8([1, 2])), (s8(1), None)):
            with pytest.raises(CompileError, match=r"XC200|zero point"):
                product(run, a, b, *zeros)

    def test_wider_operands_are_refused(self, run):
        with pytest.raises(CompileError, match="8 bits, not i32"):
            product(run, np.zeros((2, 3), np.int32), s8(np.zeros((3, 4))))


class TestConv:
    def test_what_pads_add_counts_as_zero(self, run):
        x, w = u8([[[[130, 129]]]]), s8([[[[1, 10, 100]]]])
        given = {**WINDOW, "x": x, "w": w, "pads": (0, 1, 0, 1), "fill": None}
        got = run(ConvInteger, **{**given, "x_zero_point": u8(128)})
        np.testing.assert_array_equal(got, [[[[120, 12]]]])
        got = run(ConvInteger, **{**given, "fill": u8(5)})
        np.testing.assert_array_equal(got, [[[[5 + 1300 + 12900, 130 + 1290 + 500]]]])

    def test_a_fill_beside_a_zero_point_is_a_cell_like_others(self, run):
        x, w = u8([[[[7]]]]), s8([[[[2, 3, 4]]]])
        got = run(
            ConvInteger,
            **{**WINDOW, "x_zero_point": u8(6)},
            x=x,
            w=w,
            pads=(0, 1, 0, 1),
            fill=u8(9),
        )
        assert got == 2 * 3 + 3 * 1 + 4 * 3

    def test_each_output_channel_has_a_zero_point(self, run):
        x, w = u8(np.full((1, 2, 1, 1), 255)), s8([[[[127]], [[127]]], [[[1]], [[2]]]])
        got = run(
            ConvInteger,
            **{**WINDOW, "w_zero_point": s8([0, 1])},
            x=x,
            w=w,
            pads=(0, 0, 0, 0),
            fill=None,
        )
        np.testing.assert_array_equal(got.reshape(-1), [64770, 255])
