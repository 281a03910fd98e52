"""Emitter of contractions: see compiler/schedule/contraction.py for the ways to compute one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from xcompile.compiler.codegen.cpu.builder import Buffer, Builder, Index, Value, vector_type
from xcompile.compiler.codegen.cpu.contraction_parts import Block, Panel, Tile
from xcompile.compiler.codegen.cpu.dot import dot_products
from xcompile.compiler.codegen.cpu.left_rows import LeftRows
from xcompile.compiler.codegen.cpu.panels import Fill, Panels
from xcompile.compiler.codegen.cpu.products import Products, finish_tile, products_of
from xcompile.compiler.codegen.cpu.register_tile import TileColumns, sum_products
from xcompile.compiler.codegen.cpu.sink import Sink
from xcompile.compiler.codegen.cpu.windows import index_of
from xcompile.compiler.schedule.contraction_problem import (
    ContractionProblem,
    ContractionSchedule,
    ContractionScratch,
    left_row_elements,
)
from xcompile.compiler.schedule.schedule import TargetNumbers


def emit_contraction(
    b: Builder,
    problem: ContractionProblem,
    schedule: ContractionSchedule,
    target: TargetNumbers,
    left: Buffer,
    right: Buffer,
    sink: Sink,
    begin: Index,
    end: Index,
    sizes: Mapping[str, Index] | None = None,
    scratch: Buffer | None = None,
    left_offset: Index = 0,
    right_offset: Index = 0,
    fill: Fill | None = None,
) -> None:
    """Write the units [begin, end) of a contraction.

    The sink gets (batch…, m, n) with lanes along n, or vectors of one lane from schedules of kind "dot".

    Args:
        b: where to write.
        problem: what is computed.
        schedule: a schedule that `check` accepts.
        target: the machine.
        left: A.
        right: B, or what `pack` made of it when it is constant.
        sink: takes each element of C exactly once.
        begin: the first unit of `extent`'s axis.
        end: the unit after the last.
        sizes: the SSA values of the problem's symbols.
        scratch: `scratch_bytes` of memory, aligned to 64 bytes; None when that is 0.
        left_offset: the element of `left` where A starts.
        right_offset: the element of `right` where B starts.
        fill: packs a panel from elsewhere than `right`, where the schedule says "pack".

    Raises:
        ScheduleError: the schedule is not legal.
    """
    schedule.check(problem, target)
    emitter = _Contraction.of(
        b, problem, schedule, target, left, right, sink, sizes or {}, scratch, fill
    )
    with b.loop(begin, end) as unit:
        if schedule.kind == "dot":
            emitter.dot_unit(unit, left_offset, right_offset)
        else:
            emitter.tile_unit(unit, left_offset, right_offset)


@dataclass(frozen=True)
class _Contraction:
    """Problem and schedule with every size as an index."""

    b: Builder
    problem: ContractionProblem
    schedule: ContractionSchedule
    products: Products
    lanes: int
    left: Buffer
    right: Buffer
    sink: Sink
    batch: tuple[Index, ...]
    m: Index
    n: Index
    k: Index
    a_strides: tuple[Index, ...]
    b_strides: tuple[Index, ...]
    rows: LeftRows
    panels: Panels
    partial: Buffer | None

    @classmethod
    def of(
        cls,
        b: Builder,
        problem: ContractionProblem,
        schedule: ContractionSchedule,
        target: TargetNumbers,
        left: Buffer,
        right: Buffer,
        sink: Sink,
        sizes: Mapping[str, Index],
        scratch: Buffer | None,
        fill: Fill | None,
    ) -> "_Contraction":
        def index(size: int | str) -> Index:
            return index_of(b, size, sizes)

        lanes, form = target.lanes(problem.bits), problem.form(target, schedule.rows)
        places = ContractionScratch.of(problem, schedule, target)

        def view(place: int | None, dtype: str) -> Buffer | None:
            return None if scratch is None or place is None else b.view(scratch, place, dtype)

        panel = view(places.panel, right.dtype)
        partials = view(places.partial, problem.dtype)
        n, k = index(problem.n), index(problem.k)
        a_strides = [index(stride) for stride in problem.strides("a")]
        b_strides = [index(stride) for stride in problem.strides("b")]
        if problem.constant_b:
            width = schedule.vectors * lanes
            depth = b.mul(b.ceildiv(k, form.group), form.group)
            one = b.mul(b.mul(b.ceildiv(n, width), width), depth)
            b_strides = [*_packed_batch(b, problem, one), width, 1]
        rows = LeftRows(
            b, form, lanes, left, problem.signed_left, k, (a_strides[-2], a_strides[-1]),
            view(places.left, form.left if form.widens_left else left.dtype),
            left_row_elements(problem, schedule, target),
        )  # fmt: skip
        panels = Panels(
            b, schedule.b, lanes, schedule.vectors, right, k, n,
            (b_strides[-2], b_strides[-1]), panel, form.group, fill,
        )  # fmt: skip
        return cls(
            b, problem, schedule, products_of(form, target), lanes, left, right, sink,
            tuple(index(s) for s in problem.batch), index(problem.m), n, k, tuple(a_strides),
            tuple(b_strides), rows, panels, partials,
        )  # fmt: skip

    @property
    def width(self) -> int:
        """Columns of a panel."""
        return self.schedule.vectors * self.lanes

    @property
    def type(self) -> str:
        return vector_type(self.lanes, self.problem.dtype)

    def _operands(
        self, batch: Sequence[Index], left_offset: Index, right_offset: Index
    ) -> tuple[Index, Index]:
        """The first elements of A and B of a batch."""
        b, depth = self.b, len(self.batch)
        return (
            b.add(left_offset, b.flatten(batch, self.a_strides[:depth])),
            b.add(right_offset, b.flatten(batch, self.b_strides[:depth])),
        )

    # -- tiles ------------------------------------------------------------------------------------

    def tile_unit(self, unit: Index, left_offset: Index, right_offset: Index) -> None:
        """One block of rows by columns: blocks of k, then panels, then tiles of rows."""
        b, schedule = self.b, self.schedule
        blocks = (b.ceildiv(self.m, schedule.m_block), b.ceildiv(self.n, schedule.n_block))
        *batch, i, j = b.unflatten(unit, (*self.batch, *blocks) if self.batch else (1, *blocks))
        batch = batch if self.batch else []
        left, right = self._operands(batch, left_offset, right_offset)
        first_row, first_column = b.mul(i, schedule.m_block), b.mul(j, schedule.n_block)
        rows = self._part(first_row, self.m, schedule.m_block)
        columns = self._part(first_column, self.n, schedule.n_block)
        group = self.products.form.group
        units, step = b.ceildiv(self.k, group), schedule.k_block // group
        with b.loop(0, self._k_limit(units), step) as low:
            high = b.min(b.add(low, step), units)
            if self.partial is None:
                high = units

            lefts = self.rows.at(left, first_row, rows, low, high)
            block = Block(batch, lefts, first_row, rows, low, high)

            def panel(column: Index, masks: tuple[Value | None, ...], block: Block = block) -> None:
                at = b.add(first_column, column)
                source, base, stride = self.panels.at(right, at, block.low, block.high)
                self._rows(block, Panel(source, base, stride, at, column, masks))

            self._panels(columns, panel)

    def _part(self, first: Index, size: Index, block: int) -> Index:
        """How many of a block's rows or columns exist."""
        if isinstance(size, int) and size <= block:
            return size
        if isinstance(size, int) and size % block == 0:
            return block
        return self.b.min(self.b.sub(size, first), block)

    def _k_limit(self, units: Index) -> Index:
        """The end of the loop over blocks of k, which runs at least once, so that the sink does."""
        if self.partial is None:
            return 1
        return self.b.max(units, 1)

    def _panels(
        self, columns: Index, body: Callable[[Index, tuple[Value | None, ...]], None]
    ) -> None:
        """Call `body(column, masks)` for whole panels in a loop and for what is left."""
        b, vectors = self.b, self.schedule.vectors
        whole = b.mul(b.div(columns, self.width), self.width)
        if whole != 0:
            with b.loop(0, whole, self.width) as column:
                body(column, (None,) * vectors)
        if isinstance(self.n, int) and self.n % self.width == 0:
            return
        with b.when(b.compare("ne", b.rem(columns, self.width), 0)):
            left = b.sub(columns, whole)
            if isinstance(self.n, int):
                left = self.n % self.width
                present = -(-left // self.lanes)
                masks: list[Value | None] = [None] * present
                if left % self.lanes:
                    masks[-1] = b.tail_mask(left % self.lanes, self.lanes)
            else:
                masks = [
                    b.tail_mask(b.max(b.sub(left, v * self.lanes), 0), self.lanes)
                    for v in range(vectors)
                ]
            body(whole, tuple(masks))

    def _rows(self, block: Block, panel: Panel) -> None:
        """All tiles of a panel: whole ones in a loop, then one with what is left."""
        b, count = self.b, self.schedule.rows

        def tile(row: Index, computed: int, present: Index) -> None:
            slot = b.add(b.mul(row, self.schedule.n_block), panel.slot)
            self._tile(block, panel, Tile(b.add(block.row, row), slot, computed, present))

        whole = b.mul(b.div(block.rows, count), count)
        if whole != 0:
            with b.loop(0, whole, count) as row:
                tile(row, count, count)
        rest = b.rem(self.m, count)
        if rest == 0:
            return
        with b.when(b.compare("ne", b.sub(block.rows, whole), 0)):
            pairs = self.products.form.rows
            tile(whole, -(-rest // pairs) * pairs if isinstance(rest, int) else count, rest)

    def _tile(self, block: Block, panel: Panel, tile: Tile) -> None:
        """Sum up a part of k, add what waits, then go to the sink or to the partial sums."""
        b, vectors, low, high = self.b, len(panel.masks), block.low, block.high
        zero = b.zero(self.problem.dtype, self.lanes)
        cells = [(r, v) for r in range(tile.rows) for v in range(vectors)]
        types = [self.type] * len(cells)

        def slot(r: int, v: int) -> Index:
            return b.add(tile.slot, r * self.schedule.n_block + v * self.lanes)

        masks = panel.masks if self.schedule.b == "direct" else (None,) * vectors
        columns = TileColumns(panel.source, panel.base, panel.stride, masks, self.schedule.prefetch)
        sums = sum_products(
            b,
            self.products,
            block.left.tile(b, tile.row, tile.rows, tile.present),
            columns,
            self.lanes,
            low,
            high,
            self.schedule.unroll,
            [zero] * len(cells),
        )

        def added() -> list[Value]:
            assert self.partial is not None
            waiting = [b.load(self.partial, slot(r, v), self.lanes) for r, v in cells]
            add = "arith.addi" if self.problem.is_integer else "arith.addf"
            return [
                b.binary(add, w, s, self.lanes, self.problem.dtype)
                for w, s in zip(waiting, sums, strict=True)
            ]

        totals = sums
        if self.partial is not None:
            totals = b.choose(b.compare("eq", low, 0), types, lambda: sums, added)

        def finish() -> None:
            done = finish_tile(b, self.products, totals, vectors, self.lanes)
            for (r, v), value in zip(cells, done, strict=True):
                exists = b.compare("slt", r, tile.present)
                if exists is False:
                    continue
                with b.when(exists):
                    at = (*block.batch, b.add(tile.row, r), b.add(panel.column, v * self.lanes))
                    self._deliver(value, at, v, panel.masks[v])

        def wait() -> None:
            assert self.partial is not None
            for (r, v), value in zip(cells, totals, strict=True):
                b.store(value, self.partial, slot(r, v), self.lanes)

        units = b.ceildiv(self.k, self.products.form.group)
        last = True if self.partial is None else b.compare("sge", high, units)
        b.either(last, finish, wait)

    def _deliver(self, value: Value, at: tuple[Index, ...], v: int, mask: Value | None) -> None:
        """Give a vector to the sink, unless all its lanes are past n."""
        exists = True
        if mask is not None and v > 0 and not isinstance(self.n, int):
            exists = self.b.compare("slt", at[-1], self.n)
        with self.b.when(exists):
            self.sink(self.b, value, at, self.lanes, mask)

    # -- dot products -----------------------------------------------------------------------------

    def dot_unit(self, unit: Index, left_offset: Index, right_offset: Index) -> None:
        """A block of rows of A times the vector B, a few rows at a time."""
        b, schedule = self.b, self.schedule
        blocks = b.ceildiv(self.m, schedule.m_block)
        *batch, i = b.unflatten(unit, (*self.batch, blocks) if self.batch else (1, blocks))
        batch = batch if self.batch else []
        left, right = self._operands(batch, left_offset, right_offset)
        first = b.mul(i, schedule.m_block)
        rows = self._part(first, self.m, schedule.m_block)
        whole = b.mul(b.div(rows, schedule.rows), schedule.rows)
        if whole != 0:
            with b.loop(0, whole, schedule.rows) as row:
                self._dots(batch, left, right, b.add(first, row), schedule.rows)
        if whole != rows:
            with b.loop(whole, rows) as row:
                self._dots(batch, left, right, b.add(first, row), 1)

    def _dots(
        self, batch: Sequence[Index], left: Index, right: Index, row: Index, count: int
    ) -> None:
        b = self.b
        starts = [b.add(left, b.mul(b.add(row, r), self.a_strides[-2])) for r in range(count)]
        totals = dot_products(b, self.left, starts, self.right, right, self.k, self.lanes)
        for r, total in enumerate(totals):
            one = b.broadcast(total, self.problem.dtype, 1)
            self.sink(b, one, (*batch, b.add(row, r), 0), 1, None)


def _packed_batch(b: Builder, problem: ContractionProblem, one: Index) -> list[Index]:
    """Strides of packed panels along the batch: 0 where B repeats."""
    strides: list[Index] = []
    given = problem.strides("b")
    for axis in reversed(range(len(problem.batch))):
        size = problem.batch[axis]
        strides.append(0 if given[axis] == 0 else one)
        if given[axis] != 0:
            one = b.mul(one, size if isinstance(size, int) else 1)
    return strides[::-1]
