"""The families of convolutions of 8-bit integers in blocked layout."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from xcompile.compiler.codegen.cpu.anchored import operand_position
from xcompile.compiler.codegen.cpu.builder import Builder, Signature, Value
from xcompile.compiler.codegen.cpu.coordinates import Coordinate
from xcompile.compiler.codegen.cpu.family import Kernel, Packing
from xcompile.compiler.codegen.cpu.images import BYTES, ConvPlan, DepthwisePlan
from xcompile.compiler.codegen.cpu.integer_depthwise import emit_integer_depthwise
from xcompile.compiler.codegen.cpu.pull import Pull
from xcompile.compiler.codegen.cpu.sink import Sink
from xcompile.compiler.ir.rewrite import no_match
from xcompile.compiler.schedule.depthwise import (
    DepthwiseProblem,
    pack_integers,
    takes_dots,
    takes_pairs,
)
from xcompile.compiler.schedule.window import Window
from xcompile.dialects.nn.base import dtype_of


class IntegerConvPlan(ConvPlan):
    """Direct convolution of 8-bit integers without zero points, summed exactly in int32."""

    family = "integer-conv"
    dtypes = BYTES

    def __init__(self, kernel: Kernel, op: Any, schedule: str | None) -> None:
        check_plain(op)
        super().__init__(kernel, op, schedule)

    def finish(self, pull: Pull, value: Value, at: Sequence[Coordinate]) -> Value:
        return value

    def fill(self, b: Builder, signature: Signature) -> Value | None:
        return fill_of(self.kernel, self.op, b, signature)


class IntegerDepthwisePlan(DepthwisePlan):
    """Depthwise convolution of 8-bit integers without zero points, summed exactly in int32."""

    family = "integer-depthwise"
    dtypes = BYTES

    def __init__(self, kernel: Kernel, op: Any, schedule: str | None) -> None:
        check_plain(op)
        if dtype_of(op.w) != "i8":
            no_match("the weights have no sign")
        super().__init__(kernel, op, schedule)

    def find_problem(self, depth: Window | None, window: Window) -> DepthwiseProblem:
        dtype: Any = dtype_of(self.x)
        return replace(super().find_problem(depth, window), dtype=dtype)

    def packing(self) -> Packing:
        target = self.kernel.target
        forms = takes_dots(self.problem, target), takes_pairs(target)
        key = f"depthwise {target.lanes(32)} integers {forms}"
        return Packing(key, lambda w: pack_integers(w, self.problem, target))

    def finish(self, pull: Pull, value: Value, at: Sequence[Coordinate]) -> Value:
        return value

    def write(self, b: Builder, signature: Signature, sink: Sink) -> None:
        emit_integer_depthwise(
            b, self.problem, self.schedule, self.kernel.target, self.argument(signature, self.x),
            self.argument(signature, self.op.w), sink, signature.begin, signature.end,
            self.kernel.environment(signature), fill_of(self.kernel, self.op, b, signature),
        )  # fmt: skip


def check_plain(op: Any) -> None:
    """Leaves by `no_match` when a convolution has zero points."""
    if not op.is_plain:
        no_match("it has zero points")


def fill_of(kernel: Kernel, op: Any, b: Builder, signature: Signature) -> Value | None:
    """What padding holds, read from memory; None for zero."""
    if op.fill is None:
        return None
    return b.load(signature.buffer(operand_position(kernel, op.fill)), 0)
