"""A quantized transformer block: softmax, layer norm and gelu between integer products give one answer on all CPUs."""

import functools

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import xcompile
from tests.e2e.compiled_node import shared_pool
from tests.foreign.models import run_compiled

LENGTH, WIDTH, HIDDEN = 19, 40, 72
"""Rows and columns that no vector length divides."""


class _Block:
    """Writes the nodes of a model with one quantization for each tensor."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self._random = np.random.default_rng(5)

    def constant(self, array: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        return name

    def node(self, kind: str, *inputs: str, **attributes: object) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def quantized(self, x: str, scale: float, zero: int) -> str:
        """Quantized to uint8, and dequantized."""
        step = self.constant(np.float32(scale)), self.constant(np.uint8(zero))
        return self.node("DequantizeLinear", self.node("QuantizeLinear", x, *step), *step)

    def product(self, x: str, rows: int, columns: int) -> str:
        """Times int8 weights with a scale for each column."""
        weights = self._random.integers(-127, 128, (rows, columns)).astype(np.int8)
        scales = self._random.uniform(0.5, 1.5, columns).astype(np.float32) / (75 * rows**0.5)
        zeros = np.zeros(columns, np.int8)
        operands = (self.constant(a) for a in (weights, scales, zeros))
        return self.node("MatMul", x, self.node("DequantizeLinear", *operands, axis=1))

    def norm(self, x: str) -> str:
        parts = (self._random.normal(1, 0.1, WIDTH), self._random.normal(0, 0.1, WIDTH))
        operands = (self.constant(part.astype(np.float32)) for part in parts)
        return self.node("LayerNormalization", x, *operands, axis=-1)


@functools.cache
def block() -> onnx.ModelProto:
    """Attention and two layers behind it, with float and integer results."""
    b = _Block()
    x = b.quantized("x", 0.03, 128)
    query, key, value = (b.quantized(b.product(x, WIDTH, WIDTH), 0.03, 120) for _ in range(3))
    scores = b.node("MatMul", query, b.node("Transpose", key, perm=[1, 0]))
    weights = b.quantized(b.node("Softmax", scores, axis=-1), 1 / 255, 0)
    mixed = b.quantized(b.node("MatMul", weights, value), 0.02, 125)
    first = b.norm(b.node("Add", x, b.product(mixed, WIDTH, WIDTH)))
    inner = b.node("Gelu", b.product(b.quantized(first, 0.03, 127), WIDTH, HIDDEN))
    outer = b.product(b.quantized(inner, 0.02, 10), HIDDEN, WIDTH)
    second = b.norm(b.node("Add", first, outer))
    tanh = b.quantized(
        b.node("Tanh", b.product(b.quantized(second, 0.03, 127), WIDTH, 9)), 0.01, 128
    )
    outputs = {second: [LENGTH, WIDTH], tanh: [LENGTH, 9], b.node("Softmax", scores): [LENGTH] * 2}
    graph = helper.make_graph(
        b.nodes,
        "block",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [LENGTH, WIDTH])],
        [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in outputs.items()],
        [numpy_helper.from_array(np.asarray(array), n) for n, array in b.constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@functools.cache
def found(target: str) -> dict[str, bytes]:
    """The bytes of each result on a target."""
    x = np.random.default_rng(6).normal(0, 1.2, (LENGTH, WIDTH)).astype(np.float32)
    model = xcompile.compile(block(), target, pool=shared_pool())
    return {name: array.tobytes() for name, array in run_compiled(model, {"x": x}).items()}


@pytest.mark.parametrize(
    "target", ["x86-avx512", "x86-vnni", "arm-neon", "arm-dotprod", "arm-i8mm"]
)
def test_a_quantized_transformer_block_has_the_same_bytes_everywhere(target: str) -> None:
    assert found(target) == found("x86-avx2")


def test_the_products_of_the_block_are_of_integers() -> None:
    facts = xcompile.compile(block(), "x86-avx2", pool=shared_pool()).artifact.kernels.values()
    assert sum(fact.arithmetic == "int8" for fact in facts) >= 8
