"""The steps of a recurrent layer for the sequences of a unit; what it computes is given to it.

States wait in scratch memory, a row of whole vectors for each sequence of the unit. A step reads the state h of one
half of them and writes the other half, since every sum needs all of h. A row whose sequence has ended keeps its
state and gives zeros.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from xcompile.compiler.codegen.cpu.activations import activate
from xcompile.compiler.codegen.cpu.builder import Buffer, Builder, Index, Value
from xcompile.compiler.codegen.cpu.coordinates import Coordinate, Lane
from xcompile.compiler.codegen.cpu.elementwise import Scalars
from xcompile.compiler.codegen.cpu.movement import data_index
from xcompile.compiler.codegen.cpu.products import Products
from xcompile.compiler.codegen.cpu.pull import Pull, Source
from xcompile.compiler.codegen.cpu.recurrent_codes import StateCodes
from xcompile.compiler.codegen.cpu.register_tile import TileColumns, TileRows, sum_products
from xcompile.compiler.ir.op import Value as Tensor
from xcompile.compiler.schedule.recurrent import (
    RecurrentPacking,
    RecurrentProblem,
    RecurrentSchedule,
)


@dataclass(frozen=True)
class Tile:
    """Rows of a unit that are computed together.

    Attributes:
        row: the first one.
        count: how many are computed.
        last: the last that exists, counted from the first; those behind repeat it. None when all do.
    """

    row: Index
    count: int
    last: Index | None = None

    def clamp(self, b: Builder, r: int) -> Index:
        """The row that stands for the r-th."""
        return b.add(self.row, r if self.last is None else b.min(r, self.last))


@dataclass(frozen=True)
class Row:
    """One sequence at one step.

    Attributes:
        sequence: its number in the batch.
        slot: the element of its state in scratch memory.
        place: the step of its inputs and results.
        live: whether it has not ended.
    """

    sequence: Index
    slot: Index
    place: Index
    live: Value | bool


@dataclass(frozen=True)
class Part:
    """A vector of hidden elements: the first, and a mask of those that exist, or None for all."""

    element: Index
    mask: Value | None


Finish = Callable[["Layer", Index, Row, Part, Sequence[Value]], None]
"""Makes the state, or what a later product needs, of the sums of a product's gates."""


