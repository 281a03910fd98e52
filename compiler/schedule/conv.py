"""Direct convolution: the problem, its schedules and the layout of its weights.

The image is cut into tiles of output pixels. For one tile and one *panel* of output channels (a few vectors) the
kernel runs over blocks of input channels; its registers hold `pixels` output pixels times `vectors` vectors, and
pixels follow each other across the rows of the tile. Where the window meets padding, or skips pixels, the tile's
input is first copied to scratch memory ("staged"), zeros included, so that the inner loops have no conditions.
"""

from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, field
from math import ceil
from typing import Any, Literal

import numpy as np

from xcompile.compiler.schedule.schedule import ScheduleError, TargetNumbers
from xcompile.compiler.schedule.window import Size, Window, resolve

ALIAS = 1024
"""Floats in 4 KiB: planes at a multiple of this distance share cache sets."""


@dataclass(frozen=True)
class ConvProblem:
    """A float32 convolution of an NCHW tensor; the output is asked for in vectors of channels.

    Attributes:
        n: batch size.
        c: input channels.
        h: rows of the input.
        w: columns of the input.
        oc: output channels.
        window: kernel, strides, pads and dilations.
        groups: divides `c` and `oc`.
        layout: of the input: "blocked" is [n][ceil(c / V)][h][w][V] with finite values in the lanes past `c`;
            "plain" is [n][c][h][w], for at most V channels and one group.
        dtype: "f32".
    """

    n: Size
    c: int
    h: Size
    w: Size
    oc: int
    window: Window = field(default_factory=Window)
    groups: int = 1
    layout: Literal["blocked", "plain"] = "blocked"
    dtype: Literal["f32"] = "f32"

    @property
    def is_pointwise(self) -> bool:
        """Whether each output pixel depends on the one input pixel at its place."""
        return self.window == Window()


@dataclass(frozen=True)
class ConvSchedule:
    """How a convolution is computed.

    Attributes:
        vectors: vectors of output channels in a panel (and in the register tile).
        pixels: output pixels in the register tile.
        tile_h: output rows of a tile; more than the image has are cut off.
        tile_w: output columns of a tile.
        k_blocks: blocks of input channels summed up at a time; the partial sums wait in scratch memory.
        unroll: input channels handled by one pass of the innermost loop; divides a block.
        stage: whether the input of a tile is copied to scratch memory first.
        prefetch: whether the next block of weights is fetched while this one is used.
        prefetch_input: whether the next register tile's input is; for tiles of one row read in place.
    """

    vectors: int
    pixels: int
    tile_h: int
    tile_w: int
    k_blocks: int
    unroll: int
    stage: bool
    prefetch: bool
    prefetch_input: bool

    def check(self, problem: ConvProblem, target: TargetNumbers) -> None:
        """Raise unless the schedule is legal.

        Raises:
            ScheduleError: with the reason.
        """
        lanes, registers = target.lanes(32), target.vector_registers
        if any(value < 1 for value in astuple(self) if not isinstance(value, bool)):
            raise ScheduleError(f"the numbers of {self} must be positive")
        _check_problem(problem, lanes)
        needed = (self.pixels + 1) * self.vectors + 2
        if needed > registers:
            raise ScheduleError(
                f"{self.pixels} pixels by {self.vectors} vectors need {needed} registers; "
                f"the target has {registers}"
            )
        blocking = ConvBlocking.of(problem, self, target)
        if blocking.channels % self.unroll:
            raise ScheduleError(f"unroll={self.unroll} does not divide {blocking.channels}")
        if not self.stage and any(problem.window.pads):
            raise ScheduleError("padding needs a staged input")
        if self.prefetch_input and (self.stage or self.tile_h > 1):
            raise ScheduleError("only input read in place, in tiles of one row, is prefetched")


