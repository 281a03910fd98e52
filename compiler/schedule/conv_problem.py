"""Direct convolution: the problem, its schedules, and what follows from both; see `schedule/conv.py`."""

from dataclasses import astuple, dataclass, field, replace
from math import ceil, gcd
from typing import Any, Literal

from xcompile.compiler.schedule.phases import Phases
from xcompile.compiler.schedule.schedule import ScheduleError, TargetNumbers
from xcompile.compiler.schedule.window import Size, Window

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
        phases: of a transposed convolution, whose window is the one that all phases read; None for others.
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
    phases: Phases | None = None
    dtype: Literal["f32"] = "f32"

    @property
    def taps(self) -> tuple[int, int]:
        """Rows and columns of the window that have weights."""
        return self.phases.taps if self.phases else self.window.kernel

    @property
    def phase_count(self) -> int:
        """How often each output channel occurs for one place of the window."""
        return self.phases.count if self.phases else 1

    def output(self, axis: int, size: Any) -> Any:
        """Rows (axis 0) or columns (axis 1) of the result for an image of `size` of them."""
        places = self.window.output(axis, size)
        if self.phases is None:
            return places
        return places * self.phases.factors[axis] - self.phases.missing[axis]

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
        check_problem(problem, lanes)
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
        channels: input channels of one block; see `block_channels`.
        in_blocks: blocks of input channels of a group.
        out_vectors: vectors of output channels.
        phase_panels: panels of output channels of one phase; the last may have vectors that do not exist.
        panels: panels of all phases.
        group: floats in the weights of a panel for one of its groups.
        panel: floats in the weights of a panel, which has room for as many groups as any.
        planes: planes of the input: blocks, or channels when the input is plain.
        pixel: floats of a pixel in a plane.
        rows: rows of a staged tile, at most.
        columns: columns of a staged tile, at most.
        plane: floats from one staged plane to the next.
    """

    lanes: int
    channels: int
    in_blocks: int
    out_vectors: int
    phase_panels: int
    panels: int
    group: int
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
        plain = problem.layout == "plain"
        channels = block_channels(problem, lanes)
        in_blocks = group_blocks(problem, lanes)
        out_vectors = ceil(problem.oc / lanes)
        rows, columns = (
            staged_size(problem.window, axis, size)
            for axis, size in enumerate((schedule.tile_h, schedule.tile_w))
        )
        pixel = 1 if plain else lanes
        plane = -(-rows * columns * pixel // lanes) * lanes
        kh, kw = problem.taps
        phase_panels = ceil(out_vectors / schedule.vectors)
        group = in_blocks * kh * kw * channels * schedule.vectors * lanes
        return cls(
            lanes=lanes,
            channels=channels,
            in_blocks=in_blocks,
            out_vectors=out_vectors,
            phase_panels=phase_panels,
            panels=problem.phase_count * phase_panels,
            group=group,
            panel=max(panel_groups(problem, schedule.vectors, lanes)) * group,
            planes=problem.c if plain else ceil(problem.c / lanes),
            pixel=pixel,
            rows=rows,
            columns=columns,
            plane=plane if plane % ALIAS else plane + 16,
        )


def flatten(problem: ConvProblem) -> ConvProblem:
    """A pointwise convolution over an image of one row with all pixels; others stay as they are.

    The sink of the flattened problem gets the index (n, channel, 0, pixel).
    """
    if not problem.is_pointwise or problem.phases or problem.h == 1:
        return problem
    h, w = problem.h, problem.w
    pixels = h * w if isinstance(h, int) and isinstance(w, int) else f"{h}*{w}"
    return replace(problem, h=1, w=pixels)


def block_channels(problem: ConvProblem, lanes: int) -> int:
    """Input channels of a block: a vector, all of a plain input, or what divides both a group and a vector."""
    if problem.layout == "plain":
        return problem.c
    return lanes if problem.groups == 1 else gcd(problem.c // problem.groups, lanes)


def group_blocks(problem: ConvProblem, lanes: int) -> int:
    """Blocks of input channels of a group."""
    if problem.layout == "plain":
        return 1
    return ceil(problem.c // problem.groups / block_channels(problem, lanes))


def groups_of_panel(problem: ConvProblem, width: int, panel: int) -> range:
    """The groups of which a panel of `width` output channels has some."""
    oc = problem.oc // problem.groups
    last = min((panel + 1) * width, problem.oc) - 1
    return range(panel * width // oc, last // oc + 1)


def panel_groups(problem: ConvProblem, vectors: int, lanes: int) -> list[int]:
    """For each panel of one phase, of how many groups it has output channels."""
    width = vectors * lanes
    panels = ceil(problem.oc / width)
    return [len(groups_of_panel(problem, width, panel)) for panel in range(panels)]


def staged_size(window: Window, axis: int, size: int) -> int:
    """Rows or columns that a staged tile of `size` outputs has; a kernel of one leaves out what it skips."""
    if window.kernel[axis] == 1:
        return size
    return (size - 1) * window.strides[axis] + window.span(axis)


def check_problem(problem: ConvProblem, lanes: int) -> None:
    """Raise unless direct convolution takes the problem.

    Raises:
        ScheduleError: with the reason.
    """
    if problem.c % problem.groups or problem.oc % problem.groups:
        raise ScheduleError(
            f"{problem.groups} groups do not divide {problem.c} and {problem.oc} channels"
        )
    if min(problem.window.pads) < 0:
        raise ScheduleError(f"negative padding {problem.window.pads}: crop the input before")
    if problem.window.ceil_mode:
        raise ScheduleError("ceil_mode is for pools")
    if problem.phases and problem.groups > 1:
        raise ScheduleError("a transposed convolution has one group")
    if problem.layout == "plain" and (problem.c > lanes or problem.groups > 1):
        raise ScheduleError(
            f"a plain input has one group of at most {lanes} channels, not {problem.c} in {problem.groups}"
        )
