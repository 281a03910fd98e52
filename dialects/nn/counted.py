"""Ops with a result whose size is data: it comes from a *counting* op as an operand."""

from collections.abc import Sequence

import numpy as np

from xcompile.compiler.ir.op import Operand, Result, Value
from xcompile.compiler.support.dims import (
    Dim,
    ceildiv,
    known_nonnegative,
    known_positive,
    maximum,
    minimum,
    product,
)
from xcompile.dialects.nn.base import (
    NnOp,
    Shape,
    Sizes,
    axis_of,
    check_integers,
    dtype_of,
    nn,
    rank_of,
)
from xcompile.dialects.nn.numeric import widen
from xcompile.dialects.nn.reshape import known_elements

SCALE_ROUNDING = 2.0**-24
"""How far, relatively, a float32 may be from the number that was meant."""


class Counted(NnOp):
    """Base of ops with an operand `count` (an int64 scalar): the size of an axis of the result.

    It is what the counting op beside it says; another number is an error of whoever made the op.
    """

    count: Operand

    def verify(self) -> None:
        check_integers(self, self.count, "count", rank=0)

    def size(self, sizes: Sizes, hint: str) -> Dim:
        """The count as a size."""
        return sizes.define(known_elements(self, sizes, self.count)[0], hint)


def checked_count(found: int, count: np.ndarray) -> int:
    """The size of an axis.

    Raises:
        ValueError: the operand says another one.
    """
    if found != int(count):
        raise ValueError(f"{found} elements, and the count says {int(count)}")
    return found


@nn.op("compress")
class Compress(Counted):
    """The slices along `axis` (of the flat operand when None) where `condition` is true. ONNX Compress.

    A condition shorter than the axis leaves out the rest; `count` is how often it is true.
    """

    x: Operand
    condition: Operand
    y: Result
    axis: int | None = None

    def verify(self) -> None:
        super().verify()
        if rank_of(self.condition) != 1:
            raise self.error("XC2003", f"the condition has rank {rank_of(self.condition)}, not 1")

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        shape, (length,) = list(sizes.shape(self.x)), sizes.shape(self.condition)
        axis = 0 if self.axis is None else axis_of(self, self.axis, len(shape))
        whole = product(shape) if self.axis is None else shape[axis]
        if not known_positive(whole - length + 1):
            what = f"a condition of {length} elements for an axis of {whole}"
            sizes.equal(minimum(whole - length, 0), 0, what)
        chosen = self.size(sizes, "compress")
        if self.axis is None:
            return [(chosen,)]
        shape[axis] = chosen
        return [tuple(shape)]

    def dtypes(self) -> Sequence[str]:
        return [dtype_of(self.x)]

    def reference(self, count: np.ndarray, x: np.ndarray, condition: np.ndarray) -> np.ndarray:
        checked_count(int(condition.sum()), count)
        return np.compress(condition, x, self.axis)


@nn.op("nonzero")
class NonZero(Counted):
    """The coordinates of the elements that are not zero, in row-major order: int64 `[rank, count]`. ONNX NonZero.

    A scalar counts as one element of no axis.
    """

    x: Operand
    y: Result

    def dtypes(self) -> Sequence[str]:
        return ["i64"]

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        return [(rank_of(self.x), self.size(sizes, "nonzero"))]

    def reference(self, count: np.ndarray, x: np.ndarray) -> np.ndarray:
        found = np.argwhere(x != 0) if x.ndim else np.zeros((int(x != 0), 0))
        checked_count(len(found), count)
        return np.ascontiguousarray(found.T.astype(np.int64))


