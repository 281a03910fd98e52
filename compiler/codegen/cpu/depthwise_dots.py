"""The emitter of depthwise convolution of 8-bit integers by dot products of neighbouring columns.

Four neighbouring pixels of a block of channels are loaded at once and transposed, so that each lane of 32 bits holds
four columns of its channel: one instruction multiplies them by four columns of a window's row and adds them up. Pixels
in the padding hold what padding holds; rows in the padding are added before the others.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from xcompile.compiler.codegen.cpu import isa
from xcompile.compiler.codegen.cpu.builder import Buffer, Builder, Index, Value, vector_type
from xcompile.compiler.codegen.cpu.products import Products, products_of
from xcompile.compiler.codegen.cpu.shuffles import shuffle
from xcompile.compiler.codegen.cpu.sink import Sink
from xcompile.compiler.codegen.cpu.windows import WindowSizes, taps
from xcompile.compiler.schedule.depthwise import COLUMNS, DepthwiseProblem, column_groups
from xcompile.compiler.schedule.products import product_form
from xcompile.compiler.schedule.schedule import TargetNumbers
from xcompile.compiler.schedule.window import WindowSchedule

Group = Callable[[Index, Index, int], Value]
"""Gives a group of columns: of an image's line that begins at an offset, from a column on, so many of which count."""


def emit_depthwise_dots(
    b: Builder,
    problem: DepthwiseProblem,
    schedule: WindowSchedule,
    target: TargetNumbers,
    x: Buffer,
    weights: Buffer,
    sink: Sink,
    begin: Index,
    end: Index,
    sizes: Mapping[str, Index],
    fill: Value | None = None,
) -> None:
    """Write the units [begin, end) of a depthwise convolution; arguments as of `emit_integer_depthwise`."""
    window_sizes = WindowSizes.of(b, problem, sizes)
    products = products_of(product_form(problem.dtype, "i8", target), target)
    lanes = target.lanes(32)
    exchanges = target.has("ssse3") and not target.has("portable")
    dots = _Dots(
        b, problem, schedule, x, weights, sink, window_sizes, products, lanes, fill, exchanges
    )
    dots.units(begin, end)


