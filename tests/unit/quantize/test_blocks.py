"""Weights in blocks: the grid, the refit, and blocks that have no scale."""

import numpy as np
import pytest

from xcompile.compiler.quantize.blocks import quantize_blocks


def weights(rows: int = 24, k: int = 100) -> np.ndarray:
    """Rows of different size, with outliers."""
    rng = np.random.default_rng(0)
    made = rng.standard_normal((rows, k)) * rng.uniform(0.01, 10, (rows, 1))
    made[:, ::17] *= 4
    return made.astype(np.float32)


def errors(given: np.ndarray, bits: int, block: int, **options: object) -> np.ndarray:
    """The square error of each block but the last, shorter one."""
    made = quantize_blocks(given, bits, block, **options).weights(block)  # type: ignore[arg-type]
    whole = given.shape[1] // block * block
    return ((made - given)[:, :whole].reshape(-1, block).astype(np.float64) ** 2).sum(1)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("scale", [np.float32, np.float16])
@pytest.mark.parametrize(("bits", "block"), [(4, 16), (4, 32), (8, 100)])
def test_the_refit_makes_no_block_worse_and_most_better(
    bits: int, block: int, scale: type, symmetric: bool
) -> None:
    options = {"symmetric": symmetric, "scale": scale}
    before = errors(weights(), bits, block, refine=False, **options)
    after = errors(weights(), bits, block, refine=True, **options)
    assert (after <= before).all()
    assert after.sum() < (0.97 if bits == 4 else 1) * before.sum()


def test_numbers_on_the_grid_are_exact() -> None:
    given = np.array([[-8, 7, 3, 0, -2, 1.75, 0.75, 0]], np.float32)
    made = quantize_blocks(given, 4, 4)
    np.testing.assert_array_equal(made.weights(4), given)
    np.testing.assert_array_equal(made.codes, [[-8, 7, 3, 0] * 2])
    assert made.zeros is None


def test_a_block_of_one_sign_uses_all_codes_with_a_zero_point() -> None:
    given = np.linspace(1, 16, 16, dtype=np.float32)[np.newaxis]
    made = quantize_blocks(given, 4, 16, symmetric=False)
    assert made.zeros is not None
    assert made.zeros[0, 0] == 0
    assert made.codes.max() == 15
    assert np.abs(made.weights(16) - given).max() < 0.9


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("refine", [True, False])
@pytest.mark.parametrize(
    ("size", "kind"),
    [(1e6, np.float32), (4e5, np.float16), (0.01, np.float16), (1e-4, np.float32), (0, np.float16)],
)
def test_scales_are_float16_where_all_are_finite_and_normal(
    size: float, kind: type, refine: bool, symmetric: bool
) -> None:
    given = weights(2, 32) / np.abs(weights(2, 32)).max(axis=1, keepdims=True)
    given[0] *= np.float32(size)
    made = quantize_blocks(given, 4, 16, symmetric=symmetric, refine=refine, scale=np.float16)
    assert made.scales.dtype == kind
    assert (np.isfinite(made.scales) & (made.scales >= np.finfo(kind).tiny)).all()
    assert (np.abs(made.weights(16) - given).max(axis=1) <= 0.15 * np.abs(given).max(axis=1)).all()


@pytest.mark.parametrize("symmetric", [True, False])
def test_blocks_of_zeros_and_denormals_are_zero(symmetric: bool) -> None:
    given = np.zeros((2, 32), np.float32)
    given[1] = 1e-40
    made = quantize_blocks(given, 4, 16, symmetric=symmetric)
    np.testing.assert_array_equal(made.weights(16), 0)
    np.testing.assert_array_equal(made.scales, 1)
