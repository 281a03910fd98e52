"""Quantized models from the field, compiled: the values are stated, they come from no other implementation."""

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

from tests.e2e.compiled_node import compiled

NODE = helper.make_node
ONE, ZERO = np.float32(1), np.uint8(0)


def f32(values):
    return np.array(values, np.float32)


def run(nodes, inputs, constants, opset=21):
    """The output `y` for inputs by name; nodes are an op with its inputs, its output and attributes."""
    made = [NODE(op, list(given), [result], **fields) for op, given, result, fields in nodes]
    kinds = {name: (a.dtype, a.shape) for name, a in inputs.items()}
    model = compiled(made, kinds, ["y"], constants, opset=opset)
    return model.executable.run(list(inputs.values()))["y"]


def quantize(x, scale, zero, result):
    return "QuantizeLinear", (x, scale, zero), result, {}


def dequantize(x, scale, zero, result, **fields):
    return "DequantizeLinear", (x, scale, zero) if zero else (x, scale), result, fields


# -- exact products --------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "k", "n"), [(7, 8, 9), (33, 7, 15)])
def test_odd_sizes_with_zero_points_are_exact(m, k, n):
    random = np.random.default_rng(m)
    a = random.integers(0, 256, (m, k)).astype(np.uint8)
    b = random.integers(-128, 128, (k, n)).astype(np.int8)
    constants = {"b": b, "za": np.uint8(42), "zb": np.int8(-26)}
    y = run([("MatMulInteger", ("a", "b", "za", "zb"), "y", {})], {"a": a}, constants)
    np.testing.assert_array_equal(y, (a.astype(int) - 42) @ (b.astype(int) + 26))


def test_a_quantized_product_may_have_a_scale_and_a_zero_point_for_each_row():
    """Rows (10-9)·(3, 5)+(1, 1) and (20-18)·(…): sums 1·3+1·5 and 2·3+2·5 over .5 and 2, plus 1 and 100."""
    constants = {
        "sa": f32([1, 1]), "za": np.array([9, 18], np.uint8), "b": np.array([[3], [5]], np.int8),
        "sb": ONE, "zb": np.int8(0), "sy": f32([0.5, 2]), "zy": np.array([1, 100], np.uint8),
    }  # fmt: skip
    given = ("a", "sa", "za", "b", "sb", "zb", "sy", "zy")
    a = np.array([[10, 10], [20, 20]], np.uint8)
    y = run([("QLinearMatMul", given, "y", {})], {"a": a}, constants)
    assert y.tolist() == [[17], [108]]


def test_a_pad_before_quantization_is_that_of_the_convolution():
    constants = {
        "p": np.array([0, 0, 0, 1, 0, 0, 0, 1]), "s": np.float32(0.5), "z": np.uint8(10),
        "w": np.array([[[[1, 10, 100]]]], np.int8),
    }  # fmt: skip
    nodes = [
        ("Pad", ("x", "p"), "padded", {}),
        quantize("padded", "s", "z", "q"),
        dequantize("q", "s", "z", "d"),
        dequantize("w", "s", "", "dw"),
        ("Conv", ("d", "dw"), "y", {}),
    ]
    y = run(nodes, {"x": f32([[[[1, 2]]]])}, constants)
    assert y.reshape(-1).tolist() == [(10 + 200) / 2, (1 + 20) / 2]


# -- axes of scales --------------------------------------------------------------------------------


def test_weights_of_a_transposed_convolution_have_their_scales_along_axis_1():
    constants = {"w": np.full((1, 2, 1), 10, np.int8), "s": f32([0.1, 1])}
    nodes = [
        dequantize("w", "s", "", "dw", axis=1),
        ("ConvTranspose", ("x", "dw"), "y", {}),
    ]
    y = run(nodes, {"x": f32([[[1, 2]]])}, constants)
    np.testing.assert_allclose(y, [[[1, 2], [10, 20]]], rtol=1e-6)


def test_scales_follow_a_transposition():
    constants = {"w": np.array([[1, 2, 3], [4, 5, 6]], np.int8), "s": f32([1, 10])}
    nodes = [
        dequantize("w", "s", "", "dw", axis=0),
        ("Transpose", ("dw",), "t", {"perm": [1, 0]}),
        ("MatMul", ("x", "t"), "y", {}),
    ]
    assert run(nodes, {"x": np.ones((1, 3), np.float32)}, constants).tolist() == [[6, 150]]
    quantized = [quantize("x", "one", "zero", "q"), dequantize("q", "one", "zero", "dx")]
    nodes = [*quantized, *nodes[:2], ("MatMul", ("dx", "t"), "y", {})]
    constants = {**constants, "one": ONE, "zero": ZERO}
    assert run(nodes, {"x": np.ones((1, 3), np.float32)}, constants).tolist() == [[6, 150]]


def test_scales_follow_new_axes():
    nodes = [
        dequantize("q", "s", "", "d", axis=0),
        ("Unsqueeze", ("d", "axes"), "u", {}),
        ("Mul", ("x", "u"), "y", {}),
    ]
    constants = {"q": np.ones(2, np.int8), "s": f32([1, 10]), "axes": np.array([0, 1, 2])}
    y = run(nodes, {"x": np.ones((1, 1, 1, 2), np.float32)}, constants)
    assert y.reshape(-1).tolist() == [1, 10]


def test_a_negative_axis_counts_from_the_end():
    constants = {"s": f32([1, 10, 100])}
    x = np.array([[1, 2, 3], [4, 5, 6]], np.int8)
    y = run([dequantize("x", "s", "", "y", axis=-1)], {"x": x}, constants)
    assert y.tolist() == [[1, 20, 300], [4, 50, 600]]


