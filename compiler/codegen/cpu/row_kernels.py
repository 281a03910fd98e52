"""The family of row kernels: softmax, normalizations and reductions, with elementwise ops before and behind.

Elements of 16-bit floats are computed in float32.
"""

from collections.abc import Callable, Sequence
from typing import Any

from xcompile.compiler.codegen.cpu.anchored import (
    anchor,
    driven,
    monomial,
    operand_position,
    plain,
    stored_places,
    symbol_sizes,
)
from xcompile.compiler.codegen.cpu.builder import Builder, Index, Signature, Value
from xcompile.compiler.codegen.cpu.casts import convert
from xcompile.compiler.codegen.cpu.coordinates import Coordinate, Lane
from xcompile.compiler.codegen.cpu.family import Kernel, Packing, Preparation, emitted
from xcompile.compiler.codegen.cpu.pull import Pull
from xcompile.compiler.codegen.cpu.row_axis import Load
from xcompile.compiler.codegen.cpu.rows import Parameter, emit_rows
from xcompile.compiler.codegen.cpu.sink import Sink
from xcompile.compiler.codegen.job import EmittedKernel
from xcompile.compiler.ir.op import Value as Tensor
from xcompile.compiler.ir.rewrite import no_match
from xcompile.compiler.schedule import rows
from xcompile.compiler.schedule.rows import RowProblem, RowSchedule
from xcompile.compiler.schedule.schedule import from_json
from xcompile.compiler.support.dims import Dim, product
from xcompile.dialects.nn.base import dtype_of
from xcompile.dialects.nn.kinds import is_elementwise

_NORMS = ("nn.layer_norm", "nn.rms_norm")
_SOFTMAX = ("nn.softmax", "nn.log_softmax")
_REDUCTIONS = tuple(f"nn.reduce_{name}" for name in rows.REDUCTIONS)
ANCHORS = (*_NORMS, *_SOFTMAX, *_REDUCTIONS)
"""The ops that row kernels are about."""

Group = Callable[[Pull, Coordinate, int, int], list[Coordinate]]
"""Coordinates on some neighbouring axes from their flat index: `group(pull, flat, first, last + 1)`."""


class RowFamily:
    """Takes kernels whose anchor works along one axis, or along neighbouring ones."""

    name = "rows"

    def plan(self, kernel: Kernel, schedule: str | None = None) -> "RowPlan":
        return RowPlan(kernel, anchor(kernel, *ANCHORS), schedule)


