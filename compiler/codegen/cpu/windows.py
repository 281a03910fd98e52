"""Windows over single channels: what depthwise convolution and pools share. Lanes are channels.

For each output row the window's rows that lie in the image are a loop with computed bounds. Columns are done in
register tiles; where the schedule says so, tiles at the edges of an image of known width leave out, at emission,
the taps that fall into the padding; else the columns at the edges are done one by one with loop bounds of their own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

from xcompile.compiler.codegen.cpu.builder import Buffer, Builder, Index, Value
from xcompile.compiler.codegen.cpu.sink import Sink
from xcompile.compiler.schedule.schedule import TargetNumbers
from xcompile.compiler.schedule.window import (
    BlockedWindow,
    ColumnTile,
    Size,
    Window,
    WindowSchedule,
    column_tiles,
)


class Windowed(Protocol):
    """A problem with an image, or a volume, and a window."""

    @property
    def n(self) -> Size: ...
    @property
    def d(self) -> Size: ...
    @property
    def h(self) -> Size: ...
    @property
    def w(self) -> Size: ...
    @property
    def window(self) -> Window: ...
    @property
    def depth(self) -> Window | None: ...


@dataclass(frozen=True)
class WindowSizes:
    """The sizes of a problem as indices: batch; depth, rows and columns of input and output."""

    n: Index
    d: Index
    h: Index
    w: Index
    od: Index
    oh: Index
    ow: Index

    @classmethod
    def of(cls, b: Builder, problem: Windowed, sizes: Mapping[str, Index]) -> "WindowSizes":
        """Write what computes the sizes that are not known."""
        known = (problem.n, problem.d, problem.h, problem.w)
        n, d, h, w = (index_of(b, size, sizes) for size in known)
        oh, ow = (windows(b, problem.window, axis, size) for axis, size in enumerate((h, w)))
        od = 1 if problem.depth is None else windows(b, problem.depth, 0, d)
        return cls(n, d, h, w, od, oh, ow)


def index_of(b: Builder, size: Size, sizes: Mapping[str, Index]) -> Index:
    """A size as an index: the product of its factors."""
    if isinstance(size, int):
        return size
    result: Index = 1
    for factor in size.split("*"):
        result = b.mul(result, int(factor) if factor.isdigit() else sizes[factor])
    return result


def windows(b: Builder, window: Window, axis: int, size: Index) -> Index:
    """How many windows fit; `Window.output` of an index."""
    stride = window.strides[axis]
    extra = stride - 1 if window.ceil_mode else 0
    count = b.add(b.div(b.add(size, window.slack(axis) + extra), stride), 1)
    if not window.ceil_mode:
        return count
    return b.min(count, b.add(b.div(b.add(size, window.pads[axis] - 1), stride), 1))


Decode = Callable[[Value, Index, Index], Value]
"""What is done first with inputs as they lie in memory, given those, their image and their first channel."""


class Reduction(Protocol):
    """What is done with the inputs of a window."""

    @property
    def types(self) -> Sequence[str]:
        """The types of the accumulators of a window: one, or more."""
        ...

    def identity(self, block: Index) -> Sequence[Value]:
        """The accumulators of a block of channels before the first input."""
        ...

    def weight(self, block: Index, r: Index, s: Index, alone: Value | bool) -> Value | None:
        """The weight of row r, column s of the window, if there are weights; rows of a volume are those of all images.

        Where two rows are taken at a time, it is that of rows r and r + 1, or with `alone` of row r and none.
        """
        ...

    def combine(
        self, accumulators: Sequence[Value], x: Value, weight: Value | None
    ) -> Sequence[Value]:
        """The accumulators with one more input."""
        ...

    def result(
        self, accumulators: Sequence[Value], at: Sequence[Index], whole: bool
    ) -> Sequence[Value]:
        """The outputs, one for each sink, at a depth, row and column.

        `whole` if all of the window's columns lie in the image.
        """
        ...


def taps(
    b: Builder, window: Window, axis: int, output: Index, size: Index, before: int, after: int
) -> tuple[Index, Index]:
    """The rows (axis 0) or columns of a window inside an image: first, and one past the last.

    Args:
        b: where to write.
        window: the window.
        axis: 0 for rows, 1 for columns.
        output: the window's number along the axis.
        size: rows or columns of the image.
        before: how much the image is extended at its start.
        after: how much it is extended at its end.
    """
    kernel, dilation = window.kernel[axis], window.dilations[axis]
    start = b.sub(b.mul(output, window.strides[axis]), window.before(axis))
    low, high = 0, kernel
    if window.before(axis) > before:
        low = b.min(b.ceildiv(b.max(b.sub(-before, start), 0), dilation), kernel)
    if window.after(axis) > after or window.ceil_mode:
        end = b.max(b.sub(b.add(size, after), start), 0)
        high = b.min(b.ceildiv(end, dilation), kernel)
    return low, high


@dataclass
class WindowRows:
    """The emitter of one problem.

    Attributes:
        b: where to write.
        problem: the image and its window.
        schedule: a legal schedule.
        target: the machine.
        x: the blocked input.
        reduction: what is done with a window.
        sinks: of the outputs, called with (n, channel, row, column), with the depth of a volume behind the channel.
        sizes: the problem's sizes.
        decode: what is done first with inputs; None for nothing.
        pair: makes one input of those of two rows, which are then taken at a time; None where one row is.
    """

    b: Builder
    problem: BlockedWindow
    schedule: WindowSchedule
    target: TargetNumbers
    x: Buffer
    reduction: Reduction
    sinks: Sequence[Sink]
    sizes: WindowSizes
    decode: Decode | None = None
    pair: Callable[[Value, Value], Value] | None = None

    def __post_init__(self) -> None:
        self.lanes = self.target.lanes(32)
        self.blocks = -(-self.problem.c // self.lanes)
        self.types = list(self.reduction.types)

    def units(self, begin: Index, end: Index) -> None:
        """Write the units [begin, end)."""
        b, rows, sizes = self.b, self.schedule.rows, self.sizes
        groups = b.ceildiv(sizes.oh, rows)
        with b.loop(begin, end) as unit:
            n, block, depth, group = b.unflatten(unit, [sizes.n, self.blocks, sizes.od, groups])
            first = b.mul(group, rows)
            with b.loop(first, b.min(b.add(first, rows), sizes.oh)) as row:
                _Row(self, n, block, depth, row).emit()


@dataclass(frozen=True)
class _Lines:
    """Where the input of a row of the window lies, or of two rows.

    Attributes:
        row: its number among those of all images of the window.
        offset: of the first line from that of the window's first row.
        alone: whether there is no second line.
        following: the second line's offset from the first; 0 if there is none.
    """

    row: Index
    offset: Index
    alone: Value | bool
    following: Index


class _Row:
    """One output row of one block of channels."""

    def __init__(self, owner: WindowRows, n: Index, block: Index, depth: Index, row: Index) -> None:
        self.owner, self.b, self.window = owner, owner.b, owner.problem.window
        self.n, self.block, self.depth, self.row = n, block, depth, row
        b, sizes, window, along = self.b, owner.sizes, self.window, owner.problem.depth
        self.low, self.high = taps(b, window, 0, row, sizes.h, 0, 0)
        self.line = b.mul(sizes.w, owner.lanes)
        image = b.mul(b.add(b.mul(n, owner.blocks), block), sizes.d)
        if along is not None:
            image = b.add(image, b.sub(b.mul(depth, along.strides[0]), along.before(0)))
        plane = b.mul(image, sizes.h)
        start = b.sub(b.mul(row, window.strides[0]), window.pads[0])
        first = b.sub(b.mul(b.add(plane, start), sizes.w), window.pads[1])
        self.base = b.mul(first, owner.lanes)

    def emit(self) -> None:
        """All columns."""
        w, ow, schedule = self.owner.sizes.w, self.owner.sizes.ow, self.owner.schedule
        if schedule.peel and isinstance(w, int):
            self.emit_peeled(column_tiles(self.window, w, schedule.pixels), w)
        else:
            self.emit_loops(w, ow)

    # -- columns of a known width -------------------------------------------------------------

    def emit_peeled(self, tiles: Sequence[ColumnTile], w: int) -> None:
        """Equal tiles inside the image are one loop, each of the others is code of its own."""
        window = self.window
        for (count, inside), run in groupby(tiles, key=lambda tile: (tile.count, tile.inside)):
            firsts = [tile.first for tile in run]
            if inside:
                with self.b.loop(firsts[0], firsts[-1] + 1, count) as column:
                    self.tile(column, count, lambda j: True)
                continue
            for first in firsts:
                start = first * window.strides[1] - window.pads[1]
                self.tile(first, count, lambda j, start=start: 0 <= start + j < w)

    def tile(self, first: Index, count: int, exists: Callable[[int], bool]) -> None:
        """Neighbouring columns in registers; each input is loaded once for all windows that it is in.

        Args:
            first: the first output column.
            count: how many.
            exists: whether the input column, counted from the first window's start, is in the image.
        """
        b, owner, window = self.b, self.owner, self.window
        stride, dilation, kw = window.strides[1], window.dilations[1], window.kernel[1]
        users: dict[int, list[tuple[int, int]]] = {}
        for i in range(count):
            for s in range(kw):
                j = i * stride + s * dilation
                if exists(j):
                    users.setdefault(j, []).append((i, s))
        base = b.add(self.base, b.mul(first, stride * owner.lanes))
        types, held = owner.types * count, len(owner.types)

        def body(lines: _Lines, carried: list[Value]) -> Sequence[Value]:
            line = b.add(base, lines.offset)
            if not owner.schedule.unroll:
                return b.reduce(0, kw, 1, carried, types, lambda s, v: self.tap(line, lines, s, v))
            sums = list(carried)
            weights = [
                owner.reduction.weight(self.block, lines.row, s, lines.alone) for s in range(kw)
            ]
            for j in sorted(users):
                x = self.load(b.add(line, j * owner.lanes), lines)
                for i, s in users[j]:
                    own = slice(i * held, (i + 1) * held)
                    sums[own] = owner.reduction.combine(sums[own], x, weights[s])
            return sums

        init = [*owner.reduction.identity(self.block)] * count
        sums = self.over_rows(init, types, body)
        for i in range(count):
            start = i * stride
            whole = all(exists(start + s * dilation) for s in range(kw))
            self.finish(sums[i * held : (i + 1) * held], b.add(first, i), whole)

    def over_rows(
        self,
        init: list[Value],
        types: list[str],
        body: Callable[["_Lines", list[Value]], Sequence[Value]],
    ) -> list[Value]:
        """What `body` makes of the rows of the window that lie in the image, and of a volume in its images."""
        b, depth = self.b, self.owner.problem.depth

        def rows(image: Index, carried: list[Value]) -> list[Value]:
            return b.reduce(
                self.low, self.high, self.step, carried, types,
                lambda r, sums: body(self.lines(image, r), sums),
            )  # fmt: skip

        if depth is None:
            return rows(0, init)
        low, high = taps(b, depth, 0, self.depth, self.owner.sizes.d, 0, 0)
        return b.reduce(low, high, 1, init, types, rows)

    def tap(self, line: Index, lines: "_Lines", s: Index, sums: list[Value]) -> list[Value]:
        """One place of the window for neighbouring columns, all inside the image."""
        b, owner, window = self.b, self.owner, self.window
        weight = owner.reduction.weight(self.block, lines.row, s, lines.alone)
        at = b.add(line, b.mul(s, window.dilations[1] * owner.lanes))
        step, held = window.strides[1] * owner.lanes, len(owner.types)
        return [
            value
            for i in range(len(sums) // held)
            for value in owner.reduction.combine(
                sums[i * held : (i + 1) * held], self.load(b.add(at, i * step), lines), weight
            )
        ]

    @property
    def step(self) -> int:
        """How many rows of the window are taken at a time."""
        return 1 if self.owner.pair is None else 2

    def lines(self, image: Index, r: Index) -> "_Lines":
        """The lines that row r of an image of the window reads, and the next one if they are taken together."""
        b, step, depth = self.b, self.window.dilations[0], self.owner.problem.depth
        offset = b.mul(b.mul(r, step), self.line)
        if depth is not None:
            away = b.mul(b.mul(image, depth.dilations[0]), self.owner.sizes.h)
            offset = b.add(offset, b.mul(away, self.line))
        row = b.add(b.mul(image, self.window.kernel[0]), r)
        if self.owner.pair is None:
            return _Lines(row, offset, True, 0)
        alone = b.compare("sge", b.add(r, 1), self.high)
        return _Lines(row, offset, alone, b.select(alone, 0, b.mul(step, self.line)))

    def load(self, at: Index, lines: "_Lines") -> Value:
        """The input at an offset, that of two rows where these are taken together."""
        owner, b = self.owner, self.b
        x = b.load(owner.x, at, owner.lanes)
        if owner.pair is not None:
            return owner.pair(x, b.load(owner.x, b.add(at, lines.following), owner.lanes))
        if owner.decode is None:
            return x
        return owner.decode(x, self.n, b.mul(self.block, owner.lanes))

    # -- columns of any width -----------------------------------------------------------------

    def emit_loops(self, w: Index, ow: Index) -> None:
        """Columns at the edges one by one, those between in tiles, their rest one by one."""
        b, window, pixels = self.b, self.window, self.owner.schedule.pixels
        stride, left = window.strides[1], window.pads[1]
        begin = b.min(-(-left // stride), ow)
        reach = b.max(b.add(w, left - window.span(1) + stride), 0)
        end = b.max(begin, b.min(b.div(reach, stride), ow))
        whole = b.add(begin, b.mul(b.div(b.sub(end, begin), pixels), pixels))
        with b.loop(0, begin) as column:
            self.single(column)
        with b.loop(begin, whole, pixels) as column:
            self.tile(column, pixels, lambda j: True)
        with b.loop(whole, ow) as column:
            self.single(column)

    def single(self, column: Index) -> None:
        """One column, with the window's columns cut to the image."""
        b, owner, window = self.b, self.owner, self.window
        low, high = taps(b, window, 1, column, owner.sizes.w, 0, 0)
        base = b.add(self.base, b.mul(column, window.strides[1] * owner.lanes))

        def rows(lines: _Lines, carried: list[Value]) -> Sequence[Value]:
            line = b.add(base, lines.offset)

            def columns(s: Index, inner: list[Value]) -> Sequence[Value]:
                x = self.load(b.add(line, b.mul(s, window.dilations[1] * owner.lanes)), lines)
                weight = owner.reduction.weight(self.block, lines.row, s, lines.alone)
                return owner.reduction.combine(inner, x, weight)

            return b.reduce(low, high, 1, carried, owner.types, columns)

        init = [*owner.reduction.identity(self.block)]
        self.finish(self.over_rows(init, owner.types, rows), column, whole=False)

    def finish(self, values: Sequence[Value], column: Index, whole: bool) -> None:
        """Give what a window has accumulated to the sinks."""
        b, owner = self.b, self.owner
        channel = b.mul(self.block, owner.lanes)
        c = owner.problem.c
        mask = b.tail_mask(b.sub(c, channel), owner.lanes) if c % owner.lanes else None
        results = owner.reduction.result(values, (self.depth, self.row, column), whole)
        deep = [] if owner.problem.depth is None else [self.depth]
        for sink, result in zip(owner.sinks, results, strict=True):
            sink(b, result, [self.n, channel, *deep, self.row, column], owner.lanes, mask)


def clip(b: Builder, size: Index, start: Index, most: int, low: Index = 0) -> Index:
    """The smaller of `most` and what is left of `size` from `start` on; known when parts from `low` on are even."""
    if isinstance(size, int) and low == 0 and size % most == 0:
        return most
    return b.min(b.sub(size, start), most)
