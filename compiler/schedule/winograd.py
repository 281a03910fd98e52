"""Winograd convolution F(m×m,3×3): what it computes, how it is blocked, and when it pays.

The input is cut into tiles of (m+2)×(m+2) pixels that overlap by two; a tile yields m×m outputs. In the
transformed domain the convolution is (m+2)² independent matrix products over the channels ("frequencies"),
2.25 (m = 2) or 4 (m = 4) times fewer multiplications than the direct algorithm. See Lavin and Gray, "Fast
Algorithms for Convolutional Neural Networks", 2015.

Tiles are numbered row by row over all images, and a block is a range of consecutive tiles. A unit of the
parallel axis is one block and one group of output channels, groups innermost: a part that covers several
groups of one block transforms its input once.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from xcompile.compiler.schedule.schedule import ScheduleError
from xcompile.compiler.schedule.window import Size
from xcompile.compiler.support import dims
from xcompile.compiler.support.dims import Dim
from xcompile.compiler.target.target import Target

Mode = Literal["off", "f2", "f4", "auto"]

_LINE = 64
_PAGE = 4096


@dataclass(frozen=True)
class WinogradProblem:
    """A float32 3×3 convolution with stride 1, dilation 1 and one group, in blocked layout.

    Attributes:
        n: images.
        c: input channels.
        h: input rows, at least 1.
        w: input columns, at least 1.
        oc: output channels.
        pads: rows and columns of zeros at the top, left, bottom and right, 0 to 2 each. The output has
            h + top + bottom - 2 rows and w + left + right - 2 columns, both at least 1.
        block: channels in a block of the input's layout, [n][ceil(c/block)][h][w][block] with zeros in
            the padding lanes; the lanes of the target's vectors.
    """

    n: Size
    c: int
    h: Size
    w: Size
    oc: int
    block: int
    pads: tuple[int, int, int, int] = (1, 1, 1, 1)

    @property
    def output(self) -> tuple[int | None, int | None]:
        """Rows and columns of the output; None where the input's are not known."""
        top, left, bottom, right = self.pads
        rows = self.h + top + bottom - 2 if isinstance(self.h, int) else None
        columns = self.w + left + right - 2 if isinstance(self.w, int) else None
        return rows, columns


@dataclass(frozen=True)
class WinogradSchedule:
    """The blocking of a Winograd convolution.

    Attributes:
        m: rows and columns of an output tile, 2 or 4.
        tiles: tiles in a block.
        oc_block: output channels in a group.
        rows: most tiles in a register tile of the matrix products.
        vectors: vectors of output channels in a register tile.
        k_block: input channels between two visits of the accumulators in memory.
        unroll: input channels in one trip of the innermost loop.
        strip: most tiles whose columns are transformed in one go.
        prefetch: how many weight panels ahead to prefetch; 0 for none.
        stagger: bytes by which the frequencies' planes of the transformed input are shifted against
            each other modulo 4096, so that their streams do not meet in one cache set.
    """

    m: int
    tiles: int
    oc_block: int
    rows: int
    vectors: int
    k_block: int
    unroll: int
    strip: int
    prefetch: int = 1
    stagger: int = 192

    @property
    def frequencies(self) -> int:
        return (self.m + 2) ** 2

    def check(self, problem: WinogradProblem, target: Target) -> None:
        """Raise ScheduleError when the schedule is not legal for the problem and the target."""
        check_problem(problem)
        lanes, registers = target.lanes(32), target.vector_registers
        if problem.block != lanes:
            raise ScheduleError(f"blocks of {problem.block} channels; the target has {lanes} lanes")
        if self.m not in (2, 4):
            raise ScheduleError(f"m={self.m}: there are transforms for m=2 and m=4 only")
        for name in ("tiles", "oc_block", "rows", "vectors", "k_block", "unroll", "strip"):
            if getattr(self, name) < 1:
                raise ScheduleError(f"{name}={getattr(self, name)} is not positive")
        if self.oc_block % (self.vectors * lanes):
            raise ScheduleError(
                f"oc_block={self.oc_block} is no multiple of the register tile's "
                f"{self.vectors} vectors of {lanes}"
            )
        if self.k_block % lanes:
            raise ScheduleError(f"k_block={self.k_block} is no multiple of the {lanes} lanes")
        if lanes % self.unroll:
            raise ScheduleError(f"unroll={self.unroll} does not divide the {lanes} lanes")
        needed = self.rows * self.vectors + self.vectors + 1
        if needed > registers:
            raise ScheduleError(
                f"rows={self.rows}, vectors={self.vectors} needs {needed} vector registers, "
                f"the target has {registers}"
            )
        if self.prefetch < 0:
            raise ScheduleError(f"prefetch={self.prefetch} is negative")
        if not 0 <= self.stagger < _PAGE or self.stagger % _LINE:
            raise ScheduleError(f"stagger={self.stagger} is no multiple of {_LINE} below {_PAGE}")


