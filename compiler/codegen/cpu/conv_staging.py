"""Staging: the input of a tile copied to scratch memory, so that inner loops know no padding.

Elements are brought into the form that products read: widened where that asks for it, and of row-major input the
channels of a unit next to each other.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from xcompile.compiler.codegen.cpu.builder import Builder, Index, Value, vector_type
from xcompile.compiler.codegen.cpu.casts import cast
from xcompile.compiler.codegen.cpu.conv_context import ConvContext
from xcompile.compiler.codegen.cpu.shuffles import shuffle
from xcompile.compiler.codegen.cpu.windows import taps
from xcompile.compiler.ir.dtypes import bits_of, is_float, is_unsigned


def stage(
    context: ConvContext, n: Index, od: Index, oh: Index, ow: Index, height: Index, width: Index
) -> None:
    """Copy the input of a tile to scratch memory, with `fill` where the padding is.

    Args:
        context: of the convolution.
        n: image, or volume.
        od: the tile's depth in the output.
        oh: the tile's first output row.
        ow: its first output column.
        height: its output rows.
        width: its output columns.
    """
    b, blocking, sizes = context.b, context.blocking, context.sizes
    window = context.problem.window
    rows, columns = _staged_extent(context, 0, height), _staged_extent(context, 1, width)
    step_h, step_w = (
        s if k == 1 else 1 for k, s in zip(window.kernel, window.strides, strict=True)
    )
    top = b.sub(b.mul(oh, window.strides[0]), window.pads[0])
    left = b.sub(b.mul(ow, window.strides[1]), window.pads[1])
    begin = b.min(b.ceildiv(b.max(b.sub(0, left), 0), step_w), columns)
    finish = b.min(b.ceildiv(b.max(b.sub(sizes.w, left), 0), step_w), columns)
    finish = b.max(begin, finish)
    with _image(context, od) as (number, image):
        for part in _parts(context, n):
            with b.loop(0, part.planes) as plane, b.loop(0, rows) as row:
                y = b.add(top, b.mul(row, step_h))
                inside = b.both(_inside(context, y, sizes.h), image.inside)
                low = b.select(inside, begin, columns)
                high = b.select(inside, finish, columns)
                place = [b.mul(number, blocking.planes), b.add(plane, part.target), row]
                steps = [blocking.plane, blocking.plane, blocking.columns * blocking.pixel]
                target = b.flatten(place, steps)
                source_plane = b.add(part.source, b.mul(plane, part.joined))
                source_image = b.add(b.mul(source_plane, sizes.d), image.source)
                source_row = b.add(b.mul(source_image, sizes.h), y)
                source = b.add(b.mul(source_row, sizes.w), left)
                part.pixels.fill(target, 0, low)
                part.pixels.copy(target, source, low, high, step_w)
                part.pixels.fill(target, high, columns)


@dataclass(frozen=True)
class _Image:
    """An image of the window: its number in a volume of the input, and whether that has it."""

    source: Index
    inside: Value | bool


@contextmanager
def _image(context: ConvContext, od: Index) -> Iterator[tuple[Index, _Image]]:
    """A loop over the images of the window at a depth that are staged: of the number of each, and what it is."""
    b, depth, sizes = context.b, context.problem.depth, context.sizes
    if depth is None:
        yield 0, _Image(0, True)
        return
    first = b.sub(b.mul(od, depth.strides[0]), depth.before(0))
    low, high = 0, depth.kernel[0]
    if context.skips_images:
        low, high = taps(b, depth, 0, od, sizes.d, 0, 0)
    with b.loop(low, high) as number:
        source = b.add(first, b.mul(number, depth.dilations[0]))
        checked = context.problem.pads_depth and not context.skips_images
        yield number, _Image(source, _exists(b, source, sizes.d) if checked else True)


def _staged_extent(context: ConvContext, axis: int, size: Index) -> Index:
    window = context.problem.window
    if window.kernel[axis] == 1:
        return size
    return context.b.add(
        context.b.mul(context.b.sub(size, 1), window.strides[axis]), window.span(axis)
    )


def _inside(context: ConvContext, y: Index, rows: Index) -> Value | bool:
    """Whether an input row exists."""
    if not any(context.problem.window.pads[::2]):
        return True
    return _exists(context.b, y, rows)


def _exists(b: Builder, place: Index, size: Index) -> Value | bool:
    """Whether a place, which may be negative, is below a size."""
    if isinstance(place, int) and isinstance(size, int):
        return 0 <= place < size
    return b.op(f"arith.cmpi ult, {b.index(place)}, {b.index(size)} : index")


@dataclass(frozen=True)
class _Part:
    """Planes that are staged in one loop.

    Attributes:
        pixels: how their pixels are copied.
        source: the number of the first plane in the input.
        target: the number of the first plane in the staged tile.
        planes: how many.
        joined: how many planes of the input become one.
    """

    pixels: "_Pixels"
    source: Index
    target: int
    planes: int
    joined: int = 1


def _parts(context: ConvContext, n: Index) -> list[_Part]:
    b, problem, blocking = context.b, context.problem, context.blocking
    if not problem.gathers_units(context.target):
        first = b.mul(n, blocking.planes)
        return [_Part(_Pixels(context), first, 0, blocking.planes)]
    group = blocking.form.group
    if not problem.is_plain:
        return _joined_parts(context, n, group // context.lanes)
    return [
        _Part(
            _Units(context, min(group, problem.c - unit * group)),
            b.add(b.mul(n, problem.c), unit * group),
            unit,
            1,
        )
        for unit in range(blocking.planes)
    ]


def _joined_parts(context: ConvContext, n: Index, most: int) -> list[_Part]:
    """Blocks of channels in units of `most` of them; the last may have fewer."""
    b, blocks = context.b, -(-context.problem.c // context.lanes)
    first, whole, rest = b.mul(n, blocks), blocks // most, blocks % most
    parts = [_Part(_Blocks(context, most), first, 0, whole, most)] if whole else []
    if rest:
        parts.append(_Part(_Blocks(context, rest), b.add(first, whole * most), whole, 1))
    return parts


class _Pixels:
    """Copies pixels whose elements lie in memory as they are staged, or narrower."""

    def __init__(self, context: ConvContext) -> None:
        assert context.staged is not None
        self.context, self.b, self.staged = context, context.b, context.staged
        self.pixel = context.blocking.pixel
        register = context.lanes * 4 // context.blocking.element
        self.wide = register // self.pixel
        """Pixels that fill a vector register."""

    def fill(self, row: Index, low: Index, high: Index) -> None:
        """What stands for padding into the pixels [low, high) of a staged row."""
        if isinstance(low, int) and isinstance(high, int) and low >= high:
            return
        b = self.b
        value = self.padding()
        with b.loop(low, high) as column:
            self.store(value, row, column, 1)

    def copy(self, row: Index, source: Index, low: Index, high: Index, step: int) -> None:
        """Input pixels into the pixels [low, high) of a staged row, whole registers first."""
        b, wide = self.b, self.wide
        if wide > 1 and step == 1:
            whole = b.add(low, b.mul(b.div(b.sub(high, low), wide), wide))
            with b.loop(low, whole, wide) as column:
                self.store(self.load(b.add(source, column), wide), row, column, wide)
            low = whole
        with b.loop(low, high) as column:
            self.store(self.load(b.add(source, b.mul(column, step)), 1), row, column, 1)

    def store(self, value: Value, row: Index, column: Index, count: int) -> None:
        """Store neighbouring pixels of a staged row."""
        at = self.b.add(row, self.b.mul(column, self.pixel))
        self.b.store(value, self.staged, at, self.lanes(count))

    def lanes(self, count: int) -> int:
        """Elements of so many pixels, 0 for a single one."""
        return count * self.pixel if count * self.pixel > 1 else 0

    def load(self, source: Index, count: int) -> Value:
        """Neighbouring pixels of the input, as they are staged."""
        lanes = self.lanes(count)
        return self.extend(
            self.b.load(self.context.x, self.b.mul(source, self.pixel), lanes), lanes
        )

    def padding(self) -> Value:
        """A pixel of padding."""
        context, b, lanes = self.context, self.b, self.lanes(1)
        dtype = context.x.dtype
        if context.fill is None:
            return b.constant(
                "0" if context.problem.is_integer else "0.0", self.staged.dtype, lanes
            )
        value = b.broadcast(context.fill, dtype, lanes) if lanes else context.fill
        return self.extend(value, lanes)

    def extend(self, value: Value, lanes: int) -> Value:
        """Elements of the input as elements of the staged tile."""
        if self.context.x.dtype == self.staged.dtype:
            return value
        return extended(self.b, value, self.context.problem.dtype, lanes, self.staged.dtype)


class _Blocks(_Pixels):
    """Copies pixels of blocked input: the blocks of a unit, one or two, next to each other."""

    def __init__(self, context: ConvContext, blocks: int) -> None:
        super().__init__(context)
        self.blocks = blocks

    def load(self, source: Index, count: int) -> Value:
        b, context, block = self.b, self.context, self.context.lanes
        plane = b.mul(context.sizes.d, b.mul(context.sizes.h, context.sizes.w))
        places = [b.mul(b.add(source, b.mul(plane, i)), block) for i in range(self.blocks)]
        length, dtype = count * block, self.staged.dtype
        loaded = [b.load(context.x, at, length) for at in places]
        if self.blocks == 1:  # weights of what does not exist are zero
            loaded.append(b.int_constant(0, dtype, length))
        picks = [
            part * length + pixel * block + i
            for pixel in range(count)
            for part in range(2)
            for i in range(block)
        ]
        return shuffle(b, loaded[0], loaded[1], length, picks, dtype)


class _Units(_Pixels):
    """Copies pixels of row-major input: the channels of a unit, each from its own plane, next to each other."""

    def __init__(self, context: ConvContext, channels: int) -> None:
        super().__init__(context)
        self.channels = channels

    def load(self, source: Index, count: int) -> Value:
        b, sizes = self.b, self.context.sizes
        plane = b.mul(sizes.d, b.mul(sizes.h, sizes.w))
        places = [b.add(source, b.mul(plane, channel)) for channel in range(self.channels)]
        return self.unit([b.load(self.context.x, at, count) for at in places], count)

    def padding(self) -> Value:
        if self.context.fill is None:
            return super().padding()
        value = self.b.broadcast(self.context.fill, self.context.x.dtype, 1)
        return self.unit([value] * self.channels, 1)

    def unit(self, channels: list[Value], count: int) -> Value:
        """The elements of units from their channels, each a vector; those that do not exist are zero."""
        b, blocking = self.b, self.context.blocking
        bits, group = 8 * blocking.element, blocking.form.group
        dtype = f"i{bits * group}"
        word: Value | None = None
        for number, value in enumerate(channels):
            wide = extended(b, value, self.context.problem.dtype, count, dtype)
            if number < group - 1:  # the sign of the last one has no bits to spoil
                keep = b.int_constant((1 << bits) - 1, dtype, count)
                wide = b.binary("arith.andi", wide, keep, count, dtype)
            if number:
                shift = b.int_constant(bits * number, dtype, count)
                wide = b.binary("arith.shli", wide, shift, count, dtype)
            word = wide if word is None else b.binary("arith.ori", word, wide, count, dtype)
        assert word is not None
        kind = vector_type(count * self.pixel, self.staged.dtype)
        return b.op(f"vector.bitcast {word} : {vector_type(count, dtype)} to {kind}")


def extended(b: Builder, value: Value, dtype: str, lanes: int, to: str) -> Value:
    """Elements in a wider type: integers by their sign, floats as float32, or as their bits in an integer."""
    if is_float(dtype) and is_float(to):
        return cast(b, value, dtype, to, lanes)
    raw = f"i{bits_of(dtype)}"
    if is_float(dtype):
        value = b.op(
            f"arith.bitcast {value} : {vector_type(lanes, dtype)} to {vector_type(lanes, raw)}"
        )
        dtype = f"u{raw}"
    op = "arith.extui" if is_unsigned(dtype) else "arith.extsi"
    return b.op(f"{op} {value} : {vector_type(lanes, raw)} to {vector_type(lanes, to)}")