@dataclass(frozen=True)
class ConvBlocking:
    """What follows from problem, schedule and target.

    Attributes:
        lanes: V, the vector length.
        channels: input channels of one block: V, or all of them when the input is plain.
        groups: groups after merging those too narrow for whole vectors (the merged weights have zeros).
        in_blocks: blocks of input channels of a group.
        out_vectors: vectors of output channels of a group.
        panels: panels of output channels of a group; the last may have vectors that do not exist.
        panel: floats in the weights of a panel.
        planes: planes of a group's input: blocks, or channels when the input is plain.
        pixel: floats of a pixel in a plane.
        rows: rows of a staged tile, at most.
        columns: columns of a staged tile, at most.
        plane: floats from one staged plane to the next.
    """

    lanes: int
    channels: int
    groups: int
    in_blocks: int
    out_vectors: int
    panels: int
    panel: int
    planes: int
    pixel: int
    rows: int
    columns: int
    plane: int

    @classmethod
    def of(
        cls, problem: ConvProblem, schedule: ConvSchedule, target: TargetNumbers
    ) -> "ConvBlocking":
        """The blocking of a legal schedule."""
        lanes = target.lanes(32)
        groups = problem.groups // merged_groups(problem, lanes)
        plain = problem.layout == "plain"
        channels = problem.c if plain else lanes
        in_blocks = 1 if plain else ceil(problem.c // groups / lanes)
        out_vectors = ceil(problem.oc // groups / lanes)
        rows, columns = (
            staged_size(problem.window, axis, size)
            for axis, size in enumerate((schedule.tile_h, schedule.tile_w))
        )
        pixel = 1 if plain else lanes
        plane = -(-rows * columns * pixel // lanes) * lanes
        kh, kw = problem.window.kernel
        return cls(
            lanes=lanes,
            channels=channels,
            groups=groups,
            in_blocks=in_blocks,
            out_vectors=out_vectors,
            panels=ceil(out_vectors / schedule.vectors),
            panel=in_blocks * kh * kw * channels * schedule.vectors * lanes,
            planes=problem.c if plain else in_blocks,
            pixel=pixel,
            rows=rows,
            columns=columns,
            plane=plane if plane % ALIAS else plane + 16,
        )


def flatten(problem: ConvProblem) -> ConvProblem:
    """A pointwise convolution over an image of one row with all pixels; others stay as they are.

    The sink of the flattened problem gets the index (n, channel, 0, pixel).
    """
    if not problem.is_pointwise or problem.h == 1:
        return problem
    h, w = problem.h, problem.w
    pixels = h * w if isinstance(h, int) and isinstance(w, int) else f"{h}*{w}"
    return ConvProblem(problem.n, problem.c, 1, pixels, problem.oc, groups=problem.groups)


def merged_groups(problem: ConvProblem, lanes: int) -> int:
    """How many neighbouring groups are computed as one: the fewest that fill whole vectors."""
    c, oc = problem.c // problem.groups, problem.oc // problem.groups
    for count in range(1, problem.groups):
        if problem.groups % count == 0 and count * c % lanes == 0 and count * oc % lanes == 0:
            return count
    return problem.groups


def staged_size(window: Window, axis: int, size: int) -> int:
    """Rows or columns that a staged tile of `size` outputs has; a kernel of one leaves out what it skips."""
    if window.kernel[axis] == 1:
        return size
    return (size - 1) * window.strides[axis] + window.span(axis)


def extent(
    problem: ConvProblem,
    schedule: ConvSchedule,
    target: TargetNumbers,
    sizes: Mapping[str, Any] | None = None,
) -> Any:
    """The number of units of the parallel axis: batch, groups, tiles, panels (fastest).

    Args:
        problem: the convolution.
        schedule: a legal schedule.
        target: the machine.
        sizes: values of the problem's symbols: integers or anything with integer arithmetic.
    """
    blocking = ConvBlocking.of(problem, schedule, target)
    n, h, w = (resolve(size, sizes or {}) for size in (problem.n, problem.h, problem.w))
    tiles_h = (problem.window.output(0, h) + (schedule.tile_h - 1)) // schedule.tile_h
    tiles_w = (problem.window.output(1, w) + (schedule.tile_w - 1)) // schedule.tile_w
    return n * tiles_h * tiles_w * (blocking.groups * blocking.panels)


def scratch_bytes(problem: ConvProblem, schedule: ConvSchedule, target: TargetNumbers) -> int:
    """Bytes of scratch memory a thread needs: the staged tile, then the partial sums of a panel."""
    return 4 * (
        staged_floats(problem, schedule, target) + partial_floats(problem, schedule, target)
    )


def staged_floats(problem: ConvProblem, schedule: ConvSchedule, target: TargetNumbers) -> int:
    """Floats of a staged tile; 0 when the input is read in place."""
    blocking = ConvBlocking.of(problem, schedule, target)
    return -(-blocking.planes * blocking.plane // 16) * 16 if schedule.stage else 0


def partial_floats(problem: ConvProblem, schedule: ConvSchedule, target: TargetNumbers) -> int:
    """Floats of partial sums; 0 when all input channels are summed up at once."""
    blocking = ConvBlocking.of(problem, schedule, target)
    if schedule.k_blocks >= blocking.in_blocks:
        return 0
    return schedule.tile_h * schedule.tile_w * schedule.vectors * blocking.lanes


def pack(
    weight: np.ndarray, problem: ConvProblem, schedule: ConvSchedule, target: TargetNumbers
) -> np.ndarray:
    """Weights in the order of use: [group][panel][block][kw][kh][channel][vectors · V].

    Args:
        weight: float32, (oc, c / groups, kh, kw).
        problem: the convolution.
        schedule: a legal schedule.
        target: the machine.

    Returns:
        A flat float32 array; channels that do not exist have zeros.
    """
    blocking = ConvBlocking.of(problem, schedule, target)
    kh, kw = problem.window.kernel
    groups, width = blocking.groups, schedule.vectors * blocking.lanes
    c, oc = problem.c // groups, problem.oc // groups
    merged = problem.groups // groups
    small_c, small_oc = c // merged, oc // merged
    padded = np.zeros(
        (groups, blocking.panels * width, blocking.in_blocks * blocking.channels, kh, kw),
        np.float32,
    )
    parts = weight.reshape(groups, merged, small_oc, small_c, kh, kw)
    for part in range(merged):
        rows = slice(part * small_oc, (part + 1) * small_oc)
        padded[:, rows, part * small_c : (part + 1) * small_c] = parts[:, part]
    blocked = padded.reshape(
        groups, blocking.panels, width, blocking.in_blocks, blocking.channels, kh, kw
    )
    return np.ascontiguousarray(blocked.transpose(0, 1, 3, 6, 5, 4, 2)).reshape(-1)


def heuristic(problem: ConvProblem, target: TargetNumbers) -> ConvSchedule:
    """A good schedule at once.

    Raises:
        ScheduleError: the family does not take the problem.
    """
    lanes = target.lanes(32)
    _check_problem(problem, lanes)
    window, plain = problem.window, problem.layout == "plain"
    group = problem.groups // merged_groups(problem, lanes)
    oh, ow = (
        window.output(axis, size) if isinstance(size, int) else None
        for axis, size in enumerate((problem.h, problem.w))
    )
    image = oh * ow if oh is not None and ow is not None else None
    pixels, vectors = _register_tile(ceil(problem.oc // group / lanes), image, target)
    stage = not problem.is_pointwise
    channels = problem.c if plain else lanes
    in_blocks = 1 if plain else ceil(problem.c // group / lanes)
    steps = [1 if k == 1 else s for k, s in zip(window.kernel, window.strides, strict=True)]
    per_pixel = 4 * in_blocks * channels * steps[0] * steps[1]
    tile_h, tile_w = _tile(oh, ow, max(pixels, target.l2 // 2 // per_pixel), pixels)
    if (
        plain
    ):  # few channels: rows of constant distances between pixels are worth staging rows twice
        tile_h = 1
    taps = window.kernel[0] * window.kernel[1]
    block_bytes = 4 * taps * channels * vectors * lanes
    k_blocks = in_blocks
    if in_blocks * block_bytes > target.l1d // 2:
        parts = ceil(in_blocks / max(1, target.l1d // 4 // block_bytes))
        k_blocks = ceil(in_blocks / parts)
    return ConvSchedule(
        vectors=vectors,
        pixels=pixels,
        tile_h=tile_h,
        tile_w=tile_w,
        k_blocks=k_blocks,
        unroll=channels,
        stage=stage,
        prefetch=in_blocks * block_bytes * problem.oc // (vectors * lanes) > target.l1d // 2,
        prefetch_input=not stage and tile_h == 1,
    )


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
                        schedule = ConvSchedule(
                            vectors, pixels, tile_h, first.tile_w, k_blocks,
                            first.unroll, stage, first.prefetch, tile_h == 1 and not stage,
                        )  # fmt: skip
                        if schedule != first and _is_legal(schedule, problem, target):
                            yield schedule


def _is_legal(schedule: ConvSchedule, problem: ConvProblem, target: TargetNumbers) -> bool:
    try:
        schedule.check(problem, target)
    except ScheduleError:
        return False
    return True


def _check_problem(problem: ConvProblem, lanes: int) -> None:
    if problem.c % problem.groups or problem.oc % problem.groups:
        raise ScheduleError(
            f"{problem.groups} groups do not divide {problem.c} and {problem.oc} channels"
        )
    if min(problem.window.pads) < 0:
        raise ScheduleError(f"negative padding {problem.window.pads}: crop the input before")
    if problem.window.ceil_mode:
        raise ScheduleError("ceil_mode is for pools")
    if problem.layout == "plain" and (problem.c > lanes or problem.groups > 1):
        raise ScheduleError(
            f"a plain input has one group of at most {lanes} channels, not {problem.c} in {problem.groups}"
        )


def _register_tile(out_vectors: int, image: int | None, target: TargetNumbers) -> tuple[int, int]:
    """Pixels and vectors of the register tile: few loads, nothing computed in vain, latency hidden."""
    best, result = 0.0, (1, 1)
    for vectors in (1, 2, 3, 4):
        most = min(16, (target.vector_registers - 2) // vectors - 1)
        for pixels in range(1, most + 1):
            tiles = ceil(image / pixels) if image else 0
            useful = 1.0
            if image and image < pixels:
                useful = image / (tiles * pixels)
            useful *= out_vectors / (ceil(out_vectors / vectors) * vectors)
            latency = min(1.0, pixels * vectors / 10)
            loads = (pixels + vectors) / (pixels * vectors)
            score = useful * latency * (1 - 0.1 * loads)
            if score > best:
                best, result = score, (pixels, vectors)
    return result


def _tile(oh: int | None, ow: int | None, budget: int, pixels: int) -> tuple[int, int]:
    """Rows and columns of a tile with at most about `budget` pixels, of even sizes where these are known."""
    most = min(budget, 64 * pixels)
    tile_w = min(32, most) if ow is None else _even(ow, most)
    if oh is None:
        return max(1, min(8, most // tile_w)), tile_w
    return _even(oh, max(1, most // tile_w)), tile_w


def _even(size: int, most: int) -> int:
    """The size of parts, at most about `most`, that divide `size` evenly or nearly so."""
    fewest = ceil(size / most)
    for parts in range(fewest, fewest + fewest // 2 + 2):
        if size % parts == 0:
            return size // parts
    return ceil(size / fewest)
