"""What elementwise ops share: broadcasting, dtypes, and references in double precision rounded once."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from xcompile.compiler.ir.dtypes import DTYPES, is_float, is_integer
from xcompile.compiler.ir.op import Operand, Result
from xcompile.compiler.support.dims import Dim
from xcompile.dialects.nn.base import NnOp, Shape, Sizes, dtype_of
from xcompile.dialects.nn.numeric import compute


def broadcast_shapes(op: NnOp, sizes: Sizes, shapes: Sequence[Shape]) -> Shape:
    """The shape where `shapes` meet by numpy's rule: aligned at the last axis, each axis equal or 1."""
    rank = max(len(s) for s in shapes)
    result: list[Dim] = []
    for axis in range(rank):
        size: Dim = 1
        for shape in shapes:
            if axis >= rank - len(shape):
                size = sizes.broadcast(size, shape[axis - rank], f"axis {axis} of {op.NAME}")
        result.append(size)
    return tuple(result)


class Elementwise(NnOp):
    """Base of ops that compute each element of the result from the elements at its place; operands broadcast."""

    KINDS: ClassVar[str] = "any"
    """The element types of the operands: any, number (no bool), float, integer, bool."""

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        return [broadcast_shapes(self, sizes, [sizes.shape(v) for v in self.operands])]

    def verify(self) -> None:
        dtypes = {dtype_of(v) for v in self.operands}
        if len(dtypes) > 1:
            raise self.error("XC2002", f"operands have the dtypes {' and '.join(sorted(dtypes))}")
        check_kind(self, dtypes.pop())


def check_kind(op: Elementwise, dtype: str) -> None:
    """Raise when `dtype` is not of the kind that the op takes."""
    takes = {
        "any": True,
        "number": dtype != "i1",
        "float": is_float(dtype),
        "integer": is_integer(dtype),
        "bool": dtype == "i1",
    }
    if not takes[op.KINDS]:
        raise op.error("XC2002", f"{op.NAME} takes {op.KINDS} elements, not {dtype}")


class Unary(Elementwise):
    """Base of ops of one operand; `compute` gets floats as float64."""

    x: Operand
    y: Result

    KINDS: ClassVar[str] = "float"

    def compute(self, x: np.ndarray) -> np.ndarray:
        """The function in numpy."""
        raise NotImplementedError

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        return [sizes.shape(self.x)]

    def reference(self, x: np.ndarray) -> np.ndarray:
        return compute(self.compute, x, dtype=_result_dtype(self))


class Binary(Elementwise):
    """Base of ops of two operands of one dtype; `compute` gets floats as float64."""

    a: Operand
    b: Operand
    y: Result

    KINDS: ClassVar[str] = "number"

    def compute(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The function in numpy."""
        raise NotImplementedError

    def reference(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return compute(self.compute, a, b, dtype=_result_dtype(self))

    def content(self, sizes: Sizes) -> Shape | None:
        a, b = sizes.content(self.a), sizes.content(self.b)
        if a is None or b is None:
            return None
        count = max(len(a), len(b)) if 0 not in (len(a), len(b)) else 0
        result: list[Dim] = []
        for i in range(count):
            value = self.combine(a[i % len(a)], b[i % len(b)])
            if value is None:
                return None
            result.append(value)
        return tuple(result)

    def combine(self, a: Dim, b: Dim) -> Dim | None:
        """One element of the result where it is shape arithmetic; None when the value is not known."""
        return None


def _result_dtype(op: NnOp) -> np.dtype:
    return DTYPES[op.dtypes()[0]]