def check_problem(problem: WinogradProblem) -> None:
    """Raise ScheduleError when the problem is none that the family computes."""
    if len(problem.pads) != 4 or not all(0 <= pad <= 2 for pad in problem.pads):
        raise ScheduleError(f"pads={problem.pads}: a Winograd convolution takes pads of 0 to 2")
    if problem.c < 1 or problem.oc < 1:
        raise ScheduleError(f"c={problem.c}, oc={problem.oc}: there must be channels")
    for name, size in zip(("row", "column"), problem.output, strict=True):
        if size is not None and size < 1:
            raise ScheduleError(f"the output has no {name}")


@dataclass(frozen=True)
class Scratch:
    """Where a thread keeps its intermediate arrays: byte offsets, and strides in floats.

    Attributes:
        inputs: transformed input [frequency][channel vector][tile][lane].
        outputs: products [tile][frequency][channel of the group].
        strip: columns transformed in one direction [column][row of the tile][lane].
        zeros: a row of zeros, read instead of rows outside the image.
        half: an output tile transformed in one direction [row][frequency column][lane].
        bytes: the size of all.
        frequency: from one frequency's plane of `inputs` to the next.
        tile: from one tile of `outputs` to the next.
    """

    inputs: int
    outputs: int
    strip: int
    zeros: int
    half: int
    bytes: int
    frequency: int
    tile: int


