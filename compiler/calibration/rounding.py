"""Which weights a calibration table rounds away from the nearest integer: from inputs of products that were kept."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from xcompile.compiler.calibration.sketch import Sketch, Window
from xcompile.compiler.quantize.plan import Product, QuantizationPlan
from xcompile.compiler.quantize.rounding import adaptive_flips, packed_flips
from xcompile.compiler.quantize.sharing import shared_ranges
from xcompile.compiler.quantize.table import Observed
from xcompile.compiler.quantize.weights import quantize_weights
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.conv import Conv, ConvTranspose

ROUNDINGS: Final = ("nearest", "adaround")
"""How weights are rounded."""


def check_rounding(name: str) -> None:
    """Raise unless there is such a rounding.

    Raises:
        CompileError: XC6005.
    """
    if name not in ROUNDINGS:
        raise CompileError(
            "XC6005", f"there is no rounding '{name}'", help=f"one of {', '.join(ROUNDINGS)}"
        )


class Rounding:
    """Keeps inputs of the products of a plan, and rounds their weights by them, but those of transposed convolutions.

    Attributes:
        sketch: the inputs that are kept.
    """

    def __init__(self, plan: QuantizationPlan) -> None:
        names = {value: name for name, value in plan.tensors.items()}
        products = [p for p in plan.products if not isinstance(p.op, ConvTranspose)]
        self._weights = {product.name: product.weights for product in products}
        self._inputs = {product.name: names[product.x] for product in products}
        self._ties = plan.ties
        self.sketch = Sketch({p.name: _window(p, names[p.x]) for p in products})

    def rounded(self, tensors: Mapping[str, Observed]) -> dict[str, str]:
        """For each product in which a weight is not the nearest integer, which ones are not (`packed_flips`).

        Args:
            tensors: the ranges of the products' inputs, whose numbers are clipped and rounded as they will be.
        """
        found: dict[str, str] = {}
        tensors = shared_ranges(self._ties, tensors)
        for name, weights in self._weights.items():
            rows = _quantized(self.sketch.rows(name), tensors[self._inputs[name]])
            integers, scales = quantize_weights(weights)
            wide, near = (array.reshape(len(weights), -1) for array in (weights, integers))
            groups = rows.shape[1]
            parts = zip(
                np.split(wide, groups),
                np.split(near, groups),
                np.split(scales, groups),
                strict=True,
            )
            flips = [adaptive_flips(*part, rows[:, g]) for g, part in enumerate(parts)]
            whole = np.concatenate(flips)
            if whole.any():
                found[name] = packed_flips(whole)
        return found


def _quantized(rows: np.ndarray, seen: Observed) -> np.ndarray:
    """Numbers as they are when they have been quantized."""
    scale, zero = seen.range.parameters()
    steps = np.clip(np.rint(rows / scale) + zero, 0, 255) - zero
    return steps.astype(np.float32) * scale


def _window(product: Product, tensor: str) -> Window:
    op = product.op
    if not isinstance(op, Conv):
        return Window(tensor)
    kernel = product.weights.shape[2:]
    return Window(tensor, op.groups, kernel, op.strides, op.dilations, op.pads, op.auto_pad)
