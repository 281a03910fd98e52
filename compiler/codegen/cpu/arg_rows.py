"""The family of `nn.argmax` and `nn.argmin` along the last axis: a sweep for the extreme, another for its place.

NaN is more extreme than all numbers: the first sweep gives NaN if there is one, and the second takes NaN for a match
as it takes what equals the extreme. A unit of the parallel axis is a row.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from xcompile.compiler.codegen.cpu.anchored import anchor, operand_position, plain
from xcompile.compiler.codegen.cpu.builder import Builder, Index, Value, vector_type
from xcompile.compiler.codegen.cpu.coordinates import Coordinate, Lane
from xcompile.compiler.codegen.cpu.elementwise import Scalars
from xcompile.compiler.codegen.cpu.family import Kernel, Packing, Preparation, emitted
from xcompile.compiler.codegen.cpu.nests import highest, lowest, read, wide
from xcompile.compiler.codegen.cpu.pull import Pull
from xcompile.compiler.codegen.cpu.shuffles import reduce_lanes
from xcompile.compiler.codegen.job import EmittedKernel
from xcompile.compiler.ir.dtypes import bits_of
from xcompile.compiler.ir.rewrite import no_match
from xcompile.compiler.schedule.map import MapSchedule
from xcompile.compiler.schedule.schedule import from_json
from xcompile.compiler.support.dims import Dim, product
from xcompile.dialects.nn.base import dtype_of

_LONGEST = 2**31 - 1
"""Elements of a row: places are 32 bits wide while they are compared."""


class ArgFamily:
    """Takes `nn.argmax` and `nn.argmin` of rows in memory, with elementwise ops behind."""

    name = "arg"

    def plan(self, kernel: Kernel, schedule: str | None = None) -> "ArgPlan":
        return ArgPlan(kernel, anchor(kernel, "nn.argmax", "nn.argmin"), schedule)


class ArgPlan:
    """See `family.Plan`."""

    family = "arg"
    scratch = 0
    packings: dict[int, Packing] = {}
    preparations: dict[int, Preparation] = {}

    def __init__(self, kernel: Kernel, op: Any, schedule: str | None) -> None:
        self.kernel = kernel
        self.op = op
        *self._outer, self._length = kernel.shape(op.x)
        if op.axis != len(self._outer):
            no_match("the axis is not the last one")
        operand_position(kernel, op.x)
        plain(kernel)
        if bits_of(dtype_of(op.x)) < 8:
            no_match(f"elements are {dtype_of(op.x)}")
        if isinstance(self._length, int) and self._length > _LONGEST:
            no_match("rows are too long")
        lanes = kernel.target.lanes(32)
        self.schedule = from_json(MapSchedule, schedule) if schedule else MapSchedule(lanes, lanes)
        self.schedule.check(kernel.target)

    @property
    def extent(self) -> Dim:
        return product(self._outer)

    @property
    def unit_cost(self) -> float:
        length = self._length if isinstance(self._length, int) else 256
        return 20 + 6.0 * length / max(1, self.schedule.lanes)

    # -- code ---------------------------------------------------------------------------------

    def emit(self, symbol: str) -> EmittedKernel:
        signature = self.kernel.signature()
        b = Builder()
        pull = self.kernel.pull(b, signature, self.schedule.lanes)
        single = self.kernel.pull(b, signature, 0)
        target = self.kernel.destination(signature, 0)
        with b.loop(signature.begin, signature.end) as unit, pull.scope(), single.scope():
            outer = b.unflatten(unit, [pull.dim(d) for d in self._outer]) if self._outer else []
            place = self._place(pull, outer)
            at: list[Coordinate] = [*outer, *([0] if self.op.keepdims else [])]
            with single.bound(self.op.y, lambda _: place):
                single.store(target, single.value(self.kernel.results[0], at), at)
        return emitted(b, symbol, signature)

    def _place(self, pull: Pull, outer: Sequence[Index]) -> Value:
        """The place of the extreme of a row, i64."""
        b, lanes, last = pull.b, pull.lanes, self.op.select_last
        s, least = Scalars(b, lanes, wide(dtype_of(self.op.x))), self.op.NAME == "nn.argmin"
        places = Scalars(b, lanes, "i32")
        worst = s.const(highest(s.dtype) if least else lowest(s.dtype))

        def better(scalars: Scalars, x: Value, y: Value) -> Value:
            return scalars.minimum(x, y) if least else scalars.maximum(x, y)

        def extreme(best: Value, x: Value, column: Index, mask: Value | None) -> Value:
            return better(s, best, x if mask is None else s.select(mask, x, worst))

        found = self._sweep(pull, outer, extreme, worst, s.register)
        top = self._reduced(b, found, lanes, s.dtype, better)
        top = b.broadcast(top, s.register, lanes)
        none = places.const(-1 if last else _LONGEST)

        def nearer(scalars: Scalars, x: Value, y: Value) -> Value:
            return scalars.maximum(x, y) if last else scalars.minimum(x, y)

        def match(best: Value, x: Value, column: Index, mask: Value | None) -> Value:
            equal = s.compare("eq", x, top)
            if s.float:  # a row with NaN has NaN on top, and no other row has one
                equal = b.binary("arith.ori", equal, s.compare("ne", x, x), lanes, "i1")
            if mask is not None:
                equal = b.binary("arith.andi", equal, mask, lanes, "i1")
            here = pull.as_integer(Lane(column, lanes), "i32")
            return nearer(places, best, places.select(equal, here, none))

        found = self._sweep(pull, outer, match, none, "i32")
        place = self._reduced(b, found, lanes, "i32", nearer)
        return b.op(f"arith.extsi {place} : i32 to i64")

    @staticmethod
    def _reduced(
        b: Builder,
        found: Value,
        lanes: int,
        dtype: str,
        combine: Callable[[Scalars, Value, Value], Value],
    ) -> Value:
        """All lanes of a sweep's result as one."""

        def pair(x: Value, y: Value, count: int, _: str) -> Value:
            return combine(Scalars(b, count, dtype), x, y)

        return reduce_lanes(b, pair, [found], lanes, Scalars(b, lanes, dtype).register)

    def _sweep(
        self,
        pull: Pull,
        outer: Sequence[Index],
        step: Callable[[Value, Value, Index, Value | None], Value],
        start: Value,
        register: str,
    ) -> Value:
        """Carry a vector through the row: whole vectors of it, then a masked one."""
        b, lanes, length = pull.b, pull.lanes, pull.dim(self._length)
        kind = vector_type(lanes, register)

        def body(mask: Value | None, column: Index, carried: Sequence[Value]) -> list[Value]:
            with pull.masked(mask):
                x = read(pull, self.op.x, [*outer, Lane(column, lanes)])
            return [step(carried[0], x, column, mask)]

        whole = b.sub(length, b.rem(length, lanes))
        found = [start]
        if whole != 0:
            found = b.reduce(0, whole, lanes, found, [kind], partial(body, None))
        if whole == length:
            return found[0]
        mask = b.tail_mask(b.sub(length, whole), lanes)
        rest = b.compare("slt", whole, length)
        return b.choose(rest, [kind], lambda: body(mask, whole, found), lambda: found)[0]