def scratch(problem: WinogradProblem, schedule: WinogradSchedule) -> Scratch:
    """The layout of a thread's scratch memory, whose base is aligned to 64 bytes."""
    lanes, edge = problem.block, schedule.m + 2
    plane = 4 * ceildiv(problem.c, lanes) * schedule.tiles * lanes
    plane += (schedule.stagger - plane) % _PAGE if schedule.stagger else -plane % _LINE
    tile = 4 * schedule.frequencies * schedule.oc_block
    tile += _LINE if tile % _PAGE == 0 else 0
    columns = 4 * (schedule.strip * schedule.m + 2) * lanes
    sizes = (
        schedule.frequencies * plane,
        schedule.tiles * tile,
        columns * edge,
        columns,
        4 * schedule.m * edge * lanes,
    )
    offsets = [0]
    for size in sizes:
        offsets.append(offsets[-1] + size + -size % _LINE)
    return Scratch(*offsets, frequency=plane // 4, tile=tile // 4)


def scratch_bytes(problem: WinogradProblem, schedule: WinogradSchedule) -> int:
    """Bytes of scratch memory a thread needs."""
    return scratch(problem, schedule).bytes


def groups(problem: WinogradProblem, schedule: WinogradSchedule) -> int:
    """How many groups of output channels there are: the parallel axis of the weight transform."""
    return ceildiv(problem.oc, schedule.oc_block)


def tile_count(problem: WinogradProblem, m: int) -> Dim:
    """Tiles of all images."""
    top, left, bottom, right = problem.pads
    n, h, w = (dims.parse(str(size)) for size in (problem.n, problem.h, problem.w))
    return n * dims.ceildiv(h + (top + bottom - 2), m) * dims.ceildiv(w + (left + right - 2), m)


def extent(problem: WinogradProblem, schedule: WinogradSchedule) -> Dim:
    """Units of the parallel axis: blocks of tiles times groups of output channels, groups innermost."""
    blocks = dims.ceildiv(tile_count(problem, schedule.m), schedule.tiles)
    return blocks * groups(problem, schedule)


def transformed_shape(
    problem: WinogradProblem, schedule: WinogradSchedule
) -> tuple[int, int, int, int, int]:
    """The shape of the transformed weights: [group][frequency][panel][input channel][output channel].

    A panel holds the output channels of a register tile. Channels are padded with zeros.
    """
    width = schedule.vectors * problem.block
    channels = ceildiv(problem.c, problem.block) * problem.block
    count = groups(problem, schedule)
    return count, schedule.frequencies, schedule.oc_block // width, channels, width


def packed_shape(problem: WinogradProblem, schedule: WinogradSchedule) -> tuple[int, int, int, int]:
    """The shape of the shipped weights: [output channel vector][input channel][3·row + column][lane]."""
    lanes, outputs = problem.block, groups(problem, schedule) * schedule.oc_block
    return outputs // lanes, ceildiv(problem.c, lanes) * lanes, 9, lanes


def heuristic(problem: WinogradProblem, target: Target, mode: Mode = "auto") -> WinogradSchedule:
    """A good schedule at once, from the sizes of the caches, the lanes and the registers.

    Args:
        problem: the convolution.
        target: the machine.
        mode: "f2" or "f4" to decide the tile, "auto" to choose the faster one.
    """
    m = _tile_edge(problem, mode)
    lanes, wide = problem.block, target.vector_registers >= 32
    vectors, rows = 2, 12 if wide else 6
    channels = _round_up(problem.c, lanes)
    k_block = (
        channels if channels <= 128 else _round_up(ceildiv(channels, ceildiv(channels, 128)), lanes)
    )
    oc_block = _group(problem.oc, vectors * lanes)
    tiles = _tiles(problem, target, m, oc_block)
    return WinogradSchedule(
        m=m,
        tiles=tiles,
        oc_block=oc_block,
        rows=min(rows, tiles),
        vectors=vectors,
        k_block=k_block,
        unroll=min(lanes, 8),
        strip=_strip(target, m, lanes, tiles),
    )


def _tile_edge(problem: WinogradProblem, mode: Mode) -> int:
    """F(4×4) saves more multiplications, but wastes up to three rows and columns at the edges."""
    if mode in ("f2", "f4"):
        return 2 if mode == "f2" else 4
    small = [size is not None and size <= 8 for size in problem.output]
    return 2 if all(small) else 4


def _group(oc: int, width: int) -> int:
    """Output channels a group: at most 64 (or a register tile), groups as equal as can be."""
    panels = ceildiv(oc, width)
    most = max(64 // width, 1)
    return ceildiv(panels, ceildiv(panels, most)) * width


def _tiles(problem: WinogradProblem, target: Target, m: int, oc_block: int) -> int:
    """Tiles a block: the transformed input and the products of a block fit into the L2 cache."""
    channels = _round_up(problem.c, problem.block)
    most = target.l2 // (4 * (m + 2) ** 2 * (channels + oc_block))
    most = min(max(most, 24), 56)
    count = tile_count(problem, m)
    if not isinstance(count, int):
        return most
    return max(ceildiv(count, ceildiv(count, most)), 1)


def _strip(target: Target, m: int, lanes: int, tiles: int) -> int:
    """Tiles a strip: the transformed columns fit into half of the L1 cache."""
    most = (target.l1d // 2 // (4 * lanes * (m + 2)) - 2) // m
    return max(min(most, tiles), 1)


def space(
    problem: WinogradProblem, target: Target, mode: Mode = "auto"
) -> Iterator[WinogradSchedule]:
    """The legal schedules near the heuristic's, itself first."""
    start = heuristic(problem, target, mode)
    seen: set[WinogradSchedule] = set()
    for edge in (start.m,) if mode != "auto" else (start.m, 6 - start.m):
        base = start if edge == start.m else heuristic(problem, target, "f2" if edge == 2 else "f4")
        for schedule in _variants(base, problem):
            if schedule not in seen and _legal(schedule, problem, target):
                seen.add(schedule)
                yield schedule


def _variants(base: WinogradSchedule, problem: WinogradProblem) -> Iterator[WinogradSchedule]:
    width = base.vectors * problem.block
    widest = _round_up(problem.oc, width)
    count = tile_count(problem, base.m)
    tiles = dict.fromkeys((base.tiles, 12, 16, 20, 24, 28, 36, 49, 56))
    for block, group, k_block, rows, prefetch in itertools.product(
        (t for t in tiles if t == base.tiles or not isinstance(count, int) or t <= count),
        dict.fromkeys((base.oc_block, *(min(w, widest) for w in (width, 2 * width, 4 * width)))),
        dict.fromkeys((base.k_block, 64, 128, 256)),
        dict.fromkeys((base.rows, base.rows - 1, base.rows + 1, base.rows + 2)),
        dict.fromkeys((base.prefetch, 0)),
    ):
        yield replace(
            base, tiles=block, oc_block=group, k_block=k_block, rows=rows, prefetch=prefetch,
            strip=min(base.strip, block),
        )  # fmt: skip


def _legal(schedule: WinogradSchedule, problem: WinogradProblem, target: Target) -> bool:
    try:
        schedule.check(problem, target)
    except ScheduleError:
        return False
    return True


def pays(problem: WinogradProblem, target: Target, mode: Mode) -> bool:
    """Whether the problem should be computed by Winograd's algorithm.

    Its rounding errors are larger than the direct algorithm's. Relative to the largest magnitude of a float64
    direct convolution, with inputs and weights of zero mean, F(2×2) stays below 1e-6 and F(4×4) below 2e-5
    (a test measures both up to 512 channels); "f2" therefore is for those who need more digits.

    Args:
        problem: the convolution.
        target: the machine.
        mode: "off"; "f2" or "f4" to use that tile wherever the problem is one of the family; "auto"
            where it is faster.
    """
    if mode == "off" or problem.block != target.lanes(32):
        return False
    try:
        check_problem(problem)
    except ScheduleError:
        return False
    return mode != "auto" or min(problem.c, problem.oc) >= 2 * problem.block


def ceildiv(a: int, b: int) -> int:
    """`a / b` rounded up."""
    return -(-a // b)


def _round_up(value: int, multiple: int) -> int:
    return ceildiv(value, multiple) * multiple
