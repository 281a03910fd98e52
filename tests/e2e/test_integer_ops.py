"""Quantization and integer products, compiled: the values that every target must give."""

import numpy as np
import pytest
from onnx import TensorProto

from tests.e2e.compiled_node import run

ZERO = np.uint8(0)


def floats(*values):
    return np.array(values, np.float32)


class TestExactProducts:
    def test_products_of_u8_and_s8_do_not_saturate_at_16_bits(self):
        a, b = np.array([[255, 255]], np.uint8), np.array([[127], [127]], np.int8)
        assert run("MatMulInteger", a, b).tolist() == [[64770]]

    def test_sixty_four_products_of_the_extremes(self):
        a, b = np.full((1, 64), 255, np.uint8), np.full((64, 3), -128, np.int8)
        assert run("MatMulInteger", a, b).tolist() == [[-2088960] * 3]

    def test_zero_points_of_both_operands_are_subtracted_exactly(self):
        a = np.array([[238, 115, 94], [245, 111, 102], [158, 225, 48]], np.uint8)
        b = np.array([[25, 36, 125], [42, -123, 76], [-81, -86, 35]], np.int8)
        assert run("MatMulInteger", a, b, np.uint8(42), np.int8(-26)).tolist() == [
            [12100, 1951, 40214],
            [11745, 2293, 41351],
            [18030, -10919, 36548],
        ]

    def test_a_vector_of_left_zero_points_has_one_a_row(self):
        a, b = np.array([[10, 10], [20, 20]], np.uint8), np.array([[1, 2], [3, 4]], np.int8)
        assert run("MatMulInteger", a, b, np.array([10, 20], np.uint8)).tolist() == [[0, 0], [0, 0]]

    def test_a_vector_of_right_zero_points_has_one_a_column(self):
        a, b = np.array([[1, 1]], np.uint8), np.array([[1, 2], [3, 4]], np.int8)
        zeros = np.array([1, 2], np.int8)
        assert run("MatMulInteger", a, b, np.array(0, np.uint8), zeros).tolist() == [[2, 2]]

    def test_padding_of_an_integer_convolution_is_the_zero_point(self):
        x, w = np.full((1, 1, 1, 2), 7, np.uint8), np.ones((1, 1, 1, 2), np.uint8)
        y = run("ConvInteger", x, w, np.uint8(5), pads=[0, 1, 0, 1])
        assert y.tolist() == [[[[2, 4, 2]]]]

    def test_a_quantized_convolution_rounds_exact_sums_once(self):
        x, w = np.full((1, 2, 1, 1), 255, np.uint8), np.full((1, 2, 1, 1), 127, np.int8)
        one, big = np.float32(1), np.float32(400)
        y = run("QLinearConv", x, one, ZERO, w, one, np.int8(0), big, ZERO)
        assert y.tolist() == [[[[162]]]]


class TestQuantize:
    def test_halves_go_to_the_even_neighbour(self):
        y = run(
            "QuantizeLinear", floats(0.5, 1.5, 2.5, -0.5, -1.5, -2.5), np.float32(1), np.int8(0)
        )
        assert y.tolist() == [0, 2, 2, 0, -2, -2]

    def test_what_is_too_large_saturates_and_nan_is_the_zero_point(self):
        x = floats(1e30, -1e30, np.inf, -np.inf, np.nan, 130)
        assert run("QuantizeLinear", x, np.float32(1), np.uint8(128)).tolist() == [
            255, 0, 255, 0, 128, 255,
        ]  # fmt: skip

    def test_a_scale_for_each_element_of_a_negative_axis(self):
        x, scale = np.full((2, 3), 8, np.float32), floats(1, 2, 4)
        y = run("QuantizeLinear", x, scale, np.zeros(3, np.uint8), axis=-1)
        assert y.tolist() == [[8, 4, 2], [8, 4, 2]]

    def test_blocks_share_scale_and_zero_point(self):
        x, scale = np.full((2, 4), 9, np.uint8), floats(1, 2, 3, 4).reshape(2, 2)
        y = run(
            "DequantizeLinear", x, scale, scale.astype(np.uint8), opset=21, axis=1, block_size=2
        )
        assert y.tolist() == [[8, 8, 14, 14], [18, 18, 20, 20]]

    def test_the_last_block_may_be_short(self):
        x, scale = np.ones((1, 3), np.int8), floats(2, 3).reshape(1, 2)
        y = run("DequantizeLinear", x, scale, opset=21, axis=1, block_size=2)
        assert y.tolist() == [[2, 2, 3]]

    def test_every_type_that_numbers_are_quantized_to(self):
        x = floats(-100, -1, 0.4, 3.6, 100)
        for code, wanted in (
            (TensorProto.INT2, [-2, -1, 0, 1, 1]),
            (TensorProto.UINT2, [0, 0, 0, 3, 3]),
            (TensorProto.INT4, [-8, -1, 0, 4, 7]),
            (TensorProto.UINT4, [0, 0, 0, 4, 15]),
            (TensorProto.INT16, [-100, -1, 0, 4, 100]),
            (TensorProto.FLOAT4E2M1, [-6, -1, 0.5, 4, 6]),
        ):
            y = run("QuantizeLinear", x, np.float32(1), opset=25, output_dtype=code)
            assert y.astype(np.float32).tolist() == wanted

    def test_the_range_of_a_dynamic_quantization_has_0_in_it(self):
        y, scale, zero = run("DynamicQuantizeLinear", floats(2, 4, 5.1), outputs=3)
        assert (y.tolist(), zero.tolist()) == ([100, 200, 255], 0)
        assert scale == pytest.approx(0.02)

    def test_nothing_but_zeros_is_quantized_to_zeros(self):
        y, scale, zero = run("DynamicQuantizeLinear", floats(0, 0), outputs=3)
        assert (y.tolist(), scale.tolist(), zero.tolist()) == ([0, 0], 1, 0)


def test_small_floats_round_trip_through_float32():
    every = np.arange(16, dtype=np.uint8)
    y = run("BitCast", every.astype("uint4"), opset=26, to=TensorProto.FLOAT4E2M1)
    assert y.astype(np.float32).tolist() == [
        0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("mode", "wanted"),
    [("up", [0, 1, 128, 129, 254, 255]), ("down", [0, 0, 127, 128, 254, 255]), ("nearest", [0, 1, 128, 128, 254, 255])],
)  # fmt: skip
def test_powers_of_two_round_as_they_are_told(mode, wanted):
    x = floats(0, 2.0**-126 * 0.8, 1.5, 2.5, np.inf, np.nan)
    y = run("Cast", x, opset=24, to=TensorProto.FLOAT8E8M0, round_mode=mode)
    assert y.view(np.uint8).tolist() == wanted