@nn.op("find_unique")
class FindUnique(NnOp):
    """The different elements, or slices along `axis`, counted. ONNX Unique, before its results are cut to their size.

    Results, all int64: how many there are; for each input element the number of its value; for each value the
    index of its first occurrence and how often it occurs; working memory. Only the first `count` elements of
    `first` and `counts` mean anything. Values are numbered in ascending order with `ascending`, else in order of
    first occurrence. NaNs are equal to each other and greater than all else.
    """

    x: Operand
    count: Result
    inverse: Result
    first: Result
    counts: Result
    scratch: Result
    axis: int | None = None
    ascending: bool = True

    def dtypes(self) -> Sequence[str]:
        return ["i64"] * 5

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        shape = sizes.shape(self.x)
        axis = None if self.axis is None else axis_of(self, self.axis, len(shape))
        total = product(shape) if axis is None else shape[axis]
        return [(), *[(total,)] * 4]

    def reference(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        _, first, inverse, counts = np.unique(
            x, return_index=True, return_inverse=True, return_counts=True, axis=self.axis
        )
        inverse, found = inverse.reshape(-1), len(first)
        if not self.ascending:
            order = np.argsort(first, kind="stable")
            first, counts = first[order], counts[order]
            inverse = np.argsort(order, kind="stable")[inverse]
        padded = [np.pad(a, (0, len(inverse) - found)) for a in (first, counts)]
        results = (np.array(found), inverse, *padded, np.zeros_like(inverse))
        return tuple(a.astype(np.int64) for a in results)


@nn.op("leading")
class Leading(Counted):
    """The first `count` elements of a vector that has at least so many."""

    x: Operand
    y: Result

    def dtypes(self) -> Sequence[str]:
        return [dtype_of(self.x)]

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        (total,), count = sizes.shape(self.x), self.size(sizes, "leading")
        if not known_nonnegative(total - count):
            sizes.equal(minimum(total - count, 0), 0, f"{count} of {total} elements are taken")
        return [(count,)]

    def reference(self, count: np.ndarray, x: np.ndarray) -> np.ndarray:
        return x[: checked_count(min(int(count), len(x)), count)]


@nn.op("range_count")
class RangeCount(NnOp):
    """How many numbers a range has: `max(0, ceil((limit - start) / delta))` as an int64 scalar; -1 where the delta is 0
    or there is no such number.
    """

    start: Operand
    limit: Operand
    delta: Operand
    y: Result

    def verify(self) -> None:
        if len({dtype_of(v) for v in self.operands}) > 1 or any(rank_of(v) for v in self.operands):
            raise self.error("XC2002", "start, limit and delta must be scalars of one dtype")

    def dtypes(self) -> Sequence[str]:
        return ["i64"]

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        return [()]

    def content(self, sizes: Sizes) -> Shape | None:
        bounds: list[Value] = list(self.operands)
        found = [c[0] for v in bounds if (c := sizes.content(v)) is not None]
        if len(found) < 3 or not isinstance(found[2], int):
            return None
        start, limit, delta = found
        if delta == 0:
            raise self.error("XC2007", "the delta of a range must not be 0")
        distance = limit - start if found[2] > 0 else start - limit
        return (maximum(ceildiv(distance, abs(found[2])), 0),)

    def reference(self, start: np.ndarray, limit: np.ndarray, delta: np.ndarray) -> np.ndarray:
        first, last, step = (widen(v).item() for v in (start, limit, delta))
        if not step or not np.isfinite((first, last, step)).all():
            return np.array(-1, np.int64)
        exact = np.ceil((last - first) / step) if isinstance(step, float) else 0
        count = exact if isinstance(step, float) else len(range(first, last, step))
        return np.array(min(max(count, 0), 2**62), np.int64)


@nn.op("scaled_sizes")
class ScaledSizes(NnOp):
    """The sizes that a resize by `scales` gives, from present `sizes` (int64): ⌊scale·size⌋, with `roi` (begins, then
    ends, as fractions) ⌊scale·size·(end - begin)⌋.

    A product that is a whole number but for the rounding of the scale to float32 counts as that; where there is no
    such number, the size is -1.
    """

    sizes: Operand
    scales: Operand
    roi: Operand | None
    y: Result

    def verify(self) -> None:
        check_integers(self, self.sizes, "sizes")
        if rank_of(self.scales) != 1:
            raise self.error("XC2003", f"the scales have rank {rank_of(self.scales)}, not 1")

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        (count,), (scales,) = sizes.shape(self.sizes), sizes.shape(self.scales)
        sizes.equal(scales, count, "the scales of a resize and the resized axes")
        if self.roi is not None:
            sizes.equal(sizes.shape(self.roi)[0], 2 * count, "a region and the resized axes")
        return [(count,)]

    def reference(
        self, sizes: np.ndarray, scales: np.ndarray, roi: np.ndarray | None
    ) -> np.ndarray:
        exact = sizes * scales.astype(np.float64)
        if roi is not None:
            begins, ends = np.split(roi.astype(np.float64), 2)
            exact = exact * (ends - begins)
        nearest = np.rint(exact)
        whole = np.abs(exact - nearest) <= np.abs(nearest) * SCALE_ROUNDING
        found = np.where(whole, nearest, np.floor(exact))
        usable = (scales > 0) & (np.abs(found) < 2.0**62)
        return np.where(usable, found, -1).astype(np.int64)
