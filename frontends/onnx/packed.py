"""Sequences of tensors whose length only a run knows, as ops on two tensors: elements, and rows of sizes.

A position that is no position of the sequence ends the run with the error that an index of the node is out of range;
so does an empty sequence that is concatenated.
"""

from collections.abc import Sequence, Set

import numpy as np

from xcompile.compiler.ir.dtypes import DTYPES
from xcompile.compiler.ir.op import Value
from xcompile.compiler.ir.regions import Body
from xcompile.dialects.nn.base import rank_of
from xcompile.dialects.nn.control import Fail, If, Yield
from xcompile.dialects.nn.generate import CumSum
from xcompile.dialects.nn.reduce import ReduceMin, ReduceProd, ReduceSum
from xcompile.dialects.nn.reshape import Reshape
from xcompile.dialects.nn.scatter import ScatterElements
from xcompile.dialects.nn.slicing import Slice
from xcompile.frontends.onnx.composition import Composition
from xcompile.frontends.onnx.sequences import (
    AnySequence,
    OtherRank,
    PackedSequence,
    RankGuess,
    TensorSequence,
)


class Packing(Composition):
    """Makes what a node does with sequences."""

    def packed(
        self, given: AnySequence, rank: int = 0, guess: RankGuess | None = None
    ) -> PackedSequence:
        """A sequence as two tensors.

        Args:
            given: the sequence.
            rank: of the tensors, where it is empty.
            guess: whose rank that is.

        Raises:
            CompileError: XC2003, its tensors differ in rank.
        """
        if isinstance(given, PackedSequence):
            return given
        self._one_rank(set(map(rank_of, given.items)))
        if not given.items:
            none = self.constant(np.empty(0, DTYPES[given.dtype]))
            rows = self.constant(np.empty((0, rank), np.int64))
            return PackedSequence(none, rows, guess)
        elements = [self.reshape(x, (-1,)) for x in given.items]
        rows = [self.unsqueeze(self.shape(x), 0) for x in given.items]
        return PackedSequence(self.concat(elements, 0), self.concat(rows, 0))

    def common_rank(self, sequences: Sequence[AnySequence]) -> int:
        """The number of axes of the tensors of all sequences.

        Raises:
            CompileError: XC2003, they differ.
        """
        packed = [s for s in sequences if isinstance(s, PackedSequence)]
        ranks = {s.rank for s in packed}
        ranks |= {rank_of(x) for s in sequences if isinstance(s, TensorSequence) for x in s.items}
        for s in packed:
            for rank in sorted(ranks - {s.rank}):
                self.expect_rank(s, rank)
        return self._one_rank(ranks)

    def _one_rank(self, ranks: Set[int]) -> int:
        if len(ranks) > 1:
            text = " and ".join(map(str, sorted(ranks)))
            raise self._node.error(
                "XC2003",
                f"a sequence whose length depends on data holds tensors of rank {text}",
                help="the tensors of such a sequence must have one rank",
            )
        return next(iter(ranks), 0)

    def length(self, s: PackedSequence) -> Value:
        """The number of tensors, an int64 scalar."""
        return self.size(s.shapes, 0)

    def at(self, s: PackedSequence, position: Value) -> Value:
        """The tensor at a position (int32 or int64 scalar), which counts from the end when it is negative."""
        if s.guess is not None:
            s.guess.read = True
        place = self._place(s, position, behind=0)
        element = self._between(s.elements, *self._borders(s, place))
        return self._shaped(element, self.gather(s.shapes, place, 0))

    def insert(self, s: PackedSequence, x: Value, position: Value | None) -> PackedSequence:
        """The sequence with a tensor before a position, or at its end.

        Raises:
            CompileError: XC2003, the tensor has another rank than the others.
        """
        self.expect_rank(s, rank_of(x))
        if s.guess is not None:
            s.guess.proven = True
        element, row = self.reshape(x, (-1,)), self.unsqueeze(self.shape(x), 0)
        if position is None:
            parts = [s.elements, element], [s.shapes, row]
        else:
            place = self._place(s, position, behind=1)
            begin, _ = self._borders(s, place)
            parts = (
                [self.head(s.elements, 0, begin), element, self._between(s.elements, begin)],
                [self.head(s.shapes, 0, place), row, self._between(s.shapes, place)],
            )
        return PackedSequence(self.concat(parts[0], 0), self.concat(parts[1], 0), s.guess)

    def expect_rank(self, s: PackedSequence, rank: int) -> None:
        """Raise `CompileError` (XC2003) unless the sequence holds tensors of this rank."""
        if rank == s.rank:
            return
        if s.guess is not None:
            raise OtherRank(s.guess, rank, self._node.name)
        self._one_rank({s.rank, rank})

    def erase(self, s: PackedSequence, position: Value | None) -> PackedSequence:
        """The sequence without the tensor at a position, or without the last one."""
        last = self.constant(np.array(-1))
        place = self._place(s, last if position is None else position, behind=0)
        begin, end = self._borders(s, place)
        after = self._between(s.shapes, self.add(place, 1))
        return PackedSequence(
            self.concat([self.head(s.elements, 0, begin), self._between(s.elements, end)], 0),
            self.concat([self.head(s.shapes, 0, place), after], 0),
            s.guess,
        )

    def stacked(self, s: PackedSequence, axis: int) -> Value:
        """The tensors, which must have one shape, along a new axis."""
        row = self._common_row(s, range(s.rank))
        length = self.shape(s.shapes, 0, 1)
        y = self._shaped(s.elements, self.concat([length, row], 0))
        order = [*range(1, s.rank + 1)]
        order.insert(axis, 0)
        return self.transpose(y, order)

    def joined(self, s: PackedSequence, axis: int) -> Value:
        """The tensors one behind the other along an axis; their other sizes must be the same."""
        others = [i for i in range(s.rank) if i != axis]
        row = self._common_row(s, others)
        lengths = self._column(s, axis)
        total = self.reduce(ReduceSum, lengths, [0])
        if axis == 0:
            return self._shaped(s.elements, self.concat([total, row], 0))
        sizes = [self.slice(row, 0, i, i + 1) for i in range(s.rank - 1)]
        places = self._places(lengths, sizes[:axis], sizes[axis:])
        sizes.insert(axis, total)
        return self._shaped(self.gather(s.elements, places, 0), self.concat(sizes, 0))

    def split(self, x: Value, lengths: Value, axis: int, *, keepdims: bool) -> PackedSequence:
        """Parts of a tensor along an axis, of these lengths; without the axis if `keepdims` is false."""
        rank, count = rank_of(x), self.shape(lengths, 0, 1)
        rows = self.expand(self.shape(x), self.concat([count, self.ints(rank)], 0))
        here = self.constant(np.arange(rank) == axis)
        rows = self.where(here, self.unsqueeze(lengths, 1), rows)
        elements = self.reshape(x, (-1,))
        if axis:
            sizes = [self.shape(x, i, i + 1) for i in range(rank)]
            places = self.reshape(self._places(lengths, sizes[:axis], sizes[axis + 1 :]), (-1,))
            elements = self.make(ScatterElements, x=elements, indices=places, updates=elements)
        if not keepdims:
            rows = self.gather(rows, self.ints(*(i for i in range(rank) if i != axis)), 1)
        return PackedSequence(elements, rows)

    def parts(self, size: Value, each: Value) -> Value:
        """The lengths of parts of `each` elements (a scalar), the last one shorter: a vector."""
        text = "a sequence is split into parts of less than one element"
        each = self.sure(
            self._node.one_element(each), self.less(0, self._node.one_element(each)), text
        )
        count = self.div(self.add(size, self.sub(each, 1)), each)
        return self.minimum(self.sub(size, self.mul(self.range(count), each)), each)

    def fitting(self, lengths: Value, size: Value) -> Value:
        """The lengths of parts, which must be those of a whole of `size` elements."""
        total = self.reduce(ReduceSum, lengths, [0], keepdims=False)
        negative = self.cast(self.less(lengths, 0), "i64")
        none = self.less(self.reduce(ReduceSum, negative, [0], keepdims=False), 1)
        text = "the lengths of parts do not add up to the size of the axis"
        return self.sure(lengths, self.both(self.equal(total, size), none), text)

    def sure(self, value: Value, holds: Value, text: str) -> Value:
        """A value; a run in which the scalar `holds` is false ends with the text as its error."""
        location = self._node.location
        right, wrong = Body(loc=location), Body(loc=location)
        with right:
            Yield.build({"values": [value]}, [], loc=location)
        with wrong:
            Fail.build({"text": f"{text} (node '{self._node.name}')"}, [], loc=location)
        return If.make(holds, right, wrong, loc=location).results[0]

    # -- parts --------------------------------------------------------------------------------------

    def _place(self, s: PackedSequence, position: Value, behind: int) -> Value:
        """A position as a number from 0, checked; `behind` is 1 where the end is one too."""
        given, length = self.cast(self._node.one_element(position), "i64"), self.length(s)
        place = self.where(self.less(given, 0), self.add(given, length), given)
        inside = self.both(self.less(-1, place), self.less(place, self.add(length, behind)))
        return self.checked(place, inside)

    def _borders(self, s: PackedSequence, place: Value) -> tuple[Value, Value]:
        """Where the elements of the tensor at a place begin and end; behind the last tensor both are the end."""
        zero = self.ints(0)
        sizes = self._volumes(s)
        ends = self.make(CumSum, x=sizes, axis=self.constant(np.array(0)))
        borders = self.concat([zero, ends, self.shape(s.elements)], 0)
        return self.gather(borders, place, 0), self.gather(borders, self.add(place, 1), 0)

    def _volumes(self, s: PackedSequence) -> Value:
        """The number of elements of each tensor."""
        if s.rank == 0:
            return self.expand(self.ints(1), self.shape(s.shapes, 0, 1))
        return self.reduce(ReduceProd, s.shapes, [1], keepdims=False)

    def _column(self, s: PackedSequence, axis: int) -> Value:
        """The size of one axis of each tensor."""
        return self.gather(s.shapes, self.constant(np.array(axis)), 1)

    def _common_row(self, s: PackedSequence, axes: Sequence[int]) -> Value:
        """The sizes of some axes, which all tensors must have alike."""
        first = self.gather(s.shapes, self.constant(np.array(0)), 0)
        if not axes:
            return self.gather(first, self.ints(), 0)
        columns = self.ints(*axes)
        row, rows = self.gather(first, columns, 0), self.gather(s.shapes, columns, 1)
        alike = self.cast(self.equal(rows, row), "i64")
        holds = self.cast(self.reduce(ReduceMin, alike, [0, 1], keepdims=False), "i1")
        return self.sure(
            row, holds, "the tensors of a sequence that is concatenated differ in size"
        )

    def _places(self, lengths: Value, before: Sequence[Value], after: Sequence[Value]) -> Value:
        """Where the elements of a tensor that is made of parts lie among these, part behind part.

        Args:
            lengths: of the parts, along the axis at which they lie one behind the other.
            before: sizes of the axes before it, vectors of one element.
            after: sizes of the axes behind it.

        Returns:
            Places in the shape: elements of the axes before, elements of the axis, elements of the axes behind.
        """
        outer, inner = self._volume(before), self._volume(after)
        ends = self.make(CumSum, x=lengths, axis=self.constant(np.array(0)))
        along = self.range(self.reduce(ReduceSum, lengths, [0], keepdims=False))
        ended = self.less_equal(ends, self.unsqueeze(along, 1))
        part = self.reduce(ReduceSum, self.cast(ended, "i64"), [1], keepdims=False)
        length = self.gather(lengths, part, 0)
        begin = self.sub(self.gather(ends, part, 0), length)
        row = self.unsqueeze(self.range(self._node.one_element(outer)), 1)
        # a part lies behind all of the parts before it; in it rows lie one behind the other
        first = self.add(self.mul(begin, outer), self.sub(along, begin))
        place = self.mul(self.add(self.mul(row, length), first), inner)
        column = self.range(self._node.one_element(inner))
        return self.add(self.unsqueeze(place, 2), column)

    def _volume(self, sizes: Sequence[Value]) -> Value:
        """The product of sizes, a vector of one element."""
        product = self.ints(1)
        for size in sizes:
            product = self.mul(product, size)
        return product

    def _between(self, x: Value, start: Value, end: Value | None = None) -> Value:
        """Part of the first axis, from a place on."""
        most = self.ints(np.iinfo(np.int64).max)
        return self.make(
            Slice,
            x=x,
            starts=self.reshape(start, (1,)),
            ends=most if end is None else self.reshape(end, (1,)),
            axes=self.ints(0),
        )

    def _shaped(self, x: Value, shape: Value) -> Value:
        """The elements in a shape in which 0 is a size."""
        return self.make(Reshape, x=x, shape=shape, allow_zero=True)
