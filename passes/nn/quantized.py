"""What passes ask about quantized values: scales, zero points, and whether two quantizations are the same."""

from dataclasses import dataclass

import numpy as np

from xcompile.compiler.ir.dtypes import is_integer
from xcompile.compiler.ir.op import Value
from xcompile.compiler.ir.rewrite import Rewriter, no_match
from xcompile.dialects.nn.base import dtype_of
from xcompile.dialects.nn.const import const_of
from xcompile.dialects.nn.quantize import Dequantize, Quantization, Quantize, limits
from xcompile.passes.common.constants import array_of


@dataclass(frozen=True)
class Step:
    """One constant scale and zero point for a whole tensor: the integer `q` of type `dtype` is `(q - zero)·scale`."""

    scale: np.float32
    zero: int
    dtype: str

    def code(self, number: float) -> int:
        """What `nn.quantize` makes of a number that is not NaN."""
        least, most = limits(self.dtype)
        with np.errstate(over="ignore"):
            whole = np.rint(np.float32(number) / self.scale)
        return int(np.clip(whole, least - self.zero, most - self.zero)) + self.zero

    def number(self, code: int) -> np.float32:
        """What `nn.dequantize` makes of an integer."""
        return np.float32(code - self.zero) * self.scale


def quantized_dtype(op: Quantization) -> str:
    """The type of the quantized side."""
    return op.to if isinstance(op, Quantize) else dtype_of(op.x)


def step_of(rewriter: Rewriter, op: Quantization) -> Step:
    """The step of a whole tensor; leaves the pattern when it is no constant of float32 and integers."""
    if not op.per_tensor(op.scale):
        no_match("it has more than one scale")
    dtype = quantized_dtype(op)
    if not is_integer(dtype):
        no_match(f"{dtype} is no integer")
    if (op.precision if isinstance(op, Quantize) else op.to) != "f32":
        no_match("it is not quantized in float32")
    scale = np.float32(array_of(rewriter, op.scale, "the scale").reshape(()))
    if not (np.isfinite(scale) and scale > 0):
        no_match(f"the scale is {scale}")
    zero = 0
    if op.zero_point is not None:
        zero = int(array_of(rewriter, op.zero_point, "the zero point").reshape(()))
    return Step(scale, zero, dtype)


def same_step(a: Quantization, b: Quantization) -> bool:
    """Whether both have one scale and zero point for the whole tensor, equal ones, and the same type."""
    return (
        a.per_tensor(a.scale)
        and b.per_tensor(b.scale)
        and _same(a.scale, b.scale)
        and quantized_dtype(a) == quantized_dtype(b)
        and same_number(a.zero_point, b.zero_point)
    )


def _same(a: Value, b: Value) -> bool:
    """Whether two values are one, or constants of the same elements."""
    if a == b:
        return True
    left, right = const_of(a), const_of(b)
    return left is not None and right is not None and a.type == b.type and left.value == right.value


def same_number(a: Value | None, b: Value | None) -> bool:
    """Whether two zero points, or what is padded with, are the same; a missing one is 0."""
    if a is not None and b is not None:
        return _same(a, b)
    return all(value is None or is_zero(value) for value in (a, b))


def is_zero(value: Value) -> bool:
    """Whether a value is a constant of zeros."""
    made = const_of(value)
    return made is not None and made.splat and float(made.scalar()) == 0


def fields_of(op: Quantization) -> dict[str, object]:
    """The fields of the same quantization of another value: all but `x`."""
    operands = {name: v for name, v in op.operand_fields().items() if name != "x"}
    return {**operands, **op.attributes()}


def dequantized_exactly(op: Dequantize) -> bool:
    """Whether quantizing the result with the same step gives the operand: integers of 16 bits are exact in float32."""
    return op.to == "f32" and quantized_dtype(op) in ("i4", "ui4", "i8", "ui8", "i16", "ui16")