@dataclass(frozen=True)
class Layer:
    """One direction of a layer, for the sequences of a unit.

    Attributes:
        pull: gives elements of the operands, a vector of the target at a time.
        op: the layer.
        problem: what is computed.
        schedule: a legal schedule.
        packing: of r.
        r: the packed r.
        results: where the results lie.
        states: two states h in one buffer, then what else a step keeps; rows are `stride` apart.
        stride: see there.
        direction: its number.
        function: the direction whose functions are meant, known while emitting.
        first: the unit's first sequence.
        present: how many sequences it has.
        finishes: what becomes of the sums of each product of a step.
        products: writes products of states and r.
        codes: the states as integers, where they are quantized.
    """

    pull: Pull
    op: Any
    problem: RecurrentProblem
    schedule: RecurrentSchedule
    packing: RecurrentPacking
    r: Buffer
    results: Sequence[Source]
    states: Sequence[Buffer]
    stride: int
    direction: Index
    function: int
    first: Index
    present: Index
    finishes: Sequence[Finish]
    products: Products
    codes: StateCodes | None

    @property
    def b(self) -> Builder:
        return self.pull.b

    @property
    def s(self) -> Scalars:
        return Scalars(self.b, self.pull.lanes, self.problem.dtype)

    @property
    def depth(self) -> int:
        """Elements of k in the packed r."""
        return self.packing.size // self.packing.columns[-1]

    @property
    def half(self) -> int:
        """Elements of a state of all sequences."""
        return self.schedule.sequences * self.stride

    def write(self) -> None:
        """All steps of the unit's sequences."""
        b, steps = self.b, self.pull.shape(self.op.x)[0]
        initial = [self.op.initial_h, *([self.op.initial_c] if self.op.NAME == "nn.lstm" else [])]
        for buffer, start in zip(self.states, initial, strict=False):
            self._each(partial(self._begin, buffer, start))
        with b.loop(0, steps) as t, self.pull.scope():
            now = b.mul(b.rem(t, 2), self.half)
            self._step(t, now)
        end = b.mul(b.rem(steps, 2), self.half)
        for number, (buffer, _) in enumerate(zip(self.states, initial, strict=False)):
            self._each(partial(self._end, number + 1, buffer, end if number == 0 else 0))

    # -- states -------------------------------------------------------------------------------

    def _each(self, body: Callable[[Index, Index, Part], None]) -> None:
        """Call `body(sequence, slot, part)` for all vectors of a state of all sequences."""
        b, lanes, hidden = self.b, self.pull.lanes, self.problem.hidden
        whole = hidden // lanes * lanes
        with b.loop(0, self.present) as row, self.pull.scope():
            sequence, slot = b.add(self.first, row), b.mul(row, self.stride)
            if whole:
                with b.loop(0, whole, lanes) as j, self.pull.scope():
                    body(sequence, slot, Part(j, None))
            if whole < hidden:
                body(sequence, slot, Part(whole, b.tail_mask(hidden - whole, lanes)))

    def _begin(
        self, buffer: Buffer, start: Tensor | None, sequence: Index, slot: Index, part: Part
    ) -> None:
        value = self.s.const(0)
        if start is not None:
            value = self.read(start, [self.direction, sequence], part)
        self.b.store(value, buffer, self.b.add(slot, part.element), self.pull.lanes)

    def _end(
        self, result: int, buffer: Buffer, half: Index, sequence: Index, slot: Index, part: Part
    ) -> None:
        at = self.b.add(half, slot, part.element)
        value = self.b.load(buffer, at, self.pull.lanes)
        self.store(result, value, [self.direction, sequence], part)

    # -- elements -----------------------------------------------------------------------------

    def read(self, tensor: Tensor, at: Sequence[Coordinate], part: Part, skip: Index = 0) -> Value:
        """Elements `skip` behind the part's, on the last axis of an operand."""
        lane = Lane(self.b.add(skip, part.element), self.pull.lanes)
        with self.pull.masked(part.mask):
            return self.pull.value(tensor, [*at, lane])

    def read_gate(self, gate: int, row: Row, part: Part) -> Value:
        """The products of a gate with the inputs."""
        gates, hidden = self.op.GATES, self.problem.hidden
        skip = self.b.add(self.b.mul(self.direction, gates * hidden), gate * hidden)
        return self.read(self.op.x, [row.place, row.sequence], part, skip)

    def store(self, result: int, value: Value, at: Sequence[Coordinate], part: Part) -> None:
        """Store elements of a result."""
        lane = Lane(part.element, self.pull.lanes)
        with self.pull.masked(part.mask):
            self.pull.store(self.results[result], value, [*at, lane])

    def activate(self, function: int, x: Value) -> Value:
        return activate(self.s, self.op, self.function, function, x)

    def load_state(self, number: int, half: Index, row: Row, part: Part) -> Value:
        at = self.b.add(half, row.slot, part.element)
        return self.b.load(self.states[number], at, self.pull.lanes)

    def store_state(self, number: int, value: Value, half: Index, row: Row, part: Part) -> None:
        at = self.b.add(half, row.slot, part.element)
        self.b.store(value, self.states[number], at, self.pull.lanes)

    def alive(self, row: Row, value: Value, otherwise: Value) -> Value:
        """`value` while the sequence has not ended."""
        if row.live is True:
            return value
        return self.b.op(f"arith.select {row.live}, {value}, {otherwise} : {self.s.type}")

    def give(self, new: Value, now: Index, row: Row, part: Part) -> None:
        """The next state of a row, which is its result too."""
        old = new if row.live is True else self.load_state(0, now, row, part)
        following = self.b.sub(self.half, now)
        self.store_state(0, self.alive(row, new, old), following, row, part)
        shown = self.alive(row, new, self.s.const(0))
        self.store(0, shown, [row.place, self.direction, row.sequence], part)

    # -- steps --------------------------------------------------------------------------------

    def _step(self, t: Index, now: Index) -> None:
        b, hidden = self.b, self.problem.hidden
        for number, width in enumerate(self.packing.widths):
            if self.codes is not None:
                self.codes.write(b, *self._factor(number, now), self.present)
            whole = hidden // width * width
            if whole:
                with b.loop(0, whole, width) as element, self.pull.scope():
                    self._panel(t, number, element, width, now)
            if whole < hidden:
                self._panel(t, number, whole, hidden - whole, now)

    def _panel(self, t: Index, number: int, element: Index, present: int, now: Index) -> None:
        """The sums of a product for a panel of hidden elements, and what they become, for all rows."""
        lanes = self.pull.lanes
        parts = [
            Part(
                self.b.add(element, low),
                None if present - low >= lanes else self.b.tail_mask(present - low, lanes),
            )
            for low in range(0, present, lanes)
        ]
        self._tiles(lambda tile: self._tile(t, number, element, parts, tile, now))

    def _tiles(self, body: Callable[[Tile], None]) -> None:
        """Call `body` for all rows of the unit: whole tiles, then those that are left."""
        b, count = self.b, self.schedule.rows

        def scoped(tile: Tile) -> None:
            with self.pull.scope():
                body(tile)

        whole = b.mul(b.div(self.present, count), count)
        if whole != 0:
            with b.loop(0, whole, count) as row:
                scoped(Tile(row, count))
        batch = self.problem.batch
        rest = batch % count if isinstance(batch, int) else b.sub(self.present, whole)
        if rest == 0:
            return
        with b.when(b.compare("ne", whole, self.present)):
            if isinstance(rest, int):
                scoped(Tile(whole, rest))
                return
            several = partial(scoped, Tile(whole, count, b.sub(rest, 1)))
            b.either(b.compare("eq", rest, 1), partial(scoped, Tile(whole, 1)), several)

    def _row(self, t: Index, row: Index) -> Row:
        b, op = self.b, self.op
        steps, sequence = self.pull.shape(op.x)[0], b.add(self.first, row)
        length, live = steps, True
        if op.lengths is not None:
            given = data_index(self.pull, op.lengths, [sequence])
            assert isinstance(given, int | str)
            length = b.min(b.max(given, 0), steps)
            live = b.compare("slt", t, length)
        place: Index = t
        if op.direction != "forward":
            back = b.sub(b.sub(length, 1), t)
            reverse = True if op.direction == "reverse" else b.compare("eq", self.direction, 1)
            place = b.select(reverse, b.select(live, back, t), t)
        return Row(sequence, b.mul(row, self.stride), place, live)

    def _tile(
        self, t: Index, number: int, element: Index, parts: Sequence[Part], tile: Tile, now: Index
    ) -> None:
        b, gates = self.b, self.problem.products[number]
        vectors = self.schedule.vectors[number]
        rows = [self._row(t, tile.clamp(b, r)) for r in range(tile.count)]
        sums = self._sums(number, element, rows, parts, tile, now)
        for r, row in enumerate(rows):
            exists = True if tile.last is None else b.compare("sle", r, tile.last)
            with b.when(exists), self.pull.scope():
                for v, part in enumerate(parts):
                    first = r * len(gates) * vectors + v
                    mine = [sums[first + g * vectors] for g in range(len(gates))]
                    self.finishes[number](self, now, row, part, mine)

    def _factor(self, number: int, now: Index) -> tuple[Buffer, Index]:
        """What r multiplies in a product, and where the unit's first sequence begins."""
        return (self.states[0], now) if number == 0 else (self.states[-1], 0)

    def _sums(
        self,
        number: int,
        element: Index,
        rows: Sequence[Row],
        parts: Sequence[Part],
        tile: Tile,
        now: Index,
    ) -> list[Value]:
        """The sums of a product's gates for a tile, with all that is added to them: rows, gates, vectors."""
        b, lanes, gates = self.b, self.pull.lanes, self.problem.products[number]
        vectors, scaled = self.schedule.vectors[number], self.op.r_scale is not None
        cells = [
            (r, g, v) for r in range(tile.count) for g in range(len(gates)) for v in range(vectors)
        ]
        empty = b.zero(self.products.form.sum, lanes)

        def start(r: int, g: int, v: int) -> Value:
            return self._start(gates[g], rows[r], parts[v]) if v < len(parts) else empty

        starts = [empty if scaled else start(*cell) for cell in cells]
        buffer, first = self._factor(number, now)
        if self.codes is not None:
            buffer, first = self.codes.codes, 0
        group = self.products.form.group
        width = len(gates) * vectors * lanes
        totals = sum_products(
            b,
            self.products,
            TileRows(buffer, b.add(first, b.mul(tile.row, self.stride)), self.stride, group, tile.count, tile.last),
            TileColumns(
                self.r, self._panel_start(number, element), width * group, (None,) * (width // lanes),
                self.schedule.prefetch,
            ),
            lanes, 0, self.depth // group, self.schedule.unroll, starts,
        )  # fmt: skip
        if not scaled:
            return totals
        column = b.add(self._first_column(number), b.mul(element, len(gates)))
        return [
            self._scaled(
                total,
                tile.clamp(b, r),
                b.add(column, (g * vectors + v) * lanes),
                gates[g],
                parts[v],
                start(r, g, v),
            )
            if v < len(parts)
            else total
            for total, (r, g, v) in zip(totals, cells, strict=True)
        ]

    def _scaled(
        self, total: Value, row: Index, column: Index, gate: int, part: Part, start: Value
    ) -> Value:
        """A vector of sums of products with codes, times their scales, and what they are added to."""
        scale = self.read(self.op.r_scale, [self.direction], part, gate * self.problem.hidden)
        if self.codes is not None:
            total, step = self.codes.finished(self.b, total, row, column)
            scale = self.s.mul(step, scale)
        return self.b.fma(total, scale, start, self.pull.lanes, self.problem.dtype)

    def _first_column(self, number: int) -> Index:
        """The column where the panels of a product begin, among those of all directions."""
        columns = self.packing.columns
        return self.b.add(self.b.mul(self.direction, columns[-1]), columns[number])

    def _panel_start(self, number: int, element: Index) -> Index:
        """The element of the packed r where a panel begins."""
        b = self.b
        depth = len(self.problem.products[number]) * self.depth
        start = b.mul(self.direction, self.packing.size)
        return b.add(start, self.packing.starts[number], b.mul(element, depth))

    def _start(self, gate: int, row: Row, part: Part) -> Value:
        """What the products with the state are added to."""
        op = self.op
        apart = op.NAME == "nn.gru" and op.linear_before_reset and gate == op.GATES - 1
        value = self.s.const(0) if apart else self.read_gate(gate, row, part)
        if op.bias is None:
            return value
        bias = self.read(op.bias, [self.direction], part, gate * self.problem.hidden)
        return bias if apart else self.s.add(value, bias)
