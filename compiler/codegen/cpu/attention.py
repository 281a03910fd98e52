"""Emitter of fused attention: see compiler/schedule/attention.py."""

import math as numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xcompile.compiler.codegen.cpu import math
from xcompile.compiler.codegen.cpu.builder import Buffer, Builder, Index, Value, vector_type
from xcompile.compiler.codegen.cpu.casts import cast
from xcompile.compiler.codegen.cpu.lanes import Lanes
from xcompile.compiler.codegen.cpu.panels import Panels
from xcompile.compiler.codegen.cpu.products import FloatProducts
from xcompile.compiler.codegen.cpu.register_tile import TileColumns, TileRows, sum_products
from xcompile.compiler.codegen.cpu.shuffles import transpose
from xcompile.compiler.codegen.cpu.sink import Sink
from xcompile.compiler.codegen.cpu.windows import index_of
from xcompile.compiler.schedule.attention import (
    AttentionProblem,
    AttentionSchedule,
    AttentionScratch,
)
from xcompile.compiler.schedule.schedule import TargetNumbers


@dataclass(frozen=True)
class AttentionInputs:
    """The operands, each a buffer and the element where it starts.

    Attributes:
        q: queries.
        k: keys.
        v: values.
        mask: what is added to the scores; None when the problem has no mask.
    """

    q: tuple[Buffer, Index]
    k: tuple[Buffer, Index]
    v: tuple[Buffer, Index]
    mask: tuple[Buffer, Index] | None = None


def emit_attention(
    b: Builder,
    problem: AttentionProblem,
    schedule: AttentionSchedule,
    target: TargetNumbers,
    inputs: AttentionInputs,
    sink: Sink,
    begin: Index,
    end: Index,
    sizes: Mapping[str, Index],
    scratch: Buffer,
) -> None:
    """Write the units [begin, end) of an attention.

    The sink gets (batch…, query, column of V) with lanes along the columns of V.

    Args:
        b: where to write.
        problem: what is computed.
        schedule: a schedule that `check` accepts.
        target: the machine.
        inputs: the operands.
        sink: takes each element of the result exactly once.
        begin: the first unit of `extent`'s axis.
        end: the unit after the last.
        sizes: the SSA values of the problem's symbols.
        scratch: `scratch_bytes` of memory.

    Raises:
        ScheduleError: the schedule is not legal.
    """
    schedule.check(problem, target)
    layout = AttentionScratch.of(problem, schedule, target)
    lanes, size = target.lanes(problem.bits), problem.bits // 8

    def strides(operand: str) -> tuple[Index, ...]:
        return tuple(index_of(b, s, sizes) for s in problem.strides(operand))  # type: ignore[arg-type]

    batch = tuple(index_of(b, s, sizes) for s in problem.batch)
    queries, keys = index_of(b, problem.queries, sizes), index_of(b, problem.keys, sizes)
    groups = b.ceildiv(queries, schedule.vectors * lanes)
    with b.loop(begin, end) as unit:
        *at, group = b.unflatten(unit, (*batch, groups) if batch else (1, groups))
        at = at if batch else []

        def operand(name: str, given: tuple[Buffer, Index], at: list[Index] = at) -> _Operand:
            steps = strides(name)
            start = b.add(given[1], b.flatten(at, steps[:-2]))
            return _Operand(given[0], start, steps[-2], steps[-1])

        _Group(
            b, problem, schedule, lanes, tuple(at), queries, keys,
            b.mul(group, schedule.vectors * lanes), operand("q", inputs.q), operand("k", inputs.k),
            operand("v", inputs.v), operand("mask", inputs.mask) if inputs.mask else None, sink,
            b.view(scratch, layout.queries * size, problem.dtype),
            b.view(scratch, layout.scores * size, problem.dtype),
            b.view(scratch, layout.sums * size, problem.dtype),
        ).emit()  # fmt: skip


@dataclass(frozen=True)
class _Operand:
    """A matrix of the batch at hand: buffer, first element, strides of rows and columns."""

    buffer: Buffer
    start: Index
    row: Index
    column: Index

    def at(self, b: Builder, row: Index, column: Index) -> Index:
        return b.add(self.start, b.mul(row, self.row), b.mul(column, self.column))


