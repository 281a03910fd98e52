"""Scikit-learn's 1,797 handwritten digits, split into 797 to train on and 1,000 to test with."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_digits

TRAINING = 797


class Digits(NamedTuple):
    """Some digits.

    Attributes:
        images: float32 [n, 1, 8, 8], grey values from 0 to 16.
        labels: int64 [n], from 0 to 9.
    """

    images: np.ndarray
    labels: np.ndarray


def load() -> tuple[Digits, Digits]:
    """The digits to train on and the digits held out, always the same ones in the same order."""
    digits = load_digits()
    images = digits.images.astype(np.float32)[:, np.newaxis]
    labels = digits.target.astype(np.int64)
    order = np.random.RandomState(0).permutation(len(images))
    chosen, held_out = order[:TRAINING], order[TRAINING:]
    return Digits(images[chosen], labels[chosen]), Digits(images[held_out], labels[held_out])


def calibration_samples() -> list[np.ndarray]:
    """The 797 digits to train on, one after another, to quantize the network with."""
    training, _ = load()
    return list(training.images[:, np.newaxis])


def accuracy(model: Callable[[np.ndarray], np.ndarray]) -> float:
    """The percentage of the 1,000 held-out digits that a model reads right."""
    _, held_out = load()
    scores = model(held_out.images)
    return 100 * float((scores.argmax(axis=1) == held_out.labels).mean())
