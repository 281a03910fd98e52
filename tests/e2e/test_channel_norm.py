"""Local response normalization, compiled, against float64: row-major and between convolutions, in blocks."""

import numpy as np
import pytest
from onnx import helper

from bench.native import runnable_targets
from tests.e2e.compiled_node import shared_pool
from tests.unit.frontends.onnx_models import model
from xcompile.compiler.api import compile as compile_model

ALPHA, BIAS = 0.3, 1.5


def normalized(x: np.ndarray, size: int, beta: float) -> np.ndarray:
    squares = np.pad(
        x.astype(np.float64) ** 2, ((0, 0), ((size - 1) // 2, size // 2), (0, 0), (0, 0))
    )
    sums = sum(squares[:, i : i + x.shape[1]] for i in range(size))
    return x / (BIAS + ALPHA / size * sums) ** beta


def layer(size: int, beta: float, x: str, y: str):
    return helper.make_node("LRN", [x], [y], size=size, alpha=ALPHA, beta=beta, bias=BIAS)


@pytest.mark.parametrize(
    ("channels", "size", "beta"), [(3, 5, 0.75), (20, 4, 0.5), (5, 2, 1.1), (20, 12, 0.75)]
)
def test_row_major(channels: int, size: int, beta: float) -> None:
    x = 3 * np.random.default_rng(0).standard_normal((2, channels, 3, 19)).astype(np.float32)
    for shape in (x.shape, [None, channels, None, None]):
        made = compile_model(
            model([layer(size, beta, "x", "y")], {"x": shape}, ["y"]), pool=shared_pool(), threads=1
        )
        found = made.executable.run({"x": x})["y"]
        np.testing.assert_allclose(found, normalized(x, size, beta), 1e-6)
        families = {k.family for k in made.artifact.kernels.values()}
        assert ("fallback" in families) == (size > 9)


@pytest.mark.parametrize("target", runnable_targets(), ids=lambda t: f"{t.lanes(32)} lanes")
@pytest.mark.parametrize("channels", [3, 20, 48])
def test_between_convolutions_blocks_stay(channels: int, target) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, channels, 4, 5)).astype(np.float32)
    w = rng.standard_normal((48, channels, 1, 1)).astype(np.float32)
    v = rng.standard_normal((16, 48, 1, 1)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        layer(5, 0.75, "a", "b"),
        helper.make_node("Conv", ["b", "v"], ["y"]),
    ]
    made = compile_model(
        model(nodes, {"x": x.shape}, ["y"], {"w": w, "v": v}), target, pool=shared_pool(), threads=1
    )
    a = np.einsum("oc,nchw->nohw", w[:, :, 0, 0].astype(np.float64), x)
    wanted = np.einsum("oc,nchw->nohw", v[:, :, 0, 0].astype(np.float64), normalized(a, 5, 0.75))
    np.testing.assert_allclose(made.executable.run({"x": x})["y"], wanted, 1e-5, 1e-5)
    assert [s.symbol.split("_")[1] for s in made.artifact.program.launches].count("map") <= 3
