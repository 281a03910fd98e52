"""A quantized matrix product is one kernel, which gives the bytes of the contract, in numpy, on every tier."""

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.e2e.compiled_node import shared_pool
from xcompile.compiler.api import compile as compile_model
from xcompile.compiler.target.host import host_target
from xcompile.compiler.target.registry import targets

DEPTH, COLUMNS = 70, 45
X_SCALE, X_ZERO, Y_SCALE, Y_ZERO = np.float32(1 / 50), np.uint8(117), np.float32(0.21), np.uint8(90)


def weights() -> tuple[np.ndarray, np.ndarray]:
    """Int8 weights and a scale for each column."""
    random = np.random.default_rng(0)
    w = random.integers(-128, 128, (DEPTH, COLUMNS)).astype(np.int8)
    return w, random.uniform(0.001, 0.02, COLUMNS).astype(np.float32)


def model() -> onnx.ModelProto:
    """DequantizeLinear, MatMul, Relu, QuantizeLinear; the number of rows is not known."""
    w, w_scale = weights()
    constants = {
        "x_scale": X_SCALE, "x_zero": X_ZERO, "w": w, "w_scale": w_scale,
        "w_zero": np.zeros(COLUMNS, np.int8), "y_scale": Y_SCALE, "y_zero": Y_ZERO,
    }  # fmt: skip
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "w_scale", "w_zero"], ["wf"], axis=1),
        helper.make_node("MatMul", ["xf", "wf"], ["z"]),
        helper.make_node("Relu", ["z"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "y_scale", "y_zero"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, ["rows", DEPTH])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.UINT8, ["rows", COLUMNS])],
        [onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def expected(x: np.ndarray) -> np.ndarray:
    """Exact sums, one multiplication in float32, half to even, clipped in floats."""
    w, w_scale = weights()
    sums = (x.astype(np.int64) - int(X_ZERO)) @ w.astype(np.int64)
    scale = (np.float64(X_SCALE) * w_scale / Y_SCALE).astype(np.float32)
    whole = np.rint(sums.astype(np.float32) * scale)
    return (np.clip(whole, 0, 255 - int(Y_ZERO)).astype(np.int32) + int(Y_ZERO)).astype(np.uint8)


@pytest.mark.parametrize(
    "name", ["x86-avx2", "x86-avx512", "x86-vnni", "arm-neon", "arm-dotprod", "arm-i8mm"]
)
def test_every_tier_gives_the_bytes_of_the_contract(name: str) -> None:
    target = targets()[name]
    if not target.runs_on(host_target()):
        target = target.portable(targets()["x86-avx2"])
    compiled = compile_model(model(), target, pool=shared_pool(), threads=1)
    assert [launch.family for launch in compiled.artifact.kernels.values()] == ["contraction"]
    for rows in (1, 3, 33):
        x = np.random.default_rng(rows).integers(0, 256, (rows, DEPTH)).astype(np.uint8)
        got = compiled(x)
        np.testing.assert_array_equal(got, expected(x))
        assert np.unique(got).size > 20
