"""Ops that turn sizes into values: shape, size, range."""

from collections.abc import Sequence

import numpy as np

from xcompile.compiler.ir.op import Operand, Result
from xcompile.compiler.support.dims import Dim, product
from xcompile.dialects.nn.base import NnOp, Shape, Sizes, dtype_of, nn, numpy_dtype, rank_of
from xcompile.dialects.nn.numeric import widen
from xcompile.dialects.nn.reshape import known_elements
from xcompile.dialects.nn.shapes import CONTENT_LIMIT


@nn.op("shape")
class ShapeOf(NnOp):
    """The sizes of the axes `start` up to `end` as int64. ONNX Shape.

    Negative positions count from the back; both are clamped. `end` is the rank when None.
    """

    x: Operand
    y: Result
    start: int = 0
    end: int | None = None

    def dtypes(self) -> Sequence[str]:
        return ["i64"]

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        return [(len(range(rank_of(self.x))[self.start : self.end]),)]

    def content(self, sizes: Sizes) -> Shape | None:
        return sizes.shape(self.x)[self.start : self.end]

    def reference(self, x: np.ndarray) -> np.ndarray:
        return np.array(x.shape[self.start : self.end], np.int64)


@nn.op("size")
class Size(NnOp):
    """The number of elements as an int64 scalar. ONNX Size."""

    x: Operand
    y: Result

    def dtypes(self) -> Sequence[str]:
        return ["i64"]

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        return [()]

    def content(self, sizes: Sizes) -> Shape | None:
        return (product(sizes.shape(self.x)),)

    def reference(self, x: np.ndarray) -> np.ndarray:
        return np.array(x.size, np.int64)


@nn.op("range")
class Range(NnOp):
    """`start`, `start + delta`, … up to but without `limit`. ONNX Range.

    How many these are says `count`, from `range_count`.
    """

    start: Operand
    limit: Operand
    delta: Operand
    count: Operand
    y: Result

    def verify(self) -> None:
        numbers = [self.start, self.limit, self.delta]
        if len({dtype_of(v) for v in numbers}) > 1 or any(rank_of(v) for v in self.operands):
            raise self.error("XC2002", "start, limit and delta must be scalars of one dtype")

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        return [(sizes.define(known_elements(self, sizes, self.count)[0], "range"),)]

    def content(self, sizes: Sizes) -> Shape | None:
        (count,) = sizes.shape(self.y)
        start, delta = sizes.content(self.start), sizes.content(self.delta)
        if start is None or delta is None or not isinstance(count, int) or count > CONTENT_LIMIT:
            return None
        values: list[Dim] = [start[0] + i * delta[0] for i in range(count)]
        return tuple(values)

    def reference(
        self, start: np.ndarray, limit: np.ndarray, delta: np.ndarray, count: np.ndarray
    ) -> np.ndarray:
        if count < 0:
            raise ValueError("the delta of a range must not be 0")
        first, step = (widen(v).item() for v in (start, delta))
        steps = np.arange(int(count), dtype=np.int64)
        return (first + steps * step).astype(numpy_dtype(self.y))
