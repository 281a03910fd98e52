"""What the passes must leave alone: each guard has a graph in which its absence would be seen."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.numerics.graphs import Graph
from tests.numerics.test_passes import conv_fields, norm_fields, over, run, spread, values
from xcompile.compiler.ir.context import context
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.pipelines import GRAPH_PASSES
from xcompile.dialects.nn import binary as b
from xcompile.dialects.nn import norm as n
from xcompile.dialects.nn import reduce as r
from xcompile.dialects.nn import unary as u
from xcompile.dialects.nn.conv import Conv
from xcompile.dialects.nn.interpreter import interpret
from xcompile.dialects.nn.matmul import MatMul
from xcompile.dialects.nn.pool import AveragePool
from xcompile.dialects.nn.reshape import Transpose
from xcompile.dialects.nn.slicing import Concat, Pad
from xcompile.dialects.nn.ternary import Clip


@pytest.fixture(autouse=True)
def mlir() -> Iterator[None]:
    with context():
        yield


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(7)


def conv(g: Graph, x: ir.Value, random: np.random.Generator, **more: Any) -> ir.Value:
    return g.make(Conv, x=x, w=values(random, 2, 2, 1, 1), **conv_fields(**more))


# -- other users ------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", [b.Mul, b.Div, b.Add, b.Sub])
def test_a_convolution_with_other_users_is_not_computed_twice(
    random: np.random.Generator, op: type
) -> None:
    g = Graph((1, 2, 3, 3))
    y = conv(g, g.inputs[0], random)
    z = g.make(op, a=y, b=values(random, 2, 1, 1))
    got = run("nn-conv-bias,nn-fold-scale", g.done(y, z), values(random, 1, 2, 3, 3))
    assert got == ["conv", op.NAME.removeprefix("nn.")]


def test_a_matrix_product_with_other_users_is_not_computed_twice(
    random: np.random.Generator,
) -> None:
    g = Graph((3, 2))
    y = g.make(MatMul, a=g.inputs[0], b=values(random, 2, 2))
    z = g.make(b.Mul, a=y, b=values(random, 2))
    w = g.make(n.BatchNorm, x=y, **norm_fields(random, 2))
    got = run("nn-fold-batch-norm,nn-fold-scale", g.done(y, z, w), values(random, 3, 2))
    assert got == ["matmul", "mul", "mul", "add"]


def test_a_factor_with_other_users_stays_before_a_convolution(random: np.random.Generator) -> None:
    g = Graph((1, 2, 3, 3))
    x = g.make(b.Mul, a=g.inputs[0], b=values(random, 2, 1, 1))
    module = g.done(x, conv(g, x, random))
    assert run("nn-fold-scale", module, values(random, 1, 2, 3, 3)) == ["mul", "conv"]


# -- constants that do not belong to channels -------------------------------------------------------


def test_a_constant_that_adds_axes_stays(random: np.random.Generator) -> None:
    g = Graph((1, 2, 3, 3))
    y = conv(g, g.inputs[0], random)
    z = g.make(b.Add, a=y, b=values(random, 1, 2, 1, 1, 1))
    got = run("nn-conv-bias", g.done(z), values(random, 1, 2, 3, 3))
    assert got == ["conv", "add"]


# -- pads -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more", [{"pads": (1, 1, 1, 1)}, {"ceil_mode": True}, {"auto_pad": "same_upper"}]
)
def test_a_pool_that_pads_in_its_own_way_keeps_the_pad_before_it(
    random: np.random.Generator, more: dict[str, Any]
) -> None:
    g = Graph((1, 1, 4, 4))
    x = g.make(Pad, x=g.inputs[0], pads=np.array([0, 0, 1, 0, 0, 0, 0, 0], np.int64))
    fields = {**conv_fields(), "strides": (2, 2), **more}
    y = g.make(AveragePool, x=x, kernel=(2, 2), **fields)
    assert run("nn-fuse-pad", g.done(y), values(random, 1, 1, 4, 4)) == ["pad", "average_pool"]


# -- functions that only look alike -----------------------------------------------------------------


def test_a_gate_of_another_value_is_no_hard_swish(random: np.random.Generator) -> None:
    g = Graph((4,), (4,))
    x, y = g.inputs
    gate = g.make(u.HardSigmoid, x=y, alpha=1 / 6)
    clip = g.make(Clip, x=g.make(b.Add, a=y, b=g.const(3)), low=g.const(0), high=g.const(6))
    product = g.make(b.Mul, a=g.make(b.Mul, a=x, b=clip), b=g.const(1 / 6))
    module = g.done(g.make(b.Mul, a=x, b=gate), product)
    got = run("nn-fuse-hard-swish", module, values(random, 4), values(random, 4))
    assert "hard_swish" not in got


def test_a_mean_of_another_value_is_no_layer_norm(random: np.random.Generator) -> None:
    g = Graph((2, 4), (2, 4))
    x, y = g.inputs
    centered = g.make(b.Sub, a=x, b=g.make(r.ReduceMean, x=y, axes=(1,)))
    module = g.done(over(g, centered, spread(g, centered, (1,), 1e-2), 0))
    got = run("nn-fuse-layer-norm", module, values(random, 2, 4), values(random, 2, 4))
    assert "layer_norm" not in got


def test_a_variance_over_other_axes_is_no_layer_norm(random: np.random.Generator) -> None:
    g = Graph((2, 3, 4))
    x = g.inputs[0]
    centered = g.make(b.Sub, a=x, b=g.make(r.ReduceMean, x=x, axes=(2,)))
    module = g.done(over(g, centered, spread(g, centered, (1, 2), 1e-2), 0))
    assert "layer_norm" not in run("nn-fuse-layer-norm", module, values(random, 2, 3, 4))


def test_a_reduction_that_drops_its_axes_is_no_layer_norm(random: np.random.Generator) -> None:
    g = Graph((4, 4))
    x = g.inputs[0]
    centered = g.make(b.Sub, a=x, b=g.make(r.ReduceMean, x=x, axes=(1,), keepdims=False))
    module = g.done(over(g, centered, spread(g, centered, (1,), 1e-2), 0))
    assert "layer_norm" not in run("nn-fuse-layer-norm", module, values(random, 4, 4))


@pytest.mark.parametrize("part", ["maximum", "sum", "axes"])
def test_parts_of_other_values_or_axes_are_no_softmax(
    random: np.random.Generator, part: str
) -> None:
    g = Graph((4, 4), (4, 4))
    x, y = g.inputs
    most = g.make(r.ReduceMax, x=y if part == "maximum" else x, axes=(1,))
    e = g.make(u.Exp, x=g.make(b.Sub, a=x, b=most))
    summed = g.make(u.Exp, x=y) if part == "sum" else e
    total = g.make(r.ReduceSum, x=summed, axes=(0,) if part == "axes" else (1,))
    y = g.make(b.Div, a=e, b=total)
    module = g.done(y, e) if part == "sum" else g.done(y)
    got = run("nn-fuse-softmax", module, values(random, 4, 4), values(random, 4, 4))
    assert "softmax" not in got


# -- parameters of normalizations -------------------------------------------------------------------


def test_a_second_scale_and_a_second_bias_stay_behind_a_layer_norm(
    random: np.random.Generator,
) -> None:
    g = Graph((2, 4))
    y = g.make(n.LayerNorm, x=g.inputs[0], scale=values(random, 4), bias=values(random, 4), axis=1)
    y = g.make(b.Add, a=g.make(b.Mul, a=y, b=values(random, 4)), b=values(random, 4))
    z = g.make(n.LayerNorm, x=g.inputs[0], scale=values(random, 4), axis=1)
    z = g.make(b.Mul, a=z, b=values(random, 4))
    w = g.make(n.LayerNorm, x=g.inputs[0], scale=values(random, 4), bias=values(random, 4), axis=1)
    w = g.make(b.Add, a=w, b=values(random, 4))
    got = run("nn-fuse-layer-norm", g.done(y, z, w), values(random, 2, 4))
    assert got == ["layer_norm", "mul", "add", "layer_norm", "mul", "layer_norm", "add"]


def test_a_second_scale_stays_behind_an_rms_norm(random: np.random.Generator) -> None:
    g = Graph((2, 4))
    y = g.make(n.RmsNorm, x=g.inputs[0], scale=values(random, 4), axis=1)
    y = g.make(b.Mul, a=y, b=values(random, 4))
    assert run("nn-fuse-rms-norm", g.done(y), values(random, 2, 4)) == ["rms_norm", "mul"]


@pytest.mark.parametrize("case", ["other users", "other axes"])
def test_a_factor_that_is_no_parameter_stays(random: np.random.Generator, case: str) -> None:
    g = Graph((2, 4))
    y = g.make(n.RmsNorm, x=g.inputs[0], scale=np.ones(4, np.float32), axis=1)
    factor = values(random, 4) if case == "other users" else values(random, 2, 1)
    z = g.make(b.Mul, a=y, b=factor)
    module = g.done(y, z) if case == "other users" else g.done(z)
    assert run("nn-fuse-rms-norm", module, values(random, 2, 4)) == ["rms_norm", "mul"]


# -- canonical forms --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bounds", [((0, 1), (2, 3)), ((2, 3), (0, 1)), ((3, 2), (0, 5)), ((0, 5), (3, 2))]
)
def test_clips_whose_bounds_cross_stay_apart(
    random: np.random.Generator, bounds: tuple[tuple[float, float], ...]
) -> None:
    g = Graph((9,))
    y = g.inputs[0]
    for low, high in bounds:
        y = g.make(Clip, x=y, low=g.const(low), high=g.const(high))
    assert run("nn-canonicalize", g.done(y), 4 * values(random, 9)) == ["clip", "clip"]


def test_transposes_compose_in_their_order(random: np.random.Generator) -> None:
    g = Graph((2, 3, 4))
    y = g.make(Transpose, x=g.inputs[0], perm=(1, 2, 0))
    y = g.make(Transpose, x=y, perm=(1, 0, 2))
    assert run("nn-canonicalize", g.done(y), values(random, 2, 3, 4)) == ["transpose"]


def test_concatenations_along_different_axes_stay_apart(random: np.random.Generator) -> None:
    g = Graph((2, 2))
    x = g.inputs[0]
    y = g.make(Concat, xs=[x, x], axis=0)
    y = g.make(Concat, xs=[y, g.const(values(random, 4, 1))], axis=1)
    assert run("nn-canonicalize", g.done(y), values(random, 2, 2)) == ["concat", "concat"]


def test_a_cast_through_the_other_signedness_stays() -> None:
    g = Graph((4,), dtype="i8")
    y = g.make(u.Cast, x=g.make(u.Cast, x=g.inputs[0], to="ui8"), to="i32")
    x = np.array([-128, -1, 0, 127], np.int8)
    assert run("nn-canonicalize", g.done(y), x) == ["cast", "cast"]


def test_folding_does_not_take_on_large_products() -> None:
    g = Graph((1,))
    huge = np.broadcast_to(np.float32(1), (720, 720))
    y = g.make(MatMul, a=np.ascontiguousarray(huge), b=np.ascontiguousarray(huge))
    y = g.make(b.Mul, a=g.make(r.ReduceMax, x=y, axes=(0, 1), keepdims=False), b=g.inputs[0])
    assert "matmul" in run("nn-fold-constants", g.done(y), np.ones(1, np.float32))


# -- products with biases, as they went wrong elsewhere ----------------------------------------------


def graph_passes(module: Module, *inputs: np.ndarray) -> list[Any]:
    """The results after all graph passes, which must be those before."""
    run(GRAPH_PASSES, module, *inputs, tolerance=0)
    return [a.tolist() for a in interpret(module, inputs)]


def test_a_transpose_that_does_nothing_does_not_toggle_a_product() -> None:
    g = Graph((2, 2))
    x = g.make(Transpose, x=g.inputs[0], perm=(0, 1))
    y = g.make(MatMul, a=x, b=np.eye(2, dtype=np.float32))
    module = g.done(g.make(b.Add, a=y, b=np.float32(0)))
    assert graph_passes(module, np.array([[1, 2], [3, 4]], np.float32)) == [[[1, 2], [3, 4]]]


def test_a_bias_that_enlarges_a_product_stays_an_addition() -> None:
    g = Graph((3, 3))
    y = g.make(MatMul, a=g.inputs[0], b=np.zeros((3, 1), np.float32))
    module = g.done(g.make(b.Add, a=y, b=np.array([[0, 10, 20, 30]], np.float32)))
    assert graph_passes(module, np.ones((3, 3), np.float32)) == [[[0, 10, 20, 30]] * 3]


def test_a_column_is_added_to_the_rows_of_a_square_product() -> None:
    g = Graph((2, 2))
    y = g.make(MatMul, a=g.inputs[0], b=np.eye(2, dtype=np.float32))
    module = g.done(g.make(b.Add, a=y, b=np.array([[10], [20]], np.float32)))
    x = np.array([[1, 2], [3, 4]], np.float32)
    assert graph_passes(module, x) == [[[11, 12], [23, 24]]]


def test_a_product_of_nothing_is_its_bias() -> None:
    g = Graph((2, 0))
    y = g.make(MatMul, a=g.inputs[0], b=np.zeros((0, 3), np.float32))
    y = g.make(b.Mul, a=y, b=np.array([2, 3, 4], np.float32))
    module = g.done(g.make(b.Add, a=y, b=np.array([1, 2, 3], np.float32)))
    assert graph_passes(module, np.zeros((2, 0), np.float32)) == [[[1, 2, 3]] * 2]
