"""The emitter of direct convolution; see `compiler/schedule/conv.py` for the blocking."""

from collections.abc import Mapping
from dataclasses import replace

from xcompile.compiler.codegen.cpu.builder import Buffer, Builder, Index, Value
from xcompile.compiler.codegen.cpu.conv_context import ConvContext, Source, Tile
from xcompile.compiler.codegen.cpu.conv_staging import stage
from xcompile.compiler.codegen.cpu.conv_tile import RegisterTile
from xcompile.compiler.codegen.cpu.products import products_of
from xcompile.compiler.codegen.cpu.sink import Sink
from xcompile.compiler.codegen.cpu.windows import WindowSizes, clip, taps
from xcompile.compiler.schedule.conv import (
    ConvBlocking,
    ConvProblem,
    ConvSchedule,
    partial_bytes,
    staged_bytes,
)
from xcompile.compiler.schedule.phases import Phases
from xcompile.compiler.schedule.schedule import TargetNumbers


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
    fill: Value | None = None,
) -> None:
    """Write the units [begin, end) of a convolution.

    Args:
        b: where to write.
        problem: the convolution.
        schedule: a legal schedule.
        target: the machine.
        x: the input, in the problem's layout.
        weights: what `pack` returned.
        sink: called with output indices (n, channel, row, column), with the depth of a volume behind the channel;
            lanes run along channels.
        begin: the first unit.
        end: one past the last unit.
        sizes: values of the problem's symbols.
        scratch: `scratch_bytes` of memory (i8), aligned to 64 bytes; None when no bytes are needed.
        fill: what padding holds, an 8-bit integer; 0 when None.
    """
    staged = staged_bytes(problem, schedule, target)
    partial = partial_bytes(problem, schedule, target)
    form = problem.form(target)
    context = ConvContext(
        b=b,
        problem=problem,
        schedule=schedule,
        target=target,
        products=products_of(form, target),
        blocking=ConvBlocking.of(problem, schedule, target),
        x=x,
        weights=weights,
        sink=sink,
        sizes=WindowSizes.of(b, problem, sizes),
        fill=fill,
        staged=b.view(scratch, 0, form.left.removeprefix("u")) if scratch and staged else None,
        partial=b.view(scratch, staged, form.sum) if scratch and partial else None,
    )
    _units(context, begin, end)


def _units(context: ConvContext, begin: Index, end: Index) -> None:
    """Tiles in the outer loop, which stages, and a tile's panels in the inner one."""
    b, panels, schedule = context.b, context.blocking.panels, context.schedule
    tiles_h = b.ceildiv(context.sizes.oh, schedule.tile_h)
    tiles_w = b.ceildiv(context.sizes.ow, schedule.tile_w)
    with b.loop(b.div(begin, panels), b.ceildiv(end, panels)) as tile_index:
        sizes = [context.sizes.n, context.sizes.od, tiles_h, tiles_w]
        n, od, y, x = b.unflatten(tile_index, sizes)
        tile = _tile(context, n, od, b.mul(y, schedule.tile_h), b.mul(x, schedule.tile_w))
        first = b.mul(tile_index, panels)
        low = b.max(b.sub(begin, first), 0)
        high = b.min(b.sub(end, first), panels)
        with b.loop(low, high) as panel:
            _panel(context, tile, panel)


def _tile(context: ConvContext, n: Index, od: Index, oh: Index, ow: Index) -> Tile:
    """The tile whose first output pixel is given, staged if the schedule says so."""
    b, schedule, sizes = context.b, context.schedule, context.sizes
    height = clip(b, sizes.oh, oh, schedule.tile_h)
    width = clip(b, sizes.ow, ow, schedule.tile_w)
    if context.staged is not None:
        stage(context, n, od, oh, ow, height, width)
    source = _in_place(context, n, od, oh, ow) if context.staged is None else _staged(context)
    images = _images(context, od, 0)
    return Tile(n, od, oh, ow, height, width, source, images)


