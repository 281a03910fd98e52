"""The one-dimensional transforms of F(2,3) and F(4,3), and the kernel that transforms weights at load.

F(4,3) interpolates at 0, ±1, ±2 and infinity, F(2,3) at 0, ±1 and infinity.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from xcompile.compiler.codegen.cpu.builder import Buffer, Builder, Index, Value, vector_type
from xcompile.compiler.schedule.winograd import (
    WinogradProblem,
    WinogradSchedule,
    transformed_shape,
)
from xcompile.compiler.target.target import Target

T = TypeVar("T")


@dataclass(frozen=True)
class Arithmetic:
    """Vector arithmetic of one type."""

    b: Builder
    lanes: int
    dtype: str = "f32"

    def add(self, x: Value, y: Value) -> Value:
        return self.b.binary("arith.addf", x, y, self.lanes, self.dtype)

    def sub(self, x: Value, y: Value) -> Value:
        return self.b.binary("arith.subf", x, y, self.lanes, self.dtype)

    def scale(self, factor: float, x: Value) -> Value:
        return self.b.binary("arith.mulf", self.constant(factor), x, self.lanes, self.dtype)

    def fma(self, factor: float, x: Value, y: Value) -> Value:
        """factor·x + y with one rounding."""
        return self.b.fma(self.constant(factor), x, y, self.lanes, self.dtype)

    def constant(self, value: float) -> Value:
        return self.b.float_constant(value, self.dtype, self.lanes)


def input_1d(a: Arithmetic, d: Sequence[Value], m: int) -> list[Value]:
    """Bᵀd: m+2 pixels to m+2 frequencies."""
    if m == 2:
        return [a.sub(d[0], d[2]), a.add(d[1], d[2]), a.sub(d[2], d[1]), a.sub(d[1], d[3])]
    even, odd = a.fma(-4.0, d[2], d[4]), a.fma(-4.0, d[1], d[3])
    outer, inner = a.sub(d[4], d[2]), a.sub(d[3], d[1])
    return [
        a.fma(4.0, d[0], a.fma(-5.0, d[2], d[4])),
        a.add(even, odd),
        a.sub(even, odd),
        a.fma(2.0, inner, outer),
        a.fma(-2.0, inner, outer),
        a.fma(4.0, d[1], a.fma(-5.0, d[3], d[5])),
    ]


def output_1d(a: Arithmetic, d: Sequence[Value], m: int) -> list[Value]:
    """Aᵀd: m+2 frequencies to m pixels."""
    plus, minus = a.add(d[1], d[2]), a.sub(d[1], d[2])
    if m == 2:
        return [a.add(d[0], plus), a.sub(minus, d[3])]
    plus2, minus2 = a.add(d[3], d[4]), a.sub(d[3], d[4])
    return [
        a.add(a.add(d[0], plus), plus2),
        a.fma(2.0, minus2, minus),
        a.fma(4.0, plus2, plus),
        a.add(a.fma(8.0, minus2, minus), d[5]),
    ]


class Linear(Protocol[T]):
    """Addition and scaling, of vectors in a kernel or of arrays."""

    def add(self, x: T, y: T) -> T: ...
    def sub(self, x: T, y: T) -> T: ...
    def scale(self, factor: float, x: T) -> T: ...


def weight_1d(a: Linear[T], g: Sequence[T], m: int) -> list[T]:
    """Gg: 3 weights to m+2 frequencies."""
    outer = a.add(g[0], g[2])
    if m == 2:
        return [
            g[0],
            a.scale(0.5, a.add(outer, g[1])),
            a.scale(0.5, a.sub(outer, g[1])),
            g[2],
        ]
    middle = a.scale(1 / 12, g[1])
    far = a.add(a.scale(1 / 24, g[0]), a.scale(1 / 6, g[2]))
    return [
        a.scale(0.25, g[0]),
        a.scale(-1 / 6, a.add(outer, g[1])),
        a.scale(-1 / 6, a.sub(outer, g[1])),
        a.add(far, middle),
        a.sub(far, middle),
        g[2],
    ]


def emit_winograd_weights(
    b: Builder,
    problem: WinogradProblem,
    schedule: WinogradSchedule,
    target: Target,
    w: Buffer,
    u: Buffer,
    begin: Index,
    end: Index,
) -> None:
    """Write the transform u = G·w·Gᵀ of the weights of output-channel groups [begin, end).

    The arithmetic is in float64, rounded once: `transform_weights` gives the same bits.

    Args:
        b: where to write.
        problem: the convolution.
        schedule: its blocking, which decides the order of `u`.
        target: the machine.
        w: float32 weights as `pack` lays them out.
        u: float32 result of `transformed_shape`.
        begin: first group, of `groups`.
        end: one past the last group.
    """
    schedule.check(problem, target)
    _, frequencies, panels, channels, width = transformed_shape(problem, schedule)
    lanes, edge = problem.block, schedule.m + 2
    plane = panels * channels * width
    with b.loop(begin, end) as group, b.loop(0, panels) as panel:
        for row in range(
            edge
        ):  # one row at a time: 36 streams at once would share a few cache sets
            with b.loop(0, channels) as c, b.loop(0, schedule.vectors) as vector:
                number = b.add(b.mul(b.add(b.mul(group, panels), panel), schedule.vectors), vector)
                source = b.mul(b.add(b.mul(number, channels), c), 9 * lanes)
                at = b.add(b.mul(group, frequencies * plane), row * edge * plane)
                at = b.add(at, b.mul(b.add(b.mul(panel, channels), c), width))
                at = b.add(at, b.mul(vector, lanes))
                for j, value in enumerate(_weight_row(b, w, source, lanes, row, schedule.m)):
                    b.store(value, u, b.add(at, j * plane), lanes)


def _weight_row(b: Builder, w: Buffer, source: Index, lanes: int, row: int, m: int) -> list[Value]:
    """Row `row` of G·w·Gᵀ."""
    wide, narrow = vector_type(lanes, "f64"), vector_type(lanes, "f32")
    a = Arithmetic(b, lanes, "f64")
    weights = [
        b.op(f"arith.extf {b.load(w, b.add(source, i * lanes), lanes)} : {narrow} to {wide}")
        for i in range(9)
    ]
    column = [weight_1d(a, weights[j::3], m)[row] for j in range(3)]
    return [b.op(f"arith.truncf {value} : {wide} to {narrow}") for value in weight_1d(a, column, m)]
