"""Graphs of whole numbers, whose products are exact in float32, so that a narrow model has one right answer."""

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Graph:
    """Builds a model; every node is named after its op and its number."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []

    def whole(self, *shape: int, most: int = 2) -> np.ndarray:
        """Whole numbers from -most to most."""
        return self.random.integers(-most, most, shape, endpoint=True).astype(np.float32)

    def constant(self, array: np.ndarray) -> str:
        """The name of a constant."""
        name = f"c{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(array, name))
        return name

    def __call__(self, op: str, *inputs: str, **attributes: Any) -> str:
        """The name of what a new node gives."""
        name = f"{op}{len(self._nodes)}"
        self._nodes.append(helper.make_node(op, inputs, [f"{name}_y"], name=name, **attributes))
        return f"{name}_y"

    def model(self, inputs: dict[str, tuple[int, ...]], *outputs: str) -> onnx.ModelProto:
        """The model."""
        given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()]
        results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
        graph = helper.make_graph(self._nodes, "narrow", given, results, self._constants)
        opset = [helper.make_opsetid("", 17)]
        return helper.make_model(graph, opset_imports=opset, ir_version=9)
