"""Staging: the input of a tile copied to scratch memory, so that inner loops know no padding."""

from xcompile.compiler.codegen.cpu.builder import Index, Value
from xcompile.compiler.codegen.cpu.conv_tile import ConvContext


def stage(
    context: ConvContext, n: Index, oh: Index, ow: Index, height: Index, width: Index
) -> None:
    """Copy the input of a tile to scratch memory, with zeros where the padding is.

    Args:
        context: of the convolution.
        n: image.
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
    first_plane = b.mul(n, blocking.planes)
    with b.loop(0, blocking.planes) as plane, b.loop(0, rows) as row:
        y = b.add(top, b.mul(row, step_h))
        inside = _inside(context, y, sizes.h)
        low = b.select(inside, begin, columns)
        high = b.select(inside, finish, columns)
        target = b.flatten([plane, row], [blocking.plane, blocking.columns * blocking.pixel])
        source_row = b.add(b.mul(b.add(first_plane, plane), sizes.h), y)
        source = b.mul(b.add(b.mul(source_row, sizes.w), left), blocking.pixel)
        _fill(context, target, 0, low)
        _copy(context, target, source, low, high, step_w)
        _fill(context, target, high, columns)


def _staged_extent(context: ConvContext, axis: int, size: Index) -> Index:
    window = context.problem.window
    if window.kernel[axis] == 1:
        return size
    return context.b.add(
        context.b.mul(context.b.sub(size, 1), window.strides[axis]), window.span(axis)
    )


def _inside(context: ConvContext, y: Index, rows: Index) -> Value | bool:
    """Whether an input row exists."""
    b = context.b
    if not any(context.problem.window.pads[::2]):
        return True
    if isinstance(y, int) and isinstance(rows, int):
        return 0 <= y < rows
    return b.op(f"arith.cmpi ult, {b.index(y)}, {b.index(rows)} : index")


def _fill(context: ConvContext, row: Index, low: Index, high: Index) -> None:
    """Zeros into the pixels [low, high) of a staged row."""
    if isinstance(low, int) and isinstance(high, int) and low >= high:
        return
    b, pixel = context.b, context.blocking.pixel
    assert context.staged is not None
    zero = b.float_constant(0.0, "f32", pixel if pixel > 1 else 0)
    with b.loop(low, high) as column:
        b.store(zero, context.staged, b.add(row, b.mul(column, pixel)), pixel if pixel > 1 else 0)


def _copy(
    context: ConvContext, row: Index, source: Index, low: Index, high: Index, step: int
) -> None:
    """Input pixels into the pixels [low, high) of a staged row."""
    b, pixel = context.b, context.blocking.pixel
    lanes = pixel if pixel > 1 else 0
    assert context.staged is not None
    if not lanes and step == 1:  # whole vectors of neighbouring pixels first
        count = b.div(b.sub(high, low), context.lanes)
        whole = b.add(low, b.mul(count, context.lanes))
        with b.loop(low, whole, context.lanes) as column:
            value = b.load(context.x, b.add(source, column), context.lanes)
            b.store(value, context.staged, b.add(row, column), context.lanes)
        low = whole
    with b.loop(low, high) as column:
        value = b.load(context.x, b.add(source, b.mul(column, pixel * step)), lanes)
        b.store(value, context.staged, b.add(row, b.mul(column, pixel)), lanes)
