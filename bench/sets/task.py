"""What a labelled set offers: a model, samples to calibrate with, and scores of a compiled model on two parts."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Model = Callable[..., Any]
"""Called with inputs by name, as a `CompiledModel` is, gives the outputs by name."""


@dataclass(frozen=True)
class Task:
    """A model with labelled inputs.

    Attributes:
        name: of the set.
        model: the path of the float model.
        calibration: gives samples that are in neither part.
        choosing: the score in percent on 1,000 inputs that a budget may look at; higher is better.
        testing: scores by name on at least 1,000 other inputs; the first one is in percent, as `choosing` is.
        inputs: how many inputs `testing` has.
    """

    name: str
    model: Path
    calibration: Callable[[], Iterable[Mapping[str, Any]]]
    choosing: Callable[[Any], float]
    testing: Callable[[Any], dict[str, float]]
    inputs: int
