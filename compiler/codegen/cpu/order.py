"""`nn.topk` as a `whole` kernel: the best elements so far are a heap in the result, which is sorted in the end.

The order is total: of equal elements the one with the lower place comes first. The root of the heap is what comes last
of all that is kept, so that most elements of a long axis are refused by one comparison.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from xcompile.compiler.codegen.cpu.builder import Builder, Index, Value
from xcompile.compiler.codegen.cpu.casts import convert
from xcompile.compiler.codegen.cpu.elementwise import Scalars
from xcompile.compiler.codegen.cpu.nests import wide
from xcompile.compiler.codegen.cpu.pull import register_dtype
from xcompile.compiler.codegen.cpu.whole import WHOLE, Slices, Whole, without_axis
from xcompile.dialects.nn.base import dtype_of


@dataclass(frozen=True)
class _Element:
    """A value and its place in the input (i64)."""

    value: Value
    place: Value


@dataclass(frozen=True)
class _Heap:
    """The results of one slice."""

    slices: Slices
    op: Any
    at: Sequence[Index]

    @property
    def b(self) -> Builder:
        return self.slices.b

    def _here(self, k: Index) -> list[Index]:
        return [*self.at[: self.op.axis], k, *self.at[self.op.axis :]]

    def load(self, k: Index) -> _Element:
        values, places = self.slices.results
        pull = self.slices.pull
        return _Element(pull.load(values, self._here(k)), pull.load(places, self._here(k)))

    def store(self, k: Index, element: _Element) -> None:
        values, places = self.slices.results
        self.slices.pull.store(values, element.value, self._here(k))
        self.slices.pull.store(places, element.place, self._here(k))

    def input(self, k: Index) -> _Element:
        pull = self.slices.pull
        return _Element(pull.value(self.op.x, self._here(k)), pull.as_integer(k, "i64"))

    # -- order --------------------------------------------------------------------------------

    def precedes(self, x: Value, other: Value) -> Value:
        """Whether a value is strictly before another in the order of topk, in which NaN is greatest."""
        b, dtype = self.b, dtype_of(self.op.x)
        s = Scalars(b, 0, wide(dtype))
        x, other = (convert(b, v, dtype, s.dtype, 0) for v in (x, other))
        greater, less = (x, other) if self.op.largest else (other, x)
        strictly = s.compare("gt", greater, less)
        if not s.float:
            return strictly
        nan = b.binary(
            "arith.andi", s.compare("ne", greater, greater), s.compare("eq", less, less), 0, "i1"
        )
        return b.binary("arith.ori", strictly, nan, 0, "i1")

    def after(self, x: _Element, other: _Element) -> Value:
        """Whether x comes behind another element."""
        b = self.b
        later = b.op(f"arith.cmpi sgt, {x.place}, {other.place} : i64")
        before, behind = self.precedes(x.value, other.value), self.precedes(other.value, x.value)
        not_before = b.op(f"arith.xori {before}, {b.int_constant(1, 'i1')} : i1")
        equal_later = b.binary("arith.andi", not_before, later, 0, "i1")
        return b.binary("arith.ori", behind, equal_later, 0, "i1")

    # -- the heap -----------------------------------------------------------------------------

    def sift(self, start: Index, end: Index, element: _Element) -> None:
        """Put an element at `start`, then below what comes behind it, in the heap [0, end)."""
        b, kind = self.b, register_dtype(dtype_of(self.op.x))

        def level(_: Index, carried: list[Value]) -> Sequence[Value]:
            hole = carried[0]
            left = b.add(b.mul(hole, 2), 1)
            right = b.add(left, 1)

            def move() -> Sequence[Value]:
                child, other = self.load(left), self.load(b.min(right, b.sub(end, 1)))
                both = b.compare("slt", right, end)
                second = self.after(other, child)
                second = b.binary("arith.andi", str(both), second, 0, "i1")
                place = b.index(b.select(second, right, left))
                value = b.op(f"arith.select {second}, {other.value}, {child.value} : {kind}")
                number = b.op(f"arith.select {second}, {other.place}, {child.place} : i64")
                best = _Element(value, number)
                goes = self.after(best, element)
                with b.when(goes):
                    self.store(hole, best)
                return [b.index(b.select(goes, place, hole))]

            inside = b.compare("slt", left, end)
            assert isinstance(inside, str)
            return b.choose(inside, ["index"], move, lambda: [hole])

        (hole,) = b.reduce(0, self._levels(end), 1, [b.index(start)], ["index"], level)
        self.store(hole, element)

    def _levels(self, end: Index) -> Index:
        """Steps from the root to the last leaf."""
        b = self.b
        wide = b.op(f"arith.index_cast {b.index(end)} : index to i64")
        zeros = b.op(f"math.ctlz {wide} : i64")
        used = b.op(f"arith.index_cast {zeros} : i64 to index")
        return b.sub(64, used)

    def write(self) -> None:
        """Fill the heap, let better elements in, sort."""
        b, pull, slices = self.b, self.slices.pull, self.slices
        size = pull.shape(self.op.x)[self.op.axis]
        count = b.min(pull.shape(self.op.values)[self.op.axis], size)
        slices.loops([count], lambda ks: self.store(ks[0], self.input(ks[0])))
        half = b.div(count, 2)
        with b.loop(0, half) as step, pull.scope():
            node = b.sub(b.sub(half, 1), step)
            self.sift(node, count, self.load(node))
        with b.when(b.compare("sgt", count, 0)), b.loop(count, size) as k, pull.scope():
            new = self.input(k)
            values = slices.results[0]
            with b.when(self.precedes(new.value, pull.load(values, self._here(0)))), pull.scope():
                self.sift(0, count, new)
        with b.loop(1, count) as step, pull.scope():
            end = b.sub(count, step)
            last, root = self.load(end), self.load(0)
            self.store(end, root)
            self.sift(0, end, last)


WHOLE["nn.topk"] = Whole(without_axis, lambda slices, op, at: _Heap(slices, op, at).write())
