"""Made-up models of any number of ops, one for each way in which compiling could take more than linear time."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper


class _Builder:
    def __init__(self) -> None:
        self._random = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []

    def __call__(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def constant(self, value: Any) -> str:
        self._weights.append(numpy_helper.from_array(np.asarray(value), f"w{len(self._weights)}"))
        return self._weights[-1].name

    def weight(self, *shape: int) -> str:
        return self.constant(self._random.normal(0, 0.2, shape).astype(np.float32))

    def model(self, shape: Sequence[int | str], output: str) -> onnx.ModelProto:
        float32 = onnx.TensorProto.FLOAT
        graph = helper.make_graph(
            self.nodes,
            "large",
            [helper.make_tensor_value_info("x", float32, shape)],
            [helper.make_tensor_value_info(output, float32, None)],
            self._weights,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def chain(count: int) -> onnx.ModelProto:
    """Dense layers, one behind the other, with residual sums."""
    b, x = _Builder(), "x"
    while len(b.nodes) < count:
        dense = b("Add", b("MatMul", x, b.weight(16, 16)), b.weight(16))
        x = b("Softmax", b("Add", b("Tanh", dense), x))
    return b.model([4, 16], x)


def wide(count: int) -> onnx.ModelProto:
    """Branches from one input that are all joined at the end, so that all results live at once."""
    b, branches = _Builder(), list[str]()
    while len(b.nodes) < count - 1:
        branches.append(b("Softmax", b("MatMul", "x", b.weight(16, 16))))
    return b.model([4, 16], b("Concat", *branches, axis=1))


def nested(count: int) -> onnx.ModelProto:
    """Results that are read again in the reverse order, as in a very deep U-shaped net."""
    b, x, kept = _Builder(), "x", list[str]()
    while len(b.nodes) < count // 2:
        x = b("Softmax", b("MatMul", x, b.weight(16, 16)))
        kept.append(x)
    while kept:
        x = b("Softmax", b("Add", x, kept.pop()))
    return b.model([4, 16], x)


def scalars(count: int) -> onnx.ModelProto:
    """Ops whose scalars all differ."""
    b, x = _Builder(), "x"
    while len(b.nodes) < count:
        x = b("Softmax", b("Mul", x, b.constant(np.float32(1 + len(b.nodes) / 1e6))))
    return b.model([4, 16], x)


def sizes(count: int) -> onnx.ModelProto:
    """Shapes computed in the graph, of an input of unknown sizes."""
    b, x = _Builder(), "x"
    zero, one = b.constant(np.array([0])), b.constant(np.array([1]))
    while len(b.nodes) < count:
        shape = b("Shape", x)
        rows, columns = b("Gather", shape, zero), b("Gather", shape, one)
        turned = b("Softmax", b("Reshape", x, b("Concat", columns, rows, axis=0)))
        x = b("Reshape", turned, b("Concat", rows, columns, axis=0))
    return b.model(["n", "m"], x)


def parts(count: int) -> onnx.ModelProto:
    """Slices and concatenations."""
    b, x = _Builder(), "x"
    zero, half, whole, axis = (b.constant(np.array([i])) for i in (0, 8, 16, 1))
    while len(b.nodes) < count:
        left, right = b("Slice", x, zero, half, axis), b("Slice", x, half, whole, axis)
        x = b("Concat", b("Softmax", right), b("Tanh", left), axis=1)
    return b.model([4, 16], x)


MODELS: Mapping[str, Callable[[int], onnx.ModelProto]] = {
    "chain": chain,
    "wide": wide,
    "nested": nested,
    "scalars": scalars,
    "sizes": sizes,
    "parts": parts,
}
"""From a number of ops to a model of about so many."""
