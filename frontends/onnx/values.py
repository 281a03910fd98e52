"""The values of a model while it is imported: IR values, and constants that become IR when a node
needs them.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import onnx

from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Value, view
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.const import Const
from xcompile.frontends.onnx.external import ExternalData
from xcompile.frontends.onnx.graph import Graph
from xcompile.frontends.onnx.sequences import AnySequence, Known, PackedSequence, TensorSequence
from xcompile.frontends.onnx.tensors import densify, to_array

_SEQUENCES = TensorSequence, PackedSequence


class Values:
    """From the flat graph's numbers to IR values.

    Initializers are decoded at first use and become `nn.const` at the first use as an operand, so
    one that only gives an attribute (axes, a shape) leaves no trace. Constants stand at `home`, the end of the model's
    function so far, also those that only a region uses: ops behind it may use them too.
    """

    def __init__(
        self, graph: Graph, module: Module, external: ExternalData, home: ir.InsertionPoint
    ) -> None:
        self._graph = graph
        self._home = home
        self.module = module
        self.external = external
        self._layers: list[dict[int, Known]] = [{}]
        self._arrays: dict[int, np.ndarray] = {}

    def inner(self, graph: Graph) -> "Values":
        """The values of another graph of the same module, none of them defined."""
        return Values(graph, self.module, self.external, self._home)

    @contextmanager
    def layered(self, layers: Sequence[dict[int, Known]]) -> Iterator[None]:
        """Meanwhile the values of `layers` are known too, the last of which gets what is defined."""
        before = self._layers
        self._layers = [before[0], *layers]
        try:
            yield
        finally:
            self._layers = before

    def define(self, number: int, value: Known) -> None:
        self._layers[-1][number] = value

    def sequence(self, number: int) -> AnySequence | None:
        """The sequence of tensors that the value is, or None."""
        found = self._defined(number)
        return found if isinstance(found, _SEQUENCES) else None

    def _defined(self, number: int) -> Known | None:
        return next((layer[number] for layer in reversed(self._layers) if number in layer), None)

    def known(self, number: int, location: ir.Location) -> Known:
        """The IR value or the sequence; `location` is the node that asks, whose name a constant gets."""
        value = self._defined(number)
        if value is None:
            array = self.array(number)
            assert array is not None, (
                f"the value '{self._graph.names[number]}' is used before it is defined"
            )
            value = self._layers[0][number] = self.constant(array, location)
        return value

    def value(self, number: int, location: ir.Location) -> Value:
        """The IR value, as `known` gives it; CompileError XC1012 when it is a sequence."""
        value = self.known(number, location)
        if isinstance(value, _SEQUENCES):
            name = self._graph.names[number]
            raise CompileError("XC1012", f"the value '{name}' is a sequence; a tensor is needed")
        return value

    def array(self, number: int) -> np.ndarray | None:
        """The elements of a constant, else None."""
        value = self._defined(number)
        if isinstance(value, _SEQUENCES):
            return None
        if value is not None:
            return self._const_array(value)
        if number in self._arrays:
            return self._arrays[number]
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
        return op.array(self.module.weights) if isinstance(op, Const) else None

    def constant(self, array: np.ndarray, location: ir.Location) -> Value:
        """A new `nn.const`."""
        with self._home:
            return Const.from_array(array, self.module.weights, loc=location).y
