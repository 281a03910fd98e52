"""Sizes that may be symbols, and the sliding window of convolutions and pools."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from xcompile.compiler.schedule.schedule import UNITS_A_CORE, ScheduleError, TargetNumbers
from xcompile.compiler.support.dims import minimum

Size = int | str
"""A size: an integer, a symbol such as "d0", or a product of these such as "d0*d1"."""


def resolve(size: Size, sizes: Mapping[str, Any]) -> Any:
    """The value of a size, given the values of the symbols (anything that multiplies)."""
    if isinstance(size, int):
        return size
    return math.prod(int(f) if f.isdigit() else sizes[f] for f in size.split("*"))


@dataclass(frozen=True)
class Window:
    """A window that slides over a padded image, or along one axis.

    Attributes:
        kernel: height and width.
        strides: steps along height and width.
        pads: top, left, bottom, right; not negative, may differ.
        dilations: distances between the window's rows and columns.
        ceil_mode: whether a last window that hangs over the bottom or right padding counts, as long as
            it starts inside the image or the padding before it (pools only).
    """

    kernel: tuple[int, ...] = (1, 1)
    strides: tuple[int, ...] = (1, 1)
    pads: tuple[int, ...] = (0, 0, 0, 0)
    dilations: tuple[int, ...] = (1, 1)
    ceil_mode: bool = False

    def span(self, axis: int) -> int:
        """How many rows (axis 0) or columns (axis 1) one window covers."""
        return (self.kernel[axis] - 1) * self.dilations[axis] + 1

    def before(self, axis: int) -> int:
        """The padding in front of the image."""
        return self.pads[axis]

    def after(self, axis: int) -> int:
        """The padding behind the image."""
        return self.pads[axis + len(self.kernel)]

    def slack(self, axis: int) -> int:
        """What is added to the size of the image before it is divided by the stride."""
        return self.before(axis) + self.after(axis) - self.span(axis)

    def output(self, axis: int, size: Any) -> Any:
        """How many windows fit into an image of `size` rows or columns."""
        stride = self.strides[axis]
        if not self.ceil_mode:
            return (size + self.slack(axis)) // stride + 1
        count = (size + (self.slack(axis) + stride - 1)) // stride + 1
        return minimum(count, (size + (self.pads[axis] - 1)) // stride + 1)


def of_volume(window: Window) -> tuple[Window, Window]:
    """A window over depth, height and width as one along depth and one over height and width."""
    kernel, strides, dilations, pads = window.kernel, window.strides, window.dilations, window.pads
    depth = Window(kernel[:1], strides[:1], (pads[0], pads[3]), dilations[:1], window.ceil_mode)
    image = (*pads[1:3], *pads[4:])
    return depth, Window(kernel[1:], strides[1:], image, dilations[1:], window.ceil_mode)


def depth_of(depth: Window | None, size: Any) -> Any:
    """How many windows fit along the depth of a volume of `size` images; 1 for an image."""
    return 1 if depth is None else depth.output(0, size)


UNROLLED_COLUMNS = 5
"""The heuristic unrolls windows of at most this many columns."""

MOST_EDGE_TILES = 6
"""The heuristic gives up to this many tiles of a row code of their own."""


class BlockedWindow(Protocol):
    """A problem whose window slides over each channel of a blocked image."""

    @property
    def n(self) -> Size: ...
    @property
    def c(self) -> int: ...
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
class WindowSchedule:
    """How windows of single channels (depthwise convolution, pools) are computed; lanes are channels.

    Attributes:
        pixels: neighbouring output pixels held in registers.
        rows: output rows of a unit of the parallel axis.
        unroll: whether a row of the window is unrolled, so that each input is loaded once for all
            windows it is in and a row of weights stays in registers; else it is a loop.
        peel: whether each tile at an edge of an image of known width has code of its own, without the
            taps in the padding; else the columns at the edges are loops with bounds of their own.
    """

    pixels: int
    rows: int
    unroll: bool
    peel: bool = False

    def check(self, problem: BlockedWindow, target: TargetNumbers) -> None:
        """Raise unless the schedule is legal.

        Raises:
            ScheduleError: with the reason.
        """
        if min(self.pixels, self.rows) < 1:
            raise ScheduleError(f"pixels={self.pixels} and rows={self.rows} must be positive")
        check_pads(problem.window, problem.depth)
        if self.pixels + 2 > target.vector_registers:
            raise ScheduleError(
                f"{self.pixels} pixels need {self.pixels + 2} registers; "
                f"the target has {target.vector_registers}"
            )
        if self.peel and not (self.unroll and isinstance(problem.w, int)):
            raise ScheduleError("peel needs an image of known width and unrolled windows")

    def extent(
        self, problem: BlockedWindow, target: TargetNumbers, sizes: Mapping[str, Any] | None = None
    ) -> Any:
        """The number of units: batch, blocks of channels, depth, groups of rows (fastest)."""
        n, d, h = (resolve(size, sizes or {}) for size in (problem.n, problem.d, problem.h))
        groups = (problem.window.output(0, h) + (self.rows - 1)) // self.rows
        return n * depth_of(problem.depth, d) * groups * -(-problem.c // target.lanes(32))


def check_pads(window: Window, depth: Window | None) -> None:
    """Raise when padding is negative.

    Raises:
        ScheduleError: with the reason.
    """
    pads = (*window.pads, *(depth.pads if depth else ()))
    if min(pads) < 0:
        raise ScheduleError(f"negative padding {pads}: crop the input before")


@dataclass(frozen=True)
class ColumnTile:
    """Neighbouring output pixels of a row that are computed together.

    Attributes:
        first: the first output column.
        count: how many.
        inside: whether all their windows lie in the image.
    """

    first: int
    count: int
    inside: bool


def column_tiles(window: Window, w: int, pixels: int) -> list[ColumnTile]:
    """The tiles of a row of an image of `w` columns, `pixels` outputs each but for the last."""
    tiles: list[ColumnTile] = []
    columns = window.output(1, w)
    for first in range(0, columns, pixels):
        count = min(pixels, columns - first)
        start = first * window.strides[1] - window.pads[1]
        end = (first + count - 1) * window.strides[1] - window.pads[1] + window.span(1)
        tiles.append(ColumnTile(first, count, start >= 0 and end <= w))
    return tiles


def window_heuristic(
    problem: BlockedWindow, target: TargetNumbers, weighted: bool, spare: int = 0, held: int = 1
) -> WindowSchedule:
    """A good schedule at once.

    Args:
        problem: the window and its image.
        target: the machine.
        weighted: whether the window has weights.
        spare: registers that the products need beside sums, inputs and weights.
        held: registers that hold what a window has accumulated.

    Raises:
        ScheduleError: the window is not legal.
    """
    unroll = problem.window.kernel[1] <= UNROLLED_COLUMNS
    most = _most_pixels(problem, target, weighted and unroll, spare, held)
    pixels, rows = most, 8
    if isinstance(problem.w, int):
        columns = problem.window.output(1, problem.w)
        pixels = -(-columns // -(-columns // most))
    if isinstance(problem.h, int):
        height = problem.window.output(0, problem.h)
        planes = -(-problem.c // target.lanes(32))
        planes *= problem.n if isinstance(problem.n, int) else 1
        planes *= depth_of(problem.depth, problem.d) if isinstance(problem.d, int) else 1
        rows = max(1, min(rows, planes * height // (UNITS_A_CORE * target.cores)))
        rows = -(-height // -(-height // rows))
    schedule = WindowSchedule(pixels, rows, unroll, _peels(problem, pixels, unroll))
    schedule.check(problem, target)
    return schedule


def window_space(
    problem: BlockedWindow, target: TargetNumbers, weighted: bool, spare: int = 0, held: int = 1
) -> Iterator[WindowSchedule]:
    """All schedules worth trying, the heuristic's first; arguments as there."""
    first = window_heuristic(problem, target, weighted, spare, held)
    yield first
    most = _most_pixels(problem, target, weighted and first.unroll, spare, held)
    for pixels in range(1, most + 1):
        for rows in (1, 2, 4, 8, 16):
            for peel in sorted({False, _peels(problem, pixels, first.unroll)}):
                schedule = WindowSchedule(pixels, rows, first.unroll, peel)
                if schedule != first:
                    yield schedule


def _peels(problem: BlockedWindow, pixels: int, unroll: bool) -> bool:
    """Whether the tiles at the edges are few enough for code of their own."""
    if not unroll or not isinstance(problem.w, int):
        return False
    tiles = column_tiles(problem.window, problem.w, pixels)
    return sum(not tile.inside for tile in tiles) <= MOST_EDGE_TILES


def _most_pixels(
    problem: BlockedWindow, target: TargetNumbers, resident: bool, spare: int, held: int
) -> int:
    """How many windows fit beside an input, a weight or a row of weights, and what else there is."""
    weights = problem.window.kernel[1] if resident else 1
    return max(1, min(16, (target.vector_registers - 1 - weights - spare) // held))
