"""Recurrent layers as `whole` kernels: a unit is one sequence of one direction, its steps in order.

States are kept in scratch memory, in float32 or float64; what r of int8 multiplies there may be whole numbers. What the
layers compute is said in `dialects/nn/recurrent.py`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from xcompile.compiler.codegen.cpu.activations import activate
from xcompile.compiler.codegen.cpu.builder import Buffer, Builder, Index, Value
from xcompile.compiler.codegen.cpu.casts import convert
from xcompile.compiler.codegen.cpu.elementwise import Scalars
from xcompile.compiler.codegen.cpu.movement import data_index
from xcompile.compiler.codegen.cpu.nests import wide
from xcompile.compiler.codegen.cpu.pull import Pull
from xcompile.compiler.codegen.cpu.whole import WHOLE, Slices, Whole
from xcompile.compiler.ir.op import Value as Tensor
from xcompile.dialects.nn.base import Shape, Sizes, dtype_of

_STATES = 6
"""Vectors of hidden elements in scratch memory: h, the next h, c, what a step computes first, and codes of two."""


_CODES = 4
"""The first of those that hold codes."""


@dataclass(frozen=True)
class _Factor:
    """What r multiplies: a state, or codes less their zero point and the step between them."""

    elements: Buffer
    step: Value | None


@dataclass(frozen=True)
class _Sequence:
    """One sequence of one direction.

    Attributes:
        slices: where the code goes.
        op: the layer.
        direction: its number.
        batch: the sequence.
    """

    slices: Slices
    op: Any
    direction: int
    batch: Index

    @property
    def b(self) -> Builder:
        return self.slices.b

    @property
    def pull(self) -> Pull:
        return self.slices.pull

    @property
    def s(self) -> Scalars:
        return Scalars(self.b, 0, wide(dtype_of(self.op.x)))

    def write(self) -> None:
        """The code of the sequence; what it reads is not known to the other direction's branch."""
        with self.pull.scope():
            self._write()

    def _write(self) -> None:
        op, b, pull = self.op, self.b, self.pull
        steps = pull.shape(op.x)[0]
        length: Index = steps
        if op.lengths is not None:
            given = data_index(pull, op.lengths, [self.batch])
            assert isinstance(given, int | str)
            length = b.min(b.max(given, 0), steps)
        h, following, c, first = (self._state(i) for i in range(_CODES))
        cells = [c] if op.NAME == "nn.lstm" else []
        for state, start in zip((h, *cells), self._starts(), strict=True):
            with b.loop(0, op.hidden) as j, pull.scope():
                initial = (
                    self.s.const(0)
                    if start is None
                    else self.read(start, [self.direction, self.batch, j])
                )
                b.store(initial, state, j)
        backward = op.direction == "reverse" or self.direction == 1
        with b.loop(0, length) as t:
            place = b.sub(b.sub(length, 1), t) if backward else t
            _STEPS[op.NAME](self, place, h, following, c, first)
            with b.loop(0, op.hidden) as j:
                value = b.load(following, j)
                b.store(value, h, j)
                self.store(0, value, [place, self.direction, self.batch, j])
        with b.loop(length, steps) as t, b.loop(0, op.hidden) as j:
            self.store(0, self.s.const(0), [t, self.direction, self.batch, j])
        for number, state in enumerate((h, *cells), start=1):
            with b.loop(0, op.hidden) as j:
                self.store(number, b.load(state, j), [self.direction, self.batch, j])

    def _state(self, number: int) -> Buffer:
        assert self.slices.scratch is not None
        return self.b.view(self.slices.scratch, number * 8 * self.op.hidden, self.s.dtype)

    def _starts(self) -> list[Tensor | None]:
        return [self.op.initial_h, *([self.op.initial_c] if self.op.NAME == "nn.lstm" else [])]

    # -- elements -----------------------------------------------------------------------------

    def read(self, tensor: Tensor, at: Sequence[Index]) -> Value:
        return convert(self.b, self.pull.value(tensor, at), dtype_of(tensor), self.s.dtype, 0)

    def store(self, result: int, value: Value, at: Sequence[Index]) -> None:
        there = self.slices.results[result]
        self.pull.store(there, convert(self.b, value, self.s.dtype, there.dtype, 0), at)

    def from_input(self, gate: int, j: Index, place: Index) -> Value:
        """Row j of a gate of w times the input of a step, and its bias."""
        row = self.b.add(gate * self.op.hidden, j)
        if self.op.w is None:
            first = self.direction * self.op.GATES * self.op.hidden
            return self.read(self.op.x, [place, self.batch, self.b.add(first, row)])
        size = self.pull.shape(self.op.x)[2]
        return self._product(
            self.op.w, row, row, size, lambda i: self.read(self.op.x, [place, self.batch, i])
        )

    def factor(self, state: Buffer, number: int = 0) -> "_Factor":
        """What r multiplies of a state, which is the `number`-th of a step."""
        if not self.op.quantize_state:
            return _Factor(state, None)
        s, b, codes = self.s, self.b, self._state(_CODES + number)
        types = [s.type] * 2

        def joined(k: Index, found: list[Value]) -> list[Value]:
            x = b.load(state, k)
            return [s.minimum(found[0], x), s.maximum(found[1], x)]

        low, high = b.reduce(0, self.op.hidden, 1, [s.const(0)] * 2, types, joined)
        step = s.div(s.sub(high, low), s.const(255))
        step = s.select(s.compare("eq", step, s.const(0)), s.const(1), step)
        zero = self._byte(s.div(s.sub(s.const(0), low), step), s.const(0))
        with b.loop(0, self.op.hidden) as k:
            code = self._byte(s.div(b.load(state, k), step), zero)
            b.store(s.sub(code, zero), codes, k)
        return _Factor(codes, step)

    def _byte(self, x: Value, zero: Value) -> Value:
        code = self.s.add(self.s.op("math.roundeven", x), zero)
        return self.s.minimum(self.s.maximum(code, self.s.const(0)), self.s.const(255))

    def from_state(self, gate: int, j: Index, factor: "_Factor") -> Value:
        """Row j of a gate of r times a state, and its bias."""
        row = self.b.add(gate * self.op.hidden, j)
        bias = row if self.op.w is None else self.b.add(row, self.op.GATES * self.op.hidden)
        if self.op.r_scale is None:
            return self._product(
                self.op.r, row, bias, self.op.hidden, lambda k: self.b.load(factor.elements, k)
            )
        scale = self.read(self.op.r_scale, [self.direction, row])
        if factor.step is None:
            total = self._sum(
                self.op.r, row, self.op.hidden, lambda k: self.b.load(factor.elements, k)
            )
        else:
            total, scale = self._exact(row, factor.elements), self.s.mul(factor.step, scale)
        scaled = self.s.mul(total, scale)
        if self.op.bias is None:
            return scaled
        return self.s.add(scaled, self.read(self.op.bias, [self.direction, bias]))

    def _exact(self, row: Index, codes: Buffer) -> Value:
        """A row of r times codes, summed in int32."""
        b, whole = self.b, Scalars(self.b, 0, "i32")

        def body(k: Index, sums: list[Value]) -> list[Value]:
            with self.pull.scope():
                weight = convert(
                    b, self.pull.value(self.op.r, [self.direction, row, k]), "i8", "i32", 0
                )
                code = convert(b, b.load(codes, k), self.s.dtype, "i32", 0)
                return [whole.add(sums[0], whole.mul(weight, code))]

        total = b.reduce(0, self.op.hidden, 1, [whole.const(0)], [whole.type], body)[0]
        return convert(b, total, "i32", self.s.dtype, 0)

    def _product(
        self,
        weights: Tensor,
        row: Index,
        bias: Index,
        count: Index,
        other: Callable[[Index], Value],
    ) -> Value:
        start = None
        if self.op.bias is not None:
            start = self.read(self.op.bias, [self.direction, bias])
        return self._sum(weights, row, count, other, start)

    def _sum(
        self,
        weights: Tensor,
        row: Index,
        count: Index,
        other: Callable[[Index], Value],
        start: Value | None = None,
    ) -> Value:
        s = self.s

        def body(k: Index, sums: list[Value]) -> list[Value]:
            with self.pull.scope():
                return [
                    s.add(sums[0], s.mul(self.read(weights, [self.direction, row, k]), other(k)))
                ]

        return self.b.reduce(0, count, 1, [start or s.const(0)], [s.type], body)[0]

    def activate(self, function: int, x: Value) -> Value:
        return activate(self.s, self.op, self.direction, function, x)


