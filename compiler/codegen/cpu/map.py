"""Map kernels: any chain of elementwise and data-movement ops, as one loop over the result.

This is also how everything without a family of its own is computed: each op that has an element function (see
`pull.py`) can stand in a map kernel.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from xcompile.compiler.codegen.cpu.builder import Builder, Index
from xcompile.compiler.codegen.cpu.coordinates import Coordinate, Fixed, Lane
from xcompile.compiler.codegen.cpu.family import Kernel, Packing, Plan, Preparation, emitted
from xcompile.compiler.codegen.cpu.layout import Layout
from xcompile.compiler.codegen.cpu.pull import PARTS, PULLS, SCALAR, Pull, Source, loops
from xcompile.compiler.codegen.cpu.whole import WholePlan, is_whole
from xcompile.compiler.codegen.job import EmittedKernel
from xcompile.compiler.ir.dtypes import bits_of
from xcompile.compiler.ir.op import Op, Value
from xcompile.compiler.ir.rewrite import no_match
from xcompile.compiler.schedule.map import MapSchedule, heuristic
from xcompile.compiler.schedule.schedule import from_json
from xcompile.compiler.support.dims import Dim, ceildiv, product
from xcompile.dialects.nn.base import Shape, dtype_of
from xcompile.dialects.nn.slicing import Concat, Pad, Slice


@dataclass(frozen=True)
class Axis:
    """One loop over the result: the logical axis it drives and its extent.

    Neighbouring axes that every operand walks in the same way are one loop, driven by the last of them that is longer
    than 1 while the others stand at 0: offsets are linear, so the sum is the same.
    """

    axis: int
    extent: Dim


@dataclass(frozen=True)
class Segment:
    """One loop nest over values of one shape.

    Attributes:
        values: what is computed, and which result of the kernel it belongs to.
        axes: the loops.
        along: the axis on which `shift` is added to the place in the result.
        shift: see `along`.
        channels: the block of channels, where each has a loop nest of its own.
    """

    values: tuple[tuple[Value, int], ...]
    axes: tuple[Axis, ...]
    along: int = 0
    shift: Dim = 0
    channels: int | None = None

    def rows(self) -> Dim:
        return product(a.extent for a in self.axes[:-1])

    def columns(self) -> Dim:
        return self.axes[-1].extent if self.axes else 1


class MapFamily:
    """Takes kernels of elementwise and data-movement ops only."""

    name = "map"

    def plan(self, kernel: Kernel, schedule: str | None = None) -> Plan:
        for op in kernel.ops:
            if loops(op):
                no_match(f"{op.NAME} loops over many elements")
        return MapPlan(kernel, schedule, self.name)


class FallbackFamily:
    """Takes every kernel whose ops all have element functions, looping ones too, and the ops of `whole.py`."""

    name = "fallback"

    def plan(self, kernel: Kernel, schedule: str | None = None) -> Plan:
        if any(is_whole(op) for op in kernel.ops):
            return WholePlan(kernel, schedule, self.name)
        return MapPlan(kernel, schedule, self.name)


_LOOP_CYCLES = 256.0
"""About what an element takes that is computed in a loop."""


class MapPlan:
    """See `family.Plan`."""

    scratch = 0
    packings: dict[int, Packing] = {}
    preparations: dict[int, Preparation] = {}

    def __init__(self, kernel: Kernel, schedule: str | None, family: str) -> None:
        for op in kernel.ops:
            if op.NAME not in PULLS and op.NAME not in PARTS and op.NAME != "nn.concat":
                no_match(f"{op.NAME} has no element function")
        self.family = family
        self._kernel = kernel
        self._loops = any(loops(op) for op in kernel.ops)
        self._layout = Layout.of(kernel.results[0].type)
        if len(kernel.results) > 1 and any(Layout.of(v.type).block for v in kernel.results):
            no_match("several results, and not all row-major")
        if not self._layout.block:  # the schedule asks how long their rows are
            self._segments = self._find_segments()
        values = [*kernel.parameters, *(r for op in kernel.ops for r in op.results)]
        widest = max((bits_of(dtype_of(v)) for v in values), default=32)
        if any(Layout.of(v.type).block for v in values):
            widest = max(
                widest, 32
            )  # blocks have as many channels as registers have lanes of 32 bits
        self.schedule = (
            from_json(MapSchedule, schedule)
            if schedule is not None
            else heuristic(
                kernel.target, max(widest, 8), vectorizable=self._takes_lanes(), loops=self._loops,
                columns=self._known_columns(),
            )
        )  # fmt: skip
        self.schedule.check(kernel.target)
        columns = self._known_columns()
        if kernel.seams and kernel.is_pointwise() and columns and columns < self.schedule.lanes:
            no_match("rows are shorter than vectors")
        if self._layout.block:  # the schedule says how many there may be
            self._segments = self._find_segments()

    def _takes_lanes(self) -> bool:
        """Whether all element functions take vectors: not those whose axis is data."""
        if any(op.NAME in SCALAR for op in self._kernel.ops):
            return False
        sums = [op for op in self._kernel.ops if op.NAME in ("nn.cumsum", "nn.cumprod")]
        return all(self._kernel.sizes.content(op.operands[1]) is not None for op in sums)

    def _known_columns(self) -> int | None:
        """How long the innermost loop is, if that is known; blocked images have whole vectors everywhere."""
        if self._layout.block:
            return None
        columns = self._segments[0].columns()
        return columns if isinstance(columns, int) else None

    @property
    def extent(self) -> Dim:
        return sum((self._units(s) for s in self._segments), start=0)

    def _units(self, segment: Segment) -> Dim:
        return segment.rows() * ceildiv(segment.columns(), self.schedule.block)

    @property
    def unit_cost(self) -> float:
        columns = self._segments[0].columns()
        elements = (
            min(columns, self.schedule.block) if isinstance(columns, int) else self.schedule.block
        )
        cycles = 4 + 4 * len(self._kernel.ops) + (_LOOP_CYCLES if self._loops else 0)
        return cycles * (1 + elements / max(1, self.schedule.lanes))

    # -- iteration ----------------------------------------------------------------------------

    def _find_segments(self) -> list[Segment]:
        results = self._kernel.results
        blocks = self._shuffled_blocks()
        if blocks:
            return [
                Segment(
                    ((results[0], 0),),
                    self._plain_axes(self._kernel.shape(results[0]), block),
                    channels=block,
                )
                for block in range(blocks)
            ]
        root = next((op for op in self._kernel.ops if op.results[0] == results[0]), None)
        if root is None or root.NAME != "nn.concat":
            alike: dict[Shape, list[tuple[Value, int]]] = {}
            for position, value in enumerate(results):
                alike.setdefault(self._kernel.shape(value), []).append((value, position))
            return [Segment(tuple(group), self._axes(group[0][0])) for group in alike.values()]
        axis = root.axis % len(self._kernel.shape(results[0]))  # type: ignore[attr-defined]
        segments: list[Segment] = []
        shift: Dim = 0
        for value in root.operands:
            shape = self._kernel.shape(value)
            if self._layout.block and axis == 1 and shift % self._layout.block != 0:
                # a vector of the result has channels of several parts: each lane finds its own
                result = results[0]
                return [Segment(((result, 0),), self._plain_axes(self._kernel.shape(result)))]
            segments.append(Segment(((value, 0),), self._plain_axes(shape), axis, shift))
            shift = shift + shape[axis]
        return segments

    def _shuffled_blocks(self) -> int:
        """The number of blocks, if vectors of the result take channels from several places; else, or if many, 0.

        Each block is then written with the numbers of its channels.
        """
        if not self._layout.block:
            return 0
        channels = self._kernel.shape(self._kernel.results[0])[1]
        if not isinstance(channels, int) or not any(map(self._shuffles, self._kernel.ops)):
            return 0
        blocks = -(-channels // self._layout.block)
        return blocks if blocks <= self.schedule.blocks else 0

    def _shuffles(self, op: Op) -> bool:
        """Whether channels of the result are others of the operand's, in ways that `Lane` cannot say."""
        if isinstance(op, Slice):
            return self._begins(op.starts, op.axes) != 0
        if isinstance(op, Pad):
            return self._begins(op.pads, op.axes) != 0
        if not isinstance(op, Concat):
            return op.NAME == "nn.channel_shuffle"
        sizes = [self._kernel.shape(v)[1] for v in op.xs]
        apart = op.y != self._kernel.results[0] or any(
            s % self._layout.block != 0 for s in sizes[:-1]
        )
        return op.axis in (1, -3) and apart and all(isinstance(s, int) for s in sizes)

    def _begins(self, places: Value, axes: Value | None) -> Dim:
        """What stands for the axis of channels in an operand with one number for each of some axes."""
        numbers = self._kernel.sizes.content(places) or ()
        named = range(4) if axes is None else self._kernel.sizes.content(axes) or ()
        return next((n for n, axis in zip(numbers, named, strict=False) if axis in (1, -3)), 0)

    def _axes(self, value: Value) -> tuple[Axis, ...]:
        shape = self._kernel.shape(value)
        if not self._kernel.is_pointwise() or len(shape) < 2:
            return self._plain_axes(shape)
        operands = [self._kernel.shape(p) for p in self._kernel.spread]
        layouts = {Layout.of(p.type) for p in self._kernel.parameters}
        first = 2 if self._layout.block else 0
        if layouts - {self._layout, Layout()}:
            return self._plain_axes(shape)
        groups: list[list[int]] = []
        for axis in self._plain_axes(shape):
            goes_on = axis.axis - 1 >= first and axis.axis not in self._kernel.seams
            together = [*groups[-1], axis.axis] if groups and goes_on else []
            if together and self._walk_alike(operands, shape, together):
                groups[-1] = together
            else:
                groups.append([axis.axis])
        plain = {axis.axis: axis for axis in self._plain_axes(shape)}
        return tuple(self._merged([plain[i] for i in group]) for group in groups)

    @staticmethod
    def _merged(axes: Sequence[Axis]) -> Axis:
        """One loop over neighbouring axes; an axis of size 1 cannot drive it, for its coordinate is always 0."""
        driver = next((a for a in reversed(axes) if a.extent != 1), axes[-1])
        return Axis(driver.axis, product(a.extent for a in axes))

    def _plain_axes(self, shape: Shape, channels: int | None = None) -> tuple[Axis, ...]:
        """One loop for each axis; without that over blocks of channels, if one of them is meant."""
        if not self._layout.block:
            return tuple(Axis(i, d) for i, d in enumerate(shape))
        spatial = [Axis(i, d) for i, d in enumerate(shape)][2:]
        if channels is not None:
            return (Axis(0, shape[0]), *spatial)
        blocks = ceildiv(shape[1], self._layout.block)
        return (Axis(0, shape[0]), Axis(1, blocks), *spatial)

    def _walk_alike(self, operands: Sequence[Shape], shape: Shape, axes: Sequence[int]) -> bool:
        """Whether every operand is full, or of size 1, on all of these axes."""
        for operand in operands:
            sizes = [self._at(operand, len(shape), i) for i in axes]
            if sizes != [shape[i] for i in axes] and any(d != 1 for d in sizes):
                return False
        return True

    @staticmethod
    def _at(operand: Shape, rank: int, axis: int) -> Dim:
        position = axis - (rank - len(operand))
        return operand[position] if position >= 0 else 1

    # -- code ---------------------------------------------------------------------------------

    def emit(self, symbol: str) -> EmittedKernel:
        signature = self._kernel.signature()
        b = Builder()
        pull = self._kernel.pull(b, signature, self.schedule.lanes)
        targets = [self._kernel.destination(signature, i) for i in range(len(self._kernel.results))]
        first: Index = 0
        for segment in self._segments:
            units = self._units(segment)
            last = b.add(first, pull.dim(units))
            low = b.max(b.sub(signature.begin, first), 0)
            high = b.sub(b.min(signature.end, last), first)
            if units == 1:
                with b.when(b.compare("slt", low, high)), pull.scope():
                    self._unit(b, pull, segment, targets, 0)
            else:
                with b.loop(low, high) as unit, pull.scope():
                    self._unit(b, pull, segment, targets, unit)
            first = last
        return emitted(b, symbol, signature)

    def _unit(
        self, b: Builder, pull: Pull, segment: Segment, targets: Sequence[Source], unit: Index
    ) -> None:
        extents = [pull.dim(a.extent) for a in segment.axes]
        columns = extents[-1] if extents else 1
        blocks = b.ceildiv(columns, self.schedule.block)
        row, part = b.div(unit, blocks), b.rem(unit, blocks)
        at: list[Coordinate] = [0] * len(self._kernel.shape(segment.values[0][0]))
        for axis, position in zip(
            segment.axes[:-1], b.unflatten(row, extents[:-1] or [1]), strict=False
        ):
            at[axis.axis] = position
        low = b.mul(part, self.schedule.block)
        high = b.min(columns, b.add(low, self.schedule.block))
        if self._layout.block:
            self._blocked(b, pull, segment, targets, at, low, high)
        else:
            self._row(b, pull, segment, targets, at, low, high)

    def _row(
        self,
        b: Builder,
        pull: Pull,
        segment: Segment,
        targets: Sequence[Source],
        at: list[Coordinate],
        low: Index,
        high: Index,
    ) -> None:
        """Elements [low, high) of the innermost axis: whole vectors, then one masked one."""
        lanes = self.schedule.lanes
        if not lanes or not segment.axes:
            with b.loop(low, high) as column, pull.scope():
                self._element(b, pull, segment, targets, at, column if segment.axes else None)
            return
        whole = b.sub(high, b.rem(b.sub(high, low), lanes))
        with b.loop(low, whole, lanes) as column, pull.scope():
            self._element(b, pull, segment, targets, at, Lane(column, lanes))
        if whole != high:
            with (
                b.when(b.compare("slt", whole, high)),
                pull.masked(b.tail_mask(b.sub(high, whole), lanes)),
            ):
                self._element(b, pull, segment, targets, at, Lane(whole, lanes))

    def _element(
        self,
        b: Builder,
        pull: Pull,
        segment: Segment,
        targets: Sequence[Source],
        at: list[Coordinate],
        column: Coordinate | None,
    ) -> None:
        here = list(at)
        if column is not None:
            here[segment.axes[-1].axis] = column
        there = self._place(pull, segment, here)
        for value, result in segment.values:
            pull.store(targets[result], pull.value(value, here), there)

    @staticmethod
    def _place(pull: Pull, segment: Segment, at: Sequence[Coordinate]) -> list[Coordinate]:
        """Where in the result the elements of a segment at `at` lie."""
        there = list(at)
        if segment.shift != 0:
            there[segment.along] = pull.coordinates.add(
                there[segment.along], pull.dim(segment.shift)
            )
        return there

    def _blocked(
        self,
        b: Builder,
        pull: Pull,
        segment: Segment,
        targets: Sequence[Source],
        at: list[Coordinate],
        low: Index,
        high: Index,
    ) -> None:
        """Pixels [low, high) of one channel block; lanes run along channels."""
        block, lanes = self._layout.block, self.schedule.lanes
        innermost = segment.axes[-1].axis
        channels = pull.dim(self._kernel.shape(segment.values[0][0])[1])
        with b.loop(low, high) as column, pull.scope():
            for offset in range(0, block, lanes or 1):
                here = list(at)
                here[innermost] = column
                outer = _scalar(here[1]) if segment.channels is None else segment.channels
                first = b.add(b.mul(outer, block), offset)
                here[1] = Lane(first, lanes) if lanes else first
                if lanes and isinstance(first, int):
                    here[1] = Fixed(tuple(range(first, first + lanes)))
                self._padded(b, pull, segment, targets, here, b.sub(channels, first))

    def _padded(
        self,
        b: Builder,
        pull: Pull,
        segment: Segment,
        targets: Sequence[Source],
        at: list[Coordinate],
        left: Index,
    ) -> None:
        """Store one vector of channels of which `left` exist; the others become zero."""
        channels = self._kernel.shape(segment.values[0][0])[1]
        if isinstance(channels, int) and channels % self._layout.block == 0:
            self._element(b, pull, segment, targets, at, None)
            return
        with pull.masked(b.tail_mask(left, self.schedule.lanes), zero_padding=True):
            self._element(b, pull, segment, targets, at, None)


def _scalar(c: Coordinate) -> Index:
    assert isinstance(c, int | str)
    return c
