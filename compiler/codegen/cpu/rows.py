"""Emitter of the row kernels: see compiler/schedule/rows.py.

Softmax is NaN where a row is all -infinity and right where it has huge values, since the maximum is subtracted first.
Maxima and minima are NaN when an element is. Over an empty axis a sum is 0, a product 1, a maximum -infinity (the least
integer), a minimum +infinity, a mean NaN.
"""

import math as numbers
from collections.abc import Callable, Mapping

from xcompile.compiler.codegen.cpu import math
from xcompile.compiler.codegen.cpu.builder import Buffer, Builder, Index, Value, float_literal
from xcompile.compiler.codegen.cpu.lanes import Lanes
from xcompile.compiler.codegen.cpu.row_axis import Across, Along, Axis, Fold, Load
from xcompile.compiler.codegen.cpu.sink import Sink
from xcompile.compiler.codegen.cpu.windows import index_of
from xcompile.compiler.schedule.rows import RowProblem, RowSchedule
from xcompile.compiler.schedule.schedule import TargetNumbers

Parameter = Callable[[Builder, Index, int, Value | None], Value]
"""Scale or bias of a normalization: `parameter(b, position, lanes, mask)` gives a vector."""


def emit_rows(
    b: Builder,
    problem: RowProblem,
    schedule: RowSchedule,
    target: TargetNumbers,
    load: Load,
    sink: Sink,
    begin: Index,
    end: Index,
    sizes: Mapping[str, Index] | None = None,
    scratch: Buffer | None = None,
    scale: Parameter | None = None,
    bias: Parameter | None = None,
) -> None:
    """Write the units [begin, end) of a row kernel.

    The sink gets (outer, position, inner), with lanes along the position when inner is 1 and along inner
    otherwise; from a reduction (outer, inner), in vectors of one lane when inner is 1.

    Args:
        b: where to write.
        problem: what is computed.
        schedule: a schedule that `check` accepts.
        target: the machine.
        load: gives the input, so that elementwise work before can be fused; called once or several times an element.
        sink: takes each result exactly once.
        begin: the first unit of `extent`'s axis.
        end: the unit after the last.
        sizes: the SSA values of the problem's symbols.
        scratch: `scratch_bytes` of memory; None when that is 0.
        scale: of a normalization; None for 1.
        bias: of a normalization; None for 0.

    Raises:
        ScheduleError: the schedule is not legal.
    """
    schedule.check(problem, target)
    lanes, known = target.lanes(problem.bits), sizes or {}
    length, inner = index_of(b, problem.length, known), index_of(b, problem.inner, known)
    with b.loop(begin, end) as unit:
        if problem.is_contiguous:
            cache = b.view(scratch, 0, problem.dtype) if scratch and schedule.cached else None
            axis: Axis = Along(
                b, problem.dtype, lanes, load, sink, unit, length, schedule.cached, cache
            )
        else:
            axis = _across(b, problem, schedule, lanes, load, sink, unit, length, inner)
        write_rows(b, problem, axis, lanes, length, scale, bias)


def write_rows(
    b: Builder,
    problem: RowProblem,
    axis: Axis,
    lanes: int,
    length: Index,
    scale: Parameter | None,
    bias: Parameter | None,
) -> None:
    """Write what a unit does along its axis; arguments are those of `emit_rows`, `lanes` those of the axis."""
    rows = _Rows(b, problem, axis, lanes, length)
    if problem.is_reduction:
        rows.reduction()
    elif problem.kind in ("layer_norm", "rms_norm"):
        rows.normalization(scale, bias)
    else:
        rows.softmax()


def _across(
    b: Builder,
    problem: RowProblem,
    schedule: RowSchedule,
    lanes: int,
    load: Load,
    sink: Sink,
    unit: Index,
    length: Index,
    inner: Index,
) -> Across:
    width = schedule.vectors * lanes
    outer, group = b.unflatten(unit, (1, b.ceildiv(inner, width)))
    first = b.mul(group, width)
    starts = [b.add(first, v * lanes) for v in range(schedule.vectors)]
    masks: tuple[Value | None, ...] = (None,) * schedule.vectors
    if not isinstance(inner, int) or inner % width:
        masks = tuple(b.tail_mask(b.max(b.sub(inner, at), 0), lanes) for at in starts)
    return Across(b, problem.dtype, lanes, load, sink, outer, length, inner, starts, masks)


def _float_or_int(op: str) -> Callable[[Builder, Value, Value, int, str], Value]:
    def combine(b: Builder, x: Value, y: Value, lanes: int, dtype: str) -> Value:
        kind = "f" if dtype.startswith("f") else "i"
        return b.binary(f"arith.{op}{kind}", x, y, lanes, dtype)

    return combine


def _extreme(real: str, integer: str) -> Callable[[Builder, Value, Value, int, str], Value]:
    def combine(b: Builder, x: Value, y: Value, lanes: int, dtype: str) -> Value:
        op = real if dtype.startswith("f") else integer
        return b.binary(f"arith.{op}", x, y, lanes, dtype)

    return combine


def _larger(b: Builder, x: Value, y: Value, lanes: int, dtype: str) -> Value:
    """The larger of two; x when one is NaN. One instruction, unlike `maximumf`."""
    m = Lanes(b, lanes, dtype)
    return m.select(m.compare("ogt", y, x), y, x)


