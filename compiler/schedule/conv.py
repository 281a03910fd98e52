"""Direct convolution: the problem, its schedules and the layout of its weights.

The image is cut into tiles of output pixels. For one tile and one *panel* of output channels (a few vectors) the
kernel runs over blocks of input channels; its registers hold `pixels` output pixels times `vectors` vectors, and
pixels follow each other across the rows of the tile. Where the window meets padding, or skips pixels, the tile's
input is first copied to scratch memory ("staged"), zeros included, so that the inner loops have no conditions.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import ceil, gcd
from typing import Any

import numpy as np

from xcompile.compiler.ir.dtypes import bits_of
from xcompile.compiler.schedule.conv_problem import (
    ConvBlocking,
    ConvProblem,
    ConvSchedule,
    check_problem,
    flatten,
    groups_of_panel,
    input_planes,
    panel_reach,
    panel_work,
)
from xcompile.compiler.schedule.products import ProductForm
from xcompile.compiler.schedule.schedule import (
    LONGEST_SUM,
    UNITS_A_CORE,
    ScheduleError,
    TargetNumbers,
)
from xcompile.compiler.schedule.window import depth_of, resolve
from xcompile.compiler.target.target import CACHE_LINE

__all__ = [
    "ConvBlocking",
    "ConvProblem",
    "ConvSchedule",
    "extent",
    "flatten",
    "heuristic",
    "pack",
    "partial_bytes",
    "scratch_bytes",
    "space",
    "staged_bytes",
]

SMALL_TILE = 64
"""Smaller tiles load weights too often."""

MOST_LOADS = 1.4
"""Loads that can be had in a cycle without slowing multiply-adds down."""

CHAINS = 10
"""Independent accumulators that hide the latency of multiply-adds: five cycles, two a cycle."""


def extent(
    problem: ConvProblem,
    schedule: ConvSchedule,
    target: TargetNumbers,
    sizes: Mapping[str, Any] | None = None,
) -> Any:
    """The number of units of the parallel axis: batch, depth, tiles, panels (fastest).

    Args:
        problem: the convolution.
        schedule: a legal schedule.
        target: the machine.
        sizes: values of the problem's symbols: integers or anything with integer arithmetic.
    """
    blocking = ConvBlocking.of(problem, schedule, target)
    known = (problem.n, problem.d, problem.h, problem.w)
    n, d, h, w = (resolve(size, sizes or {}) for size in known)
    tiles_h = (problem.window.output(0, h) + (schedule.tile_h - 1)) // schedule.tile_h
    tiles_w = (problem.window.output(1, w) + (schedule.tile_w - 1)) // schedule.tile_w
    return n * depth_of(problem.depth, d) * tiles_h * tiles_w * blocking.panels


def scratch_bytes(problem: ConvProblem, schedule: ConvSchedule, target: TargetNumbers) -> int:
    """Bytes of scratch memory a thread needs: the staged tile, then the partial sums of a panel."""
    return staged_bytes(problem, schedule, target) + partial_bytes(problem, schedule, target)


def staged_bytes(problem: ConvProblem, schedule: ConvSchedule, target: TargetNumbers) -> int:
    """Bytes of a staged tile, whole cache lines; 0 when the input is read in place."""
    blocking = ConvBlocking.of(problem, schedule, target)
    size = problem.images * blocking.planes * blocking.plane * blocking.element
    return -(-size // CACHE_LINE) * CACHE_LINE if schedule.stage else 0


def partial_bytes(problem: ConvProblem, schedule: ConvSchedule, target: TargetNumbers) -> int:
    """Bytes of partial sums; 0 when all input channels, or those of a group, are summed up at once."""
    blocking = ConvBlocking.of(problem, schedule, target)
    if problem.groups > 1 or schedule.k_blocks >= blocking.in_blocks:
        return 0
    return 4 * schedule.tile_h * schedule.tile_w * schedule.vectors * blocking.lanes


def pack(
    weight: np.ndarray, problem: ConvProblem, schedule: ConvSchedule, target: TargetNumbers
) -> np.ndarray:
    """Weights in the order of use: [phase][panel][kd][block][kw][kh][unit][vectors · V][channel of the unit].

    With several groups of floats it is [panel][group][kd]…, the groups those of which the panel has output channels;
    there are zeros for output channels of other groups. A panel of integers has the blocks of all its groups at once.

    Args:
        weight: (phases · oc, c / groups, taps…), of the problem's type of weights.
        problem: the convolution.
        schedule: a legal schedule.
        target: the machine.

    Returns:
        A flat array; channels that do not exist have zeros.
    """
    parts = np.split(weight, problem.phase_count)
    return np.concatenate([_pack_phase(part, problem, schedule, target) for part in parts])


def _pack_phase(
    weight: np.ndarray, problem: ConvProblem, schedule: ConvSchedule, target: TargetNumbers
) -> np.ndarray:
    blocking = ConvBlocking.of(problem, schedule, target)
    taps = (problem.depth_taps, *problem.taps)
    weight = weight.reshape(*weight.shape[:2], *taps)
    width = schedule.vectors * blocking.lanes
    c, oc = problem.c // problem.groups, problem.oc // problem.groups
    reach, unit = panel_reach(problem, schedule.vectors, target), blocking.form.group
    channels = reach.blocks * reach.units * unit
    padded = np.zeros((blocking.phase_panels, reach.runs, width, channels, *taps), weight.dtype)
    for panel in range(blocking.phase_panels):
        start, end = panel * width, min((panel + 1) * width, problem.oc)
        groups = groups_of_panel(problem, width, panel)
        begin = min(groups.start * c // unit, reach.last) * unit
        for number, group in enumerate(groups):
            run, channel = (0, group * c - begin) if problem.is_integer else (number, 0)
            first, last = max(start, group * oc), min(end, (group + 1) * oc)
            part = padded[panel, run, first - start : last - start, channel : channel + c]
            part[:] = weight[first:last]
    blocked = padded.reshape(-1, reach.runs, width, reach.blocks, reach.units, unit, *taps)
    return np.ascontiguousarray(blocked.transpose(0, 1, 6, 3, 8, 7, 4, 2, 5)).reshape(-1)


def heuristic(problem: ConvProblem, target: TargetNumbers) -> ConvSchedule:
    """A good schedule at once.

    Raises:
        ScheduleError: the family does not take the problem.
    """
    lanes = target.lanes(32)
    check_problem(problem, target)
    oh, ow = _output(problem)
    image = oh * ow if oh is not None and ow is not None else None
    images = problem.n if isinstance(problem.n, int) else 1
    images *= depth_of(problem.depth, problem.d) if isinstance(problem.d, int) else 1
    pixels, vectors = _register_tile(problem, images, image, target, target.cores)
    panels = problem.phase_count * ceil(problem.oc / (vectors * lanes))
    reach, form = panel_reach(problem, vectors, target), problem.form(target)
    units, in_blocks = reach.units, problem.depth_taps * reach.blocks
    planes = problem.images * input_planes(problem, target)
    pixel_bytes = bits_of(form.left) // 8 * planes * problem.pixel(target)
    tile_h, tile_w = _tile(problem, pixel_bytes, images * panels, pixels, target)
    kh, kw = problem.taps
    block_bytes = bits_of(form.right) // 8 * kh * kw * units * form.group * vectors * lanes
    stage = not problem.is_pointwise or problem.needs_staging(target)
    k_blocks = in_blocks
    if problem.groups > 1:
        k_blocks = max(1, LONGEST_SUM // (kh * kw * units))
    elif not problem.is_integer:  # partial sums take four times the bytes of what is added up
        # by the tile of one core: which terms are summed first must not depend on the number of cores
        alone = block_bytes // vectors * _register_tile(problem, images, image, target, 1)[1]
        if in_blocks * alone > target.l1d // 2:
            parts = ceil(in_blocks / max(1, target.l1d // 4 // alone))
            k_blocks = ceil(in_blocks / parts)
    return ConvSchedule(
        vectors=vectors,
        pixels=pixels,
        tile_h=tile_h,
        tile_w=tile_w,
        k_blocks=k_blocks,
        unroll=_unroll(problem, units, form, target),
        stage=stage,
        prefetch=in_blocks * block_bytes * panels > target.l1d // 2,
        prefetch_input=not stage and tile_h == 1,
    )


def _unroll(problem: ConvProblem, units: int, form: ProductForm, target: TargetNumbers) -> int:
    """Units in a pass of the innermost loop.

    One or two where products are added by an instruction of their own: LLVM adds those of many units to each other
    before they reach the sums, and runs out of registers; so it does with weights that it widens ahead of their use,
    and with pixels at computed places, of which it loads those of many units ahead where it has many registers.
    """
    computed = problem.is_pointwise and not (
        isinstance(problem.h, int) and isinstance(problem.w, int)
    )
    if computed and form.instruction == "fma" and target.vector_registers > 16:
        return 1
    if form.instruction == "fma" and form.widens_right:
        return gcd(units, 2 if target.memory_operands else 1)
    if form.instruction == "smull":
        return 1
    if form.instruction == "pairs":
        return gcd(units, 2)
    return units if problem.is_plain else min(units, 8)


def space(problem: ConvProblem, target: TargetNumbers) -> Iterator[ConvSchedule]:
    """All legal schedules around the heuristic's one, that first."""
    first = heuristic(problem, target)
    yield first
    lanes, registers = target.lanes(32), target.vector_registers
    blocks = ConvBlocking.of(problem, first, target).in_blocks
    for vectors in (1, 2, 3, 4):
        for pixels in range(2, min(16, (registers - 2) // vectors - 1) + 1):
            if pixels * vectors < registers // 2:
                continue
            for tile_h in sorted({1, max(1, first.tile_h // 2), first.tile_h, 2 * first.tile_h}):
                for k_blocks in sorted(
                    {min(blocks, max(1, k // lanes)) for k in (64, 128, blocks * lanes)}
                ):
                    for stage in (False, True):
                        schedule = replace(
                            first,
                            vectors=vectors,
                            pixels=pixels,
                            tile_h=tile_h,
                            k_blocks=k_blocks,
                            stage=stage,
                            prefetch_input=tile_h == 1 and not stage,
                        )
                        if schedule != first and _is_legal(schedule, problem, target):
                            yield schedule


def _is_legal(schedule: ConvSchedule, problem: ConvProblem, target: TargetNumbers) -> bool:
    try:
        schedule.check(problem, target)
    except ScheduleError:
        return False
    return True


def _register_tile(
    problem: ConvProblem, images: int, image: int | None, target: TargetNumbers, cores: int
) -> tuple[int, int]:
    """Pixels and vectors of the register tile: few loads, nothing computed in vain, latency hidden.

    Args:
        problem: the convolution.
        images: how many images, as far as known.
        image: output pixels of an image, if known.
        target: the machine.
        cores: for how many there should be units.
    """
    rows = problem.form(target).rows
    best, result, lanes = 0.0, (rows, 1), target.lanes(32)
    fewest = UNITS_A_CORE * cores
    inputs = 0 if target.memory_operands else 1 / rows  # registers that a pixel's input takes
    for vectors in (1, 2, 3, 4):
        most = int((target.vector_registers - 2 - rows * vectors) // (vectors + inputs))
        panels, computed = (
            ceil(problem.oc / (vectors * lanes)),
            panel_work(problem, vectors, target),
        )
        units = images * panels * max(1, image // SMALL_TILE) if image else fewest
        for pixels in range(rows, min(16, most) + 1, rows):
            useful = 1 / computed
            if image and image < pixels:
                useful *= image / pixels
            latency = min(1.0, pixels * vectors / CHAINS)
            loads = (pixels + rows * vectors) / (pixels * vectors)
            fed = min(1.0, MOST_LOADS / target.fma_ports / loads) * (1 - 0.1 * loads)
            parallel = min(1.0, units / fewest)
            score = useful * latency * fed * (0.75 + 0.25 * parallel)
            if score > best:
                best, result = score, (pixels, vectors)
    return result


def _output(problem: ConvProblem) -> tuple[int | None, int | None]:
    """Rows and columns of the output, where known."""
    oh, ow = (
        problem.window.output(axis, size) if isinstance(size, int) else None
        for axis, size in enumerate((problem.h, problem.w))
    )
    return oh, ow


def _tile(
    problem: ConvProblem, pixel_bytes: int, panels: int, pixels: int, target: TargetNumbers
) -> tuple[int, int]:
    """Rows and columns of a tile, of even sizes where the image's are known.

    A tile's input stays in the second-level cache, and there are enough units for all threads.

    Args:
        problem: the convolution.
        pixel_bytes: bytes of an input pixel.
        panels: panels of all images.
        pixels: output pixels of the register tile.
        target: the machine.
    """
    (oh, ow), window = _output(problem), problem.window
    if problem.is_plain:  # a row: constant distances are worth staging input rows twice
        return 1, 16 * pixels if ow is None else _even(ow, 32 * pixels, pixels)
    steps = [1 if k == 1 else s for k, s in zip(window.kernel, window.strides, strict=True)]
    budget = target.l2 if problem.is_pointwise else target.l2 // 2
    most = min(64 * pixels, max(pixels, budget // (pixel_bytes * steps[0] * steps[1])))
    if oh is not None and ow is not None:
        most = min(
            most, max(SMALL_TILE, ceil(oh * ow / ceil(UNITS_A_CORE * target.cores / panels)))
        )
    if oh == 1 and ow is None:
        return 1, min(16, max(1, most // pixels)) * pixels
    tile_w = min(16, most) if ow is None else _even(ow, most, pixels if oh == 1 else 1)
    rows = max(1, most // tile_w)
    return min(16, rows) if oh is None else _even(oh, rows), tile_w


def _even(size: int, most: int, step: int = 1) -> int:
    """The size of parts, at most about `most`, that divide `size` evenly; else a multiple of `step`."""
    fewest = ceil(size / most)
    for parts in range(fewest, fewest + fewest // 2 + 2):
        if size % parts == 0:
            return size // parts
    return min(size, ceil(size / fewest / step) * step)
