"""Winograd convolutions F(m×m,3×3): see `compiler/schedule/winograd.py` for the algorithm and its blocking.

For each block of tiles the input of all channels is transformed into scratch memory; then, for each group of
output channels, (m+2)² matrix products and at once the output transform of the group, whose values go to the
caller's sink.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from xcompile.compiler.codegen.cpu.builder import Buffer, Builder, Index, Value, vector_type
from xcompile.compiler.codegen.cpu.sink import Sink
from xcompile.compiler.codegen.cpu.windows import index_of
from xcompile.compiler.codegen.cpu.winograd_transforms import Arithmetic, input_1d, output_1d
from xcompile.compiler.schedule.winograd import (
    WinogradProblem,
    WinogradSchedule,
    ceildiv,
    groups,
    scratch,
    tile_count,
    transformed_shape,
)
from xcompile.compiler.target.target import CACHE_LINE, Target


def emit_winograd(
    b: Builder,
    problem: WinogradProblem,
    schedule: WinogradSchedule,
    target: Target,
    x: Buffer,
    u: Buffer,
    sink: Sink,
    begin: Index,
    end: Index,
    sizes: Mapping[str, Index],
    memory: Buffer,
) -> None:
    """Write units [begin, end) of the convolution.

    Args:
        b: where to write.
        problem: what to compute.
        schedule: how.
        target: the machine.
        x: float32 input [n][ceil(c/V)][h][w][V].
        u: float32 transformed weights, of `transformed_shape`.
        sink: called once for each vector of valid output pixels; its mask is given only when `oc` is no
            multiple of the lanes.
        begin: first unit, see `extent`.
        end: one past the last unit.
        sizes: the values of the problem's symbols.
        memory: the thread's scratch, i8, aligned to 64 bytes, at least `scratch_bytes`.

    Raises:
        ScheduleError: the schedule is not legal.
    """
    schedule.check(problem, target)
    _Winograd(b, problem, schedule, x, u, sink, sizes, memory).units(begin, end)


@dataclass(frozen=True)
class _Segment:
    """The tiles of a block that lie in one row of tiles.

    Attributes:
        image: the image.
        row: the row of tiles in the image.
        first: column of the first tile.
        last: one past the column of the last tile.
        shift: added to a tile's column, gives its place in the block.
    """

    image: Index
    row: Index
    first: Index
    last: Index
    shift: Index


class _Winograd:
    """The emitter of one kernel: what its steps share."""

    def __init__(
        self,
        b: Builder,
        problem: WinogradProblem,
        schedule: WinogradSchedule,
        x: Buffer,
        u: Buffer,
        sink: Sink,
        sizes: Mapping[str, Index],
        memory: Buffer,
    ) -> None:
        self.b, self.problem, self.schedule = b, problem, schedule
        self.x, self.u, self.sink = x, u, sink
        self.m, self.edge = schedule.m, schedule.m + 2
        self.lanes = problem.block
        self.math = Arithmetic(b, self.lanes)
        layout = scratch(problem, schedule)
        self.frequency, self.tile = layout.frequency, layout.tile
        self.inputs = b.view(memory, layout.inputs, "f32")
        self.outputs = b.view(memory, layout.outputs, "f32")
        self.strip = b.view(memory, layout.strip, "f32")
        self.zeros = b.view(memory, layout.zeros, "f32")
        self.half = b.view(memory, layout.half, "f32")

        top, left, bottom, right = problem.pads
        self.h, self.w = index_of(b, problem.h, sizes), index_of(b, problem.w, sizes)
        self.oh, self.ow = b.add(self.h, top + bottom - 2), b.add(self.w, left + right - 2)
        self.tile_rows = b.ceildiv(self.oh, self.m)
        self.tile_columns = b.ceildiv(self.ow, self.m)
        self.tiles = b.mul(index_of(b, problem.n, sizes), b.mul(self.tile_rows, self.tile_columns))

    # -- the parallel axis --------------------------------------------------------------------

    def units(self, begin: Index, end: Index) -> None:
        b, schedule = self.b, self.schedule
        count = groups(self.problem, schedule)
        self._clear_zeros()
        tiles = tile_count(self.problem, self.m)
        if isinstance(tiles, int) and tiles <= schedule.tiles:
            self._block(0, tiles, begin, end)
            return
        with b.loop(b.div(begin, count), b.ceildiv(end, count)) as block:
            first = b.mul(block, schedule.tiles)
            valid: Index = schedule.tiles
            if not isinstance(tiles, int) or tiles % schedule.tiles:
                valid = b.min(b.sub(self.tiles, first), schedule.tiles)
            unit = b.mul(block, count)
            self._block(first, valid, b.max(b.sub(begin, unit), 0), b.min(b.sub(end, unit), count))

    def _clear_zeros(self) -> None:
        zero = self.b.float_constant(0.0, lanes=self.lanes)
        with self.b.loop(0, self.schedule.strip * self.m + 2) as column:
            self.b.store(zero, self.zeros, self.b.mul(column, self.lanes), self.lanes)

    def _block(self, first: Index, valid: Index, group_begin: Index, group_end: Index) -> None:
        """All of groups [group_begin, group_end) for tiles [first, first + valid)."""
        strip = self.schedule.strip
        with (
            self._segments(first, valid) as segment,
            self.b.loop(segment.first, segment.last, strip) as column,
        ):
            stop = self.b.min(self.b.add(column, strip), segment.last)
            self._transform_strip(segment, column, stop)
        with self.b.loop(group_begin, group_end) as group:
            self._products(group, valid)
            self._transform_outputs(first, valid, group)

    @contextmanager
    def _segments(self, first: Index, valid: Index) -> Iterator[_Segment]:
        """A loop over the rows of tiles that the block touches."""
        b, columns = self.b, self.tile_columns
        end = b.add(first, valid)
        with b.loop(b.div(first, columns), b.ceildiv(end, columns)) as row:
            start = b.mul(row, columns)
            yield _Segment(
                image=b.div(row, self.tile_rows),
                row=b.rem(row, self.tile_rows),
                first=b.max(b.sub(first, start), 0),
                last=b.min(b.sub(end, start), columns),
                shift=b.sub(start, first),
            )

    # -- input --------------------------------------------------------------------------------

    def _transform_strip(self, segment: _Segment, first: Index, last: Index) -> None:
        """Transform tile columns [first, last): down all pixel columns once, then along each tile."""
        b = self.b
        top, left, _, _ = self.problem.pads
        rows = [b.add(b.mul(segment.row, self.m), i - top) for i in range(self.edge)]
        inside = [b.op(f"arith.cmpi ult, {b.index(y)}, {b.index(self.h)} : index") for y in rows]
        x0 = b.sub(b.mul(first, self.m), left)
        count = b.add(b.mul(b.sub(last, first), self.m), 2)
        low = b.max(b.sub(0, x0), 0)
        high = b.min(count, b.sub(self.w, x0))
        blocks = ceildiv(self.problem.c, self.lanes)
        with b.loop(0, blocks) as block:
            plane = b.mul(b.add(b.mul(segment.image, blocks), block), self.h)
            sources = [
                self._row(y, valid, plane, x0) for y, valid in zip(rows, inside, strict=True)
            ]
            self._clear_columns(0, low)
            with b.loop(low, high) as column:
                at = b.mul(column, self.lanes)
                pixels = [b.load(row, b.add(start, at), self.lanes) for row, start in sources]
                self._store_column(column, input_1d(self.math, pixels, self.m))
            self._clear_columns(high, count)
            place = b.mul(b.mul(block, self.schedule.tiles), self.lanes)
            with b.loop(first, last) as tile:
                self._transform_tile(
                    b.mul(b.sub(tile, first), self.m),
                    b.add(place, b.mul(b.add(tile, segment.shift), self.lanes)),
                )

    def _row(self, y: Index, inside: Value, plane: Index, x0: Index) -> tuple[Buffer, Index]:
        """Where row `y` of the image starts, column `x0` at offset 0; a row of zeros if outside."""
        b = self.b
        start = b.mul(b.add(b.mul(b.add(plane, y), self.w), x0), self.lanes)
        kind = self.x.type
        name = b.op(f"arith.select {inside}, {self.x.name}, {self.zeros.name} : {kind}")
        return Buffer(name, "f32"), b.select(inside, start, 0)

    def _clear_columns(self, low: Index, high: Index) -> None:
        zero = self.b.float_constant(0.0, lanes=self.lanes)
        with self.b.loop(low, high) as column:
            self._store_column(column, [zero] * self.edge)

    def _store_column(self, column: Index, values: list[Value]) -> None:
        at = self.b.mul(column, self.edge * self.lanes)
        for i, value in enumerate(values):
            self.b.store(value, self.strip, self.b.add(at, i * self.lanes), self.lanes)

    def _transform_tile(self, column: Index, place: Index) -> None:
        b, edge, lanes = self.b, self.edge, self.lanes
        at = b.mul(column, edge * lanes)
        with b.loop(0, edge) as i:
            source = b.add(at, b.mul(i, lanes))
            goal = b.add(place, b.mul(i, edge * self.frequency))
            pixels = [
                b.load(self.strip, b.add(source, j * edge * lanes), lanes) for j in range(edge)
            ]
            for j, value in enumerate(input_1d(self.math, pixels, self.m)):
                b.store(value, self.inputs, b.add(goal, j * self.frequency), lanes)

    # -- products -----------------------------------------------------------------------------

    def _products(self, group: Index, valid: Index) -> None:
        """outputs[tile][f][oc] = Σ_c inputs[f][c][tile] · u[group][f][c][oc], for all frequencies."""
        b, schedule = self.b, self.schedule
        _, frequencies, panels, channels, width = transformed_shape(self.problem, schedule)
        with b.loop(0, frequencies) as frequency, b.loop(0, panels) as panel:
            weights = b.add(b.mul(b.add(b.mul(group, frequencies), frequency), panels), panel)
            weights = b.mul(weights, channels * width)
            inputs = b.mul(frequency, self.frequency)
            outputs = b.add(b.mul(frequency, schedule.oc_block), b.mul(panel, width))
            with b.loop(0, channels, schedule.k_block) as k:
                self._panel(weights, inputs, outputs, k, valid)

    def _panel(self, weights: Index, inputs: Index, outputs: Index, k: Index, valid: Index) -> None:
        """One panel of weights and one block of input channels, for all tiles of the block."""
        b, schedule = self.b, self.schedule
        parts = row_parts(schedule.tiles, schedule.rows)
        number = sum(count for _, count in parts)
        first = 0
        for part, (rows, count) in enumerate(parts):
            trips: Index = count
            if valid != schedule.tiles:
                left = b.max(b.sub(valid, first), 0)
                trips = b.min(b.ceildiv(left, rows), count)
            before = sum(n for _, n in parts[:part])
            with b.loop(0, trips) as trip:
                tile = b.add(b.mul(trip, rows), first)
                self._register_tile(
                    weights,
                    b.add(inputs, b.mul(tile, self.lanes)),
                    b.add(outputs, b.mul(tile, self.tile)),
                    k,
                    rows,
                    _Share(b.add(trip, before), number),
                )
            first += rows * count

    def _register_tile(
        self, weights: Index, inputs: Index, outputs: Index, k: Index, rows: int, share: "_Share"
    ) -> None:
        b, schedule, lanes = self.b, self.schedule, self.lanes
        channels = ceildiv(self.problem.c, lanes) * lanes
        places = [
            b.add(outputs, i * self.tile + j * lanes)
            for i in range(rows)
            for j in range(schedule.vectors)
        ]
        zero = b.float_constant(0.0, lanes=lanes)
        kinds = [vector_type(lanes, "f32")] * len(places)
        stop = (
            channels
            if schedule.k_block >= channels
            else b.min(b.add(k, schedule.k_block), channels)
        )
        step = schedule.unroll

        def block(kb: Index, carried: list[Value]) -> list[Value]:
            plane = b.add(inputs, b.mul(kb, schedule.tiles))

            def few(kk: Index, carried: list[Value]) -> list[Value]:
                panel = b.add(weights, b.mul(b.add(kb, kk), schedule.vectors * lanes))
                self._prefetch(weights, b.add(kb, kk), k, share)
                return self._multiply(panel, b.add(plane, kk), rows, carried)

            return b.reduce(0, lanes, step, carried, kinds, few)

        sums = b.reduce(k, stop, lanes, [zero] * len(places), kinds, block)
        sums = b.choose(  # each pass starts from zero: shorter sums have smaller errors
            b.compare("eq", k, 0),
            kinds,
            lambda: sums,
            lambda: [
                self.math.add(b.load(self.outputs, place, lanes), value)
                for place, value in zip(places, sums, strict=True)
            ],
        )
        for place, value in zip(places, sums, strict=True):
            b.store(value, self.outputs, place, lanes)

    def _multiply(
        self, panel: Index, inputs: Index, rows: int, carried: list[Value]
    ) -> list[Value]:
        """Add `unroll` input channels to the accumulators [row][vector]."""
        b, lanes, vectors = self.b, self.lanes, self.schedule.vectors
        sums = list(carried)
        for c in range(self.schedule.unroll):
            weights = [
                b.load(self.u, b.add(panel, (c * vectors + j) * lanes), lanes)
                for j in range(vectors)
            ]
            for i in range(rows):
                value = b.load(self.inputs, b.add(inputs, i * lanes + c))
                value = b.broadcast(value, "f32", lanes)
                for j, weight in enumerate(weights):
                    at = i * vectors + j
                    sums[at] = b.fma(value, weight, sums[at], lanes)
        return sums

    def _prefetch(self, weights: Index, channel: Index, k: Index, share: "_Share") -> None:
        """Prefetch this register tile's share of a coming panel, a few lines a trip."""
        b, schedule = self.b, self.schedule
        if not schedule.prefetch:
            return
        width = schedule.vectors * self.lanes
        line = CACHE_LINE // 4
        lines = ceildiv(ceildiv(schedule.unroll * width, line), share.parts)
        panel = min(schedule.k_block, ceildiv(self.problem.c, self.lanes) * self.lanes)
        trips = panel // schedule.unroll
        trip = b.div(b.sub(channel, k), schedule.unroll)
        at = b.add(
            b.add(weights, b.mul(k, width)),
            schedule.prefetch * panel * width,
            b.mul(b.add(b.mul(share.part, trips), trip), lines * line),
        )
        for i in range(lines):
            b.prefetch(self.u, b.add(at, i * line))

    # -- outputs ------------------------------------------------------------------------------

    def _transform_outputs(self, first: Index, valid: Index, group: Index) -> None:
        """Transform the products of a group and give them to the sink."""
        b, lanes, schedule = self.b, self.lanes, self.schedule
        channel0 = b.mul(group, schedule.oc_block)
        last: Index = schedule.oc_block
        if self.problem.oc % schedule.oc_block:
            last = b.min(b.sub(self.problem.oc, channel0), last)
        with b.loop(0, last, lanes) as offset:
            channel = b.add(channel0, offset)
            mask = None
            if self.problem.oc % lanes:
                mask = b.tail_mask(b.sub(self.problem.oc, channel), lanes)
            with self._segments(first, valid) as segment:
                rows = b.min(b.sub(self.oh, b.mul(segment.row, self.m)), self.m)
                with b.loop(segment.first, segment.last) as tile:
                    at = b.add(offset, b.mul(b.add(tile, segment.shift), self.tile))
                    self._transform_down(at)
                    self._transform_along(segment, tile, channel, rows, mask)

    def _transform_down(self, at: Index) -> None:
        b, edge, lanes, stride = self.b, self.edge, self.lanes, self.schedule.oc_block
        with b.loop(0, edge) as j:
            source = b.add(at, b.mul(j, stride))
            column = [
                b.load(self.outputs, b.add(source, i * edge * stride), lanes) for i in range(edge)
            ]
            goal = b.mul(j, lanes)
            for i, value in enumerate(output_1d(self.math, column, self.m)):
                b.store(value, self.half, b.add(goal, i * edge * lanes), lanes)

    def _transform_along(
        self, segment: _Segment, tile: Index, channel: Index, rows: Index, mask: Value | None
    ) -> None:
        b, edge, lanes = self.b, self.edge, self.lanes
        x0 = b.mul(tile, self.m)
        with b.loop(0, rows) as i:
            at = b.mul(i, edge * lanes)
            values = [b.load(self.half, b.add(at, j * lanes), lanes) for j in range(edge)]
            y = b.add(b.mul(segment.row, self.m), i)
            for j, value in enumerate(output_1d(self.math, values, self.m)):
                pixel = (segment.image, channel, y, b.add(x0, j))
                if j == 0 or (isinstance(self.ow, int) and self.ow % self.m == 0):
                    self.sink(b, value, pixel, lanes, mask)
                    continue
                inside = b.compare("slt", b.add(x0, j), self.ow)
                if isinstance(inside, str):
                    with b.when(inside):
                        self.sink(b, value, pixel, lanes, mask)
                elif inside:
                    self.sink(b, value, pixel, lanes, mask)


@dataclass(frozen=True)
class _Share:
    """Which of how many register tiles of a block of tiles: each prefetches its part of a panel."""

    part: Index
    parts: int


def row_parts(tiles: int, rows: int) -> list[tuple[int, int]]:
    """Split `tiles` into register tiles of at most `rows`, as equal as can be: (rows, how many)."""
    number = ceildiv(tiles, rows)
    small, more = divmod(tiles, number)
    parts = [(small + 1, more), (small, number - more)]
    return [(size, count) for size, count in parts if count]
