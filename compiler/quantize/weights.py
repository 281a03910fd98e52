"""Weights of 8 bits: scales for output channels, refined by least squares, and the bias that makes up for errors."""

import numpy as np

MOST = 127
"""The greatest magnitude of a quantized weight: -128 is not used, so that both signs reach equally far."""

LEAST_SCALE = 2.0**-100
"""Weights of which the scale would be smaller are as good as 0."""

_FACTORS = (1.0, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6)
_ROUNDS = 4
_INT32 = 2**31


def quantize_weights(weights: np.ndarray, *, refine: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Quantize rows, each with a scale of its own.

    Args:
        weights: finite float32 [rows, ...].
        refine: choose scales with the least square error of each row, by turns rounding the weights and fitting the
            scale to what they were rounded to, from several starts. Never worse than the greatest weight over 127.

    Returns:
        int8 of the shape of the weights, in -127 … 127, and the scales float32 [rows]: positive, normal and finite; 1
        for a row of zeros, or of numbers that are as good as that (below 2⁻¹⁰⁰).
    """
    rows = weights.reshape(weights.shape[0], -1).astype(np.float32)
    greatest = np.abs(rows).max(axis=1).astype(np.float64)
    whole = greatest / MOST >= LEAST_SCALE
    scales = np.where(whole, greatest / MOST, 1.0).astype(np.float32)
    best = round_weights(rows, scales)
    if refine:
        errors = _errors(rows, best, scales)
        for factor in _FACTORS:
            candidate = np.where(whole, factor * greatest / MOST, 1.0).astype(np.float32)
            tried = round_weights(rows, candidate)
            for _ in range(_ROUNDS):
                candidate = _fitted(rows, tried, candidate)
                tried = round_weights(rows, candidate)
            found = _errors(rows, tried, candidate)
            better = found < errors
            best[better], scales[better], errors[better] = (
                tried[better],
                candidate[better],
                found[better],
            )
    return best.reshape(weights.shape).astype(np.int8), scales


def round_weights(rows: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """The codes of rows [rows, k] with such scales [rows]: whole floats in -127 … 127."""
    return np.clip(np.rint(rows / scales[:, np.newaxis]), -MOST, MOST)


def fit_float16(scales: np.ndarray) -> bool:
    """Whether all scales are finite and normal as float16."""
    kind = np.finfo(np.float16)
    return bool(((scales >= kind.tiny) & (scales <= kind.max)).all())


def _fitted(rows: np.ndarray, rounded: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """The scale for each row with which its rounded weights come closest to the weights."""
    squares = np.einsum("rk,rk->r", rounded, rounded, dtype=np.float64)
    products = np.einsum("rk,rk->r", rows, rounded, dtype=np.float64)
    fitted = products / np.where(squares > 0, squares, 1.0)
    return np.where((squares > 0) & (fitted >= LEAST_SCALE), fitted, scales).astype(np.float32)


def _errors(rows: np.ndarray, rounded: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """The square error of each row."""
    difference = rows - rounded * scales[:, np.newaxis]
    return np.einsum("rk,rk->r", difference, difference, dtype=np.float64)


def mean_error(
    weights: np.ndarray, quantized: np.ndarray, scales: np.ndarray, means: np.ndarray, groups: int
) -> np.ndarray:
    """By how much quantized weights change the mean of each output channel; to be taken from the bias.

    Args:
        weights: float32 [M, C / groups, ...].
        quantized: int8 of the same shape.
        scales: float32 [M].
        means: of the input's channels, float64 [C].
        groups: of channels: row m reads those of group m · groups // M.
    """
    count, channels = weights.shape[:2]
    wide = scales.astype(np.float64).reshape(-1, *[1] * (weights.ndim - 1))
    difference = quantized * wide - weights
    by_channel = difference.reshape(count, channels, -1).sum(axis=2)
    grouped = means.reshape(groups, channels)[np.arange(count) * groups // count]
    return (by_channel * grouped).sum(axis=1)


def integer_bias(bias: np.ndarray, scales: np.ndarray, terms: int) -> np.ndarray | None:
    """The bias in int32 units of `scales`, or None when a sum with it might not fit int32.

    Args:
        bias: float64 [M].
        scales: of the sums, float32 [M]: that of the input times those of the weights.
        terms: how many products of 8-bit numbers are summed.
    """
    units = np.rint(bias / scales.astype(np.float64))
    room = _INT32 - 1 - terms * 255 * 128
    if not (np.abs(units) <= room).all():
        return None
    return units.astype(np.int32)
