"""The family of `nn.cumsum` along an axis that is known: each element is added once.

A unit of the parallel axis is a row along the axis, or a block of neighbouring rows with a lane each. Sums of 16-bit
floats are kept in float32 and rounded as they are stored.
"""

from collections.abc import Sequence
from typing import Any

from xcompile.compiler.codegen.cpu.anchored import driven, ending, read_places
from xcompile.compiler.codegen.cpu.builder import Builder, Index, Value, vector_type
from xcompile.compiler.codegen.cpu.casts import convert
from xcompile.compiler.codegen.cpu.coordinates import Coordinate, Lane
from xcompile.compiler.codegen.cpu.elementwise import Scalars
from xcompile.compiler.codegen.cpu.family import Kernel, Packing, Preparation, emitted
from xcompile.compiler.codegen.cpu.nests import read, wide
from xcompile.compiler.codegen.cpu.pull import Pull, Source
from xcompile.compiler.codegen.job import EmittedKernel
from xcompile.compiler.ir.dtypes import bits_of
from xcompile.compiler.ir.op import Op
from xcompile.compiler.ir.rewrite import no_match
from xcompile.compiler.schedule.map import MapSchedule
from xcompile.compiler.schedule.schedule import from_json
from xcompile.compiler.support.dims import Dim, ceildiv, product
from xcompile.dialects.nn.base import dtype_of


class ScanFamily:
    """Takes `nn.cumsum` with elementwise ops before."""

    name = "scan"

    def plan(self, kernel: Kernel, schedule: str | None = None) -> "ScanPlan":
        return ScanPlan(kernel, *ending(kernel, "nn.cumsum", "a running sum"), schedule)


class ScanPlan:
    """See `family.Plan`."""

    family = "scan"
    scratch = 0
    packings: dict[int, Packing] = {}
    preparations: dict[int, Preparation] = {}

    def __init__(self, kernel: Kernel, op: Any, others: Sequence[Op], schedule: str | None) -> None:
        self.kernel = kernel
        self.op = op
        content, shape = kernel.sizes.content(op.axis), kernel.shape(op.x)
        if content is None or not isinstance(content[0], int):
            no_match("the axis is data")
        axis = content[0] % len(shape)
        self._outer, self._length, self._inner = shape[:axis], shape[axis], shape[axis + 1 :]
        values = [*kernel.parameters, *(r for o in others for r in o.results)]
        widest = max(32, *(bits_of(dtype_of(v)) for v in values if v != op.axis))
        lanes = kernel.target.lanes(min(widest, 32)) if product(self._inner) != 1 else 0
        self.schedule = (
            from_json(MapSchedule, schedule) if schedule else MapSchedule(lanes, max(1, lanes))
        )
        self.schedule.check(kernel.target)

    @property
    def extent(self) -> Dim:
        return product(self._outer) * ceildiv(product(self._inner), self.schedule.block)

    @property
    def unit_cost(self) -> float:
        length = self._length if isinstance(self._length, int) else 256
        return 8.0 * length * self.schedule.block / max(1, self.schedule.lanes)

    # -- code ---------------------------------------------------------------------------------

    def emit(self, symbol: str) -> EmittedKernel:
        signature = self.kernel.signature()
        b = Builder()
        pull = self.kernel.pull(b, signature, self.schedule.lanes)
        target = self.kernel.destination(signature, 0)
        run = pull.dim(product(self._inner))
        with b.loop(signature.begin, signature.end) as unit, pull.scope():
            row, part = b.unflatten(unit, [1, b.ceildiv(run, self.schedule.block)])
            outer = b.unflatten(row, [pull.dim(d) for d in self._outer]) if self._outer else []
            low = b.mul(part, self.schedule.block)
            self._block(pull, target, outer, low, b.min(run, b.add(low, self.schedule.block)))
        return emitted(b, symbol, signature)

    def _block(
        self, pull: Pull, target: Source, outer: list[Index], low: Index, high: Index
    ) -> None:
        """The rows [low, high) of a block: whole vectors of them, then a masked one."""
        b, lanes = pull.b, self.schedule.lanes
        if not lanes:
            with b.loop(low, high) as column, pull.scope():
                self._rows(pull, target, outer, column)
            return
        whole = b.sub(high, b.rem(b.sub(high, low), lanes))
        with b.loop(low, whole, lanes) as column, pull.scope():
            self._rows(pull, target, outer, Lane(column, lanes))
        if whole != high:
            mask = b.tail_mask(b.sub(high, whole), lanes)
            with b.when(b.compare("slt", whole, high)), pull.masked(mask):
                self._rows(pull, target, outer, Lane(whole, lanes))

    def _rows(self, pull: Pull, target: Source, outer: list[Index], flat: Coordinate) -> None:
        b, op, dtype = pull.b, self.op, dtype_of(self.op.y)
        s = Scalars(b, pull.lanes, wide(dtype))
        length = pull.dim(self._length)
        inner, there = self._coordinates(pull, flat), driven(flat, self._inner)

        def step(k: Index, sums: list[Value]) -> list[Value]:
            with pull.scope():
                place = b.sub(b.sub(length, 1), k) if op.reverse else k
                total = s.add(sums[0], read(pull, op.x, [*outer, place, *inner]))
                shown = convert(b, sums[0] if op.exclusive else total, s.dtype, dtype, pull.lanes)
                pull.store(target, shown, [*outer, place, *there])
                return [total]

        b.reduce(0, length, 1, [s.const(0)], [vector_type(pull.lanes, s.register)], step)

    def _coordinates(self, pull: Pull, flat: Coordinate) -> list[Coordinate]:
        """Where a prologue reads what neighbouring rows add."""
        return read_places(self.kernel, self.op, pull, flat, self._inner)
