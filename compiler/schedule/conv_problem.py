"""Direct convolution: the problem, its schedules, and what follows from both; see `schedule/conv.py`."""

from dataclasses import astuple, dataclass, field, replace
from math import ceil, gcd
from typing import Any, Literal

from xcompile.compiler.ir.dtypes import bits_of
from xcompile.compiler.schedule.phases import Phases
from xcompile.compiler.schedule.products import ProductForm, product_form
from xcompile.compiler.schedule.schedule import ScheduleError, TargetNumbers
from xcompile.compiler.schedule.window import Size, Window, check_pads
from xcompile.compiler.target.target import CACHE_LINE

ALIAS = 4096
"""Bytes: planes at a multiple of this distance share cache sets."""


@dataclass(frozen=True)
class ConvProblem:
    """A convolution of an NCHW or NCDHW tensor; the output is asked for in vectors of channels.

    Along the depth of a volume the taps of the window are part of the sum, as blocks of input channels are.

    A step of the innermost loop takes a *unit* of neighbouring input channels: one of floats, two of bfloat16 or a few
    of 8-bit integers, as `product_form` says. Sums of floats are float32, those of integers int32.

    Attributes:
        n: batch size.
        c: input channels.
        h: rows of the input.
        w: columns of the input.
        oc: output channels.
        window: kernel, strides, pads and dilations over height and width.
        groups: divides `c` and `oc`.
        layout: of the input: "blocked" is [n][ceil(c / V)][d][h][w][V] with finite values in the lanes past `c`;
            "plain" is [n][c][d][h][w], for at most V channels and one group.
        phases: of a transposed convolution, whose window is the one that all phases read; None for others.
        dtype: of the input.
        weights: of the weights: that of the input, or another one of 8-bit integers.
        d: images of a volume.
        depth: the window along the depth of a volume; None for images.
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
    dtype: Literal["f32", "f16", "bf16", "i8", "ui8"] = "f32"
    weights: Literal["f32", "f16", "bf16", "i8", "ui8"] = "f32"
    d: Size = 1
    depth: Window | None = None

    @property
    def taps(self) -> tuple[int, int]:
        """Rows and columns of the window that have weights."""
        kh, kw = (self.phases.taps if self.phases else self.window.kernel)[-2:]
        return kh, kw

    @property
    def depth_taps(self) -> int:
        """Images of the window that have weights."""
        if self.depth is None:
            return 1
        return self.phases.taps[0] if self.phases else self.depth.kernel[0]

    @property
    def images(self) -> int:
        """Images that the window covers, of all phases."""
        return self.depth.kernel[0] if self.depth else 1

    @property
    def pads_depth(self) -> bool:
        """Whether there is padding along the depth."""
        return self.depth is not None and any(self.depth.pads)

    @property
    def phase_count(self) -> int:
        """How often each output channel occurs for one place of the window."""
        return self.phases.count if self.phases else 1

    @property
    def is_integer(self) -> bool:
        """Whether operands are 8-bit integers."""
        return self.dtype in ("i8", "ui8")

    @property
    def is_plain(self) -> bool:
        """Whether the input is row-major."""
        return self.layout == "plain"

    def form(self, target: TargetNumbers) -> ProductForm:
        """How products are summed on a target; with several groups, floats of two of them never meet in a product.

        Two pixels are taken at a time where there are enough input channels for the unit that this takes.
        """
        alone = self.groups == 1
        rows = 2 if alone and not self.is_plain and self.c > target.lanes(32) else 1
        return product_form(self.dtype, self.weights, target, rows, pairs=alone)

    def pixel(self, target: TargetNumbers) -> int:
        """Neighbouring elements of a pixel as the kernel reads it: a block of channels, or a larger unit."""
        group = self.form(target).group
        return group if self.is_plain else max(group, target.lanes(32))

    def needs_staging(self, target: TargetNumbers) -> bool:
        """Whether the input must be staged: it has padding, or does not lie in memory as products read it.

        Images of floats in the padding along the depth are left out of the sum; those of integers may hold any number.
        """
        form = self.form(target)
        filled = any(self.window.pads) or (self.is_integer and self.pads_depth)
        return filled or form.widens_left or self.gathers_units(target)

    def gathers_units(self, target: TargetNumbers) -> bool:
        """Whether units are gathered from several planes of the input."""
        group = self.form(target).group
        return group > (1 if self.is_plain else target.lanes(32))

    def output(self, axis: int, size: Any) -> Any:
        """Rows (axis 0) or columns (axis 1) of the result for an image of `size` of them."""
        places = self.window.output(axis, size)
        if self.phases is None:
            return places
        return places * self.phases.factors[axis - 2] - self.phases.missing[axis - 2]

    @property
    def is_pointwise(self) -> bool:
        """Whether each output pixel depends on the one input pixel at its place in an image."""
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
        unroll: units of input channels handled by one pass of the innermost loop; divides a block.
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
        registers = target.vector_registers
        if any(value < 1 for value in astuple(self) if not isinstance(value, bool)):
            raise ScheduleError(f"the numbers of {self} must be positive")
        check_problem(problem, target)
        rows = problem.form(target).rows
        needed = (-(-self.pixels // rows) + 1) * rows * self.vectors + 2
        if needed > registers:
            raise ScheduleError(
                f"{self.pixels} pixels by {self.vectors} vectors need {needed} registers; "
                f"the target has {registers}"
            )
        blocking = ConvBlocking.of(problem, self, target)
        if blocking.units % self.unroll:
            raise ScheduleError(f"unroll={self.unroll} does not divide {blocking.units}")
        if not self.stage and any(problem.window.pads):
            raise ScheduleError("padding needs a staged input")
        if not self.stage and problem.needs_staging(target):
            raise ScheduleError(
                "the input is staged, for its memory does not have what products read"
            )
        if self.prefetch_input and (self.stage or self.tile_h > 1):
            raise ScheduleError("only input read in place, in tiles of one row, is prefetched")


@dataclass(frozen=True)
class ConvBlocking:
    """What follows from problem, schedule and target.

    Attributes:
        form: how products are summed.
        element: bytes of an element of the input as the kernel reads it.
        lanes: V, the vector length.
        units: of input channels in one block; see `panel_reach`.
        unit: weights of a unit of input channels and a panel.
        blocks: blocks of input channels of an image that a panel goes over at once.
        in_blocks: those of all images of the window.
        out_vectors: vectors of output channels.
        phase_panels: panels of output channels of one phase; the last may have vectors that do not exist.
        panels: panels of all phases.
        group: weights of a panel for one of its groups; of integers, for all of them.
        panel: weights of a panel, which has room for as many groups as any.
        planes: planes of an image of the input; see `input_planes`.
        pixel: elements of a pixel in a plane.
        rows: rows of a staged tile, at most.
        columns: columns of a staged tile, at most.
        plane: elements from one staged plane to the next.
    """

    form: ProductForm
    element: int
    lanes: int
    units: int
    unit: int
    blocks: int
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
        lanes, form = target.lanes(32), problem.form(target)
        reach = panel_reach(problem, schedule.vectors, target)
        rows, columns = (
            staged_size(problem.window, axis, size)
            for axis, size in enumerate((schedule.tile_h, schedule.tile_w))
        )
        pixel = problem.pixel(target)
        element = bits_of(form.left) // 8
        plane = -(-rows * columns * pixel // lanes) * lanes
        kh, kw = problem.taps
        out_vectors = ceil(problem.oc / lanes)
        phase_panels = ceil(out_vectors / schedule.vectors)
        unit = schedule.vectors * lanes * form.group
        in_blocks = problem.depth_taps * reach.blocks
        group = in_blocks * kh * kw * reach.units * unit
        return cls(
            form=form,
            element=element,
            lanes=lanes,
            units=reach.units,
            unit=unit,
            blocks=reach.blocks,
            in_blocks=in_blocks,
            out_vectors=out_vectors,
            phase_panels=phase_panels,
            panels=problem.phase_count * phase_panels,
            group=group,
            panel=reach.runs * group,
            planes=input_planes(problem, target),
            pixel=pixel,
            rows=rows,
            columns=columns,
            plane=plane if plane * element % ALIAS else plane + CACHE_LINE // element,
        )


@dataclass(frozen=True)
class Reach:
    """Which input channels a panel of output channels is computed from.

    Floats of different groups are summed up one group after the other, so that what is not finite stays in its group.
    Integers are finite: a panel goes once over the units that its groups have, with zeros among the weights.

    Attributes:
        units: units of a block.
        blocks: how many blocks.
        runs: how often a panel goes over so many blocks, at most.
        last: the last unit at which a panel may begin.
    """

    units: int
    blocks: int
    runs: int = 1
    last: int = 0


def panel_reach(problem: ConvProblem, vectors: int, target: TargetNumbers) -> Reach:
    """The reach of panels of so many vectors."""
    lanes, unit, c = target.lanes(32), problem.form(target).group, problem.c // problem.groups
    if problem.is_plain:
        return Reach(ceil(c / unit), 1)
    if problem.groups == 1:
        block = problem.pixel(target)
        return Reach(block // unit, ceil(c / block))
    groups = panel_groups(problem, vectors, lanes)
    if not problem.is_integer:
        units = gcd(c, lanes)
        return Reach(units, ceil(c / units), max(map(len, groups)))
    firsts = [g.start * c // unit for g in groups]
    units = gcd(lanes // unit, *firsts)
    lasts = [ceil(g.stop * c / unit) for g in groups]
    blocks = max(ceil((b - a) / units) for a, b in zip(firsts, lasts, strict=True))
    total = ceil(problem.c / lanes) * lanes // unit
    return Reach(units, blocks, last=total - blocks * units)


def input_planes(problem: ConvProblem, target: TargetNumbers) -> int:
    """Planes of an image of the input as the kernel reads it."""
    return ceil(problem.c / problem.pixel(target))


def flatten(problem: ConvProblem) -> ConvProblem:
    """A pointwise convolution over images of one row with all pixels; others stay as they are.

    The sink of the flattened problem gets the index (n, channel, 0, pixel), with the depth behind the channel.
    """
    if not problem.is_pointwise or problem.phases or problem.h == 1:
        return problem
    h, w = problem.h, problem.w
    pixels = h * w if isinstance(h, int) and isinstance(w, int) else f"{h}*{w}"
    return replace(problem, h=1, w=pixels)


def groups_of_panel(problem: ConvProblem, width: int, panel: int) -> range:
    """The groups of which a panel of `width` output channels has some."""
    oc = problem.oc // problem.groups
    last = min((panel + 1) * width, problem.oc) - 1
    return range(panel * width // oc, last // oc + 1)


def panel_groups(problem: ConvProblem, vectors: int, lanes: int) -> list[range]:
    """For each panel of one phase, the groups of which it has output channels."""
    width = vectors * lanes
    return [groups_of_panel(problem, width, panel) for panel in range(ceil(problem.oc / width))]


def panel_work(problem: ConvProblem, vectors: int, target: TargetNumbers) -> int:
    """Steps for one pixel, one place of the window and one phase: of all vectors of all panels."""
    reach = panel_reach(problem, vectors, target)
    groups = panel_groups(problem, vectors, target.lanes(32))
    runs = len(groups) if problem.is_integer else sum(map(len, groups))
    return runs * vectors * reach.blocks * reach.units


def staged_size(window: Window, axis: int, size: int) -> int:
    """Rows or columns that a staged tile of `size` outputs has; a kernel of one leaves out what it skips."""
    if window.kernel[axis] == 1:
        return size
    return (size - 1) * window.strides[axis] + window.span(axis)


def check_problem(problem: ConvProblem, target: TargetNumbers) -> None:
    """Raise unless direct convolution takes the problem.

    Raises:
        ScheduleError: with the reason.
    """
    if problem.c % problem.groups or problem.oc % problem.groups:
        raise ScheduleError(
            f"{problem.groups} groups do not divide {problem.c} and {problem.oc} channels"
        )
    check_pads(problem.window, problem.depth)
    if problem.window.ceil_mode:
        raise ScheduleError("ceil_mode is for pools")
    lanes, pixel, group = target.lanes(32), problem.pixel(target), problem.form(target).group
    if pixel % group or (pixel % lanes and not problem.is_plain):
        raise ScheduleError(
            f"{pixel} channels are not whole units of {group} and blocks of {lanes}"
        )
    if problem.is_plain and (problem.c > lanes or problem.groups > 1):
        raise ScheduleError(
            f"a plain input has one group of at most {lanes} channels, not {problem.c} in {problem.groups}"
        )
