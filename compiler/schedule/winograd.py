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
from xcompile.compiler.target.target import CACHE_LINE, Target

Mode = Literal["off", "f2", "f4", "auto"]

_PAGE = 4096

# What the heuristic knows from measurements, in docs/decisions.md.
_K_BLOCK = (
    128  # input channels a pass: a panel of weights and the tiles' channels share the L1 cache
)
_OC_BLOCK = 32
_MOST_TILES = 56
_LOOP_BODY = 96  # multiply-adds in one trip of the innermost loop
_TILES_A_WEIGHT = 12  # products that take as long as one weight takes from memory
_STREAM_PRICE = (
    2.3  # the same within a cache: tiles' worth of time a block loses to reading all weights
)
_TRANSFORM_PRICE = 8  # channels' worth of products that the transforms of a tile take
_DIRECT_PRICE = 1.15  # the direct algorithm's share of the peak is that much lower


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
        if not 0 <= self.stagger < _PAGE or self.stagger % CACHE_LINE:
            raise ScheduleError(
                f"stagger={self.stagger} is no multiple of {CACHE_LINE} below {_PAGE}"
            )


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
    plane += (schedule.stagger - plane) % _PAGE if schedule.stagger else -plane % CACHE_LINE
    tile = 4 * schedule.frequencies * schedule.oc_block
    tile += CACHE_LINE if tile % _PAGE == 0 else 0
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
        offsets.append(offsets[-1] + size + -size % CACHE_LINE)
    return Scratch(*offsets, frequency=plane // 4, tile=tile // 4)


def scratch_bytes(problem: WinogradProblem, schedule: WinogradSchedule) -> int:
    """Bytes of scratch memory a thread needs."""
    return scratch(problem, schedule).bytes


def groups(problem: WinogradProblem, schedule: WinogradSchedule) -> int:
    """How many groups of output channels there are: the parallel axis of the weight transform."""
    return ceildiv(problem.oc, schedule.oc_block)


def tile_count(problem: WinogradProblem, m: int) -> Dim:
    """Tiles of all images."""
    n, h, w = (dims.parse(str(size)) for size in (problem.n, problem.h, problem.w))
    return _tiles(problem, m, n, h, w)


def _tiles(problem: WinogradProblem, m: int, n: Dim, h: Dim, w: Dim) -> Dim:
    top, left, bottom, right = problem.pads
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
    lanes = problem.block
    vectors, rows = _register_tile(target)
    unroll = lanes
    while unroll > 1 and unroll * rows * vectors > _LOOP_BODY:
        unroll //= 2
    channels = _round_up(problem.c, lanes)
    tiles, oc_block = _blocks(problem, target, m, vectors * lanes)
    # by the problem, not by the blocks, which depend on the number of cores: sums must not
    many = _assumed_tiles(problem, m) > 2 * _TILES_A_WEIGHT
    passes = ceildiv(channels, _K_BLOCK if many else _K_BLOCK // 2)
    return WinogradSchedule(
        m=m,
        tiles=tiles,
        oc_block=oc_block,
        rows=min(rows, tiles),
        vectors=vectors,
        k_block=_round_up(ceildiv(channels, passes), lanes),
        unroll=unroll,
        strip=_strip(target, m, lanes, tiles),
    )


def _register_tile(target: Target) -> tuple[int, int]:
    """Vectors and rows; where each row's input takes a register, fewer rows and wider ones."""
    if target.vector_registers < 32:
        return 2, 6
    return (2, 12) if target.memory_operands else (4, 5)


def _tile_edge(problem: WinogradProblem, mode: Mode) -> int:
    """The tile that needs less time; F(4×4) on equal terms."""
    if mode in ("f2", "f4"):
        return 2 if mode == "f2" else 4
    return min((4, 2), key=lambda m: _products(problem, m))


def _products(problem: WinogradProblem, m: int) -> int:
    """Multiplications an output channel and input channel, or as many as there is time for.

    Weights come from memory once a run, and reading one takes as long as multiplying it with some tiles.
    """
    return (m + 2) ** 2 * max(_assumed_tiles(problem, m), _TILES_A_WEIGHT)


def _assumed_tiles(problem: WinogradProblem, m: int) -> int:
    """Tiles of all images; where sizes are not known, one image of 64 rows and columns stands for them."""
    n = problem.n if isinstance(problem.n, int) else 1
    h, w = (size if isinstance(size, int) else 64 for size in (problem.h, problem.w))
    return dims.evaluate(_tiles(problem, m, n, h, w), {})


def _blocks(problem: WinogradProblem, target: Target, m: int, width: int) -> tuple[int, int]:
    """Tiles a block and output channels a group: little work for one core, and all cores finish together.

    Small blocks and groups leave room in the caches. But weights that the L2 cache does not hold are read again
    for each block, which is small beside the arithmetic of 49 tiles and noticeable beside that of 16.
    """
    panels = ceildiv(problem.oc, width)
    parts = [p for p in range(1, max(_OC_BLOCK // width, 1) + 1) if panels % p == 0]
    weights = 4 * (m + 2) ** 2 * _round_up(problem.c, problem.block) * panels * width
    streamed = weights > 2 * target.l2
    most = _MOST_TILES if streamed else _MOST_TILES // 2
    count = tile_count(problem, m)
    if not isinstance(count, int):
        return most, parts[-1] * width

    def time(choice: tuple[int, int]) -> tuple[float, int, int]:
        tiles, part = choice
        units = ceildiv(count, tiles) * (panels // part)
        price = tiles * part * (1 + (_STREAM_PRICE / tiles if streamed else 0))
        slowest, alone = ceildiv(units, target.cores) * price, units * price
        return slowest + alone / target.cores, -part, -tiles

    fewest = ceildiv(max(count, 1), most)
    sizes = {max(ceildiv(count, fewest + more), 1) for more in range(target.cores + 1)}
    tiles, part = min(itertools.product(sizes, parts), key=time)
    return tiles, part * width


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


ERROR_BOUNDS = {2: 1e-6, 4: 1e-5}
"""The largest error over the largest output, by the edge of the tiles: see `pays`."""


def pays(problem: WinogradProblem, target: Target, mode: Mode) -> bool:
    """Whether the problem should be computed by Winograd's algorithm.

    Its rounding errors are larger than the direct algorithm's. The largest error, over the largest magnitude of a
    float64 direct convolution, stays below `ERROR_BOUNDS`, for normally distributed inputs and weights of up to 512
    channels (a test measures it). An infinity or NaN spoils the whole tile that it is part of, and inputs above 1e36
    may overflow.

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
    if mode != "auto":
        return True
    channels, outputs = _round_up(problem.c, problem.block), _round_up(problem.oc, problem.block)
    transforms = 1 + _TRANSFORM_PRICE / channels + _TRANSFORM_PRICE / outputs
    padded = channels * outputs * transforms / (problem.c * problem.oc)
    return _products(problem, _tile_edge(problem, mode)) * padded < _DIRECT_PRICE * _direct(problem)


def _direct(problem: WinogradProblem) -> int:
    """Multiplications of the direct algorithm, in the terms of `_products`."""
    return 9 * max(_assumed_tiles(problem, 1), _TILES_A_WEIGHT)


def ceildiv(a: int, b: int) -> int:
    """`a / b` rounded up."""
    return -(-a // b)


def _round_up(value: int, multiple: int) -> int:
    return ceildiv(value, multiple) * multiple
