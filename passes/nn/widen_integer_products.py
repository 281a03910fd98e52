"""nn-widen-integer-products: products of 8-bit integers that no kernel takes, as products of int32."""

from dataclasses import dataclass
from typing import ClassVar

from xcompile.compiler.ir.op import Value
from xcompile.compiler.ir.passes import PatternPass
from xcompile.compiler.ir.rewrite import Pattern, Rewriter, no_match
from xcompile.dialects.nn.base import rank_of
from xcompile.dialects.nn.conv import Conv
from xcompile.dialects.nn.integer import ConvInteger, MatMulInteger
from xcompile.dialects.nn.matmul import MatMul
from xcompile.dialects.nn.slicing import Pad
from xcompile.passes.nn.expression import Expression


def _shifted(e: Expression, x: Value, zero_point: Value | None, axes_behind: int) -> Value:
    """`x - zero_point` in int32; a vector of zero points runs along the axis with `axes_behind` axes behind it."""
    wide = e.cast(x, "i32")
    if zero_point is None:
        return wide
    zero = e.cast(zero_point, "i32")
    if rank_of(zero) and axes_behind:
        zero = e.reshape(zero, (-1, *[1] * axes_behind))
    return e.sub(wide, zero)


def _filled(e: Expression, op: ConvInteger) -> Value:
    """The input with its padding."""
    rank = len(op.pads) // 2
    pads = e.ints(0, 0, *op.pads[:rank], 0, 0, *op.pads[rank:])
    return e.make(Pad, x=op.x, pads=pads, value=op.fill) if any(op.pads) else op.x


class WidenConv(Pattern[ConvInteger]):
    """Subtract the zero points in int32 and convolve there; what pads add is 0, or is written down where it is not.

    Kernels take convolutions without zero points as they are.

        %0 = "nn.conv_integer"(%x, %w, %zero)
    ->
        %0 = "nn.cast"(%x) {to = "i32"}
        %1 = "nn.sub"(%0, %zero32)
        %2 = "nn.cast"(%w) {to = "i32"}
        %3 = "nn.conv"(%1, %2)
    """

    def rewrite(self, op: ConvInteger, rewriter: Rewriter) -> None:
        if op.is_plain:
            no_match("kernels convolve 8-bit integers")
        e, x, pads = Expression(rewriter), op.x, op.pads
        if op.fill is not None:
            if op.auto_pad != "notset":
                no_match("its padding is neither its zero point nor written down")
            x, pads = _filled(e, op), (0,) * len(pads)
        made = rewriter.create(
            Conv,
            x=_shifted(e, x, op.x_zero_point, 0),
            w=_shifted(e, op.w, op.w_zero_point, rank_of(op.w) - 1),
            bias=None,
            strides=op.strides,
            pads=pads,
            dilations=op.dilations,
            groups=op.groups,
            auto_pad=op.auto_pad,
        )
        rewriter.replace(op, made)


class WidenMatMul(Pattern[MatMulInteger]):
    """Subtract the zero points in int32 and multiply there; kernels take products without zero points as they are.

        %0 = "nn.matmul_integer"(%a, %b, %zero)
    ->
        %0 = "nn.cast"(%a) {to = "i32"}
        %1 = "nn.sub"(%0, %zero32)
        %2 = "nn.cast"(%b) {to = "i32"}
        %3 = "nn.matmul"(%1, %2)
    """

    def rewrite(self, op: MatMulInteger, rewriter: Rewriter) -> None:
        if op.is_plain:
            no_match("kernels multiply 8-bit integers")
        e = Expression(rewriter)
        rows = 0 if op.transpose_a or rank_of(op.a) < 2 else 1
        columns = 1 if op.transpose_b else 0
        made = rewriter.create(
            MatMul,
            a=_shifted(e, op.a, op.a_zero_point, rows),
            b=_shifted(e, op.b, op.b_zero_point, columns),
            transpose_a=op.transpose_a,
            transpose_b=op.transpose_b,
        )
        rewriter.replace(op, made)


@dataclass(frozen=True)
class WidenIntegerProducts(PatternPass):
    """Write products of 8-bit integers that no kernel takes, as products of int32."""

    NAME: ClassVar[str] = "nn-widen-integer-products"
    PATTERNS: ClassVar = (WidenConv, WidenMatMul)
