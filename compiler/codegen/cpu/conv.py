"""The emitter of direct convolution; see `compiler/schedule/conv.py` for the blocking."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xcompile.compiler.codegen.cpu.builder import Buffer, Builder, Index, Value, vector_type
from xcompile.compiler.codegen.cpu.sink import Sink
from xcompile.compiler.codegen.cpu.windows import WindowSizes
from xcompile.compiler.schedule.conv import (
    ConvBlocking,
    ConvProblem,
    ConvSchedule,
    partial_floats,
    staged_floats,
)
from xcompile.compiler.schedule.schedule import TargetNumbers

LINE = 16
"""Floats of a cache line."""


def emit_conv(
    b: Builder,
    problem: ConvProblem,
    schedule: ConvSchedule,
    target: TargetNumbers,
    x: Buffer,
    weights: Buffer,
    sink: Sink,
    begin: Index,
    end: Index,
    sizes: Mapping[str, Index],
    scratch: Buffer | None,
) -> None:
    """Write the units [begin, end) of a convolution.

    Args:
        b: where to write.
        problem: the convolution.
        schedule: a legal schedule.
        target: the machine.
        x: the input, in the problem's layout.
        weights: what `pack` returned.
        sink: called with output indices (n, channel, row, column), lanes along channels.
        begin: the first unit.
        end: one past the last unit.
        sizes: values of the problem's symbols.
        scratch: `scratch_bytes` of memory (i8), aligned to 64 bytes; None when no bytes are needed.
    """
    _Emitter(b, problem, schedule, target, x, weights, sink, sizes, scratch).units(begin, end)


@dataclass(frozen=True)
class _Source:
    """Where a tile's input pixels are: float offsets and strides in a buffer."""

    buffer: Buffer
    base: Index
    plane: Index
    row: Index
    steps: tuple[int, int]  # input rows and columns from one output pixel to the next


@dataclass(frozen=True)
class _Tile:
    """A tile of output pixels of one image and group."""

    n: Index
    group: Index
    oh: Index
    ow: Index
    height: Index
    width: Index
    source: _Source


@dataclass(frozen=True)
class _Place:
    """Row and column of an output pixel in its tile; the column is `column + shift`."""

    row: Index
    column: Index
    shift: int = 0


