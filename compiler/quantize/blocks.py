"""Weights of a few bits with a scale for each block, refined by least squares."""

from dataclasses import dataclass

import numpy as np

from xcompile.compiler.quantize.weights import LEAST_SCALE, fit_float16

_LEAST_SCALES = {np.float32: LEAST_SCALE, np.float16: float(np.finfo(np.float16).tiny)}
"""The least scale of a type."""

_FACTORS = (1.0, 0.95, 0.9, 0.875, 0.85, 0.8, 0.7)
_ROUNDS = 4


@dataclass(frozen=True)
class Blocks:
    """Quantized rows.

    Attributes:
        codes: the numbers, int16 [rows, k].
        scales: float16 or float32 [rows, blocks]: positive, normal and finite; 1 for blocks of zeros.
        zeros: the codes that mean 0, int16 [rows, blocks]; None where they are all 0.
    """

    codes: np.ndarray
    scales: np.ndarray
    zeros: np.ndarray | None

    def weights(self, block: int) -> np.ndarray:
        """What the codes mean, float32 [rows, k]."""
        places = np.arange(self.codes.shape[1]) // block
        wide = self.codes.astype(np.float32)
        if self.zeros is not None:
            wide = wide - self.zeros[:, places]
        return wide * self.scales.astype(np.float32)[:, places]


def quantize_blocks(
    weights: np.ndarray,
    bits: int,
    block: int,
    *,
    symmetric: bool = True,
    refine: bool = True,
    scale: type[np.float32] | type[np.float16] = np.float32,
) -> Blocks:
    """Quantize rows in blocks of neighbours.

    Args:
        weights: finite float32 [rows, k], k at least 1.
        bits: of a code: 4 or 8.
        block: weights of a row with a scale in common; the last block of a row may be shorter.
        symmetric: codes are signed and 0 means 0; else codes are unsigned and each block has a zero point.
        refine: choose scales with the least square error of each block, by turns rounding the weights and fitting the
            scale to what they were rounded to, from several starts. Never worse than without.
        scale: the type of the scales; float32 all the same where one of them would not be finite and normal.
    """
    rows, k = weights.shape
    count = -(-k // block)
    padded = np.zeros((rows, count * block), np.float32)
    padded[:, :k] = weights
    search = _Search(padded.reshape(-1, block), bits, symmetric, scale)
    codes, scales, zeros = search.run(refine)
    return Blocks(
        codes.reshape(rows, -1)[:, :k].astype(np.int16),
        scales.reshape(rows, count),
        None if symmetric else zeros.reshape(rows, count).astype(np.int16),
    )


class _Search:
    """Scales, codes and zero points of blocks [blocks, elements]; padding adds zeros, which are exact."""

    def __init__(
        self,
        blocks: np.ndarray,
        bits: int,
        symmetric: bool,
        scale: type[np.float32] | type[np.float16],
    ) -> None:
        self._blocks = blocks
        half = 1 << (bits - 1)
        self._least, self._most = (-half, half - 1) if symmetric else (0, 2 * half - 1)
        self._symmetric = symmetric
        low, high = (np.minimum(blocks.min(1), 0.0), np.maximum(blocks.max(1), 0.0))
        self._low = low.astype(np.float64)
        if symmetric:
            self._whole = np.maximum(high, -low).astype(np.float64) / self._most
        else:
            self._whole = (high.astype(np.float64) - low) / self._most
        fits = fit_float16(self._whole[self._whole >= LEAST_SCALE])
        self._scale = scale if fits else np.float32
        self._least_scale = _LEAST_SCALES[self._scale]

    def run(self, refine: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Codes, scales and zero points with the least square error that was found."""
        best = self._rounded(self._stored(self._whole))
        errors = self._errors(*best)
        for factor in _FACTORS if refine else ():
            tried = self._rounded(self._stored(factor * self._whole))
            for _ in range(_ROUNDS):
                better = (found := self._errors(*tried)) < errors
                errors[better] = found[better]
                for kept, made in zip(best, tried, strict=True):
                    kept[better] = made[better]
                tried = self._fitted(*tried)
        return best

    def _stored(self, scales: np.ndarray) -> np.ndarray:
        """Scales as they are stored: at most the greatest of the type; 1 where they are less than its least."""
        stored = np.minimum(scales, np.finfo(self._scale).max).astype(self._scale)
        return np.where(scales >= self._least_scale, stored, self._scale(1))

    def _rounded(self, scales: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        wide = scales.astype(np.float32)
        zeros = np.zeros(len(wide), np.float32)
        if not self._symmetric:
            zeros = np.clip(np.rint(-self._low / wide), 0, self._most).astype(np.float32)
        return self._codes(wide, zeros), scales, zeros

    def _codes(self, scales: np.ndarray, zeros: np.ndarray) -> np.ndarray:
        return np.clip(
            np.rint(self._blocks / scales[:, np.newaxis]) + zeros[:, np.newaxis],
            self._least,
            self._most,
        ).astype(np.float32)

    def _fitted(
        self, codes: np.ndarray, scales: np.ndarray, zeros: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The scales with which the codes come closest to the weights, and the codes that these give."""
        numbers = codes - zeros[:, np.newaxis]
        squares = np.einsum("bk,bk->b", numbers, numbers, dtype=np.float64)
        products = np.einsum("bk,bk->b", self._blocks, numbers, dtype=np.float64)
        fitted = products / np.where(squares > 0, squares, 1.0)
        usable = (squares > 0) & (fitted >= self._least_scale)
        made = np.where(usable, self._stored(fitted), scales).astype(scales.dtype)
        return self._codes(made.astype(np.float32), zeros), made, zeros

    def _errors(self, codes: np.ndarray, scales: np.ndarray, zeros: np.ndarray) -> np.ndarray:
        numbers = (codes - zeros[:, np.newaxis]) * scales.astype(np.float32)[:, np.newaxis]
        difference = self._blocks - numbers
        return np.einsum("bk,bk->b", difference, difference, dtype=np.float64)
