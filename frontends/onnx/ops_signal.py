"""Signals: Fourier transforms as matrix products, and what is built on them."""

import math

import numpy as np

from xcompile.compiler.ir.op import Value
from xcompile.dialects.nn.base import dtype_of, numpy_dtype, rank_of
from xcompile.dialects.nn.reduce import ReduceSum
from xcompile.dialects.nn.unary import Cos, Neg, Sin
from xcompile.frontends.onnx.composition import Composition
from xcompile.frontends.onnx.context import NodeContext
from xcompile.frontends.onnx.ops_conv import static_sizes
from xcompile.frontends.onnx.registry import onnx_op
from xcompile.frontends.onnx.tensors import dtype_name

_MOST_ELEMENTS = 1 << 22
"""Larger matrices are computed when the model runs."""


def _positive(node: NodeContext, index: int, what: str) -> Value:
    """An input of one element that must be positive, as an int64 scalar; checked by the run where it is data."""
    c, stated = Composition(node), node.const_ints(index)
    value = c.cast(node.one_element(node.input(index)), "i64")
    if stated is None:
        return c.checked(value, c.greater(value, 0))
    if stated[0] < 1:
        raise node.error("XC2007", f"the {what} of {node.op_type} is {stated[0]}")
    return value


class _Transform:
    """Fourier transforms of `length` numbers along the last axis of a real or complex signal, in float64.

    A sum of n products in float32 would be off by n roundings, where a fast transform is off by log n.
    """

    def __init__(self, c: Composition, length: Value, known: int | None) -> None:
        self._c = c
        self._length = length
        self._known = known

    def waves(self, inputs: Value, outputs: Value, known: tuple[int, int] | None) -> list[Value]:
        """Matrices of cos and sin of 2π·n·k / length for n below `inputs`, k below `outputs`."""
        c = self._c
        if self._known and known and known[0] * known[1] <= _MOST_ELEMENTS:
            turns = np.outer(np.arange(known[0]), np.arange(known[1])) % self._known
            angles = turns * (2 * math.pi / self._known)
            return [c.constant(f(angles)) for f in (np.cos, np.sin)]
        rows, columns = c.unsqueeze(c.range(inputs), 1), c.unsqueeze(c.range(outputs), 0)
        turns = c.cast(c.mod(c.mul(rows, columns), self._length), "f64")
        angles = c.div(c.mul(turns, 2 * math.pi), c.cast(self._length, "f64"))
        return [c.unary(f, angles) for f in (Cos, Sin)]

    def half(self) -> Value:
        """The number of one-sided outputs: length // 2 + 1."""
        return self._c.add(self._c.div(self._length, 2), 1)

    def apply(
        self, parts: list[Value], *, inverse: bool, outputs: Value, known: int | None
    ) -> list[Value]:
        """Real and imaginary part of the transform of [real] or [real, imaginary]."""
        c = self._c
        size = static_sizes(parts[0])[-1]
        rank = rank_of(parts[0])
        both = (size, known) if size is not None and known is not None else None
        cos, sin = self.waves(c.size(parts[0], rank - 1), outputs, both)
        real, imaginary = c.matmul(parts[0], cos), c.matmul(parts[0], sin)
        if not inverse:
            imaginary = c.unary(Neg, imaginary)
        if len(parts) == 2:
            turned = c.matmul(parts[1], sin)
            real = c.sub(real, turned) if inverse else c.add(real, turned)
            imaginary = c.add(imaginary, c.matmul(parts[1], cos))
        if not inverse:
            return [real, imaginary]
        count = c.cast(self._length, dtype_of(real))
        return [c.div(real, count), c.div(imaginary, count)]


def transformed(
    node: NodeContext,
    x: Value,
    axis: int,
    length: Value | None,
    *,
    known: int | None = None,
    inverse: bool = False,
    onesided: bool = False,
) -> Value:
    """The transform of `x` [..., 1 or 2] along `axis`; `length` is that of the axis where it is None.

    `known` is the length where that is a constant.
    """
    c, rank = Composition(node), rank_of(x)
    width = static_sizes(x)[-1]
    if width not in (1, 2, None) or not 0 <= axis < rank - 1:
        raise node.error("XC2003", f"a transform along axis {axis} of rank {rank}, width {width}")
    if onesided and not inverse and width == 2:
        raise node.error("XC2007", "a one-sided transform of a complex signal")
    folded = onesided and inverse
    size = static_sizes(x)[axis]
    if length is None:
        length, known = c.size(x, axis), size
        if folded:
            length = c.mul(c.sub(length, 1), 2)
            known = None if known is None else 2 * (known - 1)
    order = [i for i in range(rank - 1) if i != axis] + [axis]
    count = 1 if width == 1 or (onesided and not inverse) else 2
    parts = [c.transpose(_part(c, x, i), order) for i in range(count)]
    transform = _Transform(c, length, known)
    used = transform.half() if folded else length
    parts = [c.head(part, rank - 2, used) for part in parts]
    if folded:
        parts = [_folded(c, part, length) for part in parts]
    outputs = transform.half() if onesided and not inverse else length
    bins = None if known is None else known // 2 + 1 if onesided and not inverse else known
    made = transform.apply(parts, inverse=inverse, outputs=outputs, known=bins)
    back = [order.index(i) for i in range(rank - 1)]
    wanted = made[:1] if folded else made
    stacked = c.concat([c.unsqueeze(c.transpose(p, back), rank - 1) for p in wanted], rank - 1)
    return c.cast(stacked, dtype_of(x))


