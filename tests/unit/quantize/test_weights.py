"""Weights of 8 bits: scales that are never worse than the plain ones, finite for every channel; safe biases."""

import numpy as np
import pytest

from xcompile.compiler.quantize.weights import integer_bias, mean_error, quantize_weights


def row_errors(weights: np.ndarray, integers: np.ndarray, scales: np.ndarray) -> np.ndarray:
    wide = integers.astype(np.float64) * scales.reshape(-1, *[1] * (weights.ndim - 1))
    return ((weights - wide) ** 2).reshape(len(weights), -1).sum(axis=1)


def test_the_plain_scale_is_the_greatest_weight_over_127() -> None:
    integers, scales = quantize_weights(np.array([[0.5, -1.27, 0.02]], np.float32), refine=False)
    assert integers.tolist() == [[50, -127, 2]]
    assert scales == np.float32(0.01)


@pytest.mark.parametrize("seed", range(3))
def test_refined_scales_never_have_a_larger_error_in_any_row(seed: int) -> None:
    weights = np.random.default_rng(seed).standard_t(4, (64, 16, 3, 3)).astype(np.float32)
    plain = row_errors(weights, *quantize_weights(weights, refine=False))
    refined = row_errors(weights, *quantize_weights(weights))
    assert (refined <= plain * (1 + 1e-6)).all()
    assert refined.sum() < 0.99 * plain.sum()


@pytest.mark.parametrize("refine", [False, True])
def test_channels_of_zeros_and_denormals_get_the_scale_1(refine: bool) -> None:
    weights = np.array([[0, 0], [1e-40, -1e-42], [1e-6, -5e-7]], np.float32)
    integers, scales = quantize_weights(weights, refine=refine)
    assert integers.tolist()[:2] == [[0, 0], [0, 0]]
    assert scales[:2].tolist() == [1, 1]
    np.testing.assert_allclose(integers[2] * scales[2], weights[2], rtol=1e-2)


def test_least_128_is_never_used() -> None:
    weights = np.random.default_rng(0).standard_normal((20, 50)).astype(np.float32)
    integers, _ = quantize_weights(weights)
    assert integers.dtype == np.int8
    assert integers.min() == -127 or integers.max() == 127
    assert integers.min() >= -127


def test_the_mean_error_is_that_of_the_mean_input_in_each_group() -> None:
    rng = np.random.default_rng(1)
    weights = rng.standard_normal((6, 2, 3, 3)).astype(np.float32)
    integers, scales = quantize_weights(weights)
    means = rng.random(4)  # two groups of two channels, three rows each
    difference = integers * scales.astype(np.float64).reshape(-1, 1, 1, 1) - weights
    wanted = [
        (difference[m] * means[2 * (m // 3) : 2 * (m // 3) + 2].reshape(2, 1, 1)).sum()
        for m in range(6)
    ]
    np.testing.assert_allclose(mean_error(weights, integers, scales, means, 2), wanted)


def test_a_bias_of_int32_is_exact_to_half_a_unit() -> None:
    units = integer_bias(np.array([1.0, -0.26]), np.array([0.25, 0.1], np.float32), 9)
    assert units is not None
    assert units.dtype == np.int32
    assert units.tolist() == [4, -3]


def test_a_bias_that_would_overflow_int32_stays_in_float() -> None:
    scales = np.float32(0.5) * np.array([7.843e-10, 7.843e-10], np.float32)
    assert 5 / scales[0] > 2**31
    assert integer_bias(np.array([5.0, -4.5]), scales, 9) is None


def test_a_bias_leaves_room_for_the_sum() -> None:
    scale = np.ones(1, np.float32)
    most = 2**31 - 1 - 1000 * 255 * 128
    assert integer_bias(np.array([float(most)]), scale, 1000) is not None
    assert integer_bias(np.array([float(most + 1)]), scale, 1000) is None
