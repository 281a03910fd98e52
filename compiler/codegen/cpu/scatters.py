"""The family of `nn.scatter_nd`: runs of contiguous elements go where data says, a vector at a time.

A unit of the parallel axis is a block of such a run in all its places, so that whatever meets at a place is joined in
the order of the updates, on any number of threads. An index outside the tensor writes nothing.
"""

from collections.abc import Callable, Sequence
from typing import Any

from xcompile.compiler.codegen.cpu.anchored import driven, ending, read_places
from xcompile.compiler.codegen.cpu.builder import Builder, Index
from xcompile.compiler.codegen.cpu.builder import Value as Register
from xcompile.compiler.codegen.cpu.coordinates import Coordinate, Lane
from xcompile.compiler.codegen.cpu.family import Kernel, Packing, Preparation, emitted
from xcompile.compiler.codegen.cpu.pull import Pull
from xcompile.compiler.codegen.cpu.whole import Slices, write_joined
from xcompile.compiler.codegen.job import EmittedKernel
from xcompile.compiler.ir.dtypes import bits_of
from xcompile.compiler.ir.op import Op
from xcompile.compiler.schedule import scatter
from xcompile.compiler.schedule.map import MapSchedule
from xcompile.compiler.schedule.schedule import from_json
from xcompile.compiler.support.dims import Dim, ceildiv, product
from xcompile.dialects.nn.base import dtype_of


class ScatterFamily:
    """Takes `nn.scatter_nd` with elementwise ops before."""

    name = "scatter"

    def plan(self, kernel: Kernel, schedule: str | None = None) -> "ScatterPlan":
        return ScatterPlan(kernel, *ending(kernel, "nn.scatter_nd", "a scatter"), schedule)


class ScatterPlan:
    """See `family.Plan`."""

    family = "scatter"
    scratch = 0
    packings: dict[int, Packing] = {}
    preparations: dict[int, Preparation] = {}

    def __init__(self, kernel: Kernel, op: Any, others: Sequence[Op], schedule: str | None) -> None:
        self.kernel = kernel
        self.op = op
        depth = kernel.shape(op.indices)[-1]
        assert isinstance(depth, int)
        self._depth = depth
        self._inner = kernel.shape(op.x)[depth:]
        self._run = product(self._inner)
        values = [*kernel.parameters, *(r for o in others for r in o.results)]
        widest = max(bits_of(dtype_of(v)) for v in values if v != op.indices)
        self.schedule = (
            from_json(MapSchedule, schedule)
            if schedule
            else scatter.heuristic(kernel.target, max(widest, 8), self._run)
        )
        self.schedule.check(kernel.target)

    @property
    def extent(self) -> Dim:
        return ceildiv(self._run, self.schedule.block)

    @property
    def unit_cost(self) -> float:
        touched = [self.kernel.shape(v) for v in (self.op.x, self.op.updates)]
        elements = sum(d if isinstance(d := product(shape), int) else 4096 for shape in touched)
        units = self.extent
        return 4.0 * elements / max(1, self.schedule.lanes, units if isinstance(units, int) else 1)

    # -- code ---------------------------------------------------------------------------------

    def emit(self, symbol: str) -> EmittedKernel:
        signature = self.kernel.signature()
        b = Builder()
        pull = self.kernel.pull(b, signature, self.schedule.lanes)
        slices = Slices(b, pull, [self.kernel.destination(signature, 0)], None)
        with b.loop(signature.begin, signature.end) as unit, pull.scope():
            self._unit(slices, unit)
        return emitted(b, symbol, signature)

    def _unit(self, slices: Slices, unit: Index) -> None:
        """What parallel unit `unit` does."""
        b, run = slices.b, slices.pull.dim(self._run)
        low = b.mul(unit, self.schedule.block)
        high = b.min(run, b.add(low, self.schedule.block))
        self._copy(slices, low, high)
        self._update(slices, low, high)

    def _copy(self, slices: Slices, low: Index, high: Index) -> None:
        pull, op = slices.pull, self.op

        def copy(outer: list[Index]) -> None:
            def move(flat: Coordinate) -> None:
                x = pull.value(op.x, [*outer, *self._read(pull, flat)])
                pull.store(slices.results[0], x, [*outer, *driven(flat, self._inner)])

            self._along(pull, low, high, move)

        slices.loops(pull.shape(op.x)[: self._depth], copy)

    def _update(self, slices: Slices, low: Index, high: Index) -> None:
        pull, b, op = slices.pull, slices.b, self.op
        sizes = pull.shape(op.x)

        def update(ks: list[Index]) -> None:
            outer: list[Index] = []
            inside: Register | bool = True
            for position in range(self._depth):
                place, fits = slices.place(op.indices, [*ks, position], sizes[position])
                outer.append(place)
                inside = slices.both(inside, fits)

            def join(flat: Coordinate) -> None:
                new = pull.value(op.updates, [*ks, *self._read(pull, flat)])
                write_joined(slices, op, [*outer, *driven(flat, self._inner)], new)

            with b.when(inside), pull.scope():
                self._along(pull, low, high, join)

        slices.loops(pull.shape(op.indices)[:-1], update)

    def _along(
        self, pull: Pull, low: Index, high: Index, body: Callable[[Coordinate], None]
    ) -> None:
        """Call `body` with the flat places of whole vectors of a run, then of a masked one."""
        b, lanes = pull.b, self.schedule.lanes
        if not lanes:
            with b.loop(low, high) as column, pull.scope():
                body(column)
            return
        whole = b.sub(high, b.rem(b.sub(high, low), lanes))
        with b.loop(low, whole, lanes) as column, pull.scope():
            body(Lane(column, lanes))
        if whole != high:
            mask = b.tail_mask(b.sub(high, whole), lanes)
            with b.when(b.compare("slt", whole, high)), pull.masked(mask):
                body(Lane(whole, lanes))

    def _read(self, pull: Pull, flat: Coordinate) -> list[Coordinate]:
        return read_places(self.kernel, self.op, pull, flat, self._inner)