@dataclass(frozen=True)
class _Dots:
    b: Builder
    problem: DepthwiseProblem
    schedule: WindowSchedule
    x: Buffer
    weights: Buffer
    sink: Sink
    sizes: WindowSizes
    products: Products
    lanes: int
    fill: Value | None
    exchanges: bool
    """Whether `vpshufb` is written: of two shuffles LLVM would make one, for which x86 has no instruction."""

    @property
    def type(self) -> str:
        return vector_type(self.lanes, "i32")

    @property
    def bytes(self) -> int:
        """Bytes of a group of columns, and of the weights that it is multiplied by."""
        return COLUMNS * self.lanes

    @property
    def groups(self) -> int:
        """Groups of columns of a row of the window."""
        return column_groups(self.problem.window)

    def units(self, begin: Index, end: Index) -> None:
        """Write the units [begin, end)."""
        b, rows, sizes = self.b, self.schedule.rows, self.sizes
        blocks = -(-self.problem.c // self.lanes)
        with b.loop(begin, end) as unit:
            n, block, part = b.unflatten(unit, [sizes.n, blocks, b.ceildiv(sizes.oh, rows)])
            first = b.mul(part, rows)
            with b.loop(first, b.min(b.add(first, rows), sizes.oh)) as row:
                _Row(self, n, block, row, blocks).emit()

    def row_of_weights(self, block: Index, r: Index) -> list[Value]:
        """The weights of a row of the window, group by group."""
        b = self.b
        at = b.mul(b.add(b.mul(block, self.problem.window.kernel[0]), r), self.groups * self.bytes)
        return [
            b.load(self.weights, b.add(at, group * self.bytes), self.bytes)
            for group in range(self.groups)
        ]

    def dot(self, total: Value, columns: Value, weights: Value) -> Value:
        """The sums with the products of a group of columns."""
        (made,) = self.products.multiply_add(self.b, columns, (weights,), [total], self.lanes)
        return made

    def padding(self, lanes: int) -> Value:
        """So many bytes of what padding holds."""
        if self.fill is None:
            return self.b.int_constant(0, "i8", lanes)
        return self.b.broadcast(self.fill, "i8", lanes)

    def missing(self, block: Index, low: Index, high: Index) -> Value:
        """The sums of the window's rows before `low` and from `high` on, which lie in the padding."""
        b, total = self.b, self.b.int_constant(0, "i32", self.lanes)
        if self.fill is None:
            return total

        def body(r: Index, carried: list[Value]) -> Sequence[Value]:
            (value,) = carried
            for weights in self.row_of_weights(block, r):
                value = self.dot(value, self.padding(self.bytes), weights)
            return [value]

        for first, last in ((0, low), (high, self.problem.window.kernel[0])):
            if first != last:
                (total,) = b.reduce(first, last, 1, [total], [self.type], body)
        return total

    # -- groups of columns --------------------------------------------------------------------

    def inside(self, line: Index, column: Index, count: int) -> Value:
        """A group all of whose columns lie in the image."""
        loaded = self.b.load(self.x, self._place(line, column), self.bytes)
        return self._transposed(loaded, loaded, range(COLUMNS))

    def cut(self, line: Index, column: Index, count: int) -> Value:
        """A group at a known column of an image of known width, at least that of a group."""
        w = self.sizes.w
        assert isinstance(w, int)
        assert isinstance(column, int)
        first = max(0, min(column, w - COLUMNS))
        wanted = [column + number for number in range(count)]
        present = [c - first if first <= c < first + COLUMNS else COLUMNS for c in wanted]
        rest = [present[0]] * (COLUMNS - count)  # weights are zero there
        loaded = self.b.load(self.x, self._place(line, first), self.bytes)
        around = self.padding(self.bytes) if COLUMNS in present else loaded
        return self._transposed(loaded, around, [*present, *rest])

    def guarded(self, line: Index, column: Index, count: int) -> Value:
        """A group anywhere, pixel by pixel."""
        b, lanes, w = self.b, self.lanes, self.sizes.w
        around, kind = self.padding(lanes), vector_type(lanes, "i8")
        pixels = list[Value]()
        for number in range(count):
            at = b.add(column, number)
            known = b.both(b.compare("sge", at, 0), b.compare("slt", at, w))
            nearest = b.max(b.min(at, b.sub(w, 1)), 0)
            pixel = b.load(self.x, self._place(line, nearest), lanes)
            if not isinstance(known, bool):
                pixel = b.op(f"arith.select {known}, {pixel}, {around} : {kind}")
            pixels.append(pixel if known is not False else around)
        pixels += [around] * (COLUMNS - count)
        pairs = (pixels[:2], pixels[2:])
        halves = [shuffle(b, x, y, lanes, range(2 * lanes), "i8") for x, y in pairs]
        loaded = shuffle(b, halves[0], halves[1], 2 * lanes, range(self.bytes), "i8")
        return self._transposed(loaded, loaded, range(COLUMNS))

    def _place(self, line: Index, column: Index) -> Index:
        return self.b.add(line, self.b.mul(column, self.lanes))

    def _transposed(self, loaded: Value, around: Value, columns: Sequence[int]) -> Value:
        """For each channel the columns of these numbers, `COLUMNS` being that around.

        First words of four channels come next to each other, then their bytes are exchanged within 128 bits: x86
        has an instruction for each, and where one does both (`vpermb`) LLVM makes it of them.
        """
        b, words = self.b, self.lanes // 4
        kinds = vector_type(self.bytes, "i8"), vector_type(self.lanes, "i32")
        wide = [b.op(f"vector.bitcast {v} : {kinds[0]} to {kinds[1]}") for v in (loaded, around)]
        picks = [column * words + word for word in range(words) for column in columns]
        gathered = shuffle(b, wide[0], wide[1], self.lanes, picks, "i32")
        narrow = b.op(f"vector.bitcast {gathered} : {kinds[1]} to {kinds[0]}")
        exchanged = [4 * column + channel for channel in range(4) for column in range(COLUMNS)]
        if self.exchanges:
            numbers = b.op(f"arith.constant dense<{exchanged * words}> : {kinds[0]}")
            return isa.vpshufb(self.bytes).write(b, narrow, numbers)
        places = [16 * word + place for word in range(words) for place in exchanged]
        return shuffle(b, narrow, narrow, self.bytes, places, "i8")


class _Row:
    """One output row of one block of channels."""

    def __init__(self, owner: _Dots, n: Index, block: Index, row: Index, blocks: int) -> None:
        self.owner, self.b, self.window = owner, owner.b, owner.problem.window
        self.n, self.block, self.row = n, block, row
        b, sizes, window = self.b, owner.sizes, self.window
        self.low, self.high = taps(b, window, 0, row, sizes.h, 0, 0)
        if window.output(1, 0) > 0:  # of an image without columns all rows are padding
            self.high = b.select(b.compare("sgt", sizes.w, 0), self.high, self.low)
        self.line = b.mul(sizes.w, owner.lanes)
        plane = b.mul(b.add(b.mul(n, blocks), block), sizes.h)
        start = b.sub(b.mul(row, window.strides[0]), window.pads[0])
        self.base = b.mul(b.add(plane, start), self.line)
        self.initial = owner.missing(block, self.low, self.high)

    def emit(self) -> None:
        """All columns."""
        w, owner = self.owner.sizes.w, self.owner
        if owner.schedule.peel and isinstance(w, int) and w >= COLUMNS:
            self.emit_peeled(w)
        else:
            self.emit_loops()

    def emit_peeled(self, w: int) -> None:
        """Equal tiles inside the image are one loop, each of the others is code of its own."""
        stride, left = self.window.strides[1], self.window.pads[1]
        columns, pixels = self.window.output(1, w), self.owner.schedule.pixels
        tiles = list[tuple[int, int, bool]]()
        for first in range(0, columns, pixels):
            count = min(pixels, columns - first)
            start = first * stride - left
            reach = start + (count - 1) * stride + COLUMNS * self.owner.groups
            tiles.append((first, count, start >= 0 and reach <= w))
        for (count, inside), run in groupby(tiles, key=lambda tile: tile[1:]):
            firsts = [tile[0] for tile in run]
            if inside:
                with self.b.loop(firsts[0], firsts[-1] + 1, count) as column:
                    self.tile(column, count, self.owner.inside)
                continue
            for first in firsts:
                self.tile(first, count, self.owner.cut)

    def emit_loops(self) -> None:
        """Columns at the edges one by one, those between in tiles, then one by one."""
        b, window, owner, sizes = self.b, self.window, self.owner, self.owner.sizes
        stride, left, pixels = window.strides[1], window.pads[1], owner.schedule.pixels
        begin = b.min(-(-left // stride), sizes.ow)
        reach = b.max(b.add(sizes.w, left - COLUMNS * owner.groups + stride), 0)
        end = b.max(begin, b.min(b.div(reach, stride), sizes.ow))
        whole = b.add(begin, b.mul(b.div(b.sub(end, begin), pixels), pixels))
        with b.loop(0, begin) as column:
            self.tile(column, 1, owner.guarded)
        with b.loop(begin, whole, pixels) as column:
            self.tile(column, pixels, owner.inside)
        with b.loop(whole, end) as column:
            self.tile(column, 1, owner.inside)
        with b.loop(end, sizes.ow) as column:
            self.tile(column, 1, owner.guarded)

    def tile(self, first: Index, count: int, group: Group) -> None:
        """Neighbouring columns in registers; each group is made once for all windows that it is in."""
        b, owner, window = self.b, self.owner, self.window
        stride, kw = window.strides[1], window.kernel[1]
        start = b.sub(b.mul(first, stride), window.pads[1])
        users = dict[int, list[tuple[int, int]]]()
        for i in range(count):
            for number in range(owner.groups):
                users.setdefault(i * stride + number * COLUMNS, []).append((i, number))

        def body(r: Index, carried: list[Value]) -> Sequence[Value]:
            sums, weights = list(carried), owner.row_of_weights(self.block, r)
            line = b.add(self.base, b.mul(b.mul(r, window.dilations[0]), self.line))
            for offset in sorted(users):
                most = max(min(COLUMNS, kw - number * COLUMNS) for _, number in users[offset])
                columns = group(line, b.add(start, offset), most)
                for i, number in users[offset]:
                    sums[i] = owner.dot(sums[i], columns, weights[number])
            return sums

        init, types = [self.initial] * count, [owner.type] * count
        for i, value in enumerate(b.reduce(self.low, self.high, 1, init, types, body)):
            self.finish(value, b.add(first, i))

    def finish(self, value: Value, column: Index) -> None:
        """Give an output to the sink."""
        b, owner, c = self.b, self.owner, self.owner.problem.c
        channel = b.mul(self.block, owner.lanes)
        mask = b.tail_mask(b.sub(c, channel), owner.lanes) if c % owner.lanes else None
        owner.sink(b, value, [self.n, channel, self.row, column], owner.lanes, mask)
