"""Quantization on labelled sets: the bars of each set, and that the generators give what they say."""

import numpy as np
import pytest

from bench import accuracy_sets
from bench.sets import sentences, text


@pytest.mark.full
@pytest.mark.parametrize("name", accuracy_sets.CASES)
def test_int8_reaches_the_bars_of_the_set(name: str) -> None:
    rows = accuracy_sets.measure(name)
    assert len(rows) >= 2
    assert all(row.inputs >= 1000 for row in rows)
    assert [f"{row.model}: {'; '.join(row.missed)}" for row in rows if row.missed] == []


def test_a_score_below_a_bar_is_told() -> None:
    case = accuracy_sets.CASES["sentence-pairs"]
    good = accuracy_sets.Row("s", "float", 1000, {"recall@1": 80.0, "mean cosine": 1.0}, 0.0, 1.0)
    bad = accuracy_sets.Row("s", "mse", 1000, {"recall@1": 78.9, "mean cosine": 0.98}, 1.0, 1.0)
    assert accuracy_sets.missed(case, good, good) == []
    assert accuracy_sets.missed(case, good, bad) == ["mean cosine below 0.99", "1.10 points lost"]


def test_a_model_in_budget_that_is_too_little_integer_is_told() -> None:
    case = accuracy_sets.CASES["orientation-pages"]
    floating = accuracy_sets.Row("s", "float", 1000, {"right": 97.0}, 0.0, 1.0)
    found = accuracy_sets.Row("s", "budget", 1000, {"right": 96.0}, 0.79, 1.0)
    assert accuracy_sets.missed(case, floating, found) == ["less than 80% in integers"]


def test_pairs_are_the_same_each_time_and_about_different_things() -> None:
    pairs = sentences.pairs(1000, 2)
    assert pairs == sentences.pairs(1000, 2)
    assert len({pair.first for pair in pairs}) == 1000
    assert len({pair.second for pair in pairs}) == 1000
    assert pairs[0].first == "at the office the dentist lost the football match."


def test_rendered_words_are_the_same_each_time_and_larger_fonts_are_wider() -> None:
    said = [text.words(np.random.default_rng(3), 4) for _ in range(2)]
    assert said[0] == said[1]
    assert len(said[0].split()) == 4
    widths = [text.font("", size).getlength(said[0]) for size in (18, 36)]
    assert widths[1] > 1.8 * widths[0]
