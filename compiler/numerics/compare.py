"""How far two tensors are apart."""

from dataclasses import dataclass

import numpy as np

from xcompile.compiler.numerics.tolerance import OUTLIERS, tolerance


@dataclass(frozen=True)
class Allowed:
    """Which difference is none.

    Attributes:
        length: how many terms the sums have that made the tensor, see `tolerance`.
        jumps: whether an op that jumps took part, so that a few elements may be quite different.
        floor: the magnitude that errors are relative to when the tensor has no larger one.
    """

    length: int = 1
    jumps: bool = False
    floor: float = 0.0

    def after(self, other: "Allowed") -> "Allowed":
        """What is allowed where both took part."""
        return Allowed(
            max(self.length, other.length),
            self.jumps or other.jumps,
            max(self.floor, other.floor),
        )


def mismatch(got: np.ndarray, wanted: np.ndarray, allowed: Allowed) -> str | None:
    """What is wrong with a tensor; None when it is right.

    Infinities and NaN must stand where they are expected; integers and booleans must be equal.
    """
    if got is wanted:
        return None
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return f"is {got.dtype}{list(got.shape)}, not {wanted.dtype}{list(wanted.shape)}"
    if wanted.dtype.kind in "OSU":
        return None if np.array_equal(got, wanted) else "differs"
    a, b = _wide(got), _wide(wanted)
    same = (a == b) | ((a != a) & (b != b))
    if same.all():
        return None
    scale = largest(b)
    with np.errstate(invalid="ignore", over="ignore"):
        errors = np.where(same, 0.0, np.abs(a - b))
    least = max(allowed.floor, float(np.finfo(np.float32).tiny))
    bound = tolerance(wanted.dtype, allowed.length) * max(scale, least)
    wrong = int(np.count_nonzero(~(errors <= bound)))  # NaN is wrong
    if wrong <= (int(OUTLIERS * errors.size) if allowed.jumps else 0):
        return None
    worst = float(np.max(np.nan_to_num(errors, nan=np.inf)))
    share = f"{wrong} of {errors.size} elements" if errors.size > 1 else "the element"
    return f"differs by {worst:.3g} where the largest magnitude is {scale:.3g} ({share})"


def largest(array: np.ndarray) -> float:
    """The largest finite magnitude; 0 when there is none."""
    wide = np.abs(_wide(array))
    return float(np.max(wide, where=np.isfinite(wide), initial=0.0))


@dataclass(frozen=True)
class Metrics:
    """The distance of a tensor from the expected one, over elements that are finite in both.

    Attributes:
        sqnr: ten times the decimal logarithm of signal by noise power, in dB; infinite when they are equal.
        cosine: of the angle between the two as vectors.
        max_abs: the largest absolute difference; infinite when an infinity or NaN is at the wrong place.
        max_rel: that by the largest expected magnitude.
    """

    sqnr: float
    cosine: float
    max_abs: float
    max_rel: float


UNKNOWN = Metrics(-np.inf, 0.0, np.inf, np.inf)
"""Of tensors that cannot be compared."""


def metrics(got: np.ndarray, wanted: np.ndarray) -> Metrics:
    """The distance of `got` from `wanted`."""
    if got.shape != wanted.shape:
        return UNKNOWN
    a, b = _wide(got).reshape(-1), _wide(wanted).reshape(-1)
    finite = np.isfinite(a) & np.isfinite(b)
    placed = np.all(finite | (a == b) | ((a != a) & (b != b)))
    a, b = np.where(finite, a, 0.0), np.where(finite, b, 0.0)
    scale = max(largest(a), largest(b)) or 1.0
    a, b = a / scale, b / scale  # squares must neither overflow nor vanish
    noise, signal, power = (float(np.dot(x, x)) for x in (a - b, b, a))
    worst = float(np.max(np.abs(a - b), initial=0.0)) if placed else np.inf
    highest = largest(b)
    return Metrics(
        sqnr=_decibels(signal, noise) if placed else -np.inf,
        cosine=float(np.dot(a, b) / np.sqrt(power * signal)) if power * signal else float(power == signal),
        max_abs=worst * scale,
        max_rel=worst / highest if highest else (np.inf if worst else 0.0),
    )  # fmt: skip


def _decibels(signal: float, noise: float) -> float:
    if noise == 0:
        return np.inf
    return 10 * float(np.log10(signal / noise)) if signal else -np.inf


def _wide(array: np.ndarray) -> np.ndarray:
    """Numbers as float64; complex ones as they are."""
    return array if array.dtype.kind == "c" else array.astype(np.float64)
