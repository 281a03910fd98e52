"""Convolutions."""

from collections.abc import Sequence

from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.op import Value
from xcompile.dialects.nn.conv import Conv, ConvTranspose
from xcompile.dialects.nn.spatial import same_pads
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


def _kernel(node: NodeContext) -> list[int | None]:
    """The kernel's sizes from the weights; a `kernel_shape` must say the same."""
    if node.rank(0) < 3 or node.rank(1) != node.rank(0):
        raise node.error(
            "XC2003",
            f"{node.op_type} of an input of rank {node.rank(0)} with weights of rank {node.rank(1)}",
        )
    kernel = static_sizes(node.input(1))[2:]
    stated = node.attr("kernel_shape", None)
    if stated is not None and (
        len(stated) != len(kernel)
        or any(k is not None and k != s for k, s in zip(kernel, stated, strict=True))
    ):
        raise node.error(
            "XC2007", f"kernel_shape {stated} is not that of the weights, {tuple(kernel)}"
        )
    return kernel if stated is None else list(stated)


@onnx_op("Conv")
def conv(node: NodeContext) -> list[Value]:
    kernel = _kernel(node)
    ones = (1,) * len(kernel)
    window = {"strides": node.attr("strides", ones), "dilations": node.attr("dilations", ones)}
    made = node.make(
        Conv,
        x=node.input(0),
        w=node.input(1),
        bias=node.optional(2),
        groups=node.attr("group", 1),
        **window,
        **window_pads(node, static_sizes(node.input(0))[2:], kernel, window),
    )
    return [made.y]


@onnx_op("ConvTranspose")
def conv_transpose(node: NodeContext) -> list[Value]:
    kernel = _kernel(node)
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
    made = node.make(
        ConvTranspose,
        x=node.input(0),
        w=node.input(1),
        bias=node.optional(2),
        groups=node.attr("group", 1),
        pads=_transpose_pads(node, kernel, window),
        **window,
    )
    return [made.y]


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
