"""Converters that put an op together from others: `c.add(c.mul(x, alpha), y)`."""

from typing import Any

import numpy as np

from xcompile.compiler.ir.op import Value
from xcompile.dialects.nn.base import NnOp
from xcompile.dialects.nn.composer import Composer
from xcompile.frontends.onnx.context import NodeContext


class Composition(Composer):
    """Makes ops in the name of a node."""

    def __init__(self, node: NodeContext) -> None:
        self._node = node

    def make(self, cls: type[NnOp], **fields: Any) -> Value:
        """The one result of a new op."""
        return self._node.make(cls, **fields).operation.results[0]

    def constant(self, array: np.ndarray) -> Value:
        """A new constant."""
        return self._node.constant(array)
