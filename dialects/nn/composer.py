"""Writing ops as expressions: `e.div(e.sub(x, mean), deviation)`."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from xcompile.compiler.ir.op import Value
from xcompile.dialects.nn.base import NnOp, dtype_of, numpy_dtype, rank_of
from xcompile.dialects.nn.binary import (
    Add,
    And,
    Binary,
    Div,
    Equal,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
    Maximum,
    Minimum,
    Mod,
    Mul,
    Or,
    Pow,
    Sub,
)
from xcompile.dialects.nn.counted import RangeCount
from xcompile.dialects.nn.elementwise import Unary
from xcompile.dialects.nn.gather import Gather
from xcompile.dialects.nn.matmul import MatMul
from xcompile.dialects.nn.reduce import Reduce, ReduceMean
from xcompile.dialects.nn.reshape import Expand, Reshape, Squeeze, Transpose, Unsqueeze
from xcompile.dialects.nn.sizes import Range, ShapeOf
from xcompile.dialects.nn.slicing import Concat, Slice
from xcompile.dialects.nn.ternary import Where
from xcompile.dialects.nn.unary import Cast, Sqrt

Number = int | float


class Composer:
    """Makes ops one after another; numbers become constants of the other operand's dtype.

    Whoever composes says where ops and constants go: `make` and `constant`.
    """

    def make(self, cls: type[NnOp], **fields: Any) -> Value:
        """The one result of a new op."""
        raise NotImplementedError

    def constant(self, array: np.ndarray) -> Value:
        """A new constant."""
        raise NotImplementedError

    # -- arithmetic -----------------------------------------------------------------------------

    def unary(self, cls: type[Unary], a: Value, **fields: Any) -> Value:
        return self.make(cls, x=a, **fields)

    def binary(
        self, cls: type[Binary], a: Value | Number, b: Value | Number, **fields: Any
    ) -> Value:
        """An op of two operands, one of which may be a number."""
        if isinstance(a, Value):
            return self.make(cls, a=a, b=self._value(b, a), **fields)
        assert isinstance(b, Value)
        return self.make(cls, a=self._value(a, b), b=b, **fields)

    def add(self, a: Value | Number, b: Value | Number) -> Value:
        return self.binary(Add, a, b)

    def sub(self, a: Value | Number, b: Value | Number) -> Value:
        return self.binary(Sub, a, b)

    def mul(self, a: Value | Number, b: Value | Number) -> Value:
        return self.binary(Mul, a, b)

    def div(self, a: Value | Number, b: Value | Number) -> Value:
        return self.binary(Div, a, b)

    def mod(self, a: Value | Number, b: Value | Number) -> Value:
        """The remainder with the sign of the divisor."""
        return self.binary(Mod, a, b)

    def pow(self, a: Value, b: float) -> Value:
        return self.binary(Pow, a, b)

    def maximum(self, a: Value | Number, b: Value | Number) -> Value:
        return self.binary(Maximum, a, b)

    def minimum(self, a: Value | Number, b: Value | Number) -> Value:
        return self.binary(Minimum, a, b)

    def sqrt(self, a: Value) -> Value:
        return self.unary(Sqrt, a)

    def equal(self, a: Value, b: Value | Number) -> Value:
        return self.binary(Equal, a, b)

    def less(self, a: Value | Number, b: Value | Number) -> Value:
        return self.binary(Less, a, b)

    def less_equal(self, a: Value | Number, b: Value | Number) -> Value:
        return self.binary(LessEqual, a, b)

    def greater(self, a: Value | Number, b: Value | Number) -> Value:
        return self.binary(Greater, a, b)

    def greater_equal(self, a: Value | Number, b: Value | Number) -> Value:
        return self.binary(GreaterEqual, a, b)

    def both(self, a: Value, b: Value) -> Value:
        return self.binary(And, a, b)

    def either(self, a: Value, b: Value) -> Value:
        return self.binary(Or, a, b)

    def where(self, condition: Value, a: Value | Number, b: Value | Number) -> Value:
        if isinstance(a, Value):
            return self.make(Where, condition=condition, a=a, b=self._value(b, a))
        assert isinstance(b, Value)
        return self.make(Where, condition=condition, a=self._value(a, b), b=b)

    def cast(self, a: Value, to: str) -> Value:
        """`a` as `to`; itself when it has that dtype."""
        return a if dtype_of(a) == to else self.make(Cast, x=a, to=to)

    def widened(self, a: Value) -> Value:
        """16-bit floats as float32."""
        return self.cast(a, "f32") if dtype_of(a) in ("f16", "bf16") else a

    def reduce(
        self, cls: type[Reduce], a: Value, axes: Sequence[int], *, keepdims: bool = True
    ) -> Value:
        """A reduction, which keeps its axes unless told otherwise."""
        return self.make(cls, x=a, axes=tuple(axes), keepdims=keepdims)

    def matmul(self, a: Value, b: Value, *, transpose_b: bool = False) -> Value:
        return self.make(MatMul, a=a, b=b, transpose_b=transpose_b)

    # -- shapes ---------------------------------------------------------------------------------

    def ints(self, *numbers: int) -> Value:
        """A constant vector of int64."""
        return self.constant(np.array(numbers, np.int64))

    def shape(self, a: Value, start: int = 0, end: int | None = None) -> Value:
        """Sizes of `a` as a vector of int64, those of all axes or from `start` to `end`."""
        return self.make(ShapeOf, x=a, start=start, end=end)

    def size(self, a: Value, axis: int) -> Value:
        """The size of one axis as a scalar of int64."""
        return self.squeeze(self.shape(a, axis, axis + 1), 0)

    def range(self, limit: Value) -> Value:
        """0, 1, … below a scalar."""
        zero, one = (self.constant(np.array(v, numpy_dtype(limit))) for v in (0, 1))
        numbers = {"start": zero, "limit": limit, "delta": one}
        return self.make(Range, **numbers, count=self.make(RangeCount, **numbers))

    def reshape(self, a: Value, shape: Sequence[int] | Value) -> Value:
        """`a` in another shape: 0 copies the size of that axis, -1 is what is left."""
        return self.make(
            Reshape, x=a, shape=shape if isinstance(shape, Value) else self.ints(*shape)
        )

    def reshape_like(self, a: Value, like: Value) -> Value:
        """`a` in the shape of another value."""
        return self.make(Reshape, x=a, shape=self.shape(like), allow_zero=True)

    def expand(self, a: Value, shape: Value) -> Value:
        """`a` repeated to a shape that it broadcasts to."""
        return self.make(Expand, x=a, shape=shape)

    def squeeze(self, a: Value, *axes: int) -> Value:
        return self.make(Squeeze, x=a, axes=axes)

    def unsqueeze(self, a: Value, *axes: int) -> Value:
        return self.make(Unsqueeze, x=a, axes=axes) if axes else a

    def transpose(self, a: Value, perm: Sequence[int]) -> Value:
        return self.make(Transpose, x=a, perm=tuple(perm))

    def concat(self, xs: Sequence[Value], axis: int) -> Value:
        return xs[0] if len(xs) == 1 else self.make(Concat, xs=list(xs), axis=axis)

    def slice(self, a: Value, axis: int, start: int, end: int) -> Value:
        """Part of one axis."""
        return self.make(
            Slice, x=a, starts=self.ints(start), ends=self.ints(end), axes=self.ints(axis)
        )

    def head(self, a: Value, axis: int, count: Value) -> Value:
        """The first elements of an axis: all of them where there are fewer than the scalar `count`."""
        ends = self.reshape(count, (1,))
        return self.make(Slice, x=a, starts=self.ints(0), ends=ends, axes=self.ints(axis))

    def gather(self, a: Value, indices: Value, axis: int) -> Value:
        return self.make(Gather, x=a, indices=indices, axis=axis)

    def per_channel(self, a: Value, rank: int) -> Value:
        """A vector of channels, with axes of size 1 so that it broadcasts over axis 1 of `rank` axes."""
        return a if rank == 2 else self.reshape(a, (-1, *[1] * (rank - 2)))

    # -- compounds ------------------------------------------------------------------------------

    def normalized(self, a: Value, axes: Sequence[int]) -> tuple[Value, Value]:
        """`a` minus its mean over `axes`, and its variance there."""
        centered = self.sub(a, self.reduce(ReduceMean, a, axes))
        return centered, self.reduce(ReduceMean, self.mul(centered, centered), axes)

    def affine(self, a: Value, scale: Value, bias: Value) -> Value:
        """`a·scale + bias` for vectors of channels."""
        rank, dtype = rank_of(a), dtype_of(a)
        scale, bias = (self.per_channel(self.cast(v, dtype), rank) for v in (scale, bias))
        return self.add(self.mul(a, scale), bias)

    def _value(self, given: Value | Number, like: Value) -> Value:
        if isinstance(given, Value):
            return given
        return self.constant(np.array(given).astype(numpy_dtype(like)))
