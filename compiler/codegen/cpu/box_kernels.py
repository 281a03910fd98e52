"""Kernels of ops that choose among boxes; see `dialects/nn/boxes.py`.

The candidates of a class are a heap at the end of `chosen`, its root last, from which the best is taken while those
that were chosen grow from the front: a place is free when it is needed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from xcompile.compiler.codegen.cpu.builder import Index, Value
from xcompile.compiler.codegen.cpu.elementwise import Scalars
from xcompile.compiler.codegen.cpu.heap import Element, Heap
from xcompile.compiler.codegen.cpu.nests import nest
from xcompile.compiler.codegen.cpu.whole import WHOLE, Slices, Whole
from xcompile.dialects.nn.base import Sizes


@dataclass(frozen=True)
class _Box:
    """The ends of a box on both axes."""

    low: Sequence[Value]
    high: Sequence[Value]


class _Candidates(Heap):
    """The boxes of one class of one batch."""

    def __init__(self, slices: Slices, op: Any, at: Sequence[Index]) -> None:
        super().__init__(slices.b, "f32")
        self.pull, self.op, self.at = slices.pull, op, at
        self.found, self.chosen = slices.results
        self.s = Scalars(slices.b, 0, "f32")
        self.total = self.pull.shape(op.chosen)[2]

    # -- memory ---------------------------------------------------------------------------------

    def _place(self, k: Index) -> list[Index]:
        return [*self.at, self.b.sub(self.b.sub(self.total, 1), k)]

    def load(self, k: Index) -> Element:
        number = self.pull.load(self.chosen, self._place(k))
        box = self.b.op(f"arith.index_cast {number} : i64 to index")
        return Element(self._score(box), number)

    def store(self, k: Index, element: Element) -> None:
        self.pull.store(self.chosen, element.place, self._place(k))

    def _score(self, box: Index) -> Value:
        return self.pull.value(self.op.scores, [*self.at, box])

    def after(self, x: Element, other: Element) -> Value:
        """The better one comes last."""
        b = self.b
        first = b.op(f"arith.cmpi slt, {x.place}, {other.place} : i64")
        equal = b.both(self.s.compare("eq", x.value, other.value), first)
        greater = self.s.compare("gt", x.value, other.value)
        return b.binary("arith.ori", greater, str(equal), 0, "i1")

    # -- boxes ----------------------------------------------------------------------------------

    def _box(self, box: Index) -> _Box:
        s, at = self.s, [self.at[0], box]
        first, second = (
            [self.pull.value(self.op.boxes, [*at, k]) for k in ks] for ks in ((0, 1), (2, 3))
        )
        if self.op.centered:
            halves = [s.div(v, s.const(2)) for v in second]
            low, high = (
                [f(*pair) for pair in zip(first, halves, strict=True)] for f in (s.sub, s.add)
            )
        else:
            low, high = (
                [f(*pair) for pair in zip(first, second, strict=True)]
                for f in (self._least, self._greatest)
            )
        return _Box(low, high)

    def _overlaps(self, x: _Box, other: _Box) -> Value:
        """Whether their intersection over union is too great."""
        s, b = self.s, self.b
        shared = [
            s.sub(self._least(h, i), self._greatest(k, n))
            for h, i, k, n in zip(x.high, other.high, x.low, other.low, strict=True)
        ]

        def all_positive(values: Sequence[Value]) -> Value:
            return reduce(
                lambda a, c: str(b.both(a, c)), [s.compare("gt", v, s.const(0)) for v in values]
            )

        def exceeds() -> Sequence[Value]:
            common, areas = s.mul(*shared), [self._area(x), self._area(other)]
            union = s.sub(s.add(*areas), common)
            too_great = s.compare("gt", s.div(common, union), self.pull.value(self.op.overlap, []))
            return [str(b.both(all_positive([*areas, union]), too_great))]

        no = b.int_constant(0, "i1")
        return b.choose(all_positive(shared), ["i1"], exceeds, lambda: [no])[0]

    def _least(self, x: Value, y: Value) -> Value:
        """The smaller one; y if either is NaN, which no box with an area has."""
        return self.s.select(self.s.compare("lt", x, y), x, y)

    def _greatest(self, x: Value, y: Value) -> Value:
        return self.s.select(self.s.compare("gt", x, y), x, y)

    def _area(self, box: _Box) -> Value:
        return self.s.mul(*map(self.s.sub, box.high, box.low))

    # -- the choice -----------------------------------------------------------------------------

    def write(self) -> None:
        """Collect what may be chosen, choose, say that there is no more."""
        b, pull = self.b, self.pull
        count = self._collect()
        self.order(count, pull)
        limit = pull.index_value(pull.value(self.op.limit, []), "i64")
        assert isinstance(limit, str)
        (kept,) = nest(pull, [count], [b.index(0)], ["index"], lambda ks, c: [
            *b.choose(b.compare("slt", c[0], limit), ["index"],
                      lambda: self._next(b.sub(count, ks[0]), c[0]), lambda: c)
        ])  # fmt: skip
        with b.loop(kept, self.total) as k, pull.scope():
            pull.store(self.chosen, b.int_constant(-1), [*self.at, k])
        pull.store(self.found, pull.as_integer(kept, "i64"), self.at)

    def _collect(self) -> Index:
        """The boxes whose scores count become the heap's elements; their number."""
        b = self.b

        def visit(ks: list[Index], carried: list[Value]) -> list[Value]:
            score = self._score(ks[0])
            least = score if self.op.least is None else self.pull.value(self.op.least, [])
            counts = self.s.compare("eq" if self.op.least is None else "gt", score, least)
            # what does not count is overwritten by the next, or by -1
            self.store(carried[0], Element(score, self.pull.as_integer(ks[0], "i64")))
            return [b.index(b.add(carried[0], b.select(counts, 1, 0)))]

        return nest(self.pull, [self.total], [b.index(0)], ["index"], visit)[0]

    def _next(self, left: Index, kept: Value) -> list[Value]:
        """Take the best of `left` candidates; how many are chosen with it."""
        b, pull = self.b, self.pull
        best, last = self.load(0), self.load(b.sub(left, 1))
        self.sift(0, b.sub(left, 1), last)
        box = self._box(b.op(f"arith.index_cast {best.place} : i64 to index"))

        def stands_beside(k: Value) -> tuple[Value | bool, Index]:
            def ask() -> Sequence[Value]:
                number = pull.load(self.chosen, [*self.at, k])
                other = b.op(f"arith.index_cast {number} : i64 to index")
                return [self._overlaps(box, self._box(other))]

            with pull.scope():
                more, no = b.compare("slt", k, kept), b.int_constant(1, "i1")
                (ends,) = b.choose(more, ["i1"], ask, lambda: [no])
            goes_on = b.op(f"arith.xori {ends}, {no} : i1")
            return goes_on, b.select(goes_on, b.add(k, 1), k)

        stands = b.compare("eq", b.repeat(0, stands_beside), kept)
        with b.when(stands):
            pull.store(self.chosen, best.place, [*self.at, kept])
        return [b.index(b.add(kept, b.select(stands, 1, 0)))]


def _classes(sizes: Sizes, op: Any) -> Any:
    return sizes.shape(op.found)


WHOLE["nn.find_boxes"] = Whole(_classes, lambda slices, op, at: _Candidates(slices, op, at).write())


def _list(slices: Slices, op: Any, at: list[Index]) -> None:
    """One row after another, while there is room."""
    pull, b, result = slices.pull, slices.b, slices.results[0]
    room = pull.shape(op.y)[0]

    def visit(ks: list[Index], carried: list[Value]) -> list[Value]:
        (start,) = carried
        found = pull.index_value(pull.value(op.found, ks), "i64")
        assert isinstance(found, str)
        end = b.index(b.min(b.add(start, found), room))
        with b.loop(start, end) as row, pull.scope():
            box = pull.value(op.chosen, [*ks, b.sub(row, start)])
            for column, number in enumerate((*(pull.as_integer(k, "i64") for k in ks), box)):
                pull.store(result, number, [row, column])
        return [end]

    nest(pull, pull.shape(op.found), [b.index(0)], ["index"], visit)


WHOLE["nn.list_boxes"] = Whole(lambda sizes, op: (), _list)
