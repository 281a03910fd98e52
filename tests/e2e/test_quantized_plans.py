"""The memory plan of quantized networks: integers from product to product, and nothing computed twice."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.e2e.compiled_node import shared_pool
from tests.e2e.networks import Network as Floats
from xcompile.compiler.api import compile as compile_model
from xcompile.compiler.codegen.program.program import Launch
from xcompile.compiler.model import CompiledModel
from xcompile.compiler.support.dims import symbol

RANDOM = np.random.default_rng(5)


class Network:
    """A QDQ model in the making; every tensor has the scale 1/32 and is of uint8 around 128."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants = {"s": np.float32(1 / 32), "z": np.uint8(128), "sw": np.float32(1 / 256)}

    def node(self, op, *inputs, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def requantized(self, name):
        return self.node("DequantizeLinear", self.node("QuantizeLinear", name, "s", "z"), "s", "z")

    def weights(self, *shape):
        name = f"w{len(self.constants)}"
        self.constants[name] = RANDOM.integers(-127, 128, shape).astype(np.int8)
        return self.node("DequantizeLinear", name, "sw")

    def conv(self, x, kernel=3, groups=1):
        w = self.weights(16, 16 // groups, kernel, kernel)
        pads = [kernel // 2] * 4
        return self.node("Conv", x, w, pads=pads, group=groups)

    def compiled(self, y, shape):
        self.nodes.append(helper.make_node("Identity", [y], ["y"]))
        graph = helper.make_graph(
            self.nodes,
            "plan",
            [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
            [numpy_helper.from_array(np.asarray(a), n) for n, a in self.constants.items()],
        )
        opsets = [helper.make_opsetid("", 19)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        return compile_model(model, target="x86-avx2", pool=shared_pool())


def launches(model):
    return [step for step in model.artifact.program.steps if isinstance(step, Launch)]


def largest_in_the_arena(model):
    """Bytes of the largest tensor that a kernel writes or reads between others."""
    return max(
        length
        for launch in launches(model)
        for place, length in zip(launch.places, launch.lengths, strict=True)
        if place.space == "arena"
    )


def products(model):
    facts = (model.artifact.kernels[launch.symbol] for launch in launches(model))
    return [fact.family for fact in facts if fact.arithmetic == "int8"]


def test_no_float_lies_in_memory_between_convolutions():
    n = Network()
    x = n.requantized("x")
    first = n.requantized(n.node("Relu", n.conv(x)))
    deep = n.requantized(n.node("Relu", n.conv(first, groups=16)))
    second = n.requantized(n.node("Relu", n.node("Add", n.conv(deep, 1), first)))
    pooled = n.requantized(
        n.node("MaxPool", second, kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4)
    )
    both = n.requantized(n.node("Concat", n.conv(pooled, 1), n.requantized(n.conv(second)), axis=1))
    turned = n.node("Transpose", both, perm=[0, 1, 3, 2])
    y = n.requantized(n.node("Conv", turned, n.weights(16, 32, 1, 1)))
    model = n.compiled(y, [1, 16, 12, 12])
    assert len(products(model)) == 6
    assert largest_in_the_arena(model) == 32 * 12 * 12  # what is concatenated, in bytes


@pytest.mark.parametrize("batch", [40, "n"])
def test_no_float_lies_in_memory_between_matrix_products(batch):
    n = Network()
    n.constants["b"] = RANDOM.standard_normal(48).astype(np.float32)
    x = n.requantized("x")
    hidden = n.node("Relu", n.node("Add", n.node("MatMul", x, n.weights(32, 48)), "b"))
    y = n.node("MatMul", n.requantized(hidden), n.weights(48, 16))
    model = n.compiled(n.requantized(y), [batch, 32])
    assert products(model) == ["contraction"] * 2
    lengths = [length for launch in launches(model) for length in launch.lengths[-1:]]
    rows = symbol("n") if batch == "n" else batch
    assert lengths == [rows * 32, rows * 48, rows * 16 * 4]


def test_dynamic_quantization_ends_in_one_product():
    """Two reductions, the quantization, and the product, which scales its sums itself."""
    n = Network()
    n.constants |= {"w": RANDOM.integers(-127, 128, (32, 48)).astype(np.int8), "zw": np.int8(0)}
    q, scale, zero = (f"{name}" for name in ("q", "scale", "zero"))
    n.nodes.append(helper.make_node("DynamicQuantizeLinear", ["x"], [q, scale, zero]))
    sums = n.node("Cast", n.node("MatMulInteger", q, "w", zero, "zw"), to=onnx.TensorProto.FLOAT)
    y = n.node("Mul", sums, n.node("Mul", scale, "sw"))
    model = n.compiled(y, [40, 32])
    assert products(model) == ["contraction"]
    last = launches(model)[-1]
    assert model.artifact.kernels[last.symbol].family == "contraction"
    assert last.lengths[-1] == 40 * 48 * 4


@pytest.mark.parametrize("seed", [0, 2, 3, 5])
def test_a_model_quantized_after_training_keeps_one_scale_through_relus_pools_and_concatenations(
    seed: int,
) -> None:
    """No kernel requantizes: each is a product or moves bytes, and nothing between products is of floats."""
    made = joined_branches(seed, gain=1.0)
    assert families(made) == [*CONVOLUTIONS, CONV, "map"]
    assert largest_in_the_arena(made) <= 16 * 12 * 12


def test_an_operand_of_a_much_smaller_range_is_requantized_into_its_place() -> None:
    """A shared scale would take more than two of the eight bits that the other readers of the operand have."""
    made = joined_branches(0, gain=40.0)
    assert families(made) == [*CONVOLUTIONS, "map", CONV, "map"]
    assert largest_in_the_arena(made) <= 16 * 12 * 12


CONV = "integer-conv"
CONVOLUTIONS = ["map", CONV, "pool", CONV, CONV]
"""The first kernels of `joined_branches`; the map quantizes the input."""


def joined_branches(seed: int, gain: float) -> CompiledModel:
    """A pool that a convolution, a sum and a concatenation read; the sum is `gain` times as large as it would be."""
    n = Floats()
    stem = n("Relu", n("Conv", "x", n.weight(16, 16, 3, 3), n.weight(16), pads=[1] * 4))
    pooled = n("MaxPool", stem, kernel_shape=[2, 2], strides=[2, 2])
    branch = n("Relu", n("Conv", pooled, n.weight(16, 16, 1, 1), n.weight(16)))
    wide = n("Conv", branch, n.weight(16, 16, 1, 1, scale=0.2 * gain), n.weight(16))
    both = n("Concat", n("Relu", n("Add", wide, pooled)), pooled, axis=1)
    y = n("Conv", both, n.weight(16, 32, 1, 1), n.weight(16))
    model = n.model({"x": ("FLOAT", [1, 16, 12, 12])}, {y: ("FLOAT", None)})
    samples = np.random.default_rng(seed).standard_normal((4, 1, 16, 12, 12)).astype(np.float32)
    return compile_model(model, "x86-avx2-int8", calibrate=list(samples), pool=shared_pool())


def families(model: CompiledModel) -> list[str]:
    return [model.artifact.kernels[launch.symbol].family for launch in launches(model)]
