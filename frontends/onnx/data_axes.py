"""Nodes whose axes or steps only a run knows: written as gathers by computed places, and as pads and shapes of data.

Ranks are known all the same: that of the operand, plus or minus the number of axes. An axis that the operand does not
have is an index out of range, and so is one that is named twice.
"""

from collections.abc import Sequence

import numpy as np

from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.op import Value
from xcompile.dialects.nn.base import is_static, rank_of
from xcompile.dialects.nn.counted import Compress, RangeCount
from xcompile.dialects.nn.generate import CumSum
from xcompile.dialects.nn.reduce import ReduceSum
from xcompile.dialects.nn.reshape import Reshape
from xcompile.dialects.nn.shapes import LocalSizes
from xcompile.dialects.nn.sizes import Range
from xcompile.dialects.nn.slicing import LONGEST
from xcompile.frontends.onnx.composition import Composition
from xcompile.frontends.onnx.context import NodeContext


def known_content(value: Value) -> tuple[int, ...] | None:
    """The elements of a small integer tensor when the importer knows them all."""
    found = LocalSizes().content(value)
    if found is None or not all(isinstance(d, int) for d in found):
        return None
    return tuple(d for d in found if isinstance(d, int))


class DataAxes(Composition):
    """Axes of a tensor of `rank` axes that are data.

    Args:
        node: whose axes they are.
        axes: int32 or int64, a vector, or a scalar for one.
        rank: of the tensor that has them.
    """

    def __init__(self, node: NodeContext, axes: Value, rank: int) -> None:
        super().__init__(node)
        self._axes = axes if rank_of(axes) else self.unsqueeze(axes, 0)
        places = self.constant(np.arange(rank))
        found = self.gather(places, self._axes, 0)
        equal = self.equal(self.unsqueeze(found, 1), self.unsqueeze(places, 0))
        self._hits = self.cast(equal, "i64")
        at_most_one = self.ints(0, 1)
        self.named = self.gather(at_most_one, self._summed(self._hits), 0)
        """For each axis of the tensor 1 if it is named, else 0."""

    def _summed(self, value: Value) -> Value:
        return self.reduce(ReduceSum, value, (0,), keepdims=False)

    def spread(self, values: Value, absent: int) -> Value:
        """For each axis of the tensor the value that stands beside its name, `absent` where it has none."""
        as_many = self.reshape_like(self.cast(values, "i64"), self._axes)
        chosen = self._summed(self.mul(self._hits, self.unsqueeze(as_many, 1)))
        return self.where(self.cast(self.named, "i1"), chosen, absent)


class _Slice(Composition):
    """A slice along axes, one after the other, with bounds and a step that are int64 scalars."""

    def cut(self, x: Value, axis: int, start: Value, end: Value, step: Value) -> Value:
        """What Slice means on one axis: places are `start` up to `end`, clamped to it."""
        size = self.size(x, axis)
        start, end, step = (self._near(v) for v in (start, end, step))
        back = self.less(step, 0)
        last = self.where(back, self.sub(size, 1), size)
        first = self._clamped(self._from_front(start, size), self.mul(size, 0), last)
        stop = self._clamped(
            self._from_front(end, size), self.where(back, -1, self.mul(size, 0)), last
        )
        numbers = {"start": first, "limit": stop, "delta": step}
        count = self.make(RangeCount, **numbers)
        return self.gather(x, self.make(Range, **numbers, count=count), axis)

    def element(self, values: Value, position: int) -> Value:
        """One element of a vector."""
        return self.gather(self.cast(values, "i64"), self.constant(np.array(position)), 0)

    def _near(self, value: Value) -> Value:
        """No farther away than any tensor is long, so that arithmetic does not overflow."""
        return self._clamped(value, -LONGEST, LONGEST)

    def _from_front(self, place: Value, size: Value) -> Value:
        return self.where(self.less(place, 0), self.add(place, size), place)

    def _clamped(self, value: Value, low: Value | int, high: Value | int) -> Value:
        return self.minimum(self.maximum(value, low), high)


