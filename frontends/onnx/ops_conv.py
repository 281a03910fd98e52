"""Convolutions."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.op import Value
from xcompile.dialects.nn.base import numpy_dtype
from xcompile.dialects.nn.conv import Conv, ConvTranspose
from xcompile.dialects.nn.slicing import Pad
from xcompile.dialects.nn.spatial import same_pads
from xcompile.frontends.onnx.composition import Composition
from xcompile.frontends.onnx.context import NodeContext
from xcompile.frontends.onnx.registry import onnx_op


def static_sizes(value: Value) -> list[int | None]:
    """The sizes of a value's type, None where they are not known."""
    kind = ir.ShapedType(value.type)
    return [None if kind.is_dynamic_dim(i) else kind.get_dim_size(i) for i in range(kind.rank)]


def window_pads(
    node: NodeContext,
    sizes: Sequence[int | None],
    kernel: Sequence[int | None],
    window: dict[str, tuple[int, ...]],
) -> dict[str, object]:
    """The `pads` and `auto_pad` fields of a convolution or pool: `auto_pad` resolved wherever the
    sizes are known.
    """
    rank = len(kernel)
    auto_pad = node.attr("auto_pad", "NOTSET")
    if auto_pad == "NOTSET":
        return {"pads": node.attr("pads", (0,) * (2 * rank))}
    if auto_pad == "VALID":
        return {"pads": (0,) * (2 * rank)}
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        raise node.error("XC2007", f"auto_pad is '{auto_pad}'")
    upper = auto_pad == "SAME_UPPER"
    known = [(n, k) for n, k in zip(sizes, kernel, strict=True) if n is not None and k is not None]
    if len(known) < rank or any(len(v) != rank or min(v, default=1) < 1 for v in window.values()):
        return {"pads": (0,) * (2 * rank), "auto_pad": auto_pad.lower()}
    pads = [
        same_pads(n, k, stride=s, dilation=d, upper=upper)
        for (n, k), s, d in zip(known, window["strides"], window["dilations"], strict=True)
    ]
    return {"pads": tuple(b for b, _ in pads) + tuple(e for _, e in pads)}


def kernel_of(node: NodeContext, w: int = 1) -> list[int | None]:
    """The kernel's sizes from the weights, input `w`; a `kernel_shape` must say the same."""
    if node.rank(0) < 3 or node.rank(w) != node.rank(0):
        raise node.error(
            "XC2003",
            f"{node.op_type} of an input of rank {node.rank(0)} with weights of rank {node.rank(w)}",
        )
    kernel = static_sizes(node.input(w))[2:]
    stated = node.attr("kernel_shape", None)
    if stated is not None and (
        len(stated) != len(kernel)
        or any(k is not None and k != s for k, s in zip(kernel, stated, strict=True))
    ):
        raise node.error(
            "XC2007", f"kernel_shape {stated} is not that of the weights, {tuple(kernel)}"
        )
    return kernel if stated is None else list(stated)


def conv_fields(node: NodeContext, w: int = 1, x: Value | None = None) -> dict[str, Any]:
    """The attributes of a convolution of `x`, else of input 0, with the weights that are input `w`."""
    kernel = kernel_of(node, w)
    ones = (1,) * len(kernel)
    window = {"strides": node.attr("strides", ones), "dilations": node.attr("dilations", ones)}
    sizes = static_sizes(node.input(0) if x is None else x)[2:]
    pads = window_pads(node, sizes, kernel, window)
    return {"groups": node.attr("group", 1), **window, **pads}


@onnx_op("Conv")
def conv(node: NodeContext) -> list[Value]:
    x, w, bias = node.input(0), node.input(1), node.optional(2)
    return [node.make(Conv, x=x, w=w, bias=bias, **conv_fields(node)).y]


@onnx_op("ConvTranspose")
def conv_transpose(node: NodeContext) -> list[Value]:
    kernel = kernel_of(node)
    rank = len(kernel)
    ones = (1,) * rank
    window = {
        "strides": node.attr("strides", ones),
        "dilations": node.attr("dilations", ones),
        "output_pads": node.attr("output_padding", (0,) * rank),
    }
    for name, values in window.items():
        if len(values) != rank:
            raise node.error(
                "XC2007", f"{name} has {len(values)} elements; {rank} spatial axes need {rank}"
            )
    fields = {"x": node.input(0), "w": node.input(1), "groups": node.attr("group", 1), **window}
    wanted = node.attr("output_shape", None)
    if wanted is not None and None in (*static_sizes(node.input(0))[2:], *kernel):
        whole = node.make(ConvTranspose, bias=None, pads=(0,) * (2 * rank), **fields).y
        return [_cut_to(node, whole, wanted[len(wanted) - rank :])]
    pads = _transpose_pads(node, kernel, window)
    return [node.make(ConvTranspose, bias=node.optional(2), pads=pads, **fields).y]