def _part(c: Composition, x: Value, number: int) -> Value:
    """The real (0) or imaginary part in float64; 0 where a last axis of unknown size turns out to have no such part."""
    last = rank_of(x) - 1
    part = c.slice(c.cast(x, "f64"), last, number, number + 1)
    if static_sizes(x)[last] is None:
        return c.reduce(ReduceSum, part, [last], keepdims=False)
    return c.squeeze(part, last)


def _folded(c: Composition, part: Value, length: Value) -> Value:
    """Half a spectrum with the weights that stand for the other half: 2, but 1 at 0 and at length / 2."""
    places = c.range(c.size(part, rank_of(part) - 1))
    alone = c.either(c.equal(places, 0), c.equal(c.mul(places, 2), length))
    two = c.constant(np.full((), 2, numpy_dtype(part)))
    return c.mul(part, c.where(alone, 1, two))


@onnx_op("DFT", since=17)
def dft_along_attribute(node: NodeContext) -> list[Value]:
    return _dft(node, node.attr("axis", 1))


@onnx_op("DFT", since=20)
def dft(node: NodeContext) -> list[Value]:
    axis = node.const_ints(2) if node.has_input(2) else (-2,)
    if axis is None or len(axis) != 1:
        raise node.error("XC2010", "the axis of DFT must be a constant")
    return _dft(node, axis[0])


def _dft(node: NodeContext, axis: int) -> list[Value]:
    length = _positive(node, 1, "length") if node.has_input(1) else None
    stated = node.const_ints(1)
    made = transformed(
        node,
        node.input(0),
        node.axis(axis, node.rank(0)),
        length,
        known=stated[0] if stated else None,
        inverse=bool(node.attr("inverse", 0)),
        onesided=bool(node.attr("onesided", 0)),
    )
    return [made]


@onnx_op("STFT", since=17)
def stft(node: NodeContext) -> list[Value]:
    """Frames are gathered, weighted by the window and transformed."""
    c, signal = Composition(node), node.input(0)
    if node.rank(0) == 2:
        signal = c.unsqueeze(signal, 2)
    if rank_of(signal) != 3:
        raise node.error("XC2003", f"STFT of a signal of rank {rank_of(signal)}")
    window = node.optional(2)
    if node.has_input(3):
        length = _positive(node, 3, "length")
    else:
        length = c.size(signal, 1) if window is None else c.size(window, 0)
    step = _positive(node, 1, "step")
    room = c.add(c.sub(c.size(signal, 1), length), step)
    frames = c.div(c.maximum(room, 0), step)
    starts = c.mul(c.range(frames), step)
    places = c.add(c.unsqueeze(starts, 1), c.unsqueeze(c.range(length), 0))
    framed = c.gather(signal, places, 1)
    if window is not None:
        framed = c.mul(framed, c.unsqueeze(window, 1))
    width = static_sizes(signal)[2]
    onesided = bool(node.attr("onesided", 1))
    if onesided and width is None:
        raise node.error("XC2010", "whether the signal is complex must be known: its last size")
    onesided = onesided and width == 1
    return [transformed(node, framed, 2, None, onesided=onesided)]


@onnx_op("MelWeightMatrix", since=17)
def mel_weight_matrix(node: NodeContext) -> list[Value]:
    given = [node.const(i) for i in range(5)]
    if any(array is None for array in given):
        raise node.error("XC2010", "MelWeightMatrix needs constant inputs")
    bands, length, rate, low, high = (float(a.reshape(())) for a in given if a is not None)
    dtype = dtype_name(node.attr("output_datatype", 1), "the result of MelWeightMatrix")
    matrix = mel_matrix(int(bands), int(length), int(rate), (low, high))
    c = Composition(node)
    return [c.cast(c.constant(matrix), dtype)]


def mel_matrix(bands: int, length: int, rate: int, edges: tuple[float, float]) -> np.ndarray:
    """Triangles over the bins of a one-sided spectrum, [length // 2 + 1, bands], float64."""
    low, high = (2595 * np.log10(1 + f / 700) for f in edges)
    mels = low + np.arange(bands + 2) * ((high - low) / (bands + 2))
    hertz = 700 * (10 ** (mels / 2595) - 1)
    corners = ((length + 1) * hertz // rate).astype(np.int64)
    bins = np.arange(length // 2 + 1)[:, None]
    left, top, right = corners[:-2], corners[1:-1], corners[2:]
    with np.errstate(divide="ignore", invalid="ignore"):
        rising = (bins - left) / (top - left)
        falling = (right - bins) / (right - top)
    matrix = np.where((bins >= left) & (bins <= top) & (top > left), rising, 0.0)
    matrix = np.where((bins >= top) & (bins < right) & (right > top), falling, matrix)
    return np.where((bins == top) & (top == left), 1.0, matrix)
