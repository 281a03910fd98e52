"""Ops of com.microsoft whose weights of a few bits have a scale for each block: products and embeddings.

They become explicit quantization: the op on `nn.dequantize` of constants.
"""

import numpy as np

from xcompile.compiler.ir.dtypes import DTYPES
from xcompile.compiler.ir.op import Value
from xcompile.dialects.nn.base import dtype_of, rank_of
from xcompile.dialects.nn.quantize import Dequantize
from xcompile.frontends.onnx.composition import Composition
from xcompile.frontends.onnx.context import NodeContext
from xcompile.frontends.onnx.ops_quantize_linear import MICROSOFT
from xcompile.frontends.onnx.registry import onnx_op

_BITS = (2, 4, 8)


def _bits_of(node: NodeContext) -> int:
    bits = node.attr("bits", 4)
    if bits not in _BITS:
        raise node.error("XC1006", f"{node.op_type} with {bits} bits")
    return bits


def _block_of(node: NodeContext, default: int | None = None) -> int:
    block = node.attr("block_size", default) if default else node.attr("block_size")
    if block < 16 or block & (block - 1):
        raise node.error("XC2007", f"a block size of {block}: it is a power of two from 16 on")
    return block


def _unpacked(packed: np.ndarray, bits: int) -> np.ndarray:
    """The codes in bytes, along the last axis; the first is in the lowest bits."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes = packed[..., np.newaxis] >> shifts & np.uint8((1 << bits) - 1)
    return codes.reshape(*packed.shape[:-1], -1)


def _signed(codes: np.ndarray, bits: int) -> np.ndarray:
    """Codes whose zero point is the middle of their range, as signed numbers without one."""
    numbers = codes.astype(np.int16) - (1 << (bits - 1))
    return numbers.astype(np.int8).astype(DTYPES[f"i{bits}"])


def _bytes(node: NodeContext, index: int, what: str) -> np.ndarray:
    """A constant input of packed codes."""
    array = _constant(node, index, what)
    if array.dtype != np.uint8 or not array.ndim:
        raise node.error(
            "XC2002", f"{what} of {node.op_type} are packed in uint8, not {array.dtype}"
        )
    return array


def _constant(node: NodeContext, index: int, what: str) -> np.ndarray:
    array = node.const(index)
    if array is None:
        raise node.error("XC1006", f"{node.op_type} with {what} that are no constant")
    return array


@onnx_op("MatMulNBits", domain=MICROSOFT)
def matmul_nbits(node: NodeContext) -> list[Value]:
    """`A·dequantized(B)ᵀ + bias` in float32, then as A's type; `accuracy_level` allows no less here.

    B is [N, blocks, bytes of a block]. Without zero points they are the middle of the range; they come packed as B is,
    or as numbers of A's type.
    """
    if node.has_input(4):
        raise node.error("XC1006", "MatMulNBits with g_idx, which its definition withdraws")
    if node.attr("weight_prepacked", 0):
        raise node.error("XC1006", "MatMulNBits with weights in the layout of one device")
    bits, block = _bits_of(node), _block_of(node)
    k, n = node.attr("K"), node.attr("N")
    blocks = -(-k // block)
    packed = _bytes(node, 1, "weights")
    if k < 1 or n < 1 or packed.size != n * blocks * block * bits // 8:
        raise node.error("XC2003", f"{packed.size} bytes of weights for K={k} and N={n}")
    codes = _unpacked(packed.reshape(n, -1), bits)[:, :k]
    scales = _constant(node, 2, "scales")
    if scales.size != n * blocks:
        raise node.error("XC2003", f"{scales.size} scales for {n}·{blocks} blocks")
    c, a = Composition(node), node.input(0)
    weights = _weights(node, c, codes, scales.reshape(n, blocks), bits, block)
    y = c.matmul(c.cast(a, "f32"), weights, transpose_b=True)
    if node.has_input(5):
        y = c.add(y, c.cast(node.input(5), "f32"))
    return [c.cast(y, dtype_of(a))]


def _weights(
    node: NodeContext, c: Composition, codes: np.ndarray, scales: np.ndarray, bits: int, block: int
) -> Value:
    """The matrix of weights [N, K]; zero points that are no whole numbers are applied now."""
    if scales.dtype != np.float16:
        scales = scales.astype(np.float32)
    blocks, zeros = scales.shape[1], None
    if not node.has_input(3):
        numbers = _signed(codes, bits)
    else:
        given = _constant(node, 3, "zero points")
        packed = given.dtype == np.uint8
        if given.size != len(codes) * (-(-blocks * bits // 8) if packed else blocks):
            raise node.error("XC2003", f"{given.size} zero points for {len(codes)}·{blocks} blocks")
        if packed:
            given = _unpacked(given.reshape(len(codes), -1), bits)[:, :blocks]
        zeros = given.reshape(scales.shape).astype(np.float32)
        if not ((zeros == np.rint(zeros)) & (zeros >= 0) & (zeros < 1 << bits)).all():
            places = np.arange(codes.shape[1]) // block
            floats = (codes - zeros[:, places]) * scales[:, places].astype(np.float32)
            return c.constant(floats)
        numbers = codes.astype(DTYPES[f"ui{bits}"])
        zeros = zeros.astype(np.uint8).astype(DTYPES[f"ui{bits}"])
    return c.make(
        Dequantize,
        x=c.constant(numbers),
        scale=c.constant(scales),
        zero_point=None if zeros is None else c.constant(zeros),
        axis=1,
        block=block,
        to="f32",
    )


@onnx_op("GatherBlockQuantized", domain=MICROSOFT)
def gather_block_quantized(node: NodeContext) -> list[Value]:
    """Rows of a quantized table, as the scales' type. An index out of range ends the run with an error."""
    c, x, zeros = Composition(node), node.input(0), node.optional(3)
    block, rank = _block_of(node, 128), node.rank(0)
    gather, axis = node.axis(node.attr("gather_axis", 0), rank), node.attr("quantize_axis", 1)
    axis = node.axis(axis, rank)
    if node.dtype(0) not in ("i4", "ui4", "ui8"):
        raise node.error("XC1006", f"GatherBlockQuantized of {node.dtype(0)}")
    if node.dtype(0) == "ui8":
        bits = _bits_of(node)
        if gather:
            raise node.error("XC2007", f"GatherBlockQuantized of bytes along axis {gather}")
        codes = _unpacked(_bytes(node, 0, "elements"), bits)
        if zeros is None:
            x = c.constant(_signed(codes, bits))
        else:
            blocks = -(-codes.shape[axis] // block)
            points = _unpacked(_bytes(node, 3, "zero points"), bits)
            points = points[..., :blocks] if axis == rank - 1 else points
            kind = DTYPES[f"ui{bits}"]
            x, zeros = c.constant(codes.astype(kind)), c.constant(points.astype(kind))
    scale = node.input(2)
    if rank_of(scale) != rank:
        raise node.error("XC2003", f"scales of rank {rank_of(scale)} for elements of rank {rank}")
    table = c.make(
        Dequantize,
        x=x,
        scale=scale,
        zero_point=zeros,
        axis=axis,
        block=block,
        to=dtype_of(scale),
    )
    return [c.gather(table, node.input(1), gather)]