def slice_of_data(
    node: NodeContext, x: Value, starts: Value, ends: Value, axes: Value | None, steps: Value | None
) -> Value:
    """ONNX Slice with axes or steps that are data."""
    c, rank = _Slice(node), rank_of(x)
    known = None if axes is None else known_content(axes)
    counts = [ir.ShapedType(v.type).shape[0] for v in (starts, ends) if is_static(v)]
    if axes is None and counts:
        known = tuple(range(counts[0]))
    if known is not None:
        chosen: Sequence[int] = [node.axis(axis, rank) for axis in known]
        if len(set(chosen)) < len(chosen):
            raise node.error("XC2007", "a slice names an axis twice")
        count = len(chosen)
        vectors = [_of_length(node, c, v, count) for v in (starts, ends)]
        vectors.append(_ones(c, vectors[0]) if steps is None else _of_length(node, c, steps, count))
        columns = {axis: [c.element(v, i) for v in vectors] for i, axis in enumerate(chosen)}
    else:
        spread = DataAxes(node, _numbered(c, starts) if axes is None else axes, rank)
        vectors = [spread.spread(starts, 0), spread.spread(ends, LONGEST)]
        vectors.append(spread.spread(_ones(c, starts) if steps is None else steps, 1))
        columns = {axis: [c.element(v, axis) for v in vectors] for axis in range(rank)}
    for axis, bounds in columns.items():
        x = c.cut(x, axis, *bounds)
    return x


def _of_length(node: NodeContext, c: Composition, values: Value, count: int) -> Value:
    """A vector that has `count` elements, which a run checks where it is not known."""
    if not is_static(values):
        return c.reshape(values, (count,))
    if ir.ShapedType(values.type).shape[0] != count:
        raise node.error("XC2004", "starts, ends, axes and steps differ in length")
    return values


def _ones(c: Composition, like: Value) -> Value:
    return c.expand(c.ints(1), c.shape(like))


def _numbered(c: Composition, like: Value) -> Value:
    """0, 1, … as many as a vector has elements."""
    return c.range(c.size(like, 0))


def pads_of_data(node: NodeContext, x: Value, pads: Value, axes: Value) -> Value:
    """The pads of all axes of `x` from those of axes that are data."""
    spread = DataAxes(node, axes, rank_of(x))
    halves = spread.reshape(pads, (2, -1))
    both = [spread.gather(halves, spread.constant(np.array(i)), 0) for i in (0, 1)]
    return spread.concat([spread.spread(half, 0) for half in both], 0)


def unsqueeze_by_data(node: NodeContext, x: Value, axes: Value, count: int) -> Value:
    """ONNX Unsqueeze with `count` axes that are data: a reshape, its sizes computed."""
    rank = rank_of(x)
    c = DataAxes(node, axes, rank + count)
    before = c.make(CumSum, x=c.named, axis=c.constant(np.array(0)))
    places = c.sub(c.constant(np.arange(rank + count)), before)
    sizes = c.concat([c.shape(x), c.ints(1)], 0) if rank else c.ints(1)
    kept = c.gather(sizes, c.maximum(places, 0), 0)
    shape = c.where(c.cast(c.named, "i1"), 1, kept)
    return c.make(Reshape, x=x, shape=shape, allow_zero=True)


def squeeze_by_data(node: NodeContext, x: Value, axes: Value, count: int) -> Value:
    """ONNX Squeeze with `count` axes that are data; their sizes are 1, or the run ends with an error."""
    rank = rank_of(x)
    c = DataAxes(node, axes, rank)
    others = c.equal(c.named, 0)
    sizes = c.checked(c.shape(x), c.either(others, c.equal(c.shape(x), 1)))
    number = c.reduce(ReduceSum, c.cast(others, "i64"), (0,), keepdims=False)
    kept = c.make(Compress, x=sizes, condition=others, count=number, axis=0)
    shape = c.reshape(kept, (rank - count,))
    return c.make(Reshape, x=x, shape=shape, allow_zero=True)
