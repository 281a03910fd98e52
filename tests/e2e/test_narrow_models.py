"""Whole models in 16 bits: how near they are to float32."""

from pathlib import Path
from typing import Any

import pytest

import xcompile
from bench.narrow import PRECISIONS, agreement
from tests.e2e.test_digits import MODEL, _load_digits

LEAST = {"squeezenet": 0.999, "resnet50": 0.97, "minilm": 0.9995}
"""The cosine of probabilities or embeddings with those of float32 that both precisions reach, over three sizes."""


@pytest.fixture(scope="module")
def held_out() -> Any:
    return _load_digits()[1]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_digits_lose_no_more_than_half_a_point(
    precision: str, held_out: Any, tmp_path: Path
) -> None:
    model = xcompile.compile(MODEL, f"cpu-{precision}")
    model.save(tmp_path / "digits.so")
    scores = xcompile.load(tmp_path / "digits.so").run([held_out.images])["scores"]
    assert (scores.argmax(axis=1) == held_out.labels).mean() >= 0.988 - 0.005


@pytest.mark.full
@pytest.mark.parametrize("name", LEAST)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_real_model_is_near_float32(name: str, precision: str) -> None:
    cosine, top = agreement(name, precision)
    assert cosine >= LEAST[name]
    assert top == 1.0 or name == "minilm"