# -- blocks and 4 bits -----------------------------------------------------------------------------


@pytest.mark.parametrize("count", [3, 7])
def test_an_odd_number_of_4_bit_weights(count):
    codes = np.arange(count).astype(ml_dtypes.int4) - np.array(3, ml_dtypes.int4)
    nodes = [dequantize("w", "s", "", "d"), ("Add", ("x", "d"), "y", {})]
    y = run(nodes, {"x": np.zeros(count, np.float32)}, {"w": codes, "s": np.float32(2)})
    assert y.tolist() == [2 * (i - 3) for i in range(count)]


# -- biases ----------------------------------------------------------------------------------------


def test_a_bias_that_no_int32_of_the_products_scale_holds_is_added_in_float():
    """5 / (.5·7.843e-10) is 1.3e10; the products add 127·127·(.5·7.843e-10), 6.3e-6."""
    constants = {
        "sx": np.float32(0.5), "zx": np.int8(0), "sw": np.float32(7.843e-10), "b": f32([5, -4.5]),
        "w": np.full((2, 1, 1, 1), 127, np.int8), "sy": np.float32(0.5), "zy": np.int8(0),
    }  # fmt: skip
    nodes = [
        quantize("x", "sx", "zx", "q"),
        dequantize("q", "sx", "zx", "dx"),
        dequantize("w", "sw", "", "dw"),
        ("Conv", ("dx", "dw", "b"), "c", {}),
        quantize("c", "sy", "zy", "y"),
    ]
    y = run(nodes, {"x": np.full((1, 1, 1, 1), 63.5, np.float32)}, constants)
    assert y.reshape(-1).tolist() == [10, -9]


def test_a_bias_that_two_convolutions_share_has_the_scale_of_one():
    """The bias is 100·.25 = 25 for both: of the product 3·2·.25 it is a part, beside 3·2·.5 a term."""
    constants = {
        "s": np.float32(0.5), "t": np.float32(1), "z": np.int8(0), "w": np.full((1, 1, 1, 1), 2, np.int8),
        "b": np.array([100], np.int32), "sb": f32([0.25]),
    }  # fmt: skip
    nodes = [
        quantize("x", "s", "z", "q"),
        dequantize("q", "s", "z", "dx"),
        dequantize("w", "s", "", "one"),
        dequantize("w", "t", "", "two"),
        dequantize("b", "sb", "", "bias", axis=0),
        ("Conv", ("dx", "one", "bias"), "c", {}),
        ("Conv", ("dx", "two", "bias"), "d", {}),
        ("Concat", ("c", "d"), "y", {"axis": 1}),
    ]
    y = run(nodes, {"x": np.full((1, 1, 1, 1), 1.5, np.float32)}, constants)
    assert y.reshape(-1).tolist() == [26.5, 28.0]


# -- channels of zeros -----------------------------------------------------------------------------


def test_a_channel_of_zeros_with_the_scale_0_gives_its_bias():
    constants = {
        "s": np.float32(0.5), "z": np.uint8(3), "w": np.array([[[[2]]], [[[0]]]], np.int8),
        "sw": f32([0.5, 0]), "b": f32([1, 2]),
    }  # fmt: skip
    nodes = [
        quantize("x", "s", "z", "q"),
        dequantize("q", "s", "z", "dx"),
        dequantize("w", "sw", "", "dw", axis=0),
        ("Conv", ("dx", "dw", "b"), "c", {}),
        quantize("c", "s", "z", "y"),
    ]
    y = run(nodes, {"x": np.full((1, 1, 1, 1), 4, np.float32)}, constants)
    assert y.reshape(-1).tolist() == [3 + 10, 3 + 4]


# -- ReLU and clip before quantization -------------------------------------------------------------


@pytest.mark.parametrize("product", [False, True])
def test_a_relu_before_quantization_with_a_zero_point_is_not_dropped(product):
    constants = {"s": np.float32(0.1), "z": np.uint8(128), "si": np.float32(0.05), "zi": np.int8(0)}
    nodes = [("Relu", ("x",), "r", {})]
    if product:  # the same through an integer product with 1
        constants["w"] = np.ones((1, 1, 1, 1), np.int8)
        nodes = [
            quantize("x", "si", "zi", "qi"),
            dequantize("qi", "si", "zi", "di"),
            dequantize("w", "one", "", "dw"),
            ("Conv", ("di", "dw"), "c", {}),
            ("Relu", ("c",), "r", {}),
        ]
        constants["one"] = ONE
    nodes += [quantize("r", "s", "z", "q"), dequantize("q", "s", "z", "y")]
    y = run(nodes, {"x": f32([-1, -0.05, 0.05, 1]).reshape(1, 1, 1, 4)}, constants)
    np.testing.assert_allclose(y.reshape(-1), [0, 0, 0, 1], atol=1e-6)


def test_a_clip_below_the_quantized_range_is_not_dropped():
    constants = {"l": np.float32(0), "h": np.float32(6), "s": np.float32(0.05), "z": ZERO}
    nodes = [
        ("Clip", ("x", "l", "h"), "c", {}),
        quantize("c", "s", "z", "q"),
        dequantize("q", "s", "z", "y"),
    ]
    y = run(nodes, {"x": f32([-1, 5.99, 6.5, 20])}, constants)
    np.testing.assert_allclose(y, [0, 6, 6, 6], rtol=1e-6)
