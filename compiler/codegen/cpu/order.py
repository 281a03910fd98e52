"""`nn.topk` as a `whole` kernel: the best elements so far are a heap in the result, which is sorted in the end.

The order is total: of equal elements the one with the lower place comes first. The root of the heap is what comes last
of all that is kept, so that most elements of a long axis are refused by one comparison.
"""

from collections.abc import Sequence
from typing import Any

from xcompile.compiler.codegen.cpu.builder import Index, Value
from xcompile.compiler.codegen.cpu.casts import convert
from xcompile.compiler.codegen.cpu.elementwise import Scalars
from xcompile.compiler.codegen.cpu.heap import Element, Heap
from xcompile.compiler.codegen.cpu.nests import wide
from xcompile.compiler.codegen.cpu.pull import register_dtype
from xcompile.compiler.codegen.cpu.whole import WHOLE, Slices, Whole, without_axis
from xcompile.dialects.nn.base import dtype_of


class _Heap(Heap):
    """The results of one slice."""

    def __init__(self, slices: Slices, op: Any, at: Sequence[Index]) -> None:
        super().__init__(slices.b, register_dtype(dtype_of(op.x)))
        self.slices, self.op, self.at = slices, op, at

    def _here(self, k: Index) -> list[Index]:
        return [*self.at[: self.op.axis], k, *self.at[self.op.axis :]]

    def load(self, k: Index) -> Element:
        values, places = self.slices.results
        pull = self.slices.pull
        return Element(pull.load(values, self._here(k)), pull.load(places, self._here(k)))

    def store(self, k: Index, element: Element) -> None:
        values, places = self.slices.results
        self.slices.pull.store(values, element.value, self._here(k))
        self.slices.pull.store(places, element.place, self._here(k))

    def input(self, k: Index) -> Element:
        pull = self.slices.pull
        return Element(pull.value(self.op.x, self._here(k)), pull.as_integer(k, "i64"))

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

    def after(self, x: Element, other: Element) -> Value:
        """Whether x comes behind another element."""
        b = self.b
        later = b.op(f"arith.cmpi sgt, {x.place}, {other.place} : i64")
        before, behind = self.precedes(x.value, other.value), self.precedes(other.value, x.value)
        not_before = b.op(f"arith.xori {before}, {b.int_constant(1, 'i1')} : i1")
        equal_later = b.binary("arith.andi", not_before, later, 0, "i1")
        return b.binary("arith.ori", behind, equal_later, 0, "i1")

    def write(self) -> None:
        """Fill the heap, let better elements in, sort."""
        b, pull, slices = self.b, self.slices.pull, self.slices
        size = pull.shape(self.op.x)[self.op.axis]
        count = b.min(pull.shape(self.op.values)[self.op.axis], size)
        slices.loops([count], lambda ks: self.store(ks[0], self.input(ks[0])))
        self.order(count, pull)
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
