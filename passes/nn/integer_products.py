"""Float ops on dequantized operands as exact sums of integers: what nn-lower-quantized puts in their place.

A `Product` is the value of such an op as int32 times a scale, plus a bias. Sums are exact, and proven to fit int32
where sizes are known.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.op import Op, Value
from xcompile.compiler.ir.rewrite import Rewriter, has_one_use, no_match, producer
from xcompile.dialects.nn.base import dtype_of, rank_of
from xcompile.dialects.nn.binary import Add, Mul
from xcompile.dialects.nn.const import const_of
from xcompile.dialects.nn.conv import Conv
from xcompile.dialects.nn.integer import ConvInteger, MatMulInteger
from xcompile.dialects.nn.matmul import MatMul
from xcompile.dialects.nn.pool import AveragePool
from xcompile.dialects.nn.quantize import Dequantize, limits
from xcompile.dialects.nn.reduce import ReduceMean, ReduceSum
from xcompile.passes.common.constants import array_of, constant
from xcompile.passes.nn.expression import Expression
from xcompile.passes.nn.quantized import is_zero

BIAS_TOLERANCE = 1e-6
"""How far, relatively, the scale of an int32 bias may be from the product of the operands' scales."""


@dataclass(frozen=True)
class Product:
    """`sums·scale + bias`.

    Attributes:
        sums: int32.
        scale: float64, broadcasts to the sums.
        bias: float64, broadcasts to the sums; None for none.
    """

    sums: Value
    scale: np.ndarray
    bias: np.ndarray | None = None


@dataclass(frozen=True)
class Factor:
    """An operand of a product: integers of 8 bits with a scale.

    Attributes:
        x: the integers.
        zero_point: None for 0.
        scale: float64, one number or one for each element of an axis.
        axis: that axis, None when there is one number.
        reach: the largest magnitude of an element after the zero point is subtracted.
    """

    x: Value
    zero_point: Value | None
    scale: np.ndarray
    axis: int | None
    reach: int


def factor_of(rewriter: Rewriter, value: Value, what: str) -> Factor:
    """The integers that a value is made of; leaves the pattern when there are none of up to 8 bits."""
    source = producer(value, Dequantize) or no_match(f"{what} is not dequantized")
    if source.block:
        no_match(f"{what} has a scale for each block")
    if source.to != "f32":
        no_match(f"{what} is dequantized to {source.to}")
    dtype = dtype_of(source.x)
    if dtype not in ("i8", "ui8", "i4", "ui4"):
        no_match(f"{what} is of {dtype}")
    scale = array_of(rewriter, source.scale, f"the scale of {what}").astype(np.float64)
    if not (np.isfinite(scale).all() and (scale >= 0).all()):
        no_match(f"a scale of {what} is negative or not finite")
    zero = source.zero_point
    zeros = np.zeros(1, np.int64)
    if zero is not None:
        zeros = array_of(rewriter, zero, f"the zero point of {what}").astype(np.int64).reshape(-1)
    least, most = limits(dtype)
    reach = int(max(np.max(zeros - least, initial=0), np.max(most - zeros, initial=0)))
    e = Expression(rewriter)
    wide = "i8" if dtype.startswith("i") else "ui8"
    if zero is not None:
        if is_zero(zero):
            zero = None
        elif rank_of(zero) and (zeros == zeros[0]).all():
            zero = e.reshape(constant(rewriter, zeros[:1].astype(_numpy(wide))), ())
        else:
            zero = e.cast(zero, wide)
    axis = source.axis % rank_of(source.x) if rank_of(source.scale) else None
    return Factor(_widened(rewriter, source.x, wide), zero, scale, axis, reach)


def _numpy(dtype: str) -> type[np.int8] | type[np.uint8]:
    return np.int8 if dtype == "i8" else np.uint8


def _widened(rewriter: Rewriter, x: Value, dtype: str) -> Value:
    """Integers of 4 bits as those of 8."""
    if const_of(x) is None or dtype_of(x) == dtype:
        return Expression(rewriter).cast(x, dtype)
    return constant(rewriter, array_of(rewriter, x, "the operand").astype(_numpy(dtype)))


