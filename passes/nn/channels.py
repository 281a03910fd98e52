"""Constants that belong to channels: what the folding passes share."""

import numpy as np

from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.op import Op, Value
from xcompile.compiler.ir.rewrite import Rewriter, no_match
from xcompile.dialects.nn.base import rank_of
from xcompile.dialects.nn.const import const_of
from xcompile.dialects.nn.conv import Conv, ConvTranspose
from xcompile.passes.common.constants import array_of, constant, narrowed


def channels_of(conv: Conv | ConvTranspose) -> int:
    """The number of output channels; leaves the pattern when the weights have no fixed shape."""
    shape = ir.RankedTensorType(conv.w.type).shape
    channels = shape[0] if isinstance(conv, Conv) else shape[1] * conv.groups
    if channels < 0:
        no_match("the number of channels is not fixed")
    return channels


def per_channel(
    rewriter: Rewriter, value: Value, like: Value, channels: int, axis: int = 1
) -> np.ndarray:
    """A constant that broadcasts to `like` without enlarging it and differs along one axis only, in float64.

    Leaves the pattern for everything else.

    Returns:
        An array of `channels` elements.
    """
    made = const_of(value)
    if made is None:
        no_match("no operand is a constant")
    rank, dims = rank_of(like), made.dims
    if len(dims) > rank:
        no_match("the constant adds axes")
    full = (1,) * (rank - len(dims)) + dims
    axis %= rank
    if any(size != 1 for i, size in enumerate(full) if i != axis):
        no_match("the constant differs along other axes than the channels")
    if full[axis] not in (1, channels):
        no_match("the constant has another number of channels")
    array = made.array(rewriter.weights).astype(np.float64).reshape(-1)
    return np.broadcast_to(array, (channels,))


def scaled_weights(rewriter: Rewriter, conv: Conv | ConvTranspose, scale: np.ndarray) -> np.ndarray:
    """The weights with each output channel multiplied by its factor, in their own dtype."""
    w = array_of(rewriter, conv.w, "the weight")
    rest = (1,) * (w.ndim - 2)
    with np.errstate(all="ignore"):
        if isinstance(conv, Conv):
            folded = w.astype(np.float64) * scale.reshape(-1, 1, *rest)
        else:
            grouped = w.astype(np.float64).reshape(conv.groups, -1, *w.shape[1:])
            folded = (grouped * scale.reshape(conv.groups, 1, -1, *rest)).reshape(w.shape)
    return narrowed(folded, w.dtype)


def bias_of(rewriter: Rewriter, conv: Conv | ConvTranspose, channels: int) -> np.ndarray:
    """The bias in float64, zeros when there is none; leaves the pattern when it is not a constant."""
    if conv.bias is None:
        return np.zeros(channels)
    return array_of(rewriter, conv.bias, "the bias").astype(np.float64)


def replace_conv(
    rewriter: Rewriter,
    op: Op,
    conv: Conv | ConvTranspose,
    *,
    weights: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    x: Value | None = None,
) -> None:
    """Replace `op` by the convolution with other constants; the old ones stay as they are for other users.

    Args:
        rewriter: of the pattern.
        op: the op whose result the new convolution gives.
        conv: the convolution to copy.
        weights: new weights, when they change.
        bias: a new bias in float64, when it changes.
        x: a new input, when it changes.
    """
    dtype = array_of(rewriter, conv.w, "the weight").dtype if weights is None else weights.dtype
    new_bias = None if bias is None else narrowed(bias, dtype)
    fields = {**conv.operand_fields(), **conv.attributes()}
    if weights is not None:
        fields["w"] = constant(rewriter, weights)
    if new_bias is not None:
        fields["bias"] = constant(rewriter, new_bias)
    if x is not None:
        fields["x"] = x
    rewriter.replace(op, rewriter.create(type(conv), **fields))