class RowPlan:
    """See `family.Plan`."""

    family = "rows"
    packings: dict[int, Packing] = {}
    preparations: dict[int, Preparation] = {}

    def __init__(self, kernel: Kernel, op: Any, schedule: str | None) -> None:
        self.kernel = kernel
        self.op = op
        self._shape = kernel.shape(op.x)
        self._element = dtype_of(op.x)
        self._first, self._last = self._axes()
        plain(kernel)
        self.problem = self._problem()
        self._check_seams()
        target = kernel.target
        self.schedule = (
            from_json(RowSchedule, schedule) if schedule else rows.heuristic(self.problem, target)
        )
        self.schedule.check(self.problem, target)
        self.extent: Dim = rows.extent(self.problem, self.schedule, target, symbol_sizes(kernel))
        self.scratch = rows.scratch_bytes(self.problem, self.schedule, target)

    # -- the problem --------------------------------------------------------------------------

    def _axes(self) -> tuple[int, int]:
        """The first axis that the op works along and the one behind the last."""
        rank = len(self._shape)
        if self.op.NAME in _NORMS:
            return self.op.axis, rank
        if self.op.NAME in _SOFTMAX:
            return self.op.axis, self.op.axis + 1
        axes = self.kernel.reduced_axes(self.op)
        if not axes or axes != list(range(axes[0], axes[-1] + 1)):
            no_match("the reduced axes are none, or not next to each other")
        return axes[0], axes[-1] + 1

    def _problem(self) -> RowProblem:
        dtype: Any = "f32" if self._element in ("f16", "bf16") else self._element
        if dtype not in ("f32", "f64", "i32", "i64"):
            no_match(f"elements are {dtype}")
        kind: Any = self.op.NAME.removeprefix("nn.").removeprefix("reduce_")
        if dtype[0] == "i" and kind not in rows.INTEGER_REDUCTIONS:
            no_match(f"{kind} of integers")
        inner = product(self._shape[self._last :])
        if self.op.NAME in _NORMS:
            self._check_parameters()
        return RowProblem(
            kind, monomial(product(self._shape[: self._first])),
            monomial(product(self._shape[self._first : self._last])),
            monomial(inner), dtype, getattr(self.op, "epsilon", 0.0),
        )  # fmt: skip

    def _check_parameters(self) -> None:
        for value in self._parameters():
            if value is not None:
                operand_position(self.kernel, value)
                if self.kernel.shape(value) != self._shape[self._first :]:
                    no_match("a scale or bias broadcasts")

    def _parameters(self) -> tuple[Tensor | None, Tensor | None]:
        if self.op.NAME not in _NORMS:
            return None, None
        return self.op.scale, getattr(self.op, "bias", None)

    def _check_seams(self) -> None:
        """Vectors, and what is finished a row at a time, do not go on where rows of the result end."""
        if self.problem.is_contiguous and self.problem.is_reduction:
            return
        first = self._first if self.problem.is_contiguous else self._last
        moved = self._last - self._first if self._drops_axes else 0
        if any(axis > first - moved for axis in self.kernel.seams):
            no_match(
                "vectors of the result would go on from one row of a larger tensor to the next"
            )

    @property
    def _drops_axes(self) -> bool:
        return self.problem.is_reduction and not self.op.keepdims

    @property
    def unit_cost(self) -> float:
        length = self.problem.length if isinstance(self.problem.length, int) else 256
        weight = 4 if self.op.NAME in _SOFTMAX else 1
        return weight * (20 + length * max(1, len(self.kernel.ops)) / 2)

    # -- places -------------------------------------------------------------------------------

    def _group(self, pull: Pull, flat: Coordinate, low: int, high: int) -> list[Coordinate]:
        """Coordinates on the axes [low, high) of x, from their flat index."""
        if high - low <= 1:
            return [flat] * (high - low)
        if self._walks_alike(low, high):
            return driven(flat, self._shape[low:high])
        return pull.coordinates.unflatten(flat, [pull.dim(d) for d in self._shape[low:high]])

    def _walks_alike(self, low: int, high: int) -> bool:
        """Whether every argument is full on all the axes, or of size 1: then the sum of offsets is the same."""
        if not all(is_elementwise(op.NAME) for op in self.kernel.ops if op != self.op):
            return False
        rank = len(self._shape)
        parameters = [p for p in self._parameters() if p is not None]
        for value in self.kernel.spread:
            if value in parameters:
                continue
            shape = (1,) * (rank - len(self.kernel.shape(value))) + tuple(self.kernel.shape(value))
            if len(shape) != rank:
                return False
            part = shape[low:high]
            if part != self._shape[low:high] and any(d != 1 for d in part):
                return False
        return True

    def _inputs(
        self, pull: Pull, outer: Coordinate, along: Coordinate, inner: Coordinate, group: Group
    ) -> list[Coordinate]:
        """Coordinates in x."""
        return [
            *group(pull, outer, 0, self._first),
            *group(pull, along, self._first, self._last),
            *group(pull, inner, self._last, len(self._shape)),
        ]

    def _outputs(self, pull: Pull, at: Sequence[Coordinate], group: Group) -> list[Coordinate]:
        """Coordinates in the anchor's result, from (outer, along, inner) or, of a reduction, (outer, inner)."""
        if not self.problem.is_reduction:
            outer, along, inner = at
            return self._inputs(pull, outer, along, inner, group)
        outer, inner = at
        middle = [0] * (self._last - self._first) if self.op.keepdims else []
        return [
            *group(pull, outer, 0, self._first), *middle, *group(pull, inner, self._last, len(self._shape))
        ]  # fmt: skip

    # -- code ---------------------------------------------------------------------------------

    def emit(self, symbol: str) -> EmittedKernel:
        signature = self.kernel.signature(scratch=self.scratch > 0)
        b = Builder()
        load, sink, scale, bias = self.ends(b, signature)
        emit_rows(
            b, self.problem, self.schedule, self.kernel.target, load, sink, signature.begin, signature.end,
            self.kernel.environment(signature),
            signature.buffer(len(signature.buffers) - 1) if signature.scratch else None, scale, bias,
        )  # fmt: skip
        return emitted(b, symbol, signature)

    def ends(
        self, b: Builder, signature: Signature
    ) -> tuple[Load, Sink, Parameter | None, Parameter | None]:
        """The input, the output, the scale and the bias of the rows."""
        pulls: dict[int, Pull] = {}

        def pull_of(lanes: int) -> Pull:
            if lanes not in pulls:
                pulls[lanes] = self.kernel.pull(b, signature, lanes)
            return pulls[lanes]

        contiguous = self.problem.is_contiguous

        def load(_: Builder, at: Sequence[Index], lanes: int, mask: Value | None) -> Value:
            row, position, inner = at
            pull = pull_of(lanes)
            along: Coordinate = Lane(position, lanes) if contiguous and lanes else position
            across: Coordinate = inner if contiguous or not lanes else Lane(inner, lanes)
            with pull.masked(mask):
                value = pull.value(self.op.x, self._inputs(pull, row, along, across, self._group))
            return convert(b, value, self._element, self.problem.dtype, lanes)

        def sink(
            _: Builder, value: Value, at: Sequence[Index], lanes: int, mask: Value | None
        ) -> None:
            self._sink(b, pull_of(lanes), signature, value, at, lanes, mask)

        scale, bias = (self._parameter(pull_of, v) for v in self._parameters())
        return load, sink, scale, bias

    def _sink(
        self,
        b: Builder,
        pull: Pull,
        signature: Signature,
        value: Value,
        at: Sequence[Index],
        lanes: int,
        mask: Value | None,
    ) -> None:
        """Finish one vector: of one element when a contiguous axis was reduced."""
        single = self.problem.is_reduction and self.problem.is_contiguous
        if single:
            dtype = self.problem.dtype
            if lanes:
                value = b.op(f"vector.extract {value}[0] : {dtype} from vector<{lanes}x{dtype}>")
            pull = self.kernel.pull(b, signature, 0)
        places: list[Coordinate] = list(at)
        if not single and lanes:
            position = 1 if self.problem.is_contiguous else len(at) - 1
            places[position] = Lane(at[position], lanes)
        there = self._outputs(pull, places, self._group)
        stored = self._outputs(pull, places, self._stored)
        value = convert(b, value, self.problem.dtype, self._element, pull.lanes)
        with pull.masked(None if single else mask), pull.bound(self.op.results[0], lambda _: value):
            pull.store(
                self.kernel.destination(signature, 0),
                pull.value(self.kernel.results[0], there),
                stored,
            )

    def _stored(self, pull: Pull, flat: Coordinate, low: int, high: int) -> list[Coordinate]:
        """Coordinates in memory on the axes [low, high) of x, from their flat index."""
        moved = self._last - self._first if self._drops_axes and low >= self._last else 0
        seams = {axis - low + moved for axis in self.kernel.seams}
        return stored_places(pull, flat, self._shape[low:high], {s for s in seams if s > 0})

    def _parameter(self, pull_of: Any, value: Tensor | None) -> Parameter | None:
        if value is None:
            return None
        rank = len(self.kernel.shape(value))

        def parameter(_: Builder, position: Index, lanes: int, mask: Value | None) -> Value:
            pull = pull_of(lanes)
            with pull.masked(mask):
                found = pull.value(
                    value, [*[0] * (rank - 1), Lane(position, lanes) if lanes else position]
                )
            return convert(pull.b, found, dtype_of(value), self.problem.dtype, lanes)

        return parameter
