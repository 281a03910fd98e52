"""Slices and splits without copies, and concatenations that are outputs of the model."""

import numpy as np
import pytest

from tests.e2e.compiled_node import shared_pool
from tests.e2e.networks import Network, reference
from xcompile.compiler.api import compile as compile_model

VERIFIED = {"verify-each": True}


def ints(n, *values):
    return n.constant(np.array(values, np.int64))


def compiled(model, threads=1):
    return compile_model(model, pool=shared_pool(), threads=threads, options=VERIFIED)


def families(made):
    return [made.artifact.kernels[s.symbol].family for s in made.artifact.program.launches]


def check(model, made, *shapes):
    random = np.random.default_rng(0)
    feeds = {
        info.name: random.standard_normal(shape).astype(np.float32)
        for info, shape in zip(made.artifact.manifest.inputs, shapes, strict=True)
    }
    executable = made.artifact.load(threads=1, poison=True)
    for got, wanted in zip(executable.run(feeds).values(), reference(model, feeds), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4, strict=True)


def parts(batch, channels=(32, 16), size=6):
    """A convolution whose channels are split, each part for a convolution of its own."""
    n = Network()
    x = n("Relu", n("Conv", "x", n.weight(sum(channels), 8, 1, 1)))
    first, second = n("Split", x, ints(n, *channels), axis=1, outputs=2)
    a = n("Conv", first, n.weight(8, channels[0], 1, 1))
    b = n("Conv", second, n.weight(8, channels[1], 1, 1))
    y = n("Add", a, b)
    inputs = {"x": ("FLOAT", [batch, 8, size, size])}
    return n.model(inputs, {y: ("FLOAT", [batch, 8, size, size])})


@pytest.mark.parametrize(
    ("batch", "channels", "copies"),
    [(1, (32, 16), 0), (1, (16, 5), 0), (2, (32, 16), 2)],
    ids=["whole blocks", "a part of a block at the end", "parts that lie apart"],
)
def test_channels_that_are_split_lie_where_the_convolution_wrote_them(batch, channels, copies):
    model = parts(batch, channels)
    made = compiled(model)
    assert sum("Split" in launch.node for launch in made.artifact.program.launches) == copies
    check(model, made, (batch, 8, 6, 6))


def halves(axis):
    """A gated linear unit: half of the channels times the sigmoid of the others."""
    n = Network()
    value, gate = n("Split", "x", axis=axis, outputs=2)
    y = n("Mul", value, n("Sigmoid", gate))
    return n.model({"x": ("FLOAT", [4, 6, 8])}, {y: ("FLOAT", None)})


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_a_gated_unit_is_one_kernel(axis):
    model = halves(axis)
    made = compiled(model)
    assert families(made) == ["map"]
    check(model, made, (4, 6, 8))


def test_products_of_the_parts_of_a_leading_axis_read_them_in_place():
    n = Network()
    query, key, value = n("Split", "x", axis=0, outputs=3)
    y = n("MatMul", n("MatMul", query, n("Transpose", key, perm=[0, 2, 1])), value)
    model = n.model({"x": ("FLOAT", [3, 5, 8])}, {y: ("FLOAT", [1, 5, 8])})
    made = compiled(model)
    assert "map" not in families(made)
    check(model, made, (3, 5, 8))


def test_a_part_of_a_part_begins_where_both_say():
    n = Network()
    x = n("MatMul", "x", n.weight(4, 6))
    tail = n("Slice", x, ints(n, 2), ints(n, 9), ints(n, 0))
    inner = n("Slice", n("Reshape", tail, ints(n, 7, 2, 3)), ints(n, -3), ints(n, -1), ints(n, 0))
    y = n("MatMul", n("Reshape", inner, ints(n, 4, 3)), n.weight(3, 5))
    model = n.model({"x": ("FLOAT", [9, 4])}, {y: ("FLOAT", [4, 5])})
    made = compiled(model)
    assert families(made) == ["contraction", "contraction"]
    check(model, made, (9, 4))


def test_a_part_that_is_an_output_is_copied():
    n = Network()
    x = n("MatMul", "x", n.weight(4, 6))
    head, tail = n("Split", x, ints(n, 3, 6), axis=0, outputs=2)
    y = n("MatMul", tail, n.weight(6, 2))
    outputs = {head: ("FLOAT", [3, 6]), y: ("FLOAT", [6, 2]), tail: ("FLOAT", [6, 6])}
    model = n.model({"x": ("FLOAT", [9, 4])}, outputs)
    check(model, compiled(model), (9, 4))


def test_parts_go_into_a_concatenation_in_another_order():
    n = Network()
    x = n("MatMul", "x", n.weight(4, 6))
    head, tail = n("Split", x, ints(n, 3, 6), axis=0, outputs=2)
    y = n("MatMul", n("Concat", tail, head, axis=0), n.weight(6, 2))
    model = n.model({"x": ("FLOAT", [9, 4])}, {y: ("FLOAT", [9, 2])})
    check(model, compiled(model), (9, 4))


def test_parts_of_a_batch_whose_size_is_open():
    n = Network()
    x = n("MatMul", "x", n.weight(4, 6))
    rest = n("Slice", x, ints(n, 2), ints(n, 2**31 - 1), ints(n, 0))
    y = n("MatMul", rest, n.weight(6, 2))
    model = n.model({"x": ("FLOAT", ["N", 4])}, {y: ("FLOAT", None)})
    made = compiled(model)
    assert families(made) == ["contraction", "contraction"]
    for count in (9, 3, 2, 1):
        check(model, made, (count, 4))


@pytest.mark.parametrize("rows", [(3, 4), ("N", "M")])
def test_a_concatenation_that_is_an_output_is_written_by_what_it_joins(rows):
    n = Network()
    a, b = (n("MatMul", x, n.weight(4, 6)) for x in ("a", "b"))
    y = n("Concat", a, b, axis=0)
    inputs = {name: ("FLOAT", [size, 4]) for name, size in zip("ab", rows, strict=True)}
    model = n.model(inputs, {y: ("FLOAT", [None, 6])})
    made = compiled(model)
    assert families(made) == ["contraction", "contraction"]
    check(model, made, (3, 4), (4, 4))