def _rnn(
    q: _Sequence, place: Index, h: Buffer, following: Buffer, c: Buffer, first: Buffer
) -> None:
    state = q.factor(h)
    with q.b.loop(0, q.op.hidden) as j, q.pull.scope():
        total = q.s.add(q.from_input(0, j, place), q.from_state(0, j, state))
        q.b.store(q.activate(0, total), following, j)


def _gru(
    q: _Sequence, place: Index, h: Buffer, following: Buffer, c: Buffer, first: Buffer
) -> None:
    """The reset gate of all elements comes first; what it multiplies is the state, or the state's product."""
    s, b, state = q.s, q.b, q.factor(h)
    with b.loop(0, q.op.hidden) as j, q.pull.scope():
        reset = q.activate(0, s.add(q.from_input(1, j, place), q.from_state(1, j, state)))
        b.store(reset if q.op.linear_before_reset else s.mul(reset, b.load(h, j)), first, j)
    kept_state = state if q.op.linear_before_reset else q.factor(first, 1)
    with b.loop(0, q.op.hidden) as j, q.pull.scope():
        update = q.activate(0, s.add(q.from_input(0, j, place), q.from_state(0, j, state)))
        if q.op.linear_before_reset:
            inner = s.mul(b.load(first, j), q.from_state(2, j, state))
        else:
            inner = q.from_state(2, j, kept_state)
        new = q.activate(1, s.add(q.from_input(2, j, place), inner))
        kept = s.mul(update, b.load(h, j))
        b.store(s.add(s.mul(s.sub(s.const(1), update), new), kept), following, j)


