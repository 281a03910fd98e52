"""Ops that read elements at indices that are data."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from xcompile.compiler.ir.op import Operand, Result
from xcompile.compiler.support.dims import Dim, known_nonnegative, known_positive, minimum, product
from xcompile.dialects.nn.base import NnOp, Shape, Sizes, axis_of, dtype_of, nn, rank_of
from xcompile.dialects.nn.numeric import to_integer
from xcompile.dialects.nn.reshape import known_elements


def checked(indices: np.ndarray, size: int) -> np.ndarray:
    """Indices counted from the front; negative ones count from the back.

    Raises:
        IndexError: one is not in [-size, size).
    """
    wide = indices.astype(np.int64)
    if wide.size and not ((wide >= -size) & (wide < size)).all():
        worst = wide[(wide < -size) | (wide >= size)].reshape(-1)[0]
        raise IndexError(f"index {worst} is out of range for {size} elements")
    return np.where(wide < 0, wide + size, wide)


def _along(axis: int, size: int, rank: int) -> np.ndarray:
    """0 to size-1 along one axis of `rank`, the others of size 1."""
    return np.arange(size, dtype=np.int64).reshape([-1 if i == axis else 1 for i in range(rank)])


def _require_elements(sizes: Sizes, size: Dim, indices: Shape, axis: int) -> None:
    """A check that an axis which is indexed has elements, unless there are no indices."""
    if not known_positive(size):
        missing = (1 - minimum(size, 1)) * minimum(product(indices), 1)
        sizes.equal(missing, 0, f"axis {axis} of size {size} is indexed and must not be empty")


def require_within(sizes: Sizes, shape: Shape, indices: Shape, axis: int) -> None:
    """A check that an operand reaches as far as its indices along all axes but the indexed one."""
    for i, (have, size) in enumerate(zip(shape, indices, strict=True)):
        if i != axis and not known_nonnegative(have - size):
            what = f"axis {i} has {size} indices for {have} elements"
            sizes.equal(minimum(have - size, 0), 0, what)


class Indexed(NnOp):
    """Base of ops with integer `indices` as second operand."""

    def verify(self) -> None:
        if dtype_of(self.operands[1]) not in ("i32", "i64"):
            raise self.error(
                "XC2002", f"indices are int32 or int64, not {dtype_of(self.operands[1])}"
            )


@nn.op("gather")
class Gather(Indexed):
    """The slices of `x` along `axis` that `indices` name; their shape takes the axis's place. ONNX Gather."""

    x: Operand
    indices: Operand
    y: Result
    axis: int = 0

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        shape = sizes.shape(self.x)
        axis = axis_of(self, self.axis, len(shape))
        _require_elements(sizes, shape[axis], sizes.shape(self.indices), axis)
        return [(*shape[:axis], *sizes.shape(self.indices), *shape[axis + 1 :])]

    def content(self, sizes: Sizes) -> Shape | None:
        content, indices = sizes.content(self.x), sizes.content(self.indices)
        if content is None or indices is None or rank_of(self.x) != 1:
            return None
        places = [i for i in indices if isinstance(i, int) and -len(content) <= i < len(content)]
        return tuple(content[i] for i in places) if len(places) == len(indices) else None

    def reference(self, x: np.ndarray, indices: np.ndarray) -> np.ndarray:
        return np.take(x, checked(indices, x.shape[self.axis]), self.axis)


@nn.op("gather_elements")
class GatherElements(Indexed):
    """At each place of `indices` the element of `x` there, but at that index of `axis`. ONNX GatherElements."""

    x: Operand
    indices: Operand
    y: Result
    axis: int = 0

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        axis = axis_of(self, self.axis, rank_of(self.x))
        if rank_of(self.x) != rank_of(self.indices):
            raise self.error("XC2003", "the operand and the indices differ in rank")
        shape, indices = sizes.shape(self.x), sizes.shape(self.indices)
        _require_elements(sizes, shape[axis], indices, axis)
        require_within(sizes, shape, indices, axis)
        return [indices]

    def reference(self, x: np.ndarray, indices: np.ndarray) -> np.ndarray:
        at: list[np.ndarray] = [*np.indices(indices.shape, sparse=True)]
        at[self.axis] = checked(indices, x.shape[self.axis])
        return x[tuple(at)]