def product_of(rewriter: Rewriter, op: Op | None) -> Product:
    """What an op is as a product of integers; leaves the pattern when it is none."""
    for kind, make in _PRODUCTS:
        if isinstance(op, kind):
            return make(rewriter, op)
    return no_match("the op has no form in integers")


def _most(length: int | None, a: Factor, b: Factor | None) -> int:
    """The largest magnitude of sums of products, or of one factor; leaves the pattern when it may not fit int32.

    Where the length is known only when the model runs, as those of attention are, sums count as if it were 1.
    """
    most = (length or 1) * a.reach * (1 if b is None else b.reach)
    if most >= 2**31:
        no_match(f"sums of {length} products may not fit 32 bits")
    return most


def _length(value: Value, axes: Sequence[int]) -> int | None:
    shape = ir.RankedTensorType(value.type).shape
    sizes = [shape[axis] for axis in axes]
    return None if any(size < 0 for size in sizes) else int(np.prod(sizes, dtype=np.int64))


def _with_bias(
    rewriter: Rewriter, product: Product, value: Value, most: int, behind: tuple[int, ...]
) -> Product:
    """The product with a constant bias, in its sums when the bias is made of int32 with the product's scale.

    Args:
        rewriter: of the pattern.
        product: what the bias is added to; none has been so far.
        value: the bias, one number or a vector.
        most: the largest magnitude of the sums; with the bias they must fit int32.
        behind: axes of size 1 behind the vector's.
    """
    source = producer(value, Dequantize)
    if source is None:
        bias = array_of(rewriter, value, "the bias").astype(np.float64)
        return replace(product, bias=_behind(bias, behind))
    codes = array_of(rewriter, source.x, "the bias").astype(np.int64)
    if source.zero_point is not None:
        codes = codes - array_of(rewriter, source.zero_point, "the bias's zero point").astype(
            np.int64
        )
    if source.block or rank_of(source.x) > 1:
        no_match("the bias is no vector")
    scale = array_of(rewriter, source.scale, "the bias's scale").astype(np.float64)
    wanted = product.scale.reshape(-1) if product.scale.ndim else product.scale
    if (
        wanted.size in (1, codes.size)
        and np.allclose(scale, wanted, rtol=BIAS_TOLERANCE, atol=0)
        and most + int(np.abs(codes).max(initial=0)) < 2**31
    ):
        codes = constant(rewriter, _behind(codes.astype(np.int32), behind))
        return replace(product, sums=Expression(rewriter).add(product.sums, codes))
    return replace(product, bias=_behind(codes * scale, behind))