def _staged(context: ConvContext) -> Source:
    """Where the input of a staged tile is."""
    assert context.staged is not None
    window, blocking = context.problem.window, context.blocking
    down, right = (1 if k == 1 else s for k, s in zip(window.kernel, window.strides, strict=True))
    row = blocking.columns * blocking.pixel
    image = blocking.planes * blocking.plane
    return Source(context.staged, 0, image, blocking.plane, row, (down, right))


def _in_place(context: ConvContext, n: Index, od: Index, oh: Index, ow: Index) -> Source:
    """Where the input of the tile with this first output pixel is."""
    b, sizes, blocking, problem = context.b, context.sizes, context.blocking, context.problem
    down, right = problem.window.strides
    row = b.mul(sizes.w, blocking.pixel)
    image = b.mul(sizes.h, row)
    plane, step = b.mul(sizes.d, image), image
    at = [b.mul(n, blocking.planes), 0, b.mul(oh, down), b.mul(ow, right)]
    if problem.depth is not None:
        at[1] = b.sub(b.mul(od, problem.depth.strides[0]), problem.depth.before(0))
        step = b.mul(image, problem.depth.dilations[0])
    base = b.flatten(at, [plane, image, row, blocking.pixel])
    return Source(context.x, base, step, plane, row, (down, right))


def _images(context: ConvContext, od: Index, shift: Index) -> tuple[Index, Index]:
    """The images with weights that are summed up, of the window at a depth: the first, and one past the last.

    Args:
        context: of the convolution.
        od: the window's number along the depth.
        shift: the first image of the window that has weights.
    """
    b, problem, count = context.b, context.problem, context.problem.depth_taps
    if problem.depth is None or not context.skips_images:
        return 0, count
    low, high = taps(b, problem.depth, 0, od, context.sizes.d, 0, 0)
    low, high = (b.min(b.max(b.sub(end, shift), 0), count) for end in (low, high))
    return low, high


def _panel(context: ConvContext, tile: Tile, panel: Index) -> None:
    """All pixels of a tile for one panel of output channels."""
    b, blocking, most = context.b, context.blocking, context.schedule.k_blocks
    weights = b.mul(panel, blocking.panel)
    if context.problem.phases is not None:
        phase, panel = b.div(panel, blocking.phase_panels), b.rem(panel, blocking.phase_panels)
        tile = _of_phase(context, context.problem.phases, tile, phase)
    low, high = (b.mul(image, context.blocking.blocks) for image in tile.images)
    if context.partial is None:
        _register_tiles(context, tile, panel, weights, low, b.sub(high, low))
        return
    # one pass at least, which gives the sink zeros where the whole window lies in the padding
    with b.loop(low, b.max(high, b.add(low, 1)), most) as first:
        _register_tiles(context, tile, panel, weights, first, clip(b, high, first, most, low))


def _of_phase(context: ConvContext, phases: Phases, tile: Tile, phase: Index) -> Tile:
    """The tile as a phase of a transposed convolution reads and numbers it."""
    b, source = context.b, tile.source
    places = tuple(b.unflatten(phase, phases.factors))
    shifts = [
        b.div(b.add(place, start), factor)
        for place, start, factor in zip(places, phases.starts, phases.factors, strict=True)
    ]
    steps = [source.image, source.row, context.blocking.pixel][-len(shifts) :]
    shifted = replace(source, base=b.add(source.base, b.flatten(shifts, steps)))
    images = _images(context, tile.od, shifts[0])
    return replace(tile, phase=places, source=shifted, images=images)


def _register_tiles(
    context: ConvContext, tile: Tile, panel: Index, weights: Index, first: Index, count: Index
) -> None:
    """All register tiles of a tile, for one part of the input channels."""
    b, size = context.b, context.schedule.pixels
    total = b.mul(tile.height, tile.width)

    def emit(pixel: Index, number: Index, pixels: int, valid: Index | None) -> None:
        RegisterTile(context, tile, panel, pixel, number, pixels, valid).emit(weights, first, count)

    if isinstance(total, int):
        start = done = 0
        rows = context.blocking.form.rows
        parts = [(rows * pairs, times) for pairs, times in split(total // rows, size // rows or 1)]
        parts += [(total % rows, 1)] if total % rows else []
        for pixels, times in parts:
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
