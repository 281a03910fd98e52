"""Cross-layer equalization: channels between two convolutions get ranges that are alike.

A factor for each channel is taken from one convolution and given to the next; ReLUs and pools between let it pass. What
the model computes stays the same up to rounding, and one scale for the whole tensor serves its channels better. After
Nagel et al., Data-Free Quantization through Weight Equalization and Bias Correction, 2019.
"""

from dataclasses import dataclass

import numpy as np

from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Value
from xcompile.compiler.ir.rewrite import has_one_use, maker
from xcompile.dialects.nn.base import dtype_of
from xcompile.dialects.nn.const import Const, const_of
from xcompile.dialects.nn.conv import Conv
from xcompile.dialects.nn.pool import AveragePool, MaxPool
from xcompile.dialects.nn.unary import LeakyRelu, Relu

_SWEEPS = 20
_CLOSE = 0.01
_MOST = 1024.0
"""The largest factor of a channel, all sweeps together."""


@dataclass
class _Weights:
    """A convolution's constants, in float64 while they are scaled."""

    conv: Conv
    w: np.ndarray
    bias: np.ndarray | None

    def rows(self) -> np.ndarray:
        """The greatest magnitude of each output channel's weights."""
        return np.abs(self.w).reshape(len(self.w), -1).max(axis=1)

    def columns(self) -> np.ndarray:
        """The greatest magnitude of the weights that each input channel is multiplied by."""
        groups, channels = self.conv.groups, self.w.shape[1]
        grouped = np.abs(self.w).reshape(groups, len(self.w) // groups, channels, -1)
        return grouped.max(axis=(1, 3)).reshape(-1)

    def divide_rows(self, factors: np.ndarray) -> None:
        """Divide output channels."""
        self.w = self.w / factors.reshape(-1, *[1] * (self.w.ndim - 1))
        if self.bias is not None:
            self.bias = self.bias / factors

    def multiply_columns(self, factors: np.ndarray) -> None:
        """Multiply the weights of input channels."""
        groups, channels = self.conv.groups, self.w.shape[1]
        grouped = self.w.reshape(groups, len(self.w) // groups, channels, -1)
        scaled = grouped * factors.reshape(groups, 1, channels, 1)
        self.w = scaled.reshape(self.w.shape)


def equalize_channels(module: Module) -> int:
    """Equalize what lies between convolutions of `@main`; in the module's context.

    Only results with one user count, and constant weights of float32 that are finite.

    Returns:
        How many pairs of convolutions were equalized.
    """
    known: dict[Conv, _Weights] = {}
    pairs: list[tuple[_Weights, _Weights]] = []
    for operation in module.main.regions[0].blocks[0].operations:
        conv = Conv.of(operation.operation)
        found = None if conv is None else _weights(module, conv)
        if conv is None or found is None:
            continue
        known[conv] = found
        before = _convolution_before(conv.x)
        if before is not None and before in known:
            pairs.append((known[before], found))
    totals = [np.ones(len(first.w)) for first, _ in pairs]
    for _ in range(_SWEEPS):
        changes = [_balance(*pair, total) for pair, total in zip(pairs, totals, strict=True)]
        if not changes or max(changes) < _CLOSE:
            break
    changed = {weights.conv: weights for pair in pairs for weights in pair}
    for weights in changed.values():
        _store(module, weights)
    return len(pairs)


def _balance(first: _Weights, second: _Weights, total: np.ndarray) -> float:
    """Make rows of one convolution and columns of the next equally large; the largest change."""
    rows, columns = first.rows(), second.columns()
    usable = (rows > 0) & (columns > 0)
    ratio = np.where(usable, rows, 1.0) / np.where(usable, columns, 1.0)
    factors = np.clip(np.sqrt(ratio) * total, 1 / _MOST, _MOST) / total
    first.divide_rows(factors)
    second.multiply_columns(factors)
    total *= factors
    return float(np.abs(factors - 1).max(initial=0))


def _weights(module: Module, conv: Conv) -> _Weights | None:
    """The constants of a convolution, None where they are none or not what can be scaled."""
    made = const_of(conv.w)
    bias = None if conv.bias is None else const_of(conv.bias)
    if made is None or dtype_of(conv.w) != "f32" or (conv.bias is not None and bias is None):
        return None
    w = made.array(module.weights).astype(np.float64)
    b = None if bias is None else bias.array(module.weights).astype(np.float64)
    if not w.size or not np.isfinite(w).all() or (b is not None and not np.isfinite(b).all()):
        return None
    return _Weights(conv, w, b)


def _convolution_before(x: Value) -> Conv | None:
    """The convolution whose result a value is, behind ReLUs and pools or not, with no other users."""
    op = maker(x)
    while isinstance(op, Relu | LeakyRelu | MaxPool | AveragePool) and has_one_use(x):
        x = op.x
        op = maker(x)
    return op if isinstance(op, Conv) and has_one_use(x) else None


def _store(module: Module, weights: _Weights) -> None:
    conv = weights.conv
    with ir.InsertionPoint(conv.operation), conv.location:
        w = Const.from_array(weights.w.astype(np.float32), module.weights)
        conv.operation.operands[1] = w.y
        if weights.bias is not None:
            bias = Const.from_array(weights.bias.astype(np.float32), module.weights)
            conv.operation.operands[2] = bias.y
