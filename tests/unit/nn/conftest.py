"""A function under construction, and ops run by their reference."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from xcompile.compiler.ir.context import context
from xcompile.compiler.ir.dtypes import name_of
from xcompile.compiler.ir.mlir import func, ir
from xcompile.compiler.ir.weights import WeightStore
from xcompile.dialects.nn.base import NnOp, dtype_of, tensor_type
from xcompile.dialects.nn.const import Const
from xcompile.dialects.nn.shapes import ShapeAnalysis


class Builder:
    """Builds `@main` op by op.

    Attributes:
        weights: the constants.
        function: the function so far.
    """

    def __init__(self) -> None:
        self.weights = WeightStore()
        self.module = ir.Module.create()
        with ir.InsertionPoint(self.module.body):
            self.function = func.FuncOp("main", ir.FunctionType.get([], []))
        self.block = self.function.add_entry_block()

    def argument(self, shape: tuple[int | None, ...], dtype: str = "f32") -> ir.Value:
        """A new argument; None is an unknown size."""
        dims = tuple(ir.ShapedType.get_dynamic_size() if d is None else d for d in shape)
        return self.block.add_argument(tensor_type(dims, dtype), ir.Location.unknown())

    def const(self, array: Any, dtype: Any = None) -> ir.Value:
        with ir.InsertionPoint(self.block):
            return Const.from_array(np.asarray(array, dtype), self.weights).y

    def make(
        self, cls: type[NnOp], node: str | None = None, results: int = 1, **fields: Any
    ) -> NnOp:
        """An op at the end of the function; numpy arrays among the fields become constants."""
        loc = ir.Location.name(node) if node else ir.Location.unknown()
        for field in cls.FIELDS:
            given = fields.get(field.name)
            if field.kind == "operand" and isinstance(given, (np.ndarray, np.generic)):
                fields[field.name] = self.const(given)
            elif field.kind == "operand" and isinstance(given, list):
                fields[field.name] = [
                    self.const(v) if isinstance(v, np.ndarray) else v for v in given
                ]
        with ir.InsertionPoint(self.block):
            return cls.create(loc=loc, results=results, **fields)

    def shapes(self, *argument_shapes: Any) -> ShapeAnalysis:
        """Infer the function; terminates it."""
        with ir.InsertionPoint(self.block), ir.Location.unknown():
            func.ReturnOp([])
        return ShapeAnalysis(self.function, argument_shapes)


@pytest.fixture
def build() -> Iterator[Builder]:
    with context():
        yield Builder()


@pytest.fixture
def run(build: Builder) -> Callable[..., Any]:
    """`run(Cls, x=array, axis=1)`: the reference's result, checked against the inferred shapes and dtypes."""

    def evaluate(cls: type[NnOp], results: int = 1, **fields: Any) -> Any:
        op = build.make(cls, results=results, **dict(fields))
        fields = {k: np.asarray(v) if isinstance(v, np.generic) else v for k, v in fields.items()}
        operands = [fields.get(f.name) for f in cls.FIELDS if f.kind == "operand"]
        got = op.reference(*operands)
        for value, array in zip(op.results, got if isinstance(got, tuple) else (got,), strict=True):
            assert isinstance(array, np.ndarray)
            assert name_of(array.dtype) == dtype_of(value)
            dynamic = ir.ShapedType.get_dynamic_size()
            stated = ir.RankedTensorType(value.type).shape
            assert len(stated) == array.ndim
            assert all(s in (d, dynamic) for s, d in zip(stated, array.shape, strict=True)), (
                stated,
                array.shape,
            )
        return got

    return evaluate
