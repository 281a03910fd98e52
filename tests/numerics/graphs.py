"""Small graphs for tests of passes: built op by op, run by the reference interpreter."""

from typing import Any

import numpy as np

from xcompile.compiler.ir.mlir import func, ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.weights import WeightStore
from xcompile.dialects.nn.base import NnOp, tensor_type
from xcompile.dialects.nn.const import Const


class Graph:
    """`@main` under construction; every op is at a node `n0`, `n1`, …

    Attributes:
        inputs: the arguments.
    """

    def __init__(self, *shapes: tuple[int | None, ...], dtype: str = "f32") -> None:
        self._weights = WeightStore()
        self._module = ir.Module.create(ir.Location.unknown())
        dynamic = ir.ShapedType.get_dynamic_size()
        types = [tensor_type([dynamic if d is None else d for d in s], dtype) for s in shapes]
        with ir.InsertionPoint(self._module.body), ir.Location.unknown():
            self._function = func.FuncOp("main", ir.FunctionType.get(types, []))
        self._block = self._function.add_entry_block()
        self._nodes = 0
        self.inputs = list(self._block.arguments)

    def const(self, array: Any, dtype: Any = np.float32) -> ir.Value:
        """A constant."""
        with ir.InsertionPoint(self._block), ir.Location.unknown():
            return Const.from_array(np.asarray(array, dtype), self._weights).y

    def make(self, cls: type[NnOp], results: int = 1, **fields: Any) -> ir.Value:
        """The first result of a new op; arrays among the fields become constants."""
        for field in cls.FIELDS:
            given = fields.get(field.name)
            if field.kind == "operand" and isinstance(given, np.ndarray | np.generic):
                fields[field.name] = self.const(given, given.dtype)
        location = ir.Location.name(f"n{self._nodes}")
        self._nodes += 1
        with ir.InsertionPoint(self._block):
            return cls.create(loc=location, results=results, **fields).results[0]

    def done(self, *values: ir.Value) -> Module:
        """The module that returns the values."""
        with ir.InsertionPoint(self._block), ir.Location.unknown():
            func.ReturnOp(list(values))
        kind = ir.FunctionType.get([a.type for a in self.inputs], [v.type for v in values])
        self._function.operation.attributes["function_type"] = ir.TypeAttr.get(kind)
        return Module(self._module, self._weights)
