"""Models of 8-bit images: every tier gives the reference's bytes, and nothing wider lies between their convolutions."""

from typing import Any

import numpy as np
import pytest

from tests.e2e.integer_graphs import (
    Build,
    IntegerGraph,
    bytes_an_element,
    compiled,
    expected,
    families,
)
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.target.host import host_target
from xcompile.compiler.target.registry import targets
from xcompile.dialects.nn.binary import Add, Sub
from xcompile.dialects.nn.pool import AveragePool, MaxPool
from xcompile.dialects.nn.reduce import ReduceMean, ReduceSum
from xcompile.dialects.nn.resize import Resize
from xcompile.dialects.nn.slicing import Concat

TIERS = [t for name in ("x86-avx2", "x86-vnni") if (t := targets()[name]).runs_on(host_target())]
SAME = (1, 1, 1, 1)
HALVES: dict[str, Any] = {
    "kernel": (3, 3),
    "strides": (2, 2),
    "pads": SAME,
    "dilations": (1, 1),
}


def stem(g: IntegerGraph, channels: int) -> ir.Value:
    """A first layer of three channels."""
    return g.requantized(g.conv(g.inputs[0], channels, strides=(2, 2), pads=SAME, fill=7), 5)


def convolutions_and_a_pool() -> Module:
    g = IntegerGraph((1, 3, 21, 20))
    x = stem(g, 19)
    y = g.requantized(g.conv(x, 19, (1, 1)), 3)
    x = g.requantized(g.conv(y, 19, pads=SAME, fill=3), 4, other=x)
    x = g.make(MaxPool, x=x, **HALVES)
    return g.done(g.requantized(g.conv(x, 33), 9))


def two_dequantized_convolutions_are_added() -> Module:
    g = IntegerGraph((1, 3, 21, 20))
    x = stem(g, 24)
    a = g.requantized(g.conv(x, 24, (1, 1)), 3)
    b = g.requantized(g.conv(x, 24, pads=SAME, fill=5), 4)
    x = g.quantized(g.make(Add, a=g.dequantized(a, 3), b=g.dequantized(b, 4)))
    return g.done(g.requantized(g.conv(x, 16, (1, 1)), 9))


def an_average_pool_and_a_concatenation() -> Module:
    g = IntegerGraph((1, 3, 21, 20))
    x = stem(g, 20)
    x = g.quantized(g.make(AveragePool, x=g.dequantized(x, 5), **HALVES))
    x = g.make(Concat, xs=[x, g.requantized(g.conv(x, 12, (1, 1)), 9)], axis=1)
    x = g.requantized(g.conv(x, 16, pads=SAME, fill=9), 9)
    return g.done(g.quantized(g.make(ReduceMean, x=g.dequantized(x, 9), axes=(2, 3))))


def a_sum_and_groups() -> Module:
    g = IntegerGraph((1, 3, 21, 20))
    x = g.requantized(g.conv(stem(g, 24), 36, pads=SAME, groups=3, fill=5), 7)
    x = g.make(Sub, a=g.wide(x), b=np.int32(7))
    return g.done(g.requantized(g.make(ReduceSum, x=x, axes=(2, 3), keepdims=True), 1))


def a_depthwise_convolution() -> Module:
    g = IntegerGraph((1, 3, 21, 20))
    x = g.requantized(g.conv(stem(g, 19), 19, pads=SAME, groups=19, fill=5), 3)
    return g.done(g.requantized(g.conv(x, 24, (1, 1)), 9))


def an_enlarged_image() -> Module:
    g = IntegerGraph((1, 3, 21, 20))
    sizes = g.const([1, 20, 22, 20], np.int64)
    x = g.make(
        Resize, x=stem(g, 20), sizes=sizes, axes=(0, 1, 2, 3), mode="nearest",
        coordinates="asymmetric", nearest="floor",
    )  # fmt: skip
    return g.done(g.requantized(g.conv(x, 16, (1, 1)), 9))


MODELS: list[tuple[Build, list[str]]] = [
    (convolutions_and_a_pool, ["pool"]),
    (two_dequantized_convolutions_are_added, []),
    (an_average_pool_and_a_concatenation, ["pool", "map", "global-pool"]),
    (a_sum_and_groups, ["global-pool"]),
    (a_depthwise_convolution, ["integer-depthwise"]),
    (an_enlarged_image, ["map"]),
]


@pytest.mark.parametrize(("build", "others"), MODELS, ids=[b.__name__ for b, _ in MODELS])
def test_every_tier_has_the_bytes_of_the_reference_and_no_wider_image_in_memory(
    build: Build, others: list[str]
) -> None:
    x = np.random.default_rng(1).integers(0, 256, (1, 3, 21, 20)).astype(np.uint8)
    want = expected(build, x)[0]
    assert np.unique(want).size > 4
    for target in TIERS:
        model, module = compiled(build, target)
        np.testing.assert_array_equal(model(x), want)
        found = [f for f in families(model.artifact) if f != "integer-conv"]
        assert found == [*others, "map"] if want.shape[2] > 1 else others  # the end is row-major
        assert set(bytes_an_element(model.artifact, module)) == {1.0}
