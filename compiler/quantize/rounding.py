"""Rounding of weights by what a product's inputs need: the nearest integer of each weight is not the best for the sum.

Each weight is rounded to the integer below or above it so that the square error of the product on observed inputs is
least, which is the problem of Nagel et al., Up or Down? Adaptive Rounding for Post-Training Quantization, 2020. The
error of an output channel is a quadratic form of the weights' errors, whose matrix is the second moment of the inputs;
it is lowered weight by weight, all output channels at a time, from the nearest integers on. No seed, no step size, and
no channel ends with a larger error than it began with.
"""

import base64
import zlib

import numpy as np

from xcompile.compiler.quantize.weights import MOST

_SWEEPS = 6
_MOST_TERMS = 8192
"""Products of more terms keep the nearest integers: their second moments would take half a gigabyte."""
_RIDGE = 0.01
"""Of the mean square of the inputs, so much is added to each: it holds for inputs that were not observed."""
_CHECKED = 4
"""One of so many observed inputs only checks what the others chose."""


def adaptive_flips(
    weights: np.ndarray, integers: np.ndarray, scales: np.ndarray, inputs: np.ndarray
) -> np.ndarray:
    """Which weights should not be the nearest integer but the one on the other side.

    Args:
        weights: float32 [m, k].
        integers: the nearest ones, int8 [m, k].
        scales: float32 [m].
        inputs: of the product, float32 [n, k].

    Returns:
        bool [m, k].
    """
    flips = np.zeros(weights.shape, bool)
    checked = np.arange(len(inputs)) % _CHECKED == _CHECKED - 1
    if weights.shape[1] > _MOST_TERMS or not checked.any():
        return flips
    ideal = weights.astype(np.float64) / scales[:, np.newaxis].astype(np.float64)
    steps = (other_side(weights, integers, scales) - integers).astype(np.float64)
    errors = integers - ideal
    moments = _moments(inputs[~checked])
    ridge = _RIDGE * max(float(np.trace(moments)) / len(moments), np.finfo(np.float64).tiny)
    moments[np.diag_indices_from(moments)] += ridge
    chosen = _descend(errors, steps, moments)
    flips = chosen & (steps != 0)
    # a channel whose error on the inputs that chose nothing, or on all, did not fall stays as it was
    better = np.ones(len(weights), bool)
    for rows in (inputs[checked], inputs):
        before, behind = (_power(rows, errors + steps * f) for f in (np.zeros_like(flips), flips))
        better &= behind < before
    return flips & better[:, np.newaxis]


def other_side(weights: np.ndarray, integers: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """For each weight the integer on its other side; the same one where there is none or it would leave -127 … 127.

    Args:
        weights: float32 [m, k].
        integers: the nearest ones, int8 [m, k].
        scales: float32 [m].
    """
    ideal = weights.astype(np.float64) / scales[:, np.newaxis].astype(np.float64)
    wanted = integers + np.sign(ideal - integers)
    return np.clip(wanted, -MOST, MOST).astype(np.int8)


def packed_flips(flips: np.ndarray) -> str:
    """A bool array as text."""
    return base64.b64encode(zlib.compress(np.packbits(flips).tobytes(), 9)).decode()


def unpacked_flips(text: str, count: int) -> np.ndarray:
    """The bool array [count] of a text.

    Raises:
        ValueError: the text is not of so many.
    """
    size = (count + 7) // 8
    try:
        data = zlib.decompressobj().decompress(base64.b64decode(text, validate=True), size + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if len(data) != size:
        raise ValueError(f"the text has {len(data)} bytes of bits, not {size}")
    return np.unpackbits(np.frombuffer(data, np.uint8), count=count).astype(bool)


def _moments(inputs: np.ndarray) -> np.ndarray:
    wide = inputs.astype(np.float64)
    return wide.T @ wide


def _power(inputs: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """The square error of each output channel."""
    return ((inputs.astype(np.float64) @ errors.T) ** 2).sum(axis=0)


def _descend(errors: np.ndarray, steps: np.ndarray, moments: np.ndarray) -> np.ndarray:
    """Which steps lower the quadratic form of the errors' rows, found one column after the other."""
    errors, chosen = errors.copy(), np.zeros(errors.shape, bool)
    gradient = errors @ moments
    steps = steps.copy()
    for _ in range(_SWEEPS):
        changed = False
        for k in range(errors.shape[1]):
            change = steps[:, k]
            gain = 2 * change * gradient[:, k] + change * change * moments[k, k]
            rows = np.flatnonzero((gain < 0) & (change != 0))
            if not rows.size:
                continue
            changed = True
            gradient[rows] += change[rows, np.newaxis] * moments[k]
            errors[rows, k] += change[rows]
            chosen[rows, k] ^= True
            steps[rows, k] *= -1
        if not changed:
            break
    return chosen
