"""A loaded library keeps no pages of the weights that others are prepared from."""

import ctypes
import re
from pathlib import Path

import numpy as np
import pytest

import xcompile
from tests.e2e.compiled_node import shared_pool
from tests.e2e.networks import Network
from tests.unit.runtime.c_interface import CModel

CHANNELS = 256
FILTERS = 4 * CHANNELS * CHANNELS * 9
"""Bytes of the filters as the file has them; 4 times as many are prepared for tiles of 4×4."""


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A convolution by Winograd's method as a library, its inputs, and what it gives in this process."""
    n = Network()
    weights = n.weight(CHANNELS, CHANNELS, 3, 3)
    y = n("Conv", "x", weights, pads=[1, 1, 1, 1])
    model = n.model({"x": ("FLOAT", [1, CHANNELS, 12, 12])}, {y: ("FLOAT", [1, CHANNELS, 12, 12])})
    compiled = xcompile.compile(model, passes="nn-choose-winograd{mode=f4}", pool=shared_pool())
    assert {facts.family for facts in compiled.artifact.kernels.values()} >= {"winograd"}
    path = tmp_path_factory.mktemp("library") / "conv.so"
    compiled.save(path)
    x = np.random.default_rng(1).standard_normal((1, CHANNELS, 12, 12)).astype(np.float32)
    return path, x, compiled(x)


def resident(path: Path) -> int:
    """Bytes of a mapped file that are in the memory of this process."""
    text = Path("/proc/self/smaps").read_text()
    found = re.findall(
        rf"^\S+ \S+ \S+ \S+ \S+ +{path}$\n(?:^(?!Rss).*$\n)*^Rss: +(\d+) kB", text, re.M
    )
    assert found
    return 1024 * sum(map(int, found))


def test_weights_that_others_are_prepared_from_leave_memory(saved) -> None:
    path, x, wanted = saved
    assert path.stat().st_size > FILTERS
    model = xcompile.load(path)
    assert resident(path) < FILTERS // 4
    np.testing.assert_array_equal(next(iter(model.run([x]).values())), wanted)
    assert resident(path) < FILTERS // 4


def test_and_so_they_do_for_callers_in_c(saved, tmp_path) -> None:
    path, _, _ = saved
    other = tmp_path / "other.so"
    other.write_bytes(path.read_bytes())
    prefix = xcompile.load(path).manifest.prefix
    model = CModel(ctypes.CDLL(str(other)), prefix)
    assert model.handle
    assert resident(other) < FILTERS // 4
