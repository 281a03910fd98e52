"""States of recurrent layers as integers, for products with an r of int8: quantized anew in each step."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from xcompile.compiler.codegen.cpu import math as m
from xcompile.compiler.codegen.cpu.builder import Buffer, Builder, Index, Value, vector_type
from xcompile.compiler.codegen.cpu.casts import cast
from xcompile.compiler.codegen.cpu.elementwise import Scalars
from xcompile.compiler.codegen.cpu.shuffles import reduce_lanes
from xcompile.compiler.ir.dtypes import bits_of
from xcompile.compiler.schedule.products import ProductForm
from xcompile.compiler.schedule.recurrent import (
    RecurrentPacking,
    RecurrentProblem,
    RecurrentSchedule,
    row_stride,
)
from xcompile.compiler.schedule.schedule import TargetNumbers

_Part = Callable[[Index, Value | None], None]

_SIGNED = 128
"""What is subtracted from codes where products take signed bytes."""


@dataclass(frozen=True)
class StateCodes:
    """The states of a unit's sequences as uint8 over their range and 0, each sequence by itself.

    A code times an element of r, summed over k and less the zero point times the sum of r's row, is an exact integer,
    whatever is subtracted from all codes; so it is the same for products of unsigned and of signed bytes.

    Attributes:
        form: of the products.
        hidden: elements of a state.
        lanes: of a vector of sums.
        stride: elements from one sequence's codes to the next.
        codes: in scratch memory, of the form's left type.
        scales: in scratch memory, one for each sequence.
        shifts: in scratch memory, for each sequence what a row's sum is multiplied by.
        sums: of the rows of r, as r is packed.
    """

    form: ProductForm
    hidden: int
    lanes: int
    stride: int
    codes: Buffer
    scales: Buffer
    shifts: Buffer
    sums: Buffer

    @classmethod
    def of(
        cls,
        b: Builder,
        problem: RecurrentProblem,
        schedule: RecurrentSchedule,
        target: TargetNumbers,
        r: Buffer,
        scratch: Buffer,
        start: int,
    ) -> "StateCodes":
        """Codes in scratch memory from byte `start` on."""
        form, stride = problem.form(target), row_stride(problem, target)
        left = form.left.removeprefix("u")
        scales = start + schedule.sequences * stride * bits_of(left) // 8
        packing = RecurrentPacking.of(problem, schedule, target)
        return cls(
            form,
            problem.hidden,
            target.lanes(problem.bits),
            stride,
            b.view(scratch, start, left),
            b.view(scratch, scales, "f32"),
            b.view(scratch, scales + 4 * schedule.sequences, "i32"),
            b.view(r, packing.sums, "i32"),
        )

    # -- quantization --------------------------------------------------------------------------

    def write(self, b: Builder, states: Buffer, start: Index, present: Index) -> None:
        """Quantize the states of `present` sequences, the first of which begins at element `start`."""
        with b.loop(0, present) as row:
            at = b.mul(row, self.stride)
            low, high = self._range(b, states, b.add(start, at))
            s = Scalars(b, 0, "f32")
            step = s.div(s.sub(high, low), s.const(255))
            step = s.select(s.compare("eq", step, s.const(0)), s.const(1), step)
            zero = self._byte(s, s.div(s.sub(s.const(0), low), step), s.const(0))
            b.store(step, self.scales, row)
            whole = cast(b, zero, "f32", "i32", 0, fits=True)
            minus = b.int_constant(self._subtracted, "i32")
            b.store(b.binary("arith.subi", minus, whole, 0, "i32"), self.shifts, row)
            steps, zeros = (b.broadcast(value, "f32", self.lanes) for value in (step, zero))

            def part(j: Index, mask: Value | None, first: Index = at) -> None:
                x = b.load(states, b.add(start, first, j), self.lanes, mask)
                wide = Scalars(b, self.lanes, "f32")
                code = self._byte(wide, wide.div(x, steps), zeros)
                b.store(self._stored(b, code), self.codes, b.add(first, j), self.lanes)

            self._parts(b, part)

    def _parts(self, b: Builder, body: _Part) -> None:
        """Call `body` for all vectors of a state."""
        whole = self.hidden // self.lanes * self.lanes
        if whole:
            with b.loop(0, whole, self.lanes) as j:
                body(j, None)
        if whole < self.hidden:
            body(whole, b.tail_mask(self.hidden - whole, self.lanes))

    def _range(self, b: Builder, states: Buffer, at: Index) -> list[Value]:
        """The least and the greatest element of a state and 0."""
        lanes, whole = self.lanes, self.hidden // self.lanes * self.lanes
        functions = [partial(f, b) for f in (m.minimum, m.maximum)]

        def joined(j: Index, mask: Value | None, found: list[Value]) -> list[Value]:
            x = b.load(states, b.add(at, j), lanes, mask)
            return [f(old, x, lanes, "f32") for f, old in zip(functions, found, strict=True)]

        found = [b.zero("f32", lanes)] * 2
        if whole:
            types = [vector_type(lanes, "f32")] * 2
            found = b.reduce(0, whole, lanes, found, types, lambda j, old: joined(j, None, old))
        if whole < self.hidden:
            found = joined(whole, b.tail_mask(self.hidden - whole, lanes), found)
        return [
            reduce_lanes(b, f, [vector], lanes, "f32")
            for f, vector in zip(functions, found, strict=True)
        ]

    @property
    def _subtracted(self) -> int:
        return _SIGNED if self.form.left == "i8" else 0

    @staticmethod
    def _byte(s: Scalars, x: Value, zero: Value) -> Value:
        """A quotient rounded to even, with the zero point, in [0, 255]; as a float."""
        code = s.add(s.op("math.roundeven", x), zero)
        return s.minimum(s.maximum(code, s.const(0)), s.const(255))

    def _stored(self, b: Builder, code: Value) -> Value:
        """Codes as the products read them."""
        whole = cast(b, code, "f32", "i32", self.lanes, fits=True)
        if self._subtracted:
            minus = b.int_constant(self._subtracted, "i32", self.lanes)
            whole = b.binary("arith.subi", whole, minus, self.lanes, "i32")
        kinds = (vector_type(self.lanes, each) for each in ("i32", self.codes.dtype))
        return b.op(f"arith.trunci {whole} : {' to '.join(kinds)}")

    # -- what becomes of sums ------------------------------------------------------------------

    def finished(self, b: Builder, total: Value, row: Index, column: Index) -> tuple[Value, Value]:
        """A vector of sums without the zero point's part, as float32, and the scale of the row's codes.

        Args:
            b: where to write.
            total: sums of products of the stored codes.
            row: the sequence in the unit.
            column: the first of the sums' columns, among those of all directions.
        """
        shift = b.broadcast(b.load(self.shifts, row), "i32", self.lanes)
        sums = b.load(self.sums, column, self.lanes)
        moved = b.binary("arith.muli", shift, sums, self.lanes, "i32")
        exact = b.binary("arith.addi", total, moved, self.lanes, "i32")
        scale = b.broadcast(b.load(self.scales, row), "f32", self.lanes)
        return cast(b, exact, "i32", "f32", self.lanes), scale
