"""Functions of bytes: tables give what Q/DQ pairs say, to the bit, on every tier and in every kind of kernel."""

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import xcompile
from tests.e2e.test_blocks import families
from xcompile.compiler.target.host import host_target
from xcompile.compiler.target.registry import targets

TIERS = ["cpu"] + [
    name for name in ("x86-avx2", "x86-avx512") if targets()[name].runs_on(host_target())
]
F32 = np.float32
WIDE, NARROW = (F32(0.05), np.uint8(100)), (F32(0.04), np.uint8(3))


def quantized(x: np.ndarray, scale: np.float32, zero: np.uint8) -> np.ndarray:
    return np.clip(np.rint(x / scale) + F32(zero), 0, 255).astype(np.uint8)


def numbers(q: np.ndarray, scale: np.float32, zero: np.uint8) -> np.ndarray:
    return (q.astype(F32) - F32(zero)) * scale


def hard_swish(q: np.ndarray) -> np.ndarray:
    """x·clip(x + 3, 0, 6) with each step quantized, every operation in float32."""
    x = numbers(q, *WIDE)
    shifted = numbers(quantized(x + F32(3), *NARROW), *NARROW)
    clipped = numbers(quantized(np.clip(shifted, F32(0), F32(6)), *NARROW), *NARROW)
    return quantized(x * clipped, *WIDE)


def model(shape: list[int | str], *, channels: int = 0) -> ModelProto:
    """The same in ONNX, behind a quantized 1×1 convolution of so many channels when there are any."""
    constants = {
        "s": WIDE[0], "z": WIDE[1], "t": NARROW[0], "y": NARROW[1], "three": F32(3), "six": F32(6), "zero": F32(0),
    }  # fmt: skip
    initializers = [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]
    nodes = []

    def add(op: str, inputs: list[str], output: str) -> str:
        nodes.append(helper.make_node(op, inputs, [output]))
        return output

    def pair(x: str, scale: str, zero: str) -> str:
        add("QuantizeLinear", [x, scale, zero], f"{x}_q")
        return add("DequantizeLinear", [f"{x}_q", scale, zero], f"{x}_d")

    x = pair("x", "s", "z")
    if channels:
        eye = np.eye(channels, dtype=np.int8).reshape(channels, channels, 1, 1)
        initializers += [
            numpy_helper.from_array(eye, "w"),
            numpy_helper.from_array(F32(1), "one"),
            numpy_helper.from_array(np.int8(0), "none"),
        ]
        add("DequantizeLinear", ["w", "one", "none"], "w_d")
        x = pair(add("Conv", [x, "w_d"], "conv"), "s", "z")
    shifted = pair(add("Add", [x, "three"], "shifted"), "t", "y")
    clipped = pair(add("Clip", [shifted, "zero", "six"], "clipped"), "t", "y")
    add("QuantizeLinear", [add("Mul", [x, clipped], "product"), "s", "z"], "out")
    graph = helper.make_graph(
        nodes, "tables", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("out", TensorProto.UINT8, shape)], initializers,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("target", TIERS)
def test_every_byte_on_rows_of_any_length(target: str) -> None:
    compiled = xcompile.compile(model(["n", "m"]), target)
    for rows, columns in ((1, 256), (3, 1), (5, 67), (2, 300)):
        x = numbers(np.arange(rows * columns, dtype=np.uint8).reshape(rows, columns), *WIDE)
        got = compiled(x)
        np.testing.assert_array_equal(got, hard_swish(quantized(x, *WIDE)))


@pytest.mark.parametrize("target", TIERS)
@pytest.mark.parametrize("channels", [16, 21])
def test_behind_a_convolution_it_is_part_of_its_kernel(target: str, channels: int) -> None:
    compiled = xcompile.compile(model([1, channels, 4, 9], channels=channels), target)
    assert families(compiled) == ["map", "integer-conv", "map"], "quantize, convolve, to row-major"
    q = np.random.default_rng(channels).integers(0, 256, (1, channels, 4, 9)).astype(np.uint8)
    np.testing.assert_array_equal(compiled(numbers(q, *WIDE)), hard_swish(q))


def test_without_the_pass_the_bytes_are_the_same_where_nothing_is_merged() -> None:
    x = numbers(np.arange(256, dtype=np.uint8).reshape(1, 256), *WIDE)
    edits = "-nn-tabulate-bytes;-nn-lower-quantized"
    plain = xcompile.compile(model([1, 256]), "cpu", passes=edits)
    np.testing.assert_array_equal(plain(x), hard_swish(quantized(x, *WIDE)))


@pytest.mark.parametrize("target", TIERS)
def test_a_constant_of_256_bytes_is_no_table(target: str) -> None:
    bias = np.random.default_rng(0).integers(0, 256, 256).astype(np.uint8)
    constants = {"s": WIDE[0], "z": WIDE[1], "b": bias}
    initializers = [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["d"]),
        helper.make_node("DequantizeLinear", ["b", "s", "z"], ["c"]),
        helper.make_node("Add", ["d", "c"], ["sum"]),
        helper.make_node("Sigmoid", ["sum"], ["function"]),
        helper.make_node("QuantizeLinear", ["function", "s", "z"], ["out"]),
    ]
    graph = helper.make_graph(
        nodes, "bias", [helper.make_tensor_value_info("x", TensorProto.UINT8, ["n", 256])],
        [helper.make_tensor_value_info("out", TensorProto.UINT8, ["n", 256])], initializers,
    )  # fmt: skip
    opset = helper.make_opsetid("", 17)
    made = helper.make_model(graph, opset_imports=[opset], ir_version=9)
    x = np.random.default_rng(1).integers(0, 256, (3, 256)).astype(np.uint8)
    total = (numbers(x, *WIDE) + numbers(bias, *WIDE)).astype(np.float64)
    wanted = quantized((1 / (1 + np.exp(-total))).astype(F32), *WIDE)
    np.testing.assert_array_equal(xcompile.compile(made, target)(x), wanted)
