"""The emitter of direct convolution; see `compiler/schedule/conv.py` for the blocking."""

from collections.abc import Mapping
from dataclasses import replace

from xcompile.compiler.codegen.cpu.builder import Buffer, Builder, Index, Value
from xcompile.compiler.codegen.cpu.conv_context import ConvContext, Source, Tile
from xcompile.compiler.codegen.cpu.conv_staging import stage
from xcompile.compiler.codegen.cpu.conv_tile import RegisterTile
from xcompile.compiler.codegen.cpu.products import products_of
from xcompile.compiler.codegen.cpu.sink import Sink
from xcompile.compiler.codegen.cpu.windows import WindowSizes, clip
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
        sink: called with output indices (n, channel, row, column), lanes along channels.
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
        n, y, x = b.unflatten(tile_index, [context.sizes.n, tiles_h, tiles_w])
        tile = _tile(context, n, b.mul(y, schedule.tile_h), b.mul(x, schedule.tile_w))
        first = b.mul(tile_index, panels)
        low = b.max(b.sub(begin, first), 0)
        high = b.min(b.sub(end, first), panels)
        with b.loop(low, high) as panel:
            _panel(context, tile, panel)


def _tile(context: ConvContext, n: Index, oh: Index, ow: Index) -> Tile:
    """The tile whose first output pixel is given, staged if the schedule says so."""
    b, schedule, sizes = context.b, context.schedule, context.sizes
    height = clip(b, sizes.oh, oh, schedule.tile_h)
    width = clip(b, sizes.ow, ow, schedule.tile_w)
    window, blocking = context.problem.window, context.blocking
    if context.staged is not None:
        stage(context, n, oh, ow, height, width)
        steps = [1 if k == 1 else s for k, s in zip(window.kernel, window.strides, strict=True)]
        row = blocking.columns * blocking.pixel
        pair = (steps[0], steps[1])
        source = Source(context.staged, 0, blocking.plane, row, pair)
    else:
        row = b.mul(sizes.w, blocking.pixel)
        plane = b.mul(sizes.h, row)
        at = [
            b.mul(n, blocking.planes),
            b.mul(oh, window.strides[0]),
            b.mul(ow, window.strides[1]),
        ]
        base = b.flatten(at, [plane, row, blocking.pixel])
        source = Source(context.x, base, plane, row, window.strides)
    return Tile(n, oh, ow, height, width, source)


def _panel(context: ConvContext, tile: Tile, panel: Index) -> None:
    """All pixels of a tile for one panel of output channels."""
    b, blocking, most = context.b, context.blocking, context.schedule.k_blocks
    weights = b.mul(panel, blocking.panel)
    if context.problem.phases is not None:
        phase, panel = b.div(panel, blocking.phase_panels), b.rem(panel, blocking.phase_panels)
        tile = _of_phase(context, context.problem.phases, tile, phase)
    blocks = context.blocking.in_blocks
    if context.partial is None:
        _register_tiles(context, tile, panel, weights, 0, blocks)
        return
    with b.loop(0, blocks, most) as first:
        _register_tiles(context, tile, panel, weights, first, clip(b, blocks, first, most))


def _of_phase(context: ConvContext, phases: Phases, tile: Tile, phase: Index) -> Tile:
    """The tile as a phase of a transposed convolution reads and numbers it."""
    b, source = context.b, tile.source
    places = b.div(phase, phases.factors[1]), b.rem(phase, phases.factors[1])
    row, column = (
        b.div(b.add(place, start), factor)
        for place, start, factor in zip(places, phases.starts, phases.factors, strict=True)
    )
    shift = b.flatten([row, column], [source.row, context.blocking.pixel])
    return replace(tile, phase=places, source=replace(source, base=b.add(source.base, shift)))


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
