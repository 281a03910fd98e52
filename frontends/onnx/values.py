"""The values of a model while it is imported: IR values, and constants that become IR when a node
needs them.
"""

import numpy as np
import onnx

from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.op import Value, view
from xcompile.compiler.ir.weights import WeightStore
from xcompile.dialects.nn.const import Const
from xcompile.frontends.onnx.external import ExternalData
from xcompile.frontends.onnx.graph import Graph
from xcompile.frontends.onnx.tensors import densify, to_array


class Values:
    """From the flat graph's numbers to IR values.

    Initializers are decoded at first use and become `nn.const` at the first use as an operand, so
    one that only gives an attribute (axes, a shape) leaves no trace.
    """

    def __init__(self, graph: Graph, weights: WeightStore, external: ExternalData) -> None:
        self._graph = graph
        self._weights = weights
        self.external = external
        self._values: dict[int, Value] = {}
        self._arrays: dict[int, np.ndarray] = {}

    def inner(self, graph: Graph) -> "Values":
        """The values of another graph of the same module, none of them defined."""
        return Values(graph, self._weights, self.external)

    def define(self, number: int, value: Value) -> None:
        self._values[number] = value

    def value(self, number: int, location: ir.Location) -> Value:
        """The IR value; `location` is the node that asks, which is where a constant is made."""
        if number not in self._values:
            array = self.array(number)
            assert array is not None, (
                f"the value '{self._graph.names[number]}' is used before it is defined"
            )
            self._values[number] = self.constant(array, location)
        return self._values[number]

    def array(self, number: int) -> np.ndarray | None:
        """The elements of a constant, else None."""
        if number in self._arrays:
            return self._arrays[number]
        if number in self._values:
            return self._const_array(self._values[number])
        message = self._graph.initializers[number]
        what = f"the initializer '{self._graph.names[number]}'"
        dense = isinstance(message, onnx.TensorProto)
        array = (to_array if dense else densify)(message, self.external, what)  # type: ignore[arg-type]
        self._arrays[number] = array
        return array

    def _const_array(self, value: Value) -> np.ndarray | None:
        if isinstance(value.owner, ir.Block):
            return None
        op = view(value.owner)
        return op.array(self._weights) if isinstance(op, Const) else None

    def constant(self, array: np.ndarray, location: ir.Location) -> Value:
        """A new `nn.const` at the current insertion point."""
        return Const.from_array(array, self._weights, loc=location).y