def _lstm(
    q: _Sequence, place: Index, h: Buffer, following: Buffer, c: Buffer, first: Buffer
) -> None:
    s, b, hidden, state = q.s, q.b, q.op.hidden, q.factor(h)

    with b.loop(0, hidden) as j, q.pull.scope():

        def gate(number: int, peephole: int | None, cell: Value) -> Value:
            total = s.add(q.from_input(number, j, place), q.from_state(number, j, state))
            if q.op.peephole is not None and peephole is not None:
                weight = q.read(q.op.peephole, [q.direction, b.add(peephole * hidden, j)])
                total = s.add(total, s.mul(weight, cell))
            return total

        old = b.load(c, j)
        enter = q.activate(0, gate(0, 0, old))
        forget = s.sub(s.const(1), enter) if q.op.input_forget else q.activate(0, gate(2, 2, old))
        cell = s.add(s.mul(forget, old), s.mul(enter, q.activate(1, gate(3, None, old))))
        leave = q.activate(0, gate(1, 1, cell))
        b.store(cell, c, j)
        b.store(s.mul(leave, q.activate(2, cell)), following, j)


_STEPS = {"nn.rnn": _rnn, "nn.gru": _gru, "nn.lstm": _lstm}


def _slices(sizes: Sizes, op: Any) -> Shape:
    return (op.directions, sizes.shape(op.x)[1])


def _emit(slices: Slices, op: Any, at: list[Index]) -> None:
    direction, batch = at
    if op.directions == 1:
        _Sequence(slices, op, 0, batch).write()
        return
    forward, backward = (_Sequence(slices, op, d, batch) for d in range(2))
    slices.b.either(slices.b.compare("eq", direction, 0), forward.write, backward.write)


WHOLE.update(dict.fromkeys(_STEPS, Whole(_slices, _emit, lambda op: _STATES * 8 * op.hidden)))
