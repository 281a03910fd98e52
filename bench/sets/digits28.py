"""MNIST digits, read by the two networks of `examples/mnist`: 3,000 to calibrate with, twice 1,000 to score."""

import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from bench import corpus
from bench.sets.task import Task

_EXAMPLE = Path(__file__).parents[2] / "examples" / "mnist"
_CALIBRATION = 300


@cache
def _digits() -> Any:
    """The three parts of the digits."""
    spec = importlib.util.spec_from_file_location("mnist_data", _EXAMPLE / "data.py")
    if spec is None or spec.loader is None:
        raise FileNotFoundError(_EXAMPLE / "data.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.load(corpus.data("mnist_5k.csv.gz"))


def _samples() -> Iterator[dict[str, np.ndarray]]:
    for image in _digits()[0].images[:_CALIBRATION]:
        yield {"images": image[np.newaxis]}


def _right(model: Any, part: int) -> float:
    """The percentage of a part's digits that a model reads right."""
    digits = _digits()[part]
    scores = model.run({"images": digits.images})["scores"]
    return 100 * float((scores.argmax(axis=1) == digits.labels).mean())


def task(network: str) -> Task:
    """The set for the network "plain" or "separable"."""
    return Task(
        name=f"mnist-{network}",
        model=_EXAMPLE / f"{network}.onnx",
        calibration=_samples,
        choosing=lambda model: _right(model, 1),
        testing=lambda model: {"right": _right(model, 2)},
        inputs=1000,
    )