def _cut_to(node: NodeContext, whole: Value, wanted: Sequence[int]) -> Value:
    """The unpadded result of a transposed convolution cut (or widened) to the wanted sizes, and its bias added."""
    c, rank = Composition(node), len(wanted)
    total = c.sub(c.shape(whole, 2), c.ints(*wanted))
    small = c.div(c.sub(total, c.mod(total, 2)), 2)
    large = c.sub(total, small)
    upper = node.attr("auto_pad", "NOTSET") == "SAME_UPPER"
    ends = (small, large) if upper else (large, small)
    pads = c.concat([c.sub(0, end) for end in ends], 0)
    y = c.make(Pad, x=whole, pads=pads, axes=c.ints(*range(2, 2 + rank)))
    bias = node.optional(2)
    return y if bias is None else c.add(y, c.per_channel(bias, 2 + rank))


_MOST_AXES = 8
"""Of the blocks of Col2Im; a convolution has not nearly so many."""

_MOST_CELLS = 2048
"""Of a block of Col2Im: the weights have the square of that."""


@onnx_op("Col2Im", since=18)
def col2im(node: NodeContext) -> list[Value]:
    """Blocks summed up in an image: a transposed convolution whose weights put each element at its own place."""
    image, block = node.const_ints(1), node.const_ints(2)
    if image is None or block is None:
        raise node.error("XC2010", "the shapes of image and blocks of Col2Im must be constants")
    rank, c = len(block), Composition(node)
    if not 1 <= rank <= _MOST_AXES or math.prod(block) > _MOST_CELLS:
        raise node.error("XC1006", f"Col2Im of blocks of the shape {block[:_MOST_AXES]}")
    window = {name: node.attr(name, (1,) * rank) for name in ("strides", "dilations")}
    pads = node.attr("pads", (0,) * (2 * rank))
    if len(image) != rank or any(len(v) != rank for v in window.values()) or len(pads) != 2 * rank:
        raise node.error("XC2007", "shapes and attributes of Col2Im differ in rank")
    counts: list[int] = []
    left: list[int] = []
    for i in range(rank):
        stride, extent = window["strides"][i], (block[i] - 1) * window["dilations"][i] + 1
        room = image[i] + pads[i] + pads[rank + i] - extent
        if stride < 1 or extent < 1 or room < 0:
            raise node.error("XC2007", f"no block of Col2Im fits along axis {i}")
        counts.append(room // stride + 1)
        left.append(room % stride)
    cells = math.prod(block)
    weights = np.eye(cells).reshape(cells, 1, *block)
    x = c.reshape(node.input(0), (-1, cells, *counts))
    made = node.make(
        ConvTranspose,
        x=x,
        w=c.constant(weights.astype(numpy_dtype(x))),
        bias=None,
        pads=pads,
        output_pads=tuple(left),
        **window,
    )
    lead = c.shape(node.input(0), 0, 1)
    return [c.reshape(made.y, c.concat([lead, c.ints(-1, *image)], 0))]


def _transpose_pads(
    node: NodeContext, kernel: Sequence[int | None], window: dict[str, tuple[int, ...]]
) -> tuple[int, ...]:
    """The pads of a transposed convolution: stated, or such that sizes are those wanted or grow by
    the strides.
    """
    rank = len(kernel)
    auto_pad = node.attr("auto_pad", "NOTSET")
    wanted = node.attr("output_shape", None)
    if wanted is None and auto_pad in ("NOTSET", "VALID"):
        return node.attr("pads", (0,) * (2 * rank)) if auto_pad == "NOTSET" else (0,) * (2 * rank)
    sizes = static_sizes(node.input(0))[2:]
    begins, ends = [], []
    for i in range(rank):
        stride, size, k = window["strides"][i], sizes[i], kernel[i]
        if k is None or (wanted is not None and size is None):
            raise node.error(
                "XC2010", "the padding of ConvTranspose depends on sizes that are not known"
            )
        extent = (k - 1) * window["dilations"][i] + 1 + window["output_pads"][i]
        if wanted is None:
            total = max(extent - stride, 0)
        else:
            total = stride * ((size or 0) - 1) + extent - wanted[len(wanted) - rank + i]
        small = total // 2
        begins.append(small if auto_pad == "SAME_UPPER" else total - small)
        ends.append(total - begins[-1])
    return (*begins, *ends)