def _behind(vector: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    return vector.reshape(-1, *axes) if vector.ndim else vector


# -- convolutions and pools -------------------------------------------------------------------------


def _conv(rewriter: Rewriter, op: Conv) -> Product:
    x, w = factor_of(rewriter, op.x, "the input"), factor_of(rewriter, op.w, "the weight")
    if x.axis is not None:
        no_match("the input has a scale for each channel")
    if w.axis not in (None, 0):
        no_match("the weight's scales are not those of output channels")
    rank = rank_of(op.w)
    most = _most(_length(op.w, range(1, rank)), x, w)
    made = rewriter.create(
        ConvInteger,
        x=x.x,
        w=w.x,
        x_zero_point=x.zero_point,
        w_zero_point=w.zero_point,
        **op.attributes(),
    )
    behind = (1,) * (rank - 2)
    product = Product(made.y, _behind(x.scale * w.scale, behind))
    if op.bias is None:
        return product
    return _with_bias(rewriter, product, op.bias, most, behind)


def _average_pool(rewriter: Rewriter, op: AveragePool) -> Product:
    """Sums over windows are a convolution of each channel with ones."""
    x = factor_of(rewriter, op.x, "the input")
    shape = ir.RankedTensorType(op.x.type).shape
    if x.axis is not None or min(shape[1:]) < 0:
        no_match("the input has a scale for each channel, or sizes that are not known")
    if op.ceil_mode or op.auto_pad != "notset":
        no_match("its last windows are cut off, or its padding is not written down")
    _most(int(np.prod(op.kernel)), x, None)
    made = rewriter.create(
        ConvInteger,
        x=x.x,
        w=constant(rewriter, np.ones((shape[1], 1, *op.kernel), np.int8)),
        x_zero_point=x.zero_point,
        strides=op.strides,
        pads=op.pads,
        dilations=op.dilations,
        groups=shape[1],
    )
    inside = np.ones((1, 1, *shape[2:]))
    cells = tuple(range(-len(op.kernel), 0))
    counts = op.windows(inside, 1 if op.count_include_pad else 0).sum(axis=cells)
    if (counts == counts.reshape(-1)[:1]).all():
        counts = counts.reshape(-1)[0]
    return Product(made.y, x.scale / counts)


def _mean(rewriter: Rewriter, op: ReduceMean) -> Product:
    x = factor_of(rewriter, op.x, "the operand")
    count = _length(op.x, op.axes)
    if x.axis is not None or op.dynamic_axes is not None or not op.axes or not count:
        no_match("it is not the mean over known axes of integers of one scale")
    _most(count, x, None)
    e = Expression(rewriter)
    wide = e.cast(x.x, "i32")
    if x.zero_point is not None:
        wide = e.sub(wide, e.cast(x.zero_point, "i32"))
    sums = rewriter.create(ReduceSum, x=wide, axes=op.axes, keepdims=op.keepdims)
    return Product(sums.y, x.scale / count)


# -- matrix products --------------------------------------------------------------------------------


def _matmul(rewriter: Rewriter, op: MatMul) -> Product:
    return _matmul_sums(rewriter, op)[0]


def _matmul_sums(rewriter: Rewriter, op: MatMul) -> tuple[Product, int]:
    """The product, and the largest magnitude of its sums."""
    a, b = (
        factor_of(rewriter, op.a, "the left operand"),
        factor_of(rewriter, op.b, "the right operand"),
    )
    ranks = rank_of(op.a), rank_of(op.b)
    rows = ranks[0] - (1 if op.transpose_a else 2)
    columns = ranks[1] - (2 if op.transpose_b else 1)
    if a.axis is not None and (a.axis != rows or ranks[0] < 2):
        no_match("the left operand's scales are not those of rows")
    if b.axis is not None and (b.axis != columns or ranks[1] < 2):
        no_match("the right operand's scales are not those of columns")
    if a.axis is not None and ranks[1] < 2:
        no_match("rows of a product with a vector have scales")
    inner = ranks[0] - (2 if op.transpose_a else 1)
    most = _most(_length(op.a, [inner]), a, b)
    made = rewriter.create(
        MatMulInteger,
        a=a.x,
        b=b.x,
        a_zero_point=a.zero_point,
        b_zero_point=b.zero_point,
        **op.attributes(),
    )
    left = a.scale.reshape(-1, 1) if a.scale.ndim else a.scale
    return Product(made.y, left * b.scale), most


def _biased(rewriter: Rewriter, op: Add) -> Product:
    """A matrix product with a bias behind it."""
    for value, bias in ((op.a, op.b), (op.b, op.a)):
        inner = producer(value, MatMul)
        if inner is not None and has_one_use(value) and is_bias(bias):
            product, most = _matmul_sums(rewriter, inner)
            if product.scale.ndim > 1:
                no_match("rows have scales of their own")
            return _with_bias(rewriter, product, bias, most, ())
    return no_match("it is not a matrix product with a bias")


def is_bias(value: Value) -> bool:
    """Whether a value is a vector that is dequantized from int32 constants."""
    source = producer(value, Dequantize)
    return (
        source is not None
        and dtype_of(source.x) == "i32"
        and rank_of(source.x) <= 1
        and const_of(source.x) is not None
    )


def _elementwise(rewriter: Rewriter, op: Mul) -> Product:
    """The products of elements."""
    factors = [factor_of(rewriter, v, "an operand") for v in (op.a, op.b)]
    if any(f.axis is not None for f in factors):
        no_match("an operand has several scales")
    e = Expression(rewriter)
    wide: list[Value] = []
    for f in factors:
        value = e.cast(f.x, "i32")
        wide.append(value if f.zero_point is None else e.sub(value, e.cast(f.zero_point, "i32")))
    return Product(e.mul(*wide), factors[0].scale * factors[1].scale)


_PRODUCTS: Sequence[tuple[type[Op], Callable[[Rewriter, Any], Product]]] = (
    (Conv, _conv),
    (MatMul, _matmul),
    (Add, _biased),
    (Mul, _elementwise),
    (ReduceMean, _mean),
    (AveragePool, _average_pool),
)
