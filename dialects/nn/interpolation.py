"""Where the elements of a resized axis come from, and with which weights. ONNX Resize.

Resizing is separable: each axis has `taps` source places and weights for each of its output places.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)
MODES = ("nearest", "linear", "cubic")
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")

_NICE = 1024


def fraction_of(scale: float) -> Fraction:
    """The simplest fraction that is `scale` in float32, if its denominator is at most 1024, else
    `scale` exactly.

    Exporters write 7 / 10 as the nearest float32, which is less: ⌊10·scale⌋ must be 7 all the same.
    """
    nice = Fraction(scale).limit_denominator(_NICE)
    return nice if np.float32(float(nice)) == np.float32(scale) else Fraction(scale)


@dataclass(frozen=True)
class Axis:
    """How one axis is resized.

    Attributes:
        size: elements of the input.
        count: elements of the output.
        scale: output elements per input element, as stated or count / size.
        start: begin of the cropped region as a fraction of the axis (tf_crop_and_resize).
        end: its end.
    """

    size: int
    count: int
    scale: float
    start: float = 0.0
    end: float = 1.0

    def coordinates(self, mode: str) -> np.ndarray:
        """The place in the input, float64, of each output element."""
        i = np.arange(self.count, dtype=np.float64)
        last = self.size - 1
        if mode == "asymmetric":
            return i / self.scale
        if mode == "align_corners":
            return i * last / (self.count - 1) if self.count > 1 else i * 0
        if mode == "tf_half_pixel_for_nn":
            return (i + 0.5) / self.scale
        if mode == "tf_crop_and_resize":
            if self.count > 1:
                return self.start * last + i * (self.end - self.start) * last / (self.count - 1)
            return i + 0.5 * (self.start + self.end) * last
        if mode == "pytorch_half_pixel" and self.count <= 1:
            return i * 0
        half = (i + 0.5) / self.scale - 0.5
        if mode == "half_pixel_symmetric":
            return half + self.size / 2 * (1 - self.count / (self.scale * self.size))
        return half


def nearest_places(x: np.ndarray, rule: str, size: int) -> np.ndarray:
    """The source place of each output element: coordinates rounded by `rule` and clamped to the axis."""
    if rule == "floor":
        place = np.floor(x)
    elif rule == "ceil":
        place = np.ceil(x)
    elif rule == "round_prefer_floor":
        place = np.ceil(x - 0.5)
    else:
        place = np.floor(x + 0.5)
    return np.clip(place, 0, size - 1).astype(np.int64)


def weighted_places(
    x: np.ndarray,
    size: int,
    *,
    cubic: bool,
    a: float = -0.75,
    shrink: float = 1.0,
    exclude_outside: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Source places and weights, each [count, taps].

    Args:
        x: the coordinates.
        size: elements of the input; places outside are clamped to its edges.
        cubic: cubic convolution with coefficient `a`, else linear.
        a: the coefficient.
        shrink: below 1 widens the filter by its inverse, which removes aliases.
        exclude_outside: places outside have no weight, and the others are scaled to sum 1.
    """
    reach = int(np.ceil((2 if cubic else 1) / shrink))
    base = np.floor(x)
    places = base[:, None] + np.arange(1 - reach, reach + 1)
    distance = np.abs(places - x[:, None]) * shrink
    weights = _cubic(distance, a) if cubic else np.clip(1 - distance, 0, None)
    if exclude_outside:
        weights = np.where((places >= 0) & (places < size), weights, 0)
    if exclude_outside or shrink < 1:
        with np.errstate(invalid="ignore", divide="ignore"):  # a place far outside has no weights
            weights = weights / weights.sum(axis=1, keepdims=True)
    return np.clip(places, 0, size - 1).astype(np.int64), weights


def _cubic(d: np.ndarray, a: float) -> np.ndarray:
    """Keys' cubic convolution kernel at distance d >= 0 (Keys 1981, eq. 4 generalized)."""
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))