@nn.op("gather_nd")
class GatherND(Indexed):
    """The parts of `x` at the coordinates in the last axis of `indices`. ONNX GatherND.

    The first `batch_dims` axes of both are paired. int64 indices.
    """

    x: Operand
    indices: Operand
    y: Result
    batch_dims: int = 0

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        shape, indices, batch = sizes.shape(self.x), sizes.shape(self.indices), self.batch_dims
        depth = indices[-1] if indices else None
        if not isinstance(depth, int):
            raise self.error("XC2010", "the last axis of the indices must have a fixed size")
        if (
            not 0 <= batch < min(len(shape), len(indices))
            or depth > len(shape) - batch
            or depth < 1
        ):
            raise self.error(
                "XC2007", f"{depth} indices and {batch} batch axes do not fit {len(shape)} axes"
            )
        for axis in range(batch, batch + depth):
            _require_elements(sizes, shape[axis], indices[:-1], axis)
        paired: list[Dim] = [
            sizes.equal(a, b, "batch axes of operand and indices")
            for a, b in zip(shape[:batch], indices[:batch], strict=True)
        ]
        return [(*paired, *indices[batch:-1], *shape[batch + depth :])]

    def reference(self, x: np.ndarray, indices: np.ndarray) -> np.ndarray:
        batch, depth = self.batch_dims, indices.shape[-1]
        at: list[Any] = []
        for axis in range(batch):
            at.append(_along(axis, x.shape[axis], indices.ndim - 1))
        for i in range(depth):
            at.append(checked(indices[..., i], x.shape[batch + i]))
        return x[tuple(at)]


@nn.op("one_hot")
class OneHot(NnOp):
    """`values[1]` where the new axis has the index, else `values[0]`. ONNX OneHot.

    `depth` (one element) is the size of the axis, inserted at `axis` of the result. Indices from -depth to
    depth-1 count, all others give no `values[1]`.
    """

    indices: Operand
    depth: Operand
    values: Operand
    y: Result
    axis: int = -1

    def dtypes(self) -> Sequence[str]:
        return [dtype_of(self.values)]

    def verify(self) -> None:
        if rank_of(self.values) != 1:
            raise self.error("XC2003", f"the values have {rank_of(self.values)} axes, not 1")

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        sizes.equal(sizes.shape(self.values)[0], 2, "the number of values")
        shape = list(sizes.shape(self.indices))
        depth = sizes.define(known_elements(self, sizes, self.depth)[0], "one_hot")
        shape.insert(axis_of(self, self.axis, len(shape) + 1), depth)
        return [tuple(shape)]

    def reference(self, indices: np.ndarray, depth: np.ndarray, values: np.ndarray) -> np.ndarray:
        size = int(depth.reshape(()))
        whole = to_integer(indices, np.dtype(np.int64))
        inside = (whole >= -size) & (whole < size)
        place = np.where(inside, np.where(whole < 0, whole + size, whole), -1)
        axis = self.axis % (indices.ndim + 1)
        hot = np.equal(np.expand_dims(place, axis), _along(axis, size, indices.ndim + 1))
        return values[hot.astype(np.int64)]


@nn.op("reverse_sequence")
class ReverseSequence(NnOp):
    """For each batch the first `lengths[batch]` steps in reverse, the rest as it is. ONNX ReverseSequence."""

    x: Operand
    lengths: Operand
    y: Result
    batch_axis: int = 1
    time_axis: int = 0

    def verify(self) -> None:
        if {self.batch_axis, self.time_axis} != {0, 1}:
            raise self.error("XC2007", "batch and time are axes 0 and 1, in one order or the other")
        if rank_of(self.x) < 2 or rank_of(self.lengths) != 1:
            raise self.error("XC2003", "sequences have batch and time, and their lengths one axis")

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        shape = sizes.shape(self.x)
        sizes.equal(
            shape[self.batch_axis], sizes.shape(self.lengths)[0], "batches of operand and lengths"
        )
        return [shape]

    def reference(self, x: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        moved = np.moveaxis(x, (self.batch_axis, self.time_axis), (0, 1)).copy()
        for batch, length in enumerate(lengths.tolist()):
            if not 0 <= length <= moved.shape[1]:
                raise IndexError(f"length {length} is out of range for {moved.shape[1]} steps")
            moved[batch, :length] = moved[batch, :length][::-1]
        return np.moveaxis(moved, (0, 1), (self.batch_axis, self.time_axis))
