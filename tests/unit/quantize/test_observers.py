"""Observers: ranges from streamed histograms, the same in any order, finite for every tensor."""

import itertools

import numpy as np
import pytest

from xcompile.compiler.quantize.histogram import BINS, ChannelSums, Histogram
from xcompile.compiler.quantize.observers import (
    OBSERVERS,
    Range,
    entropy,
    min_max,
    mse,
    observer_of,
    percentile,
)
from xcompile.compiler.support.errors import CompileError


def seen(*arrays: np.ndarray) -> Histogram:
    histogram = Histogram()
    for array in arrays:
        histogram.add(array.astype(np.float32))
    return histogram


def square_error(numbers: np.ndarray, range_: Range) -> float:
    """Of numbers that are quantized and dequantized as nn.quantize and nn.dequantize say."""
    scale, zero = range_.parameters()
    q = np.clip(np.rint(numbers / scale) + zero, 0, 255)
    return float(((numbers - (q - zero) * scale) ** 2).mean())


def test_min_max_is_the_range_with_zero_in_it() -> None:
    assert min_max(seen(np.array([2.0, 5.0]))) == Range(0.0, 5.0)
    assert min_max(seen(np.array([-2.0, 5.0]), np.array([-3.0]))) == Range(-3.0, 5.0)


def test_the_999_permille_percentile_of_many_small_numbers_ignores_2048_large_ones() -> None:
    numbers = np.random.default_rng(0).random(10_000_000, np.float32)
    histogram = seen(np.arange(2048), numbers)
    assert 0.99 < percentile(histogram, 99.9).high < 1
    assert percentile(histogram, 100).high == pytest.approx(2047, rel=1e-3)


@pytest.mark.parametrize(("percent", "tolerance"), [(50, 0.008), (99, 0.008), (99.99, 0.008)])
def test_a_percentile_is_numpys_to_the_width_of_a_bin(percent: float, tolerance: float) -> None:
    numbers = np.random.default_rng(1).standard_normal(100_000).astype(np.float32)
    found = percentile(seen(numbers), percent)
    wanted = np.percentile(np.abs(numbers), percent)
    assert found.high == pytest.approx(wanted, rel=tolerance)
    assert found.low == -found.high


@pytest.mark.parametrize("name", OBSERVERS)
def test_any_order_batch_and_merge_gives_the_same_bits(name: str) -> None:
    numbers = np.random.default_rng(2).standard_normal((60, 7, 5)).astype(np.float32)
    whole, singly, merged = seen(numbers), seen(*numbers[::-1]), seen(*numbers[20:])
    merged.merge(seen(numbers[:20]))
    ranges = [OBSERVERS[name](h) for h in (whole, singly, merged)]
    assert ranges[0] == ranges[1] == ranges[2]
    assert ranges[0].low < 0 < ranges[0].high


def test_a_histogram_is_restored_from_its_state() -> None:
    histogram = seen(np.array([-3.5, 0.0, -0.0, 1e-40, 7.0]))
    again = Histogram.restored(histogram.state())
    np.testing.assert_array_equal(again.counts, histogram.counts)
    assert (again.low, again.high, again.total) == (-3.5, 7.0, 5)


def test_memory_does_not_grow_with_the_samples() -> None:
    histogram = seen(*np.random.default_rng(3).standard_normal((50, 1000)))
    assert histogram.counts.shape == (BINS,)
    assert histogram.total == 50_000


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused_and_leave_no_trace(number: float) -> None:
    histogram = seen(np.array([1.0]))
    with pytest.raises(ValueError, match="NaN or infinite"):
        histogram.add(np.array([5.0, number], np.float32))
    assert (histogram.total, histogram.high) == (1, 1.0)