class _Emitter:
    def __init__(
        self,
        b: Builder,
        problem: ConvProblem,
        schedule: ConvSchedule,
        target: TargetNumbers,
        x: Buffer,
        weights: Buffer,
        sink: Sink,
        sizes: Mapping[str, Index],
        scratch: Buffer | None,
    ) -> None:
        self.b, self.problem, self.schedule = b, problem, schedule
        self.x, self.weights, self.sink = x, weights, sink
        self.blocking = ConvBlocking.of(problem, schedule, target)
        self.lanes = self.blocking.lanes
        self.type = vector_type(self.lanes, "f32")
        self.sizes = WindowSizes.of(b, problem, sizes)
        staged = staged_floats(problem, schedule, target)
        partial = partial_floats(problem, schedule, target)
        self.staged = b.view(scratch, 0, "f32") if scratch and staged else None
        self.partial = b.view(scratch, 4 * staged, "f32") if scratch and partial else None

    # -- units --------------------------------------------------------------------------------

    def units(self, begin: Index, end: Index) -> None:
        """Tiles in the outer loop, which stages, and a tile's panels in the inner one."""
        b, panels, schedule = self.b, self.blocking.panels, self.schedule
        tiles_h = b.ceildiv(self.sizes.oh, schedule.tile_h)
        tiles_w = b.ceildiv(self.sizes.ow, schedule.tile_w)
        with b.loop(b.div(begin, panels), b.ceildiv(end, panels)) as tile_index:
            n, group, y, x = b.unflatten(
                tile_index, [self.sizes.n, self.blocking.groups, tiles_h, tiles_w]
            )
            tile = self.tile(n, group, b.mul(y, schedule.tile_h), b.mul(x, schedule.tile_w))
            first = b.mul(tile_index, panels)
            low = b.max(b.sub(begin, first), 0)
            high = b.min(b.sub(end, first), panels)
            with b.loop(low, high) as panel:
                self.panel(tile, panel)

    def tile(self, n: Index, group: Index, oh: Index, ow: Index) -> _Tile:
        """The tile whose first output pixel is given, staged if the schedule says so."""
        b, schedule, sizes = self.b, self.schedule, self.sizes
        height = _clip(b, sizes.oh, oh, schedule.tile_h)
        width = _clip(b, sizes.ow, ow, schedule.tile_w)
        window, blocking = self.problem.window, self.blocking
        if self.staged is not None:
            self.stage(n, group, oh, ow, height, width)
            steps = [1 if k == 1 else s for k, s in zip(window.kernel, window.strides, strict=True)]
            row = blocking.columns * blocking.pixel
            source = _Source(self.staged, 0, blocking.plane, row, (steps[0], steps[1]))
        else:
            row = b.mul(sizes.w, blocking.pixel)
            plane = b.mul(sizes.h, row)
            at = [
                self.input_plane(n, group),
                b.mul(oh, window.strides[0]),
                b.mul(ow, window.strides[1]),
            ]
            base = b.flatten(at, [plane, row, blocking.pixel])
            source = _Source(self.x, base, plane, row, window.strides)
        return _Tile(n, group, oh, ow, height, width, source)

    def input_plane(self, n: Index, group: Index) -> Index:
        """The number of the first input plane of a group."""
        blocking = self.blocking
        all_planes = blocking.groups * blocking.planes
        return self.b.add(self.b.mul(n, all_planes), self.b.mul(group, blocking.planes))

    # -- staging ------------------------------------------------------------------------------

    def stage(
        self, n: Index, group: Index, oh: Index, ow: Index, height: Index, width: Index
    ) -> None:
        """Copy the input of a tile to scratch memory, with zeros where the padding is."""
        b, blocking, sizes = self.b, self.blocking, self.sizes
        window = self.problem.window
        rows, columns = self.staged_extent(0, height), self.staged_extent(1, width)
        step_h, step_w = (
            s if k == 1 else 1 for k, s in zip(window.kernel, window.strides, strict=True)
        )
        top = b.sub(b.mul(oh, window.strides[0]), window.pads[0])
        left = b.sub(b.mul(ow, window.strides[1]), window.pads[1])
        begin = b.min(b.ceildiv(b.max(b.sub(0, left), 0), step_w), columns)
        finish = b.min(b.ceildiv(b.max(b.sub(sizes.w, left), 0), step_w), columns)
        finish = b.max(begin, finish)
        first_plane = self.input_plane(n, group)
        with b.loop(0, blocking.planes) as plane, b.loop(0, rows) as row:
            y = b.add(top, b.mul(row, step_h))
            inside = self.inside(y, sizes.h)
            low = b.select(inside, begin, columns)
            high = b.select(inside, finish, columns)
            target = b.flatten([plane, row], [blocking.plane, blocking.columns * blocking.pixel])
            source_row = b.add(b.mul(b.add(first_plane, plane), sizes.h), y)
            source = b.mul(b.add(b.mul(source_row, sizes.w), left), blocking.pixel)
            self.fill(target, 0, low)
            self.copy(target, source, low, high, step_w)
            self.fill(target, high, columns)

    def staged_extent(self, axis: int, size: Index) -> Index:
        window = self.problem.window
        if window.kernel[axis] == 1:
            return size
        return self.b.add(self.b.mul(self.b.sub(size, 1), window.strides[axis]), window.span(axis))

    def inside(self, y: Index, rows: Index) -> Value | bool:
        """Whether an input row exists."""
        b = self.b
        if not any(self.problem.window.pads[::2]):
            return True
        if isinstance(y, int) and isinstance(rows, int):
            return 0 <= y < rows
        return b.op(f"arith.cmpi ult, {b.index(y)}, {b.index(rows)} : index")

    def fill(self, row: Index, low: Index, high: Index) -> None:
        """Zeros into the pixels [low, high) of a staged row."""
        if isinstance(low, int) and isinstance(high, int) and low >= high:
            return
        b, pixel = self.b, self.blocking.pixel
        assert self.staged is not None
        zero = b.float_constant(0.0, "f32", pixel if pixel > 1 else 0)
        with b.loop(low, high) as column:
            b.store(zero, self.staged, b.add(row, b.mul(column, pixel)), pixel if pixel > 1 else 0)

    def copy(self, row: Index, source: Index, low: Index, high: Index, step: int) -> None:
        """Input pixels into the pixels [low, high) of a staged row."""
        b, pixel = self.b, self.blocking.pixel
        lanes = pixel if pixel > 1 else 0
        assert self.staged is not None
        if not lanes and step == 1:  # whole vectors of neighbouring pixels first
            count = b.div(b.sub(high, low), self.lanes)
            whole = b.add(low, b.mul(count, self.lanes))
            with b.loop(low, whole, self.lanes) as column:
                value = b.load(self.x, b.add(source, column), self.lanes)
                b.store(value, self.staged, b.add(row, column), self.lanes)
            low = whole
        with b.loop(low, high) as column:
            value = b.load(self.x, b.add(source, b.mul(column, pixel * step)), lanes)
            b.store(value, self.staged, b.add(row, b.mul(column, pixel)), lanes)

    # -- one panel of a tile ------------------------------------------------------------------

    def panel(self, tile: _Tile, panel: Index) -> None:
        """All pixels of a tile for one panel of output channels."""
        b, blocking, schedule = self.b, self.blocking, self.schedule
        number = b.add(b.mul(tile.group, blocking.panels), panel)
        weights = b.mul(number, blocking.panel)
        with b.loop(0, blocking.in_blocks, schedule.k_blocks) as first:
            count = _clip(b, blocking.in_blocks, first, schedule.k_blocks)
            self.register_tiles(tile, panel, weights, first, count)

    def register_tiles(
        self, tile: _Tile, panel: Index, weights: Index, first: Index, count: Index
    ) -> None:
        """All register tiles of a tile, for one part of the input channels."""
        b, size = self.b, self.schedule.pixels
        total = b.mul(tile.height, tile.width)

        def emit(pixel: Index, number: Index, pixels: int, valid: Index | None) -> None:
            _RegisterTile(self, tile, panel, pixel, number, pixels, valid).emit(
                weights, first, count
            )

        if isinstance(total, int):
            start = done = 0
            for pixels, times in split(total, size):
                with b.loop(0, times) as index:
                    pixel = b.add(b.mul(index, pixels), start)
                    emit(pixel, b.add(index, done), pixels, None)
                start, done = start + pixels * times, done + times
            return
        whole = b.div(total, size)
        with b.loop(0, whole) as index:
            emit(b.mul(index, size), index, size, None)
        pixel = b.mul(whole, size)
        rest = b.sub(total, pixel)
        condition = b.compare("sgt", rest, 0)
        with b.when(condition):
            emit(pixel, whole, size, rest)


