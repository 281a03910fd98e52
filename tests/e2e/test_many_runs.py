"""One handle, called many times at many sizes and from many threads."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import xcompile
from tests.e2e.compiled_node import shared_pool
from tests.e2e.networks import Network, residual_network


def resident() -> int:
    """Bytes of this process in memory."""
    return 4096 * int(Path("/proc/self/statm").read_text().split()[1])


def images():
    """Convolutions and pools of images of any size."""
    n = Network()
    x = n("Relu", n("Conv", "x", n.weight(16, 3, 3, 3), pads=[1, 1, 1, 1]))
    x = n("MaxPool", n("Conv", x, n.weight(16, 16, 1, 1)), kernel_shape=[2, 2], strides=[2, 2])
    y = n("GlobalAveragePool", x)
    return n.model({"x": ("FLOAT", ["N", 3, "H", "W"])}, {y: ("FLOAT", ["N", 16, 1, 1])})


@pytest.mark.full
def test_memory_stays_as_it_is_in_10000_runs_of_random_sizes() -> None:
    model = xcompile.compile(images(), pool=shared_pool())
    random = np.random.default_rng(26)
    largest = np.ones((64, 3, 24, 24), np.float32)
    model.run([largest])

    def runs(count: int) -> int:
        for n, h, w in random.integers((1, 4, 4), (65, 25, 25), (count, 3)):
            model.run([largest[:n, :, :h, :w]])
        return resident()

    warm = runs(2000)
    assert runs(8000) - warm < 2 << 20


def test_8000_runs_from_eight_threads_give_what_one_gives() -> None:
    model = xcompile.compile(residual_network(), pool=shared_pool())
    random = np.random.default_rng(8)
    feeds = [random.standard_normal((1 + i, 3, 16, 16)).astype(np.float32) for i in range(8)]
    wanted = [next(iter(model.run([x]).values())).tobytes() for x in feeds]

    def right(caller: int) -> int:
        found = (next(iter(model.run([feeds[caller]]).values())) for _ in range(1000))
        return sum(y.tobytes() == wanted[caller] for y in found)

    with ThreadPoolExecutor(8) as callers:
        assert list(callers.map(right, range(8))) == [1000] * 8
