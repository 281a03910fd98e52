"""Kernels in which each thread computes one element of the result, or one slice of what only slices can compute.

Every op that has an element function (`pull.py`) or a kernel of its own (`whole.py`) runs so, with the code that it has
on a CPU without vectors: neighbouring threads take neighbouring elements, and the tail is a comparison. Families that
know more about a kernel come before this one.
"""

from collections.abc import Sequence

from xcompile.compiler.codegen.cpu.anchored import ending
from xcompile.compiler.codegen.cpu.builder import Buffer, Builder, Index, Value
from xcompile.compiler.codegen.cpu.coordinates import Coordinate
from xcompile.compiler.codegen.cpu.family import Kernel, Plan
from xcompile.compiler.codegen.cpu.map import MapPlan, Segment
from xcompile.compiler.codegen.cpu.pull import Pull, Source
from xcompile.compiler.codegen.cpu.scatters import ScatterPlan
from xcompile.compiler.codegen.cpu.whole import Slices, WholePlan, is_whole
from xcompile.compiler.codegen.cuda.launch import (
    DeviceSignature,
    LaunchShape,
    emitted,
    signature_of,
    thread_count,
    thread_number,
)
from xcompile.compiler.codegen.job import EmittedKernel
from xcompile.compiler.schedule.map import MapSchedule
from xcompile.compiler.schedule.schedule import to_json
from xcompile.compiler.support.dims import Dim
from xcompile.dialects.nn.base import dtype_of

_THREADS = 256
_SLICE_THREADS = 64
_SLICE_BLOCKS = 1024
"""Blocks of a kernel with scratch memory: what its threads have at once is then bounded."""

_ALIGNMENT = 16
"""Bytes: the scratch memory of each thread starts at a multiple of it."""

_ELEMENTS = to_json(MapSchedule(lanes=0, block=1, blocks=0))
"""One element a parallel unit."""


class SimtFamily:
    """Takes every kernel whose ops all have element functions, scatters, and the ops of `whole.py`."""

    name = "simt"

    def plan(self, kernel: Kernel, schedule: str | None = None) -> Plan:
        """Plan the kernel; see `family.Family`."""
        if any(op.NAME == "nn.scatter_nd" for op in kernel.ops):
            made = ending(kernel, "nn.scatter_nd", "a scatter")
            return SimtScatterPlan(kernel, *made, schedule or _ELEMENTS)
        if any(is_whole(op) for op in kernel.ops):
            return SimtSlicesPlan(kernel, schedule, self.name)
        return SimtPlan(kernel, schedule or _ELEMENTS, self.name)


class SimtPlan(MapPlan):
    """A thread an element; those of a blocked image that lie behind its last channel are zeros."""

    launch = LaunchShape(_THREADS, _THREADS)

    def _units(self, segment: Segment) -> Dim:
        return super()._units(segment) * max(self._layout.block, 1)

    def emit(self, symbol: str) -> EmittedKernel:
        """The kernel's text; see `family.Plan`."""
        signature = signature_of(self._kernel)
        b = Builder()
        pull = self._kernel.pull(b, signature, 0)
        targets = [self._kernel.destination(signature, i) for i in range(len(self._kernel.results))]
        unit = thread_number(b)
        with b.when(b.compare("slt", unit, signature.end)):
            first: Index = 0
            for segment in self._segments:
                last = b.add(first, pull.dim(self._units(segment)))
                inside: Value | bool = True
                if len(self._segments) > 1:
                    inside = b.both(b.compare("sge", unit, first), b.compare("slt", unit, last))
                with b.when(inside), pull.scope():
                    self._unit(b, pull, segment, targets, b.sub(unit, first))
                first = last
        return emitted(b, symbol, signature, self.launch)

    def _unit(
        self, b: Builder, pull: Pull, segment: Segment, targets: Sequence[Source], unit: Index
    ) -> None:
        block = self._layout.block
        extents = [pull.dim(a.extent) for a in segment.axes]
        at: list[Coordinate] = [0] * len(self._kernel.shape(segment.values[0][0]))
        pixel = b.div(unit, block) if block else unit
        for axis, position in zip(segment.axes, b.unflatten(pixel, extents or [1]), strict=False):
            at[axis.axis] = position
        if not block:
            self._element(b, pull, segment, targets, at, None)
            return
        outer = at[1]
        assert isinstance(outer, int | str)
        channel = at[1] = b.add(b.mul(outer, block), b.rem(unit, block))
        channels = self._kernel.shape(segment.values[0][0])[1]
        exists: Value | bool = True
        if not isinstance(channels, int) or channels % block:
            exists = b.compare("slt", channel, pull.dim(channels))

        def compute() -> None:
            with pull.scope():
                self._element(b, pull, segment, targets, at, None)

        def clear() -> None:
            with pull.scope():
                there = self._place(pull, segment, at)
                for value, result in segment.values:
                    pull.store(targets[result], pull.zero(dtype_of(value)), there)

        b.either(exists, compute, clear)


class SimtScatterPlan(ScatterPlan):
    """A thread an element of a run, in all of its places: what meets at a place is joined in the order of updates."""

    family = "simt"
    launch = LaunchShape(_THREADS, _THREADS)

    def emit(self, symbol: str) -> EmittedKernel:
        """The kernel's text; see `family.Plan`."""
        signature = signature_of(self.kernel)
        b = Builder()
        pull = self.kernel.pull(b, signature, 0)
        slices = Slices(b, pull, [self.kernel.destination(signature, 0)], None)
        unit = thread_number(b)
        with b.when(b.compare("slt", unit, signature.end)), pull.scope():
            self._unit(slices, unit)
        return emitted(b, symbol, signature, self.launch)


class SimtSlicesPlan(WholePlan):
    """A thread a slice, which goes on to those that lie a grid further: so scratch memory is bounded."""

    launch = LaunchShape(_SLICE_THREADS, _SLICE_THREADS, blocks=_SLICE_BLOCKS)

    def __init__(self, kernel: Kernel, schedule: str | None, family: str) -> None:
        super().__init__(kernel, schedule, family)
        self.scratch = -(-self.scratch // _ALIGNMENT) * _ALIGNMENT

    def emit(self, symbol: str) -> EmittedKernel:
        """The kernel's text; see `family.Plan`."""
        signature = signature_of(self._kernel, scratch=self.scratch > 0)
        b = Builder()
        pull = self._kernel.pull(b, signature, 0)
        thread = thread_number(b)
        scratch = _own_scratch(b, signature, b.mul(thread, self.scratch)) if self.scratch else None
        with b.loop(thread, signature.end, thread_count(b)) as unit, pull.scope():
            self._slice(b, pull, signature, scratch, unit)
        return emitted(b, symbol, signature, self.launch)


def _own_scratch(b: Builder, signature: DeviceSignature, offset: Index) -> Buffer:
    """The scratch memory of this thread."""
    whole = signature.buffer(len(signature.buffers) - 1)
    size = b.index(1 << 40)
    return Buffer(
        b.op(f"memref.view {whole.name}[{b.index(offset)}][{size}] : {whole.type} to {whole.type}"),
        whole.dtype,
    )
