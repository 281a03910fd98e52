"""Rendered lines of text, read by PP-OCR's recognition: what share of lines is read without a mistake."""

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import onnx

from bench import corpus
from bench.sets import text
from bench.sets.task import Task

_COUNT = 1000
_CALIBRATION = 100
_HEIGHT, _LEAST_WIDTH, _STEP = 48, 320, 32


class Line(NamedTuple):
    """A line of text as the model takes it.

    Attributes:
        image: uint8 [48, w, 3]; w is at least 320 and a multiple of 32, what the line leaves free is grey.
        text: what it says.
    """

    image: np.ndarray
    text: str


@cache
def lines(count: int, seed: int) -> tuple[Line, ...]:
    """Lines of one to four words."""
    random = np.random.default_rng(seed)
    made: list[Line] = []
    for _ in range(count):
        said = text.words(random, int(random.integers(1, 5)))
        pixels = text.line_image(random, said)
        width = max(1, round(pixels.shape[1] * _HEIGHT / pixels.shape[0]))
        whole = max(_LEAST_WIDTH, -(-width // _STEP) * _STEP)
        image = np.full((_HEIGHT, whole, 3), 128, np.uint8)
        image[:, :width] = text.resized(pixels, (width, _HEIGHT))
        made.append(Line(image, said))
    return tuple(made)


@cache
def _characters() -> list[str]:
    """What each class stands for; the first is the gap between characters."""
    model = onnx.load(corpus.model("pp-ocr-rec"), load_external_data=False)
    said = {entry.key: entry.value for entry in model.metadata_props}
    return ["", *said["character"].splitlines(), " "]


def _input(line: Line) -> dict[str, np.ndarray]:
    """Blue, green, red from -1 to 1: float32 [1, 3, 48, w]."""
    numbers = line.image[..., ::-1].astype(np.float32) / np.float32(127.5) - 1
    return {"x": np.ascontiguousarray(numbers.transpose(2, 0, 1)[np.newaxis])}


def read(model: Any, line: Line) -> str:
    """The text that a model reads: the likeliest class of each step, repeated ones once, without gaps."""
    (scores,) = model.run(_input(line)).values()
    steps = scores[0].argmax(axis=-1)
    kept = steps[np.flatnonzero(np.diff(steps, prepend=0))]
    return "".join(_characters()[step] for step in kept).strip()


def _right(model: Any, seed: int) -> float:
    found = [read(model, line) == line.text for line in lines(_COUNT, seed)]
    return 100 * float(np.mean(found))


def _samples() -> Iterator[dict[str, np.ndarray]]:
    return map(_input, lines(_CALIBRATION, 0))


def task() -> Task:
    """The set."""
    return Task(
        name="ocr-lines",
        model=corpus.model("pp-ocr-rec"),
        calibration=_samples,
        choosing=lambda model: _right(model, 1),
        testing=lambda model: {"exact": _right(model, 2)},
        inputs=_COUNT,
    )
