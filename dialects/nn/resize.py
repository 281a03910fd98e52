"""Resizing by interpolation along axes."""

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from xcompile.compiler.ir.op import Operand, Result
from xcompile.compiler.support.dims import Dim, known_positive, maximum, minimum
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.base import NnOp, Shape, Sizes, nn, rank_of
from xcompile.dialects.nn.interpolation import (
    COORDINATES,
    MODES,
    NEAREST,
    Axis,
    fraction_of,
    nearest_places,
    weighted_places,
)
from xcompile.dialects.nn.numeric import rounded
from xcompile.dialects.nn.precision import widened
from xcompile.dialects.nn.reshape import known_elements

_ASPECTS = ("stretch", "not_larger", "not_smaller")


@nn.op("resize")
class Resize(NnOp):
    """x resized along `axes`. ONNX Resize.

    What the new sizes are is said by `factors` (attribute) or `sizes` (int64), with one element an
    axis. A size is ⌊factor·size⌋, the factor taken as the simplest fraction that float32 rounds to
    it. Beside `sizes` may stand the `scales` (floats) that gave them: coordinates follow these.
    With `aspect` "not_larger" or "not_smaller" one scale serves all axes: the least or greatest of
    wanted size / size, and sizes are rounded half up. `roi` (begins, then ends, as fractions of the
    axes) is the region for the coordinates "tf_crop_and_resize"; elements outside x are
    `extrapolation`. The other attributes are ONNX's.
    """

    x: Operand
    sizes: Operand | None
    scales: Operand | None
    roi: Operand | None
    axes: tuple[int, ...]
    factors: tuple[float, ...] | None = None
    mode: str = "nearest"
    coordinates: str = "half_pixel"
    nearest: str = "round_prefer_floor"
    cubic_a: float = -0.75
    exclude_outside: bool = False
    extrapolation: float = 0.0
    antialias: bool = False
    aspect: str = "stretch"
    y: Result

    def verify(self) -> None:
        rank = rank_of(self.x)
        if len(set(self.axes)) != len(self.axes) or any(not 0 <= a < rank for a in self.axes):
            raise self.error("XC2006", f"axes {self.axes} are not distinct axes of rank {rank}")
        if (self.sizes is None) == (self.factors is None):
            raise self.error("XC2007", "resize needs either sizes or factors")
        if self.scales is not None and self.sizes is None:
            raise self.error(
                "XC2007", "the scales of a resize need the sizes that follow from them"
            )
        for operand in (self.sizes, self.scales, self.roi):
            if operand is not None and rank_of(operand) != 1:
                raise self.error(
                    "XC2003", f"sizes, scales or region of rank {rank_of(operand)}, not 1"
                )
        for value, words in (
            (self.mode, MODES),
            (self.coordinates, COORDINATES),
            (self.nearest, NEAREST),
            (self.aspect, _ASPECTS),
        ):
            if value not in words:
                raise self.error("XC2007", f"'{value}' is none of {', '.join(words)}")
        if (self.coordinates == "tf_crop_and_resize") != (self.roi is not None):
            raise self.error("XC2007", "tf_crop_and_resize, and nothing else, needs a region")
        if self.factors is not None:
            self._check_scales(self.factors)

    def _check_scales(self, scales: Sequence[float]) -> None:
        if len(scales) != len(self.axes):
            raise self.error("XC2007", f"{len(scales)} scales for {len(self.axes)} axes")
        if any(not (math.isfinite(s) and 0 < s <= 2**31) for s in scales):
            raise self.error("XC2007", f"scales {tuple(scales)}; each must be positive and finite")

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        shape = list(sizes.shape(self.x))
        for axis, size in zip(self.axes, self._new_sizes(sizes, shape), strict=True):
            shape[axis] = size
        return [tuple(shape)]

    def _new_sizes(self, sizes: Sizes, shape: Sequence[Dim]) -> Sequence[Dim]:
        if self.factors is not None:
            scales = [fraction_of(f) for f in self.factors]
            return [
                shape[a] * s.numerator // s.denominator
                for a, s in zip(self.axes, scales, strict=True)
            ]
        assert self.sizes is not None
        wanted = known_elements(self, sizes, self.sizes, len(self.axes))
        if len(wanted) != len(self.axes):
            raise self.error("XC2004", f"{len(wanted)} sizes for {len(self.axes)} axes")
        if any(isinstance(w, int) and w < 0 for w in wanted):
            raise self.error("XC2008", f"the sizes of a resize are {wanted}")
        if self.aspect == "stretch":
            return [sizes.define(w, "resize") for w in wanted]
        pairs = [(w, shape[a]) for w, a in zip(wanted, self.axes, strict=True)]
        choose = minimum if self.aspect == "not_larger" else maximum
        for _, n in pairs:
            what = "the aspect ratio of an empty tensor cannot be kept"
            if not known_positive(n):
                sizes.equal(minimum(n, 1), 1, what)
        # rounding keeps the order, so the least of the rounded sizes is the rounded least one
        return [
            sizes.define(
                choose(*((2 * w * shape[a] + n) // maximum(2 * n, 1) for w, n in pairs)), "resize"
            )
            for a in self.axes
        ]

    def _kept_aspect(self, pairs: Sequence[tuple[int, int]]) -> tuple[list[int], Fraction]:
        """New sizes and the common scale from pairs of wanted and present size."""
        if any(n == 0 for _, n in pairs):
            raise CompileError("XC2008", "the aspect ratio of an empty tensor cannot be kept")
        choose = min if self.aspect == "not_larger" else max
        scale = choose(Fraction(w, n) for w, n in pairs)
        return [math.floor(scale * n + Fraction(1, 2)) for _, n in pairs], scale

    def reference(
        self,
        x: np.ndarray,
        sizes: np.ndarray | None,
        scales: np.ndarray | None,
        roi: np.ndarray | None,
    ) -> np.ndarray:
        y = x if self.mode == "nearest" else widened(x)
        outside: list[tuple[int, np.ndarray]] = []
        for axis, plan in zip(self.axes, self.plan(x.shape, sizes, scales, roi), strict=True):
            place = plan.coordinates(self.coordinates)
            if plan.size == 0 and plan.count:
                raise CompileError("XC2011", "an empty axis cannot be resized to one with elements")
            if self.coordinates == "tf_crop_and_resize":
                outside.append((axis, (place < 0) | (place > plan.size - 1)))
            if (
                outside or plan.count != plan.size or plan.scale != 1
            ):  # a kept axis is not resampled
                y = self._along(y, axis, plan, place)
        for axis, mask in outside:
            y = np.where(
                mask.reshape([-1 if i == axis else 1 for i in range(x.ndim)]), self.extrapolation, y
            )
        return rounded(y, x.dtype)

    def plan(
        self,
        shape: Sequence[int],
        sizes: np.ndarray | None,
        scales: np.ndarray | None,
        roi: np.ndarray | None,
    ) -> list[Axis]:
        """How each of `axes` is resized, for an input of known shape."""
        present = [shape[a] for a in self.axes]
        region = np.zeros(0) if roi is None else roi.astype(np.float64)
        starts, ends = [0.0] * len(present), [1.0] * len(present)
        if roi is not None:
            if region.size != 2 * len(present):
                raise CompileError(
                    "XC2011", f"a region of {region.size} numbers for {len(present)} axes"
                )
            starts, ends = list(region[: len(present)]), list(region[len(present) :])
        if sizes is not None and scales is not None:
            counts, factors = [int(s) for s in sizes], [float(s) for s in scales]
            self._check_scales(factors)
        elif sizes is not None:
            counts = [int(s) for s in sizes]
            factors = [c / n if n else 1.0 for c, n in zip(counts, present, strict=True)]
            if self.aspect != "stretch":
                counts, scale = self._kept_aspect(list(zip(counts, present, strict=True)))
                factors = [float(scale)] * len(counts)
        else:
            factors = list(self.factors or ())
            self._check_scales(factors)
            counts = [math.floor(fraction_of(f) * n) for f, n in zip(factors, present, strict=True)]
        return [Axis(*a) for a in zip(present, counts, factors, starts, ends, strict=True)]

    def _along(self, y: np.ndarray, axis: int, plan: Axis, place: np.ndarray) -> np.ndarray:
        if self.mode == "nearest":
            return np.take(y, nearest_places(place, self.nearest, plan.size), axis=axis)
        places, weights = weighted_places(
            place,
            plan.size,
            cubic=self.mode == "cubic",
            a=self.cubic_a,
            shrink=min(plan.scale, 1.0) if self.antialias else 1.0,
            exclude_outside=self.exclude_outside,
        )
        total = np.zeros([plan.count if i == axis else n for i, n in enumerate(y.shape)])
        for tap in range(places.shape[1]):
            weight = weights[:, tap].reshape([-1 if i == axis else 1 for i in range(y.ndim)])
            total += np.take(y, places[:, tap], axis=axis) * weight
        return total
