"""Sizes that may be symbols, and the sliding window of convolutions and pools."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Size = int | str
"""A size: an integer, a symbol such as "d0", or a product of these such as "d0*d1"."""


def resolve(size: Size, sizes: Mapping[str, Any]) -> Any:
    """The value of a size, given the values of the symbols (anything that multiplies)."""
    if isinstance(size, int):
        return size
    return math.prod(int(f) if f.isdigit() else sizes[f] for f in size.split("*"))


@dataclass(frozen=True)
class Window:
    """A window that slides over a padded image.

    Attributes:
        kernel: height and width.
        strides: steps along height and width.
        pads: top, left, bottom, right; not negative, may differ.
        dilations: distances between the window's rows and columns.
    """

    kernel: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilations: tuple[int, int] = (1, 1)

    def span(self, axis: int) -> int:
        """How many rows (axis 0) or columns (axis 1) one window covers."""
        return (self.kernel[axis] - 1) * self.dilations[axis] + 1

    def slack(self, axis: int) -> int:
        """What is added to the size of the image before it is divided by the stride."""
        return self.pads[axis] + self.pads[axis + 2] - self.span(axis)

    def output(self, axis: int, size: Any) -> Any:
        """How many windows fit into an image of `size` rows or columns."""
        return (size + self.slack(axis)) // self.strides[axis] + 1
