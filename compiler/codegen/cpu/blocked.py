"""Emitter of products with packed weights: see compiler/schedule/blocked.py for the ways to compute one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from xcompile.compiler.codegen.cpu.builder import Buffer, Builder, Index, Value, vector_type
from xcompile.compiler.codegen.cpu.contraction import emit_contraction
from xcompile.compiler.codegen.cpu.sink import Sink
from xcompile.compiler.codegen.cpu.windows import index_of
from xcompile.compiler.schedule.blocked import BlockedProblem, BlockedSchedule
from xcompile.compiler.schedule.schedule import TargetNumbers

_MANTISSA = 23
"""Bits of a float32 behind the point."""

_EXPONENT_OF_ONE = 127
_HALF = 16


@dataclass(frozen=True)
class PackedWeights:
    """Panels of weights and their scales in memory, and how they become floats.

    A code of a few bits, put into the mantissa of a power of two whose unit its lowest bit is, is that power plus
    the code: subtracting the power gives the code as a float, exactly.

    Attributes:
        b: where the code goes.
        problem: what is computed.
        lanes: of a vector.
        width: columns of a panel.
        words: the weights, as "i32".
        scales: of the problem's type.
        zero_points: as "i8", counted from the least number; None for none.
    """

    b: Builder
    problem: BlockedProblem
    lanes: int
    width: int
    words: Buffer
    scales: Buffer
    zero_points: Buffer | None

    def floats(self, word: Value, zero: Value | None) -> list[Value]:
        """The elements of a vector of words, less their zero points, in the order of k."""
        b, bits = self.b, self.problem.bits
        shift = b.int_constant(_HALF, "i32", self.lanes)
        halves = [word, b.binary("arith.shrui", word, shift, self.lanes, "i32")]
        return [
            self._float(half, position, zero)
            for half in halves
            for position in range(0, _HALF, bits)
        ]

    def _float(self, word: Value, position: int, zero: Value | None) -> Value:
        """The code at a bit of the lower half of words, less its zero point."""
        b, lanes, bits = self.b, self.lanes, self.problem.bits
        exponent = _MANTISSA - position
        power = (_EXPONENT_OF_ONE + exponent) << _MANTISSA
        mask = b.int_constant((1 << bits) - 1 << position, "i32", lanes)
        code = b.binary("arith.andi", word, mask, lanes, "i32")
        code = b.binary("arith.ori", code, b.int_constant(power, "i32", lanes), lanes, "i32")
        kinds = vector_type(lanes, "i32"), vector_type(lanes, "f32")
        value = b.op(f"arith.bitcast {code} : {kinds[0]} to {kinds[1]}")
        known = 2.0**exponent if zero is not None else 2.0**exponent - self.problem.least
        value = b.binary("arith.subf", value, b.float_constant(known, "f32", lanes), lanes)
        return value if zero is None else b.binary("arith.subf", value, zero, lanes)

    def word(self, panel: Index, v: int, number: Index) -> Value:
        """Vector `v` of the words of a panel; `number` counts along k."""
        row = self.b.add(self.b.mul(panel, self.problem.words), number)
        at = self.b.add(self.b.mul(row, self.width), v * self.lanes)
        return self.b.load(self.words, at, self.lanes)

    def scale(self, panel: Index, v: int, span: Index) -> Value:
        """Scales of a span, as float32."""
        value = self.b.load(self.scales, self._of_span(panel, v, span), self.lanes)
        return self._converted(value, "arith.extf", self.problem.scale, "f32")

    def zero_point(self, panel: Index, v: int, span: Index) -> Value | None:
        """Zero points of a span as float32, counted from the least number; None where there are none."""
        if self.zero_points is None:
            return None
        value = self.b.load(self.zero_points, self._of_span(panel, v, span), self.lanes)
        wide = self._converted(value, "arith.extui", "i8", "i32")
        return self._converted(wide, "arith.sitofp", "i32", "f32")

    def _of_span(self, panel: Index, v: int, span: Index) -> Index:
        row = self.b.add(self.b.mul(panel, self.problem.spans), span)
        return self.b.add(self.b.mul(row, self.width), v * self.lanes)

    def _converted(self, value: Value, op: str, source: str, to: str) -> Value:
        if source == to:
            return value
        kinds = vector_type(self.lanes, source), vector_type(self.lanes, to)
        return self.b.op(f"{op} {value} : {kinds[0]} to {kinds[1]}")


def emit_blocked(
    b: Builder,
    schedule: BlockedSchedule,
    target: TargetNumbers,
    left: Buffer,
    weights: PackedWeights,
    sinks: Callable[[], Sink],
    begin: Index,
    end: Index,
    sizes: Mapping[str, Index],
    scratch: Buffer | None,
) -> None:
    """Write the units [begin, end) of a product with packed weights.

    Args:
        b: where to write.
        schedule: a schedule that `check` accepts.
        target: the machine.
        left: A, contiguous.
        weights: B.
        sinks: makes what takes each element of C exactly once, at (m, n) with lanes along n; called for each way.
        begin: the first unit of `extent`'s axis.
        end: the unit after the last.
        sizes: the SSA values of the problem's symbols.
        scratch: `scratch_bytes` of memory, aligned to 64 bytes; None when that is 0.

    Raises:
        ScheduleError: the schedule is not legal.
    """
    problem = weights.problem
    schedule.check(problem, target)
    m = index_of(b, problem.m, sizes)

    def few() -> None:
        rows = _FewRows(b, weights, schedule, left, sinks(), m)
        with b.loop(begin, end) as unit:
            rows.unit(unit)

    def many() -> None:
        panels = _Unpacked(b, weights, schedule.tile.vectors)
        emit_contraction(
            b, problem.contraction, schedule.tile, target, left, left, sinks(),
            begin, end, sizes, scratch, fill=panels.fill,
        )  # fmt: skip

    b.either(b.compare("sle", m, schedule.few), few, many)


@dataclass(frozen=True)
class _Unpacked:
    """Panels of floats, made of packed weights."""

    b: Builder
    weights: PackedWeights
    vectors: int

    def fill(self, memory: Buffer, column: Index, low: Index, high: Index) -> None:
        """Unpack the elements [low, high) of k of the panel of a column; `low` begins a span."""
        b, problem = self.b, self.weights.problem
        panel, span = b.div(column, self.weights.width), problem.span
        with b.loop(b.div(low, span), b.div(high, span)) as number:
            self._span(memory, panel, number, low, span)
        rest = problem.k % span
        if rest:
            with b.when(b.compare("eq", high, problem.k)):
                self._span(memory, panel, problem.k // span, low, rest)

    def _span(self, memory: Buffer, panel: Index, span: Index, low: Index, count: int) -> None:
        """`count` elements of k, the first of a span."""
        b, weights, problem = self.b, self.weights, self.weights.problem
        first = b.mul(span, problem.span)
        scales = [weights.scale(panel, v, span) for v in range(self.vectors)]
        zeros = [weights.zero_point(panel, v, span) for v in range(self.vectors)]

        def word(number: Index, present: int) -> None:
            k = b.add(first, b.mul(number, problem.word))
            for v in range(self.vectors):
                made = weights.word(panel, v, b.div(k, problem.word))
                for i, value in enumerate(weights.floats(made, zeros[v])[:present]):
                    at = b.mul(b.sub(b.add(k, i), low), weights.width)
                    scaled = b.binary("arith.mulf", value, scales[v], weights.lanes)
                    b.store(scaled, memory, b.add(at, v * weights.lanes), weights.lanes)

        whole = count // problem.word
        if whole:
            with b.loop(0, whole) as number:
                word(number, problem.word)
        if count % problem.word:
            word(whole, count % problem.word)


@dataclass(frozen=True)
class _FewRows:
    """Rows whose weights become floats in registers."""

    b: Builder
    weights: PackedWeights
    schedule: BlockedSchedule
    left: Buffer
    sink: Sink
    m: Index

    def unit(self, unit: Index) -> None:
        """All rows of a block of columns."""
        b, n, width = self.b, self.weights.problem.n, self.weights.width
        panels = self.schedule.tile.n_block // width
        first = b.mul(unit, panels)
        whole, last = b.min(b.add(first, panels), n // width), -(-n // width)
        vectors = self.schedule.tile.vectors
        with b.loop(first, whole) as panel:
            self._panel(panel, (None,) * vectors)
        rest, lanes = n % width, self.weights.lanes
        if not rest:
            return
        with b.when(b.compare("sge", b.add(first, panels), last)):
            masks: list[Value | None] = [None] * -(-rest // lanes)
            if rest % lanes:
                masks[-1] = b.tail_mask(rest % lanes, lanes)
            self._panel(last - 1, tuple(masks))

    def _panel(self, panel: Index, masks: tuple[Value | None, ...]) -> None:
        b, count = self.b, self.schedule.rows
        whole = b.mul(b.div(self.m, count), count)
        if whole != 0:
            with b.loop(0, whole, count) as row:
                self._tile(panel, masks, row, count)
        if whole != self.m:
            with b.loop(whole, self.m) as row:
                self._tile(panel, masks, row, 1)

    def _tile(self, panel: Index, masks: tuple[Value | None, ...], row: Index, rows: int) -> None:
        b, problem, lanes = self.b, self.weights.problem, self.weights.lanes
        zero, kind = b.float_constant(0.0, "f32", lanes), vector_type(lanes, "f32")
        totals = [zero] * (rows * len(masks))

        def span(number: Index, totals: list[Value], count: int = problem.span) -> list[Value]:
            return self._span(panel, len(masks), row, number, totals, count)

        whole, rest = divmod(problem.k, problem.span)
        if whole:
            totals = b.reduce(0, whole, 1, totals, [kind] * len(totals), span)
        if rest:
            totals = span(whole, totals, rest)
        for r in range(rows):
            for v, mask in enumerate(masks):
                column = b.add(b.mul(panel, self.weights.width), v * lanes)
                self.sink(b, totals[r * len(masks) + v], (b.add(row, r), column), lanes, mask)

    def _span(
        self,
        panel: Index,
        vectors: int,
        row: Index,
        span: Index,
        totals: Sequence[Value],
        count: int,
    ) -> list[Value]:
        """The totals with `count` elements of k added, the first of a span; two sums for each total."""
        b, weights, problem = self.b, self.weights, self.weights.problem
        lanes, rows = weights.lanes, len(totals) // vectors
        first = b.mul(span, problem.span)
        zeros = [weights.zero_point(panel, v, span) for v in range(vectors)]

        def word(number: Index, sums: list[Value], present: int = problem.word) -> list[Value]:
            k, out = b.add(first, b.mul(number, problem.word)), list(sums)
            factors: dict[tuple[int, int], Value] = {}
            for r in range(rows):
                start = b.add(b.mul(b.add(row, r), problem.k), k)
                for i in range(present):
                    element = b.load(self.left, b.add(start, i))
                    factors[r, i] = b.broadcast(element, "f32", lanes)
            for v in range(vectors):
                made = weights.word(panel, v, b.div(k, problem.word))
                for i, value in enumerate(weights.floats(made, zeros[v])[:present]):
                    for r in range(rows):
                        cell = 2 * (r * vectors + v) + i // (problem.word // 2)
                        out[cell] = b.fma(factors[r, i], value, out[cell], lanes)
            return out

        sums = [b.float_constant(0.0, "f32", lanes)] * (2 * len(totals))
        whole, rest = divmod(count, problem.word)
        if whole:
            sums = b.reduce(0, whole, 1, sums, [vector_type(lanes, "f32")] * len(sums), word)
        if rest:
            sums = word(whole, sums, rest)
        made: list[Value] = []
        for cell, total in enumerate(totals):
            both = b.binary("arith.addf", sums[2 * cell], sums[2 * cell + 1], lanes)
            made.append(b.fma(both, weights.scale(panel, cell % vectors, span), total, lanes))
        return made