class _RegisterTile:
    """Some output pixels times the vectors of a panel, held in registers."""

    def __init__(
        self,
        emitter: _Emitter,
        tile: _Tile,
        panel: Index,
        pixel: Index,
        number: Index,
        pixels: int,
        valid: Index | None,
    ) -> None:
        """A register tile.

        Args:
            emitter: of the convolution.
            tile: the tile it belongs to.
            panel: the number of the panel in its group.
            pixel: the number of the first pixel in the tile.
            number: the number of the register tile in the tile.
            pixels: how many pixels.
            valid: how many of the pixels exist (at least one); None says all. The others repeat the last.
        """
        self.emitter, self.b, self.tile = emitter, emitter.b, tile
        self.panel, self.pixel, self.number = panel, pixel, number
        self.pixels, self.valid = pixels, valid
        self.vectors = emitter.schedule.vectors
        self.cells = [(i, j) for i in range(pixels) for j in range(self.vectors)]

    def emit(self, weights: Index, first: Index, count: Index) -> None:
        """Sum up `count` blocks of input channels from `first` on; the last part goes to the sink."""
        emitter, b = self.emitter, self.b
        blocks = emitter.blocking.in_blocks
        types = [emitter.type] * len(self.cells)
        zero = b.float_constant(0.0, "f32", emitter.lanes)
        places = self.places()
        sums = b.choose(
            True if emitter.partial is None else b.compare("eq", first, 0),
            types,
            lambda: [zero] * len(self.cells),
            self.load_partial,
        )
        sums = self.reduce(sums, types, places, weights, first, count)
        if emitter.partial is None:
            self.finish(sums, places)
            return
        last = b.compare("sge", b.add(first, count), blocks)
        b.either(last, lambda: self.finish(sums, places), lambda: self.store_partial(sums))

    # -- where the pixels are -----------------------------------------------------------------

    def places(self) -> list[_Place]:
        """Where each pixel is, counted from the tile's first one."""
        b, tile = self.b, self.tile
        width = tile.width
        if self.valid is not None:
            last = b.sub(self.valid, 1)
            numbers = [b.add(self.pixel, b.min(i, last)) for i in range(self.pixels)]
            if tile.height == 1:
                return [_Place(0, number) for number in numbers]
            return [_Place(b.div(number, width), b.rem(number, width)) for number in numbers]
        if tile.height == 1:
            return [_Place(0, self.pixel, i) for i in range(self.pixels)]
        row, column = b.div(self.pixel, width), b.rem(self.pixel, width)
        if isinstance(width, int) and width % self.pixels == 0:
            return [_Place(row, column, i) for i in range(self.pixels)]
        places = [_Place(row, column)]
        for _ in range(1, self.pixels):
            column = b.add(column, 1)
            wraps = b.compare("eq", column, width)
            column = b.select(wraps, 0, column)
            row = b.select(wraps, b.add(row, 1), row)
            places.append(_Place(row, column))
        return places

    def offsets(self, places: Sequence[_Place]) -> list[tuple[Index, int]]:
        """The float offset of each pixel's first input, as a sum whose second term is known."""
        b, source = self.b, self.tile.source
        row_step = b.mul(source.row, source.steps[0])
        column_step = source.steps[1] * self.emitter.blocking.pixel
        known: dict[tuple[Index, Index], Index] = {}
        for place in places:
            at = (place.row, place.column)
            if at not in known:
                known[at] = b.add(source.base, b.flatten(at, [row_step, column_step]))
        return [(known[place.row, place.column], place.shift * column_step) for place in places]

    # -- the sum ------------------------------------------------------------------------------

    def reduce(
        self,
        sums: list[Value],
        types: list[str],
        places: Sequence[_Place],
        weights: Index,
        first: Index,
        count: Index,
    ) -> list[Value]:
        """The loops over blocks, kernel columns, kernel rows and channels of a block."""
        emitter, b = self.emitter, self.b
        blocking, schedule, window = emitter.blocking, emitter.schedule, emitter.problem.window
        source = self.tile.source
        offsets = self.offsets(places)
        kh, kw = window.kernel
        tap = blocking.channels * schedule.vectors * emitter.lanes
        lane_stride = 1 if blocking.pixel > 1 else source.plane

        def over_channels(at: Index, weight: Index, carried: list[Value]) -> Sequence[Value]:
            def body(channel: Index, inner: list[Value]) -> Sequence[Value]:
                x = b.add(at, b.mul(channel, lane_stride))
                w = b.add(weight, b.mul(channel, schedule.vectors * emitter.lanes))
                self.prefetch(w, count)
                self.prefetch_input(offsets[0][0], x)
                return self.step(inner, offsets, x, w, lane_stride)

            return b.reduce(0, blocking.channels, schedule.unroll, carried, types, body)

        def over_block(block: Index, carried: list[Value]) -> Sequence[Value]:
            x0 = b.mul(block, source.plane)
            w0 = b.add(weights, b.mul(block, kh * kw * tap))

            def over_columns(s: Index, outer: list[Value]) -> Sequence[Value]:
                x1 = b.add(x0, b.mul(s, window.dilations[1] * blocking.pixel))
                w1 = b.add(w0, b.mul(s, kh * tap))

                def over_rows(r: Index, inner: list[Value]) -> Sequence[Value]:
                    x2 = b.add(x1, b.mul(b.mul(r, window.dilations[0]), source.row))
                    return over_channels(x2, b.add(w1, b.mul(r, tap)), inner)

                return b.reduce(0, kh, schedule.unroll_rows, outer, types, over_rows)

            return b.reduce(0, kw, 1, carried, types, over_columns)

        return b.reduce(first, b.add(first, count), 1, sums, types, over_block)

    def step(
        self,
        sums: list[Value],
        offsets: Sequence[tuple[Index, int]],
        x: Index,
        w: Index,
        lane_stride: Index,
    ) -> list[Value]:
        """The unrolled channels: for each, load the weights and a broadcast pixel after the other."""
        emitter, b, lanes = self.emitter, self.b, self.emitter.lanes
        schedule, buffer = emitter.schedule, self.tile.source.buffer
        row_stride = b.mul(self.tile.source.row, emitter.problem.window.dilations[0])
        sums = list(sums)
        starts = {offset: b.add(offset, x) for offset, _ in offsets}
        for number in range(schedule.unroll_rows * schedule.unroll):
            r, channel = divmod(number, schedule.unroll)
            shift = b.add(b.mul(r, row_stride), b.mul(channel, lane_stride))
            row = b.add(w, number * self.vectors * lanes)
            columns = [
                b.load(emitter.weights, b.add(row, j * lanes), lanes) for j in range(self.vectors)
            ]
            for i, (offset, known) in enumerate(offsets):
                scalar = b.load(buffer, b.add(starts[offset], known, shift))
                pixel = b.broadcast(scalar, "f32", lanes)
                for j, column in enumerate(columns):
                    cell = i * self.vectors + j
                    sums[cell] = b.fma(pixel, column, sums[cell], lanes)
        return sums

    def prefetch(self, w: Index, count: Index) -> None:
        """Fetch this register tile's share of the weights that come after the present part."""
        emitter, b, schedule = self.emitter, self.b, self.emitter.schedule
        if not schedule.prefetch:
            return
        kh, kw = emitter.problem.window.kernel
        step = schedule.unroll * schedule.unroll_rows * self.vectors * emitter.lanes
        lines = -(-step // LINE)
        tiles = -(-schedule.tile_h * schedule.tile_w // schedule.pixels)
        share = -(-lines // tiles)
        part = b.mul(count, kh * kw * emitter.blocking.channels * self.vectors * emitter.lanes)
        at = b.add(w, part, b.mul(self.number, share * LINE))
        for line in range(share):
            b.prefetch(emitter.weights, b.add(at, line * LINE))

    def prefetch_input(self, offset: Index, x: Index) -> None:
        """Fetch what the next register tile reads in the present block of channels."""
        emitter, b = self.emitter, self.b
        if not emitter.schedule.prefetch_input:
            return
        floats = self.pixels * self.tile.source.steps[1] * emitter.blocking.pixel
        at = b.add(offset, x, floats)
        for line in range(0, floats, LINE):
            b.prefetch(self.tile.source.buffer, b.add(at, line))

    # -- partial sums and results -------------------------------------------------------------

    def load_partial(self) -> list[Value]:
        emitter = self.emitter
        assert emitter.partial is not None
        return [
            self.b.load(emitter.partial, self.partial_place(i, j), emitter.lanes)
            for i, j in self.cells
        ]

    def store_partial(self, sums: Sequence[Value]) -> None:
        emitter = self.emitter
        assert emitter.partial is not None
        for (i, j), value in zip(self.cells, sums, strict=True):
            with self.b.when(self.exists(i)):
                self.b.store(value, emitter.partial, self.partial_place(i, j), emitter.lanes)

    def partial_place(self, i: int, j: int) -> Index:
        width = self.vectors * self.emitter.lanes
        return self.b.add(self.b.mul(self.pixel, width), i * width + j * self.emitter.lanes)

    def exists(self, i: int) -> Value | bool:
        """Whether pixel i is one of the valid ones."""
        return True if self.valid is None or i == 0 else self.b.compare("slt", i, self.valid)

    def finish(self, sums: Sequence[Value], places: Sequence[_Place]) -> None:
        """Give the sums that are part of the output to the sink."""
        emitter, b, tile, blocking = self.emitter, self.b, self.tile, self.emitter.blocking
        lanes, channels = emitter.lanes, emitter.problem.oc // blocking.groups
        vector = b.mul(self.panel, self.vectors)
        for i, place in enumerate(places):
            with b.when(self.exists(i)):
                for j in range(self.vectors):
                    channel = b.mul(b.add(vector, j), lanes)
                    ragged = channels % lanes != 0
                    mask = b.tail_mask(b.sub(channels, channel), lanes) if ragged else None
                    at = [
                        tile.n,
                        b.add(b.mul(tile.group, channels), channel),
                        b.add(tile.oh, place.row),
                        b.add(tile.ow, place.column, place.shift),
                    ]
                    full = j == 0 or blocking.out_vectors % self.vectors == 0
                    with b.when(True if full else b.compare("slt", channel, channels)):
                        emitter.sink(b, sums[i * self.vectors + j], at, lanes, mask)


def split(total: int, size: int) -> list[tuple[int, int]]:
    """Cover `total` with parts of `size` and `size` - 1, else of two sizes as even as may be.

    Returns:
        Pairs of a part's size and how often it occurs.
    """
    for smaller in range(size):
        rest = total - smaller * (size - 1)
        if rest >= 0 and rest % size == 0:
            return [(s, t) for s, t in ((size, rest // size), (size - 1, smaller)) if s and t]
    parts = -(-total // size)
    low = total // parts
    high = total - low * parts
    return [(s, t) for s, t in ((low + 1, high), (low, parts - high)) if t]


def _clip(b: Builder, size: Index, start: Index, most: int) -> Index:
    """The smaller of `most` and what is left of `size` from `start` on; known when parts are even."""
    if isinstance(size, int) and size % most == 0:
        return most
    return b.min(b.sub(size, start), most)