@dataclass(frozen=True)
class _Group:
    """A group of queries: the lanes of one unit, from query `first` on."""

    b: Builder
    problem: AttentionProblem
    schedule: AttentionSchedule
    lanes: int
    batch: tuple[Index, ...]
    queries: Index
    keys: Index
    first: Index
    q: _Operand
    k: _Operand
    v: _Operand
    mask: _Operand | None
    sink: Sink
    packed: Buffer
    scores: Buffer
    sums: Buffer

    @property
    def vectors(self) -> range:
        return range(self.schedule.vectors)

    @property
    def width(self) -> int:
        return self.schedule.vectors * self.lanes

    @property
    def m(self) -> Lanes:
        return Lanes(self.b, self.lanes, self.problem.dtype)

    @property
    def type(self) -> str:
        return vector_type(self.lanes, self.problem.dtype)

    def emit(self) -> None:
        """All blocks of keys, then the result."""
        b, m, count = self.b, self.m, self.schedule.vectors
        self._pack_queries()
        with b.loop(0, self.problem.value_depth) as row:
            for v in self.vectors:
                b.store(m.const(0.0), self.sums, self._slot(row, v), self.lanes)
        initial = [m.const(-numbers.inf)] * count + [m.const(0.0)] * count
        single = isinstance(self.keys, int) and self.keys <= self.schedule.key_block

        def block(low: Index, carried: list[Value]) -> Sequence[Value]:
            size = self.keys if single else b.min(b.sub(self.keys, low), self.schedule.key_block)
            return self._block(low, size, carried[:count], carried[count:], single)

        if single:
            state = list(block(0, initial)) if self.keys else initial
        else:
            types = [self.type] * len(initial)
            state = b.reduce(0, self.keys, self.schedule.key_block, initial, types, block)
        self._deliver(state[count:])

    def _slot(self, row: Index, v: int) -> Index:
        return self.b.add(self.b.mul(row, self.width), v * self.lanes)

    def _pack_queries(self) -> None:
        """Q as [depth][query], times the scale; queries past the end repeat the last one or are zero."""
        b, m = self.b, self.m
        panels = Panels(
            b, "pack", self.lanes, self.schedule.vectors, self.q.buffer, self.problem.depth, self.queries,
            (self.q.column, self.q.row), self.packed,
        )  # fmt: skip
        panels.at(self.q.start, self.first, 0, self.problem.depth)
        if self.problem.scale == 1:
            return
        with b.loop(0, self.problem.depth) as row:
            for v in self.vectors:
                value = b.load(self.packed, self._slot(row, v), self.lanes)
                scaled = m.mul(value, m.const(self.problem.scale))
                b.store(scaled, self.packed, self._slot(row, v), self.lanes)

    def _block(
        self, low: Index, size: Index, tops: list[Value], totals: list[Value], single: bool
    ) -> list[Value]:
        """A block of keys: scores, exponentials, sums. Returns the new maxima and totals."""
        m, count = self.m, self.schedule.vectors
        self._fill_mask(low, size)
        new_tops = self._scores(low, size, tops)
        # A maximum of -infinity, nothing but masked keys so far, is not subtracted.
        empty = [m.compare("oeq", t, m.const(-numbers.inf)) for t in new_tops]
        shifts = [m.select(e, m.const(0.0), t) for e, t in zip(empty, new_tops, strict=True)]
        factors: list[Value] | None = None
        if not single:
            factors = [
                math.exp_nonpositive(self.b, m.sub(tops[v], shifts[v]), self.lanes, m.dtype)
                for v in range(count)
            ]
            totals = [m.mul(totals[v], factors[v]) for v in range(count)]
        totals = self._exponentials(size, shifts, totals)
        self._accumulate(low, size, factors)
        return [*new_tops, *totals]

    def _fill_mask(self, low: Index, size: Index) -> None:
        """A mask that differs between queries goes to where the scores will be, as [key][query]."""
        if self.mask is None or self.mask.row == 0:
            return
        b, mask = self.b, self.mask
        start = mask.at(b, 0, low)
        panels = Panels(
            b, "pack", self.lanes, self.schedule.vectors, mask.buffer, size, self.queries,
            (mask.column, mask.row), self.scores,
        )  # fmt: skip
        panels.at(start, self.first, 0, size)

    def _scores(self, low: Index, size: Index, tops: list[Value]) -> list[Value]:
        """The scores of a block, tile after tile, and the maxima with them."""
        b, count = self.b, self.schedule.key_rows
        types = [self.type] * len(tops)
        whole = b.mul(b.div(size, count), count)

        def tile(
            rows: int, last: Index | None, key: Index, carried: list[Value]
        ) -> Sequence[Value]:
            return self._score_tile(low, key, rows, last, carried)

        if whole != 0:
            tops = b.reduce(
                0, whole, count, tops, types, lambda key, carried: tile(count, None, key, carried)
            )
        rest = b.sub(size, whole)
        if rest == 0:
            return tops
        rows, last = (rest, None) if isinstance(rest, int) else (count, b.sub(rest, 1))
        return b.choose(
            b.compare("ne", rest, 0), types, lambda: tile(rows, last, whole, tops), lambda: tops
        )

    def _score_tile(
        self, low: Index, key: Index, count: int, last: Index | None, tops: list[Value]
    ) -> list[Value]:
        b, m = self.b, self.m
        start = self.k.at(b, b.add(low, key), 0)
        rows = TileRows(self.k.buffer, start, self.k.row, self.k.column, count, last)
        columns = TileColumns(self.packed, 0, self.width, (None,) * len(tops))
        zeros = [m.const(0.0)] * (count * len(tops))
        depth = self.problem.depth
        sums = sum_products(
            b,
            FloatProducts(self.problem.dtype),
            rows,
            columns,
            self.lanes,
            0,
            depth,
            self.schedule.unroll,
            zeros,
        )
        tops, cells = list(tops), [(r, v) for r in range(count) for v in self.vectors]
        places = [b.add(key, rows.clamp(b, r)) for r in range(count)]
        # Rows that repeat the last one repeat its mask too: read them all before one is overwritten.
        values = [
            self._add_mask(score, b.add(low, places[r]), self._slot(places[r], v))
            for (r, v), score in zip(cells, sums, strict=True)
        ]
        for (r, v), value in zip(cells, values, strict=True):
            b.store(value, self.scores, self._slot(places[r], v), self.lanes)
            tops[v] = m.select(m.compare("ogt", value, tops[v]), value, tops[v])
        return tops

    def _add_mask(self, score: Value, key: Index, slot: Index) -> Value:
        b, m = self.b, self.m
        if self.mask is None:
            return score
        if self.mask.row == 0:
            one = b.load(self.mask.buffer, self.mask.at(b, 0, key))
            one = cast(b, one, self.mask.buffer.dtype, m.dtype, 0)
            return m.add(score, b.broadcast(one, m.dtype, self.lanes))
        return m.add(score, b.load(self.scores, slot, self.lanes))

    def _exponentials(self, size: Index, shifts: list[Value], totals: list[Value]) -> list[Value]:
        """Scores become e^(score - shift); adds them to the totals, in the order of keys."""
        b, m = self.b, self.m

        def body(steps: int, key: Index, carried: list[Value]) -> list[Value]:
            carried = list(carried)
            for step in range(steps):
                for v in self.vectors:
                    slot = self._slot(b.add(key, step), v)
                    shifted = m.sub(b.load(self.scores, slot, self.lanes), shifts[v])
                    value = math.exp_nonpositive(b, shifted, self.lanes, m.dtype)
                    b.store(value, self.scores, slot, self.lanes)
                    carried[v] = m.add(carried[v], value)
            return carried

        types = [self.type] * len(totals)
        whole = b.mul(b.div(size, 2), 2)
        if whole != 0:
            totals = b.reduce(0, whole, 2, totals, types, lambda k, c: body(2, k, c))
        if whole != size:
            totals = b.reduce(whole, size, 1, totals, types, lambda k, c: body(1, k, c))
        return totals

    def _accumulate(self, low: Index, size: Index, factors: list[Value] | None) -> None:
        """Add the block's share to the sums, which `factors` scale first."""
        b, m = self.b, self.m
        depth, count = self.problem.value_depth, self.schedule.value_rows

        def tile(rows: int, column: Index) -> None:
            start = self.v.at(b, low, column)
            cells = [(r, v) for r in range(rows) for v in self.vectors]
            if factors is None:
                sums = [m.const(0.0)] * len(cells)
            else:
                before = [
                    b.load(self.sums, self._slot(b.add(column, r), v), self.lanes) for r, v in cells
                ]
                sums = [m.mul(s, factors[v]) for s, (_, v) in zip(before, cells, strict=True)]
            left = TileRows(self.v.buffer, start, self.v.column, self.v.row, rows)
            right = TileColumns(self.scores, 0, self.width, (None,) * len(self.vectors))
            unroll = self.schedule.unroll
            sums = sum_products(
                b, FloatProducts(self.problem.dtype), left, right, self.lanes, 0, size, unroll, sums
            )
            for (r, v), value in zip(cells, sums, strict=True):
                b.store(value, self.sums, self._slot(b.add(column, r), v), self.lanes)

        whole = depth // count * count
        with b.loop(0, whole, count) as column:
            tile(count, column)
        if depth % count:
            tile(depth % count, whole)

    def _deliver(self, totals: list[Value]) -> None:
        """Sums over totals, transposed to lanes along the columns of V, to the sink."""
        b, m, lanes = self.b, self.m, self.lanes
        inverse = [m.div(m.const(1.0), t) for t in totals]
        if self.problem.empty_rows == "zero":
            nothing = [m.compare("oeq", t, m.const(0.0)) for t in totals]
            inverse = [m.select(n, m.const(0.0), i) for n, i in zip(nothing, inverse, strict=True)]

        def square(v: int, column: Index, mask: Value | None) -> None:
            rows = [b.load(self.sums, self._slot(b.add(column, r), v), lanes) for r in range(lanes)]
            scaled = [m.mul(row, inverse[v]) for row in rows]
            for lane, value in enumerate(transpose(b, scaled, m.dtype)):
                query = b.add(self.first, v * lanes + lane)
                with b.when(b.compare("slt", query, self.queries)):
                    self.sink(b, value, (*self.batch, query, column), lanes, mask)

        depth = self.problem.value_depth
        for v in self.vectors:
            with b.loop(0, depth // lanes * lanes, lanes) as column:
                square(v, column, None)
            if depth % lanes:
                square(v, depth // lanes * lanes, b.tail_mask(depth % lanes, lanes))
