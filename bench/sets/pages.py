"""Rendered pages turned by quarters, and the model that says by how many."""

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from bench import corpus
from bench.sets import text
from bench.sets.task import Task

_COUNT = 1000
_CALIBRATION = 100
_SHORT, _SIZE = 256, 224
_MEAN = np.array([0.485, 0.456, 0.406], np.float32)
_SPREAD = np.array([0.229, 0.224, 0.225], np.float32)


class Page(NamedTuple):
    """A page as the model takes it.

    Attributes:
        image: uint8 [224, 224, 3].
        turns: by how many quarters it is turned clockwise.
    """

    image: np.ndarray
    turns: int


@cache
def pages(count: int, seed: int) -> tuple[Page, ...]:
    """Pages of different sizes, each turned in one of four ways."""
    random = np.random.default_rng(seed)
    made: list[Page] = []
    for _ in range(count):
        width, height = (int(v) for v in random.integers(224, 420, 2))
        turns = int(random.integers(4))
        pixels = np.rot90(text.page_image(random, (width, height)), -turns)
        rows, columns = pixels.shape[:2]
        factor = _SHORT / min(rows, columns)
        size = (round(columns * factor), round(rows * factor))
        whole = text.resized(np.ascontiguousarray(pixels), size)
        top, left = (whole.shape[0] - _SIZE) // 2, (whole.shape[1] - _SIZE) // 2
        image = whole[top : top + _SIZE, left : left + _SIZE]
        made.append(Page(np.ascontiguousarray(image), turns))
    return tuple(made)


def _input(page: Page) -> dict[str, np.ndarray]:
    numbers = (page.image.astype(np.float32) / np.float32(255) - _MEAN) / _SPREAD
    return {"x": np.ascontiguousarray(numbers.transpose(2, 0, 1)[np.newaxis])}


def _right(model: Any, seed: int) -> float:
    right = 0
    for page in pages(_COUNT, seed):
        (scores,) = model.run(_input(page)).values()
        right += int(scores[0].argmax()) == page.turns
    return 100 * right / _COUNT


def _samples() -> Iterator[dict[str, np.ndarray]]:
    return map(_input, pages(_CALIBRATION, 0))


def task() -> Task:
    """The set."""
    return Task(
        name="orientation-pages",
        model=corpus.model("orientation"),
        calibration=_samples,
        choosing=lambda model: _right(model, 1),
        testing=lambda model: {"right": _right(model, 2)},
        inputs=_COUNT,
    )
