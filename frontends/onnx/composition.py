"""Converters that put an op together from others: `c.add(c.mul(x, alpha), y)`."""

from typing import Any

import numpy as np

from xcompile.compiler.ir.op import Value
from xcompile.dialects.nn.base import NnOp, dtype_of
from xcompile.dialects.nn.composer import Composer
from xcompile.frontends.onnx.context import NodeContext


class Composition(Composer):
    """Makes ops in the name of a node."""

    def __init__(self, node: NodeContext) -> None:
        self._node = node

    def make(self, cls: type[NnOp], **fields: Any) -> Value:
        """The one result of a new op."""
        return self._node.make(cls, **fields).operation.results[0]

    def checked(self, value: Value, holds: Value) -> Value:
        """An integer `value`; a run in which the scalar (or its vector) `holds` is false ends with the error that an
        index of the node is out of range.
        """
        wrong = self.where(self.cast(holds, "i1"), self.constant(np.array(0)), 1)
        return self.add(value, self.cast(self.gather(self.ints(0), wrong, 0), dtype_of(value)))

    def constant(self, array: np.ndarray) -> Value:
        """A new constant."""
        return self._node.constant(array)
