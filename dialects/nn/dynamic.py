"""Quantization over the range that a tensor has in this run, written as other ops."""

import math

from xcompile.compiler.ir.op import Value
from xcompile.dialects.nn.base import rank_of
from xcompile.dialects.nn.composer import Composer
from xcompile.dialects.nn.quantize import Quantize
from xcompile.dialects.nn.reduce import ReduceMax, ReduceMin


def dynamically_quantized(c: Composer, x: Value) -> tuple[Value, Value, Value]:
    """A value as uint8 over the range of all elements and 0, with its scale, 1 where that is only 0, and zero point.

    ONNX DynamicQuantizeLinear, but for a range that is longer than float32's greatest number: its scale is the sum of
    those of both sides, where the definition's is infinite and all that follows NaN.
    """
    axes = range(rank_of(x))
    low = c.minimum(c.reduce(ReduceMin, x, axes, keepdims=False), 0.0)
    high = c.maximum(c.reduce(ReduceMax, x, axes, keepdims=False), 0.0)
    length = c.sub(high, low)
    sides = c.sub(c.div(high, 255.0), c.div(low, 255.0))
    step = c.where(c.equal(length, math.inf), sides, c.div(length, 255.0))
    scale = c.where(c.equal(step, 0.0), 1.0, step)
    zero_point = c.make(Quantize, x=c.sub(0.0, low), scale=scale, zero_point=None, to="ui8")
    y = c.make(Quantize, x=x, scale=scale, zero_point=zero_point, to="ui8")
    return y, scale, zero_point