@pytest.mark.parametrize("name", OBSERVERS)
@pytest.mark.parametrize(
    ("numbers", "scale", "zero"),
    [
        ([0.0, 0.0], 1.0, 0),
        ([1e-42, -1e-42], 1.0, 0),
        ([5.0, 5.0], 5.0 / 255, 0),
        ([-5.0, -5.0], 5.0 / 255, 255),
        ([], 1.0, 0),
    ],
    ids=["zeros", "denormal", "constant", "negative constant", "nothing"],
)
def test_odd_tensors_get_finite_scales(
    name: str, numbers: list[float], scale: float, zero: int
) -> None:
    found = OBSERVERS[name](seen(np.array(numbers)) if numbers else Histogram())
    assert found.parameters() == (pytest.approx(scale, rel=0.03), zero)
    assert found.parameters()[0].dtype == np.float32


def test_the_largest_floats_have_a_finite_scale() -> None:
    scale, zero = min_max(seen(np.array([-3.4e38, 3.4e38]))).parameters()
    assert scale == pytest.approx(6.8e38 / 255)
    assert zero == 128


def test_zero_is_the_zero_point_exactly() -> None:
    scale, zero = Range(-1.0, 3.0).parameters()
    assert scale == np.float32(4 / 255)
    assert zero == 64
    assert Range(0.0, 6.0).parameters()[1] == 0


def test_the_mse_range_is_as_good_as_the_best_of_a_fine_search() -> None:
    rng = np.random.default_rng(4)
    numbers = np.concatenate((rng.standard_normal(20_000), 12 * rng.random(20))).astype(np.float32)
    found = square_error(numbers, mse(seen(numbers)))
    whole = min_max(seen(numbers))
    lows, highs = (np.linspace(0.2, 1, 30) * end for end in (whole.low, whole.high))
    best = min(square_error(numbers, Range(a, b)) for a, b in itertools.product(lows, highs))
    assert found <= best * 1.02
    assert found < 0.98 * square_error(numbers, whole)


def test_entropy_clips_a_lone_outlier_and_keeps_even_numbers_whole() -> None:
    rng = np.random.default_rng(5)
    outlier = np.append(np.abs(rng.standard_normal(50_000)), 40.0)
    assert 2.0 < entropy(seen(outlier)).high < 10.0
    even = np.linspace(0, 8, 50_000)
    assert entropy(seen(even)).high > 7.9


def test_entropy_counts_what_a_spike_would_hide_when_it_is_clipped() -> None:
    numbers = np.abs(np.random.default_rng(8).normal(0, 2, 10_000))
    spike = np.full(10_000, 0.5)  # with clipped numbers in the last bin the end was 3.5
    assert entropy(seen(numbers, spike)).high > 4.0


def test_entropy_does_not_count_zeros() -> None:
    numbers = np.abs(np.random.default_rng(6).standard_normal(20_000))
    assert entropy(seen(numbers)) == entropy(seen(numbers, np.zeros(1_000_000)))


def test_observers_are_named_by_text() -> None:
    assert observer_of("mse") is mse
    assert observer_of("percentile:50")(seen(np.array([1.0, 2.0, 3.0]))).high < 3
    for wrong in ("best", "percentile:0", "percentile:101", "percentile:x", "mse:3"):
        with pytest.raises(CompileError, match="XC6005"):
            observer_of(wrong)


def test_sums_of_channels_are_exact_in_any_order() -> None:
    rng = np.random.default_rng(7)
    samples = (rng.standard_normal((40, 3, 6)) * 10.0 ** rng.integers(-6, 6, (40, 1, 1))).astype(
        np.float32
    )
    forward, backward, part = ChannelSums(), ChannelSums(), ChannelSums()
    for sample in samples:
        forward.add(sample, 0)
    for sample in samples[:9:-1]:
        backward.add(sample, 0)
    for sample in samples[:10]:
        part.add(sample, 0)
    backward.merge(ChannelSums.restored(part.state()))
    assert forward.means().tobytes() == backward.means().tobytes()
    np.testing.assert_allclose(
        forward.means(), samples.astype(np.float64).mean(axis=(0, 2)), rtol=1e-12
    )


def test_channels_do_not_change_their_number() -> None:
    sums = ChannelSums()
    assert sums.means().shape == (0,)
    sums.add(np.ones((2, 5), np.float32), 0)
    with pytest.raises(ValueError, match="3 channels instead of 2"):
        sums.add(np.ones((3, 5), np.float32), 0)