class _Rows:
    """The algorithms, for either kind of axis."""

    def __init__(
        self, b: Builder, problem: RowProblem, axis: Axis, lanes: int, length: Index
    ) -> None:
        self.b, self.problem, self.axis, self.length = b, problem, axis, length
        self.m = Lanes(b, lanes, problem.dtype)
        self.r = Lanes(b, axis.result_lanes, problem.dtype)
        self.dtype = problem.dtype

    def _literal(self, value: float) -> str:
        """MLIR's text of a neutral element; infinities of integers are their limits."""
        if self.dtype.startswith("f"):
            return float_literal(value, self.dtype)
        top = 1 << (self.problem.bits - 1)
        return str(
            -top if value == -numbers.inf else top - 1 if value == numbers.inf else int(value)
        )

    @property
    def sum(self) -> Fold:
        return Fold(_float_or_int("add"), self._literal(0))

    def softmax(self) -> None:
        """e^(x - max) over its sum, or its logarithm."""
        m, r, b = self.m, self.r, self.b
        top = self.axis.spread(self.axis.fold(Fold(_larger, self._literal(-numbers.inf))))
        lanes, dtype = m.lanes, self.dtype
        if self.problem.kind == "log_softmax":
            totals = self.axis.fold(
                self.sum, lambda x, v: math.exp_nonpositive(b, m.sub(x, top[v]), lanes, dtype)
            )
            logs = self.axis.spread([math.log(b, t, r.lanes, dtype) for t in totals])
            self.axis.emit(lambda x, v, at, mask: m.sub(m.sub(x, top[v]), logs[v]))
            return
        totals = self.axis.fold(
            self.sum,
            lambda x, v: math.exp_nonpositive(b, m.sub(x, top[v]), lanes, dtype),
            keep=True,
        )
        inverse = self.axis.spread([r.div(r.const(1.0), t) for t in totals])
        self.axis.emit(lambda x, v, at, mask: m.mul(x, inverse[v]))

    def normalization(self, scale: Parameter | None, bias: Parameter | None) -> None:
        """Layer norm: (x - mean) / sqrt(variance + epsilon)·scale + bias. RMS norm: without the mean."""
        m, r, b = self.m, self.r, self.b
        count = self._count()
        mean: list[Value] = []
        if self.problem.kind == "layer_norm":
            mean = self.axis.spread([r.div(t, count) for t in self.axis.fold(self.sum)])

        def square(x: Value, v: int) -> Value:
            d = m.sub(x, mean[v]) if mean else x
            return m.mul(d, d)

        spread = [r.div(t, count) for t in self.axis.fold(self.sum, square)]
        root = [r.unary("math.sqrt", r.add(s, r.const(self.problem.epsilon))) for s in spread]
        inverse = self.axis.spread([r.div(r.const(1.0), t) for t in root])

        def normalize(x: Value, v: int, at: Index, mask: Value | None) -> Value:
            y = m.mul(m.sub(x, mean[v]) if mean else x, inverse[v])
            y = m.mul(y, scale(b, at, m.lanes, mask)) if scale else y
            return m.add(y, bias(b, at, m.lanes, mask)) if bias else y

        self.axis.emit(normalize)

    def _count(self) -> Value:
        """The length as a float."""
        if isinstance(self.length, int):
            return self.r.const(float(self.length))
        whole = self.b.op(f"arith.index_cast {self.length} : index to i64")
        scalar = self.b.op(f"arith.sitofp {whole} : i64 to {self.dtype}")
        return self.b.broadcast(scalar, self.dtype, self.r.lanes) if self.r.lanes else scalar

    def reduction(self) -> None:
        """One of the reductions, by its name."""
        m, r, kind = self.m, self.r, self.problem.kind
        if kind == "log_sum_exp":
            self.axis.deliver(self._log_sum_exp())
            return
        integer = self.dtype.startswith("i")
        folds = {
            "max": Fold(_extreme("maximumf", "maxsi"), self._literal(-numbers.inf)),
            "min": Fold(_extreme("minimumf", "minsi"), self._literal(numbers.inf)),
            "prod": Fold(_float_or_int("mul"), self._literal(1)),
        }

        def square(x: Value, v: int) -> Value:
            return (
                self.b.binary("arith.muli", x, x, m.lanes, self.dtype) if integer else m.mul(x, x)
            )

        def magnitude(x: Value, v: int) -> Value:
            return m.unary("math.absi", x) if integer else m.abs(x)

        transform = {"l1": magnitude, "l2": square, "sum_square": square}.get(kind)
        results = self.axis.fold(folds.get(kind, self.sum), transform)
        if kind == "mean":
            results = [r.div(t, self._count()) for t in results]
        elif kind == "l2":
            results = [r.unary("math.sqrt", t) for t in results]
        elif kind == "log_sum":
            results = [math.log(self.b, t, r.lanes, self.dtype) for t in results]
        self.axis.deliver(results)

    def _log_sum_exp(self) -> list[Value]:
        """The maximum plus the log of the sum of e^(x - max); an infinite maximum is not subtracted."""
        m, r, b = self.m, self.r, self.b
        tops = self.axis.fold(Fold(_larger, self._literal(-numbers.inf)))
        infinite = [r.compare("oeq", r.abs(t), r.const(numbers.inf)) for t in tops]
        shifts = [r.select(i, r.const(0.0), t) for i, t in zip(infinite, tops, strict=True)]
        shift = self.axis.spread(shifts)
        totals = self.axis.fold(
            self.sum, lambda x, v: math.exp(b, m.sub(x, shift[v]), m.lanes, self.dtype)
        )
        logs = [math.log(b, t, r.lanes, self.dtype) for t in totals]
        return [r.add(s, t) for s, t in zip(shifts, logs, strict=True)]
