"""Writing expressions in patterns: `e.div(e.sub(x, mean), deviation)`."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from xcompile.compiler.ir.op import Value
from xcompile.compiler.ir.rewrite import OpT, Rewriter
from xcompile.dialects.nn.base import dtype_of, rank_of
from xcompile.dialects.nn.binary import Add, Div, Equal, Mul, Pow, Sub
from xcompile.dialects.nn.reduce import Reduce, ReduceMean
from xcompile.dialects.nn.reshape import Reshape
from xcompile.dialects.nn.sizes import ShapeOf
from xcompile.dialects.nn.ternary import Where
from xcompile.dialects.nn.unary import Cast, Sqrt
from xcompile.passes.common.constants import constant, scalar_like


class Expression:
    """Creates ops before the root op of a rewrite; numbers become constants of the other operand's dtype."""

    def __init__(self, rewriter: Rewriter) -> None:
        self._rewriter = rewriter

    def make(self, cls: type[OpT], **fields: Any) -> Value:
        """The one result of a new op."""
        return self._rewriter.create(cls, **fields).results[0]

    def add(self, a: Value, b: Value | float) -> Value:
        return self.make(Add, a=a, b=self._value(b, a))

    def sub(self, a: Value, b: Value | float) -> Value:
        return self.make(Sub, a=a, b=self._value(b, a))

    def mul(self, a: Value, b: Value | float) -> Value:
        return self.make(Mul, a=a, b=self._value(b, a))

    def div(self, a: Value, b: Value | float) -> Value:
        return self.make(Div, a=a, b=self._value(b, a))

    def pow(self, a: Value, b: float) -> Value:
        return self.make(Pow, a=a, b=self._value(b, a))

    def sqrt(self, a: Value) -> Value:
        return self.make(Sqrt, x=a)

    def equal(self, a: Value, b: Value | float) -> Value:
        return self.make(Equal, a=a, b=self._value(b, a))

    def where(self, condition: Value, a: Value | float, b: Value) -> Value:
        return self.make(Where, condition=condition, a=self._value(a, b), b=b)

    def cast(self, a: Value, to: str) -> Value:
        """`a` as `to`; itself when it has that dtype."""
        return a if dtype_of(a) == to else self.make(Cast, x=a, to=to)

    def reduce(self, cls: type[Reduce], a: Value, axes: Sequence[int]) -> Value:
        """A reduction that keeps its axes."""
        return self.make(cls, x=a, axes=tuple(axes))

    def reshape(self, a: Value, shape: Sequence[int]) -> Value:
        """`a` in another shape: 0 copies the size of that axis, -1 is what is left."""
        wanted = constant(self._rewriter, np.array(shape, np.int64))
        return self.make(Reshape, x=a, shape=wanted)

    def reshape_like(self, a: Value, like: Value) -> Value:
        """`a` in the shape of another value."""
        return self.make(Reshape, x=a, shape=self.make(ShapeOf, x=like), allow_zero=True)

    def per_channel(self, a: Value, rank: int) -> Value:
        """A vector of channels, with axes of size 1 so that it broadcasts over axis 1 of `rank` axes."""
        return a if rank == 2 else self.reshape(a, (-1, *[1] * (rank - 2)))

    def widened(self, a: Value) -> Value:
        """16-bit floats as float32."""
        return self.cast(a, "f32") if dtype_of(a) in ("f16", "bf16") else a

    def normalized(self, a: Value, axes: Sequence[int]) -> tuple[Value, Value]:
        """`a` minus its mean over `axes`, and its variance there."""
        centered = self.sub(a, self.reduce(ReduceMean, a, axes))
        return centered, self.reduce(ReduceMean, self.mul(centered, centered), axes)

    def affine(self, a: Value, scale: Value, bias: Value) -> Value:
        """`a·scale + bias` for vectors of channels."""
        rank, dtype = rank_of(a), dtype_of(a)
        scale, bias = (self.per_channel(self.cast(v, dtype), rank) for v in (scale, bias))
        return self.add(self.mul(a, scale), bias)

    def _value(self, given: Value | float, like: Value) -> Value:
        if isinstance(given, int | float):
            return scalar_like(self._rewriter, given, like)
        return given
