"""Ops that turn sizes into values: shape, size, range."""

from collections.abc import Sequence

import numpy as np

from xcompile.compiler.ir.op import Operand, Result
from xcompile.compiler.support.dims import Dim, ceildiv, maximum, product
from xcompile.dialects.nn.base import NnOp, Shape, Sizes, dtype_of, nn, numpy_dtype, rank_of
from xcompile.dialects.nn.numeric import widen
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

    These are `max(0, ceil((limit - start) / delta))` numbers.
    """

    start: Operand
    limit: Operand
    delta: Operand
    y: Result

    def verify(self) -> None:
        if len({dtype_of(v) for v in self.operands}) > 1 or any(rank_of(v) for v in self.operands):
            raise self.error("XC2002", "start, limit and delta must be scalars of one dtype")

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        bounds = [sizes.content(v) for v in self.operands]
        if any(b is None for b in bounds):
            return [(sizes.fresh("range"),)]
        start, limit, delta = (b[0] for b in bounds if b is not None)
        if not isinstance(delta, int):
            return [(sizes.fresh("range"),)]
        if delta == 0:
            raise self.error("XC2007", "the delta of a range must not be 0")
        distance = limit - start if delta > 0 else start - limit
        return [(maximum(ceildiv(distance, abs(delta)), 0),)]

    def content(self, sizes: Sizes) -> Shape | None:
        (count,) = sizes.shape(self.y)
        start, delta = sizes.content(self.start), sizes.content(self.delta)
        if start is None or delta is None or not isinstance(count, int) or count > CONTENT_LIMIT:
            return None
        values: list[Dim] = [start[0] + i * delta[0] for i in range(count)]
        return tuple(values)

    def reference(self, start: np.ndarray, limit: np.ndarray, delta: np.ndarray) -> np.ndarray:
        if delta == 0:
            raise ValueError("the delta of a range must not be 0")
        first, last, step = (widen(v).item() for v in (start, limit, delta))
        count = (
            max(int(np.ceil((last - first) / step)), 0)
            if isinstance(step, float)
            else len(range(first, last, step))
        )
        steps = np.arange(count, dtype=np.int64)
        return (first + steps * step).astype(numpy_dtype(self.y))
