"""Every pass leaves what the model computes as it was: the reference interpreter runs before and after."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.numerics.graphs import Graph
from xcompile import passes
from xcompile.compiler.ir.context import context
from xcompile.compiler.ir.instruments import Verify
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.passes import PassContext
from xcompile.compiler.ir.pipeline import parse_pipeline
from xcompile.compiler.ir.runner import run_pipeline
from xcompile.compiler.pipelines import GRAPH_PASSES
from xcompile.compiler.target.registry import targets
from xcompile.dialects.nn import binary as b
from xcompile.dialects.nn import norm as n
from xcompile.dialects.nn import reduce as r
from xcompile.dialects.nn import reshape as m
from xcompile.dialects.nn import unary as u
from xcompile.dialects.nn.conv import Conv, ConvTranspose
from xcompile.dialects.nn.generate import ConstantOfShape
from xcompile.dialects.nn.interpreter import interpret
from xcompile.dialects.nn.matmul import MatMul
from xcompile.dialects.nn.pool import AveragePool, MaxPool
from xcompile.dialects.nn.sizes import ShapeOf
from xcompile.dialects.nn.slicing import Concat, Pad, Slice
from xcompile.dialects.nn.softmax import Hardmax
from xcompile.dialects.nn.ternary import Clip

assert passes.PASSES


@pytest.fixture(autouse=True)
def mlir() -> Iterator[None]:
    with context():
        yield


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(20261)


def values(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.standard_normal(shape).astype(np.float32)


def names(module: Module) -> list[str]:
    """The ops of `@main` but constants and the return, without `nn.`."""
    block = module.main.regions[0].blocks[0]
    found = [o.operation.name.removeprefix("nn.") for o in block.operations][:-1]
    return [name for name in found if name != "const"]


def run(pipeline: str, module: Module, *inputs: np.ndarray, tolerance: float = 1e-5) -> list[str]:
    """Run the passes, compare the results before and after, and give the ops that are left."""
    before = interpret(module, inputs)
    state = PassContext(targets()["x86-avx2"], instruments=[Verify(each=True)])
    run_pipeline(module, parse_pipeline(pipeline, {}), state)
    for got, wanted in zip(interpret(module, inputs), before, strict=True):
        assert got.dtype == wanted.dtype
        np.testing.assert_allclose(
            got.astype(np.float64), wanted.astype(np.float64), rtol=tolerance, atol=tolerance
        )
    return names(module)


def conv_fields(rank: int = 2, pad: int = 0, **more: Any) -> dict[str, Any]:
    return {"strides": (1,) * rank, "pads": (pad,) * 2 * rank, "dilations": (1,) * rank, **more}


def norm_fields(random: np.random.Generator, channels: int) -> dict[str, Any]:
    fields = {k: values(random, channels) for k in ("scale", "bias", "mean")}
    return {**fields, "variance": np.abs(values(random, channels)) + np.float32(0.1)}


# -- batch normalization ----------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("batch", [2, None])
def test_batch_norm_folds_into_a_convolution(
    random: np.random.Generator, bias: bool, groups: int, batch: int | None
) -> None:
    g = Graph((batch, 4, 5, 5))
    w = values(random, 6, 4 // groups, 3, 3)
    extra = {"bias": values(random, 6)} if bias else {}
    y = g.make(Conv, x=g.inputs[0], w=w, **extra, **conv_fields(pad=1, groups=groups))
    y = g.make(n.BatchNorm, x=y, **norm_fields(random, 6))
    assert run("nn-fold-batch-norm", g.done(y), values(random, 2, 4, 5, 5)) == ["conv"]


@pytest.mark.parametrize("groups", [1, 2])
def test_batch_norm_folds_into_a_transposed_convolution(
    random: np.random.Generator, groups: int
) -> None:
    g = Graph((2, 4, 5, 5))
    w = values(random, 4, 6 // groups, 2, 2)
    y = g.make(ConvTranspose, x=g.inputs[0], w=w, output_pads=(0, 0), **conv_fields(groups=groups))
    y = g.make(n.BatchNorm, x=y, **norm_fields(random, 6))
    assert run("nn-fold-batch-norm", g.done(y), values(random, 2, 4, 5, 5)) == ["conv_transpose"]


@pytest.mark.parametrize("transposed", [True, False])
def test_batch_norm_folds_into_a_matrix(random: np.random.Generator, transposed: bool) -> None:
    g = Graph((None, 4))
    w = values(random, 3, 4) if transposed else values(random, 4, 3)
    y = g.make(MatMul, a=g.inputs[0], b=w, transpose_b=transposed)
    y = g.make(n.BatchNorm, x=y, **norm_fields(random, 3))
    assert run("nn-fold-batch-norm", g.done(y), values(random, 5, 4)) == ["matmul", "add"]


def test_a_shared_convolution_keeps_its_result_and_the_norm_becomes_mul_and_add() -> None:
    """x [-1, 2], w = 2; scale 3, bias 1, mean .5, variance 1, epsilon 0: the norm is [-6.5, 11.5], conv [-2, 4]."""
    g = Graph((1, 1, 2))
    one = np.ones(1, np.float32)
    y = g.make(Conv, x=g.inputs[0], w=np.full((1, 1, 1), 2, np.float32), **conv_fields(1))
    z = g.make(n.BatchNorm, x=y, scale=3 * one, bias=one, mean=one / 2, variance=one, epsilon=0.0)
    module = g.done(y, z)
    x = np.array([[[-1, 2]]], np.float32)
    assert run("nn-fold-batch-norm", module, x) == ["conv", "mul", "add"]
    conv, norm = interpret(module, [x])
    assert conv.tolist() == [[[-2, 4]]]
    assert norm.tolist() == [[[-6.5, 11.5]]]


def test_a_relu_between_stops_the_fold() -> None:
    """The same numbers with a ReLU between: [-.5, 11.5]."""
    g = Graph((1, 1, 2))
    one = np.ones(1, np.float32)
    y = g.make(Conv, x=g.inputs[0], w=np.full((1, 1, 1), 2, np.float32), **conv_fields(1))
    y = g.make(u.Relu, x=y)
    z = g.make(n.BatchNorm, x=y, scale=3 * one, bias=one, mean=one / 2, variance=one, epsilon=0.0)
    module = g.done(z)
    x = np.array([[[-1, 2]]], np.float32)
    assert run("nn-fold-batch-norm", module, x) == ["conv", "relu", "mul", "add"]
    assert interpret(module, [x])[0].tolist() == [[[-0.5, 11.5]]]


def test_a_weight_shared_by_two_convolutions_stays_for_the_other(
    random: np.random.Generator,
) -> None:
    g = Graph((1, 2, 4, 4))
    w = g.const(values(random, 2, 2, 1, 1))
    first = g.make(Conv, x=g.inputs[0], w=w, **conv_fields())
    second = g.make(Conv, x=g.inputs[0], w=w, **conv_fields())
    y = g.make(n.BatchNorm, x=first, **norm_fields(random, 2))
    assert run("nn-fold-batch-norm", g.done(y, second), values(random, 1, 2, 4, 4)) == ["conv"] * 2


# -- scales, shifts, pads ---------------------------------------------------------------------------


def test_scales_and_shifts_around_a_convolution_fold_into_it(random: np.random.Generator) -> None:
    g = Graph((None, 4, 6, 6))
    x = g.make(b.Mul, a=g.inputs[0], b=values(random, 4, 1, 1))
    x = g.make(b.Add, a=x, b=values(random, 1, 4, 1, 1))
    y = g.make(Conv, x=x, w=values(random, 6, 2, 3, 3), **conv_fields(groups=2))
    y = g.make(b.Div, a=y, b=np.abs(values(random, 6, 1, 1)) + np.float32(0.5))
    y = g.make(b.Add, a=values(random, 1, 6, 1, 1), b=y)
    y = g.make(b.Mul, a=y, b=np.float32(2.0))
    pipeline = "fixpoint(nn-conv-bias,nn-fold-scale)"
    assert run(pipeline, g.done(y), values(random, 2, 4, 6, 6)) == ["conv"]


def test_a_shift_before_a_padded_convolution_stays() -> None:
    """Add 10, then a padded 1-wide convolution with w = [1, 1, 1] on [1, 2]: [23, 23]."""
    g = Graph((1, 1, 2))
    x = g.make(b.Add, a=g.inputs[0], b=np.full((1, 1, 1), 10, np.float32))
    y = g.make(Conv, x=x, w=np.ones((1, 1, 3), np.float32), **conv_fields(1, pad=1))
    module = g.done(y)
    x0 = np.array([[[1, 2]]], np.float32)
    assert run("nn-fold-scale", module, x0) == ["add", "conv"]
    assert interpret(module, [x0])[0].tolist() == [[[23, 23]]]


def test_scales_around_a_matrix_product_fold_into_it(random: np.random.Generator) -> None:
    g = Graph((2, None, 4))
    x = g.make(b.Mul, a=g.inputs[0], b=values(random, 4))
    y = g.make(MatMul, a=x, b=values(random, 3, 4), transpose_b=True)
    y = g.make(b.Add, a=y, b=values(random, 3))
    y = g.make(b.Mul, a=y, b=values(random, 1, 3))
    assert run("nn-fold-scale", g.done(y), values(random, 2, 5, 4)) == ["matmul", "add"]


def test_a_factor_that_enlarges_the_result_stays(random: np.random.Generator) -> None:
    g = Graph((1, 2, 1, 1))
    y = g.make(Conv, x=g.inputs[0], w=values(random, 2, 2, 1, 1), **conv_fields())
    y = g.make(b.Mul, a=y, b=values(random, 3, 1, 1, 1))
    module = g.done(y)
    assert run("nn-fold-scale,nn-conv-bias", module, values(random, 1, 2, 1, 1)) == ["conv", "mul"]


def test_zero_padding_joins_convolutions_and_pools(random: np.random.Generator) -> None:
    pads = np.array([0, 0, 1, 2, 0, 0, 3, 0], np.int64)
    g = Graph((1, 2, None, 5))
    x = g.make(Pad, x=g.inputs[0], pads=pads)
    y = g.make(Conv, x=x, w=values(random, 3, 2, 3, 3), **conv_fields(pad=1))
    z = g.make(AveragePool, x=x, kernel=(2, 2), **conv_fields())
    module = g.done(y, z)
    assert run("nn-fuse-pad", module, values(random, 1, 2, 4, 5)) == ["conv", "average_pool"]


def test_padding_with_minus_infinity_joins_maximum_pools(random: np.random.Generator) -> None:
    g = Graph((1, 2, 4, 5))
    value = np.array(-np.inf, np.float32)
    x = g.make(Pad, x=g.inputs[0], pads=np.array([0, 0, 1, 0, 0, 0, 0, 1], np.int64), value=value)
    y = g.make(MaxPool, x=x, kernel=(3, 2), **conv_fields())
    assert run("nn-fuse-pad", g.done(y), values(random, 1, 2, 4, 5)) == ["max_pool"]


def test_padding_with_another_value_stays() -> None:
    """Pad with 5, then w = [1, 1, 1] on [1, 2]: [8, 8]."""
    g = Graph((1, 1, 2))
    x = g.make(
        Pad,
        x=g.inputs[0],
        pads=np.array([0, 0, 1, 0, 0, 1], np.int64),
        value=np.array(5, np.float32),
    )
    y = g.make(Conv, x=x, w=np.ones((1, 1, 3), np.float32), **conv_fields(1))
    module = g.done(y)
    x0 = np.array([[[1, 2]]], np.float32)
    assert run("nn-fuse-pad", module, x0) == ["pad", "conv"]
    assert interpret(module, [x0])[0].tolist() == [[[8, 8]]]


# -- recognised functions ---------------------------------------------------------------------------

SQRT_2 = math.sqrt(2)


def gelu_erf(g: Graph, x: ir.Value, order: int) -> ir.Value:
    scaled = (
        g.make(b.Div, a=x, b=g.const(SQRT_2))
        if order % 2
        else g.make(b.Mul, a=x, b=g.const(1 / SQRT_2))
    )
    total = g.make(b.Add, a=g.make(u.Erf, x=scaled), b=g.const(1))
    half = g.const(0.5)
    if order < 2:
        return g.make(b.Mul, a=g.make(b.Mul, a=x, b=total), b=half)
    if order < 4:
        return g.make(b.Mul, a=g.make(b.Mul, a=half, b=x), b=total)
    return g.make(b.Div, a=g.make(b.Mul, a=total, b=x), b=g.const(2))


@pytest.mark.parametrize("order", range(6))
def test_gelu_by_erf_is_recognised_in_every_order(random: np.random.Generator, order: int) -> None:
    g = Graph((None, 3))
    module = g.done(gelu_erf(g, g.inputs[0], order))
    assert run("nn-fuse-gelu", module, values(random, 4, 3)) == ["gelu"]


def gelu_tanh(g: Graph, x: ir.Value, form: int) -> ir.Value:
    a, c = math.sqrt(2 / math.pi), 0.044715
    if form == 0:  # √(2/π)·(x + 0.044715·x³)
        cube = g.make(b.Pow, a=x, b=g.const(3))
        inner = g.make(b.Add, a=x, b=g.make(b.Mul, a=g.const(c), b=cube))
        argument = g.make(b.Mul, a=inner, b=g.const(a))
    else:  # √(2/π)·x·(1 + 0.044715·x·x)
        square = g.make(b.Mul, a=g.make(b.Mul, a=x, b=g.const(c)), b=x)
        inner = g.make(b.Add, a=square, b=g.const(1))
        argument = g.make(b.Mul, a=g.make(b.Mul, a=x, b=g.const(a)), b=inner)
    total = g.make(b.Add, a=g.const(1), b=g.make(u.Tanh, x=argument))
    return g.make(b.Mul, a=g.make(b.Mul, a=x, b=g.const(0.5)), b=total)


@pytest.mark.parametrize("form", range(2))
def test_gelu_by_tanh_is_recognised(random: np.random.Generator, form: int) -> None:
    g = Graph((4, 3))
    module = g.done(gelu_tanh(g, g.inputs[0], form))
    assert run("nn-fuse-gelu", module, values(random, 4, 3)) == ["gelu"]


@pytest.mark.parametrize("form", ["product", "quotient", "inner quotient", "hard sigmoid"])
def test_hard_swish_is_recognised(random: np.random.Generator, form: str) -> None:
    g = Graph((None, 3))
    x = g.inputs[0]
    if form == "hard sigmoid":
        y = g.make(b.Mul, a=g.make(u.HardSigmoid, x=x, alpha=1 / 6), b=x)
    else:
        clip = g.make(Clip, x=g.make(b.Add, a=x, b=g.const(3)), low=g.const(0), high=g.const(6))
        if form == "product":
            y = g.make(b.Mul, a=g.make(b.Mul, a=x, b=clip), b=g.const(1 / 6))
        elif form == "quotient":
            y = g.make(b.Div, a=g.make(b.Mul, a=x, b=clip), b=g.const(6))
        else:
            y = g.make(b.Mul, a=x, b=g.make(b.Div, a=clip, b=g.const(6)))
    assert run("nn-fuse-hard-swish", g.done(y), 3 * values(random, 9, 3)) == ["hard_swish"]


def spread(g: Graph, centered: ir.Value, axes: tuple[int, ...], epsilon: float) -> ir.Value:
    square = g.make(b.Pow, a=centered, b=g.const(2))
    return g.make(b.Add, a=g.make(r.ReduceMean, x=square, axes=axes), b=g.const(epsilon))


def over(g: Graph, x: ir.Value, square: ir.Value, form: int) -> ir.Value:
    if form == 0:
        return g.make(b.Div, a=x, b=g.make(u.Sqrt, x=square))
    if form == 1:
        return g.make(b.Mul, a=x, b=g.make(u.Reciprocal, x=g.make(u.Sqrt, x=square)))
    if form == 2:
        return g.make(b.Mul, a=g.make(b.Pow, a=square, b=g.const(-0.5)), b=x)
    return g.make(b.Mul, a=x, b=g.make(u.Rsqrt, x=square))


@pytest.mark.parametrize("form", range(4))
@pytest.mark.parametrize("axes", [(2,), (1, 2)])
def test_layer_norm_is_recognised_with_scale_and_bias(
    random: np.random.Generator, form: int, axes: tuple[int, ...]
) -> None:
    g = Graph((None, 3, 8))
    x = g.inputs[0]
    centered = g.make(b.Sub, a=x, b=g.make(r.ReduceMean, x=x, axes=axes))
    y = over(g, centered, spread(g, centered, axes, 1e-5), form)
    y = g.make(b.Mul, a=y, b=values(random, 8))
    y = g.make(b.Add, a=values(random, 1, 1, 8), b=y)
    module = g.done(y)
    assert run("nn-fuse-layer-norm", module, values(random, 2, 3, 8)) == ["layer_norm"]


@pytest.mark.parametrize("form", range(4))
def test_rms_norm_is_recognised_with_its_scale(random: np.random.Generator, form: int) -> None:
    g = Graph((2, None, 8))
    x = g.inputs[0]
    y = over(g, x, spread(g, x, (2,), 1e-6), form)
    y = g.make(b.Mul, a=values(random, 8), b=y)
    assert run("nn-fuse-rms-norm", g.done(y), values(random, 2, 3, 8)) == ["rms_norm"]


def test_softmax_is_recognised(random: np.random.Generator) -> None:
    g = Graph((None, 3, 8))
    x = g.inputs[0]
    e = g.make(u.Exp, x=g.make(b.Sub, a=x, b=g.make(r.ReduceMax, x=x, axes=(1,))))
    y = g.make(b.Div, a=e, b=g.make(r.ReduceSum, x=e, axes=(1,)))
    assert run("nn-fuse-softmax", g.done(y), values(random, 2, 3, 8)) == ["softmax"]


# -- decompositions ---------------------------------------------------------------------------------


def decomposed(op: str, module: Module, *inputs: np.ndarray, tolerance: float = 2e-5) -> None:
    assert op.replace("-", "_") not in run(
        f"nn-decompose-{op}", module, *inputs, tolerance=tolerance
    )


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("shape", [(2, 4), (2, 4, 3, 5)])
def test_norms_of_channels_decompose(
    random: np.random.Generator, shape: tuple[int, ...], dtype: str
) -> None:
    kind = np.float16 if dtype == "f16" else np.float32
    tolerance = 2e-3 if dtype == "f16" else 2e-5
    x = values(random, *shape).astype(kind)
    parameters = {k: v.astype(kind) for k, v in norm_fields(random, 4).items()}
    pair = {k: parameters[k] for k in ("scale", "bias")}
    g = Graph((None, *shape[1:]), dtype=dtype)
    module = g.done(g.make(n.BatchNorm, x=g.inputs[0], **parameters))
    decomposed("batch-norm", module, x, tolerance=tolerance)
    g = Graph((None, *shape[1:]), dtype=dtype)
    module = g.done(g.make(n.GroupNorm, x=g.inputs[0], groups=2, **pair))
    decomposed("group-norm", module, x, tolerance=tolerance)
    if len(shape) > 2:
        g = Graph((None, 4, None, 5), dtype=dtype)
        module = g.done(g.make(n.InstanceNorm, x=g.inputs[0], **pair))
        decomposed("instance-norm", module, x, tolerance=tolerance)


def test_mean_variance_norm_decomposes(random: np.random.Generator) -> None:
    g = Graph((None, 4, 3, 5))
    module = g.done(g.make(n.MeanVarianceNorm, x=g.inputs[0], axes=(3, 0, 2)))
    decomposed("mean-variance-norm", module, values(random, 2, 4, 3, 5))


@pytest.mark.parametrize("p", [1, 2])
def test_lp_norm_decomposes_and_is_zero_of_zeros(random: np.random.Generator, p: int) -> None:
    g = Graph((None, 4))
    x = values(random, 3, 4)
    x[1] = 0
    decomposed("lp-norm", g.done(g.make(n.LpNorm, x=g.inputs[0], axis=1, p=p)), x)


@pytest.mark.parametrize("axis", [0, 1])
def test_hardmax_decomposes_and_takes_the_first_maximum(axis: int) -> None:
    g = Graph((None, 3))
    x = np.array([[1, 3, 3], [2, 0, 3], [2, 2, 2]], np.float32)
    decomposed("hardmax", g.done(g.make(Hardmax, x=g.inputs[0], axis=axis)), x)


@pytest.mark.parametrize("size", [10, 11, 15])
def test_lrn_decomposes(random: np.random.Generator, size: int) -> None:
    g = Graph((None, 4, 3, None))
    module = g.done(g.make(n.Lrn, x=g.inputs[0], size=size, alpha=0.1, k=2.0))
    decomposed("lrn", module, values(random, 2, 4, 3, 5))


# -- channels and rows --------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [2, 3])
def test_channels_exchanged_by_reshapes_are_a_shuffle(
    random: np.random.Generator, groups: int
) -> None:
    g = Graph((2, 6, 5, 4))
    split = np.array([2, groups, 6 // groups, 20], np.int64)
    y = g.make(m.Transpose, x=g.make(m.Reshape, x=g.inputs[0], shape=split), perm=(0, 2, 1, 3))
    y = g.make(m.Reshape, x=y, shape=np.array([2, 6, 5, 4], np.int64))
    x = values(random, 2, 6, 5, 4)
    assert run("nn-fuse-channel-shuffle,dce", g.done(y), x) == ["channel_shuffle"]


def test_rows_become_images_with_what_lies_between(random: np.random.Generator) -> None:
    g = Graph((2, 4, None), (4, 1))
    w, fields = values(random, 6, 4, 3), conv_fields(1, pad=1)
    y = g.make(Conv, x=g.make(b.Add, a=g.inputs[0], b=g.inputs[1]), w=w, **fields)
    y = g.make(b.Add, a=g.make(u.Relu, x=y), b=values(random, 6, 1))
    y = g.make(MaxPool, x=y, kernel=(2,), strides=(2,), pads=(0, 1), dilations=(1,))
    up = g.make(
        ConvTranspose,
        x=y,
        w=values(random, 6, 2, 4),
        strides=(2,),
        pads=(1, 1),
        dilations=(1,),
        output_pads=(0,),
    )
    mean = g.make(r.ReduceMean, x=g.make(Concat, xs=[up, up], axis=1), axes=(2,), keepdims=False)
    inputs = values(random, 2, 4, 9), values(random, 4, 1)
    left = run("nn-rows-to-images,nn-fold-constants,dce", g.done(mean), *inputs)
    assert left == [
        "add", "unsqueeze", "conv", "relu", "add", "max_pool", "conv_transpose", "concat", "reduce_mean", "squeeze",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("groups", "kernel", "stride", "pads", "dilations", "output_pads"),
    [
        (1, (2, 2), 2, (0, 0, 0, 0), (1, 1), (0, 0)),
        (1, (3, 4), 2, (1, 0, 1, 2), (1, 1), (1, 0)),
        (3, (3, 3), 3, (0, 1, 1, 0), (1, 1), (0, 0)),
        (3, (3, 2), 2, (2, 1, 1, 1), (2, 3), (0, 1)),
    ],
)
def test_a_transposed_convolution_becomes_a_convolution_and_pixels(
    random: np.random.Generator,
    groups: int,
    kernel: Any,
    stride: int,
    pads: Any,
    dilations: Any,
    output_pads: Any,
) -> None:
    g = Graph((2, 6, None, 5))
    y = g.make(
        ConvTranspose, x=g.inputs[0], w=values(random, 6, 1, *kernel), bias=values(random, groups), groups=groups,
        strides=(stride, stride), pads=pads, dilations=dilations, output_pads=output_pads,
    )  # fmt: skip
    left = run("nn-shuffle-conv-transpose", g.done(y), values(random, 2, 6, 4, 5))
    assert left[:2] == ["conv", "depth_to_space"]


# -- constants and canonical forms ------------------------------------------------------------------


def test_arithmetic_on_constants_is_folded(random: np.random.Generator) -> None:
    g = Graph((2, 3))
    c = g.make(b.Mul, a=values(random, 3), b=values(random, 2, 1))
    c = g.make(m.Transpose, x=c, perm=(1, 0))
    y = g.make(MatMul, a=g.inputs[0], b=c)
    assert run("nn-fold-constants", g.done(y), values(random, 2, 3)) == ["matmul"]


def test_known_parts_of_a_dynamic_shape_are_folded(random: np.random.Generator) -> None:
    g = Graph((None, 3, 4))
    x = g.inputs[0]
    shape = g.make(ShapeOf, x=x)
    take = {"ends": np.array([3], np.int64), "axes": np.array([0], np.int64)}
    tail = g.make(Slice, x=shape, starts=np.array([1], np.int64), **take)
    wanted = g.make(Concat, xs=[g.const([-1], np.int64), tail], axis=0)
    y = g.make(m.Reshape, x=g.make(u.Relu, x=x), shape=wanted)
    assert run("nn-fold-constants,nn-canonicalize", g.done(y), values(random, 2, 3, 4)) == ["relu"]


def test_a_graph_of_constants_that_would_grow_is_left_alone() -> None:
    g = Graph((1,))
    filled = g.make(
        ConstantOfShape, shape=np.array([1 << 31, 1 << 31], np.int64),
        value=ir.Attribute.parse("dense<1.0> : tensor<1xf32>"),
    )  # fmt: skip
    y = g.make(b.Add, a=g.make(r.ReduceMax, x=filled, axes=(0, 1), keepdims=False), b=g.inputs[0])
    module = g.done(y)
    state = PassContext(targets()["x86-avx2"], explain=frozenset({"*"}))
    run_pipeline(module, parse_pipeline("nn-fold-constants", {}), state)
    assert names(module) == ["constant_of_shape", "reduce_max", "add"]
    assert any("bytes, more than" in reason for _, _, reason in state.stats[0][1].missed)


def canonical_graph(g: Graph, random: np.random.Generator) -> ir.Value:
    """What canonicalization has to say something about."""
    x = g.inputs[0]
    y = g.make(u.Neg, x=g.make(u.Neg, x=x))
    y = g.make(m.Transpose, x=g.make(m.Transpose, x=y, perm=(1, 0)), perm=(1, 0))
    y = g.make(b.Mul, a=y, b=g.const(1))
    y = g.make(b.Sub, a=y, b=g.const(0))
    y = g.make(m.Squeeze, x=g.make(m.Unsqueeze, x=y, axes=(0,)), axes=(0,))
    y = g.make(Clip, x=g.make(u.Relu, x=y), low=g.const(-1), high=g.const(6))
    y = g.make(Clip, x=y, high=g.const(4))
    y = g.make(Concat, xs=[y], axis=0)
    return g.make(u.Cast, x=g.make(u.Cast, x=y, to="f64"), to="f32")


@pytest.mark.parametrize("rows", [4, None])
def test_what_does_nothing_goes(random: np.random.Generator, rows: int | None) -> None:
    g = Graph((rows, 3))
    module = g.done(canonical_graph(g, random))
    assert run("nn-canonicalize", module, 5 * values(random, 4, 3), tolerance=0) == ["clip"]


def test_signs_of_zeros_and_nan_survive(random: np.random.Generator) -> None:
    g = Graph((4,))
    y = g.make(b.Add, a=g.inputs[0], b=g.const(0))
    z = g.make(b.Add, a=g.inputs[0], b=g.const(-0.0))
    module = g.done(y, z)
    x = np.array([-0.0, 0.0, np.nan, 1], np.float32)
    before = interpret(module, [x])
    assert run("nn-canonicalize", module, x) == ["add"]
    for got, wanted in zip(interpret(module, [x]), before, strict=True):
        assert np.array_equal(np.signbit(got), np.signbit(wanted))


def test_equal_ops_are_merged_and_operands_may_be_exchanged(random: np.random.Generator) -> None:
    g = Graph((None, 3))
    x, y = g.inputs[0], g.make(u.Relu, x=g.inputs[0])
    again = g.make(u.Relu, x=x)
    total = g.make(b.Add, a=g.make(b.Mul, a=x, b=y), b=g.make(b.Mul, a=again, b=x))
    difference = g.make(b.Sub, a=g.make(b.Sub, a=x, b=y), b=g.make(b.Sub, a=y, b=x))
    module = g.done(total, difference)
    expected = ["relu", "mul", "add", "sub", "sub", "sub"]
    assert run("cse", module, values(random, 2, 3)) == expected


# -- random graphs ----------------------------------------------------------------------------------


class RandomGraph:
    """Grows a graph of ops that the passes look for, on images and on rows."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        dynamic = seed % 2 == 0
        self._g = Graph((None if dynamic else 2, 4, None if dynamic else 5, 5))
        self._values = [self._g.inputs[0]]

    def grown(self, steps: int) -> Module:
        makers: list[Callable[[ir.Value], ir.Value]] = [
            self._conv, self._norm, self._scale, self._shift, self._activation, self._gelu,
            self._merge, self._layer_norm, self._views, self._group_norm, self._pad_conv, self._folded,
        ]  # fmt: skip
        for _ in range(steps):
            source = self._values[-1 - int(self._random.integers(min(3, len(self._values))))]
            self._values.append(makers[self._random.integers(len(makers))](source))
        return self._g.done(self._values[-1], self._values[len(self._values) // 2])

    def _array(self, *shape: int) -> np.ndarray:
        return np.asarray(self._random.standard_normal(shape) / 2, np.float32)

    def _conv(self, x: ir.Value) -> ir.Value:
        groups = int(self._random.choice([1, 2, 4]))
        bias = {"bias": self._array(4)} if self._random.integers(2) else {}
        w = self._array(4, 4 // groups, 3, 3)
        return self._g.make(Conv, x=x, w=w, **bias, **conv_fields(pad=1, groups=groups))

    def _norm(self, x: ir.Value) -> ir.Value:
        return self._g.make(n.BatchNorm, x=x, **norm_fields(self._random, 4))

    def _scale(self, x: ir.Value) -> ir.Value:
        c = self._array(*[(), (4, 1, 1), (1, 4, 1, 1), (5,)][self._random.integers(4)])
        return self._g.make(b.Mul, a=x, b=c if self._random.integers(3) else np.ones_like(c))

    def _shift(self, x: ir.Value) -> ir.Value:
        c = self._array(*[(), (4, 1, 1), (1, 4, 1, 1), (5,)][self._random.integers(4)])
        return self._g.make(b.Add, a=x, b=c if self._random.integers(3) else np.zeros_like(c))

    def _activation(self, x: ir.Value) -> ir.Value:
        kind = [u.Relu, u.Neg, u.Abs, u.Sigmoid, u.HardSigmoid][self._random.integers(5)]
        y = self._g.make(kind, x=x)
        if self._random.integers(2):
            return self._g.make(Clip, x=y, low=self._g.const(-0.5), high=self._g.const(1.5))
        return self._g.make(kind, x=y)

    def _gelu(self, x: ir.Value) -> ir.Value:
        return gelu_erf(self._g, x, int(self._random.integers(6)))

    def _merge(self, x: ir.Value) -> ir.Value:
        other = self._values[self._random.integers(len(self._values))]
        return self._g.make([b.Add, b.Sub, b.Maximum][self._random.integers(3)], a=x, b=other)

    def _layer_norm(self, x: ir.Value) -> ir.Value:
        g = self._g
        centered = g.make(b.Sub, a=x, b=g.make(r.ReduceMean, x=x, axes=(3,)))
        y = over(g, centered, spread(g, centered, (3,), 1e-2), int(self._random.integers(4)))
        return g.make(b.Add, a=g.make(b.Mul, a=y, b=self._array(5)), b=self._array(5))

    def _views(self, x: ir.Value) -> ir.Value:
        g = self._g
        flat = g.make(m.Reshape, x=x, shape=np.array([0, 4, -1], np.int64))
        y = g.make(m.Reshape, x=flat, shape=g.make(ShapeOf, x=x))
        return g.make(m.Transpose, x=g.make(m.Transpose, x=y, perm=(0, 3, 1, 2)), perm=(0, 2, 3, 1))

    def _group_norm(self, x: ir.Value) -> ir.Value:
        pair = {"scale": self._array(4), "bias": self._array(4)}
        return self._g.make(n.GroupNorm, x=x, groups=2, epsilon=1e-2, **pair)

    def _pad_conv(self, x: ir.Value) -> ir.Value:
        pads = np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64)
        padded = self._g.make(Pad, x=x, pads=pads)
        return self._g.make(Conv, x=padded, w=self._array(4, 4, 3, 3), **conv_fields())

    def _folded(self, x: ir.Value) -> ir.Value:
        c = self._g.make(b.Mul, a=self._array(4, 1), b=self._array(1, 1))
        c = self._g.make(m.Reshape, x=c, shape=np.array([1, 4, 1, 1], np.int64))
        return self._g.make(b.Mul, a=x, b=c)


@pytest.mark.parametrize("seed", range(40))
def test_the_graph_passes_keep_what_random_graphs_compute(seed: int) -> None:
    module = RandomGraph(seed).grown(10)
    x = np.random.default_rng(seed).standard_normal((2, 4, 5, 5)).astype(np.float32)
    assert "batch_norm" not in run(GRAPH_PASSES, module, x, tolerance=2e-3)


_SINGLE = [
    name
    for name in passes.PASSES
    if name.split("-")[1:2] not in (["assign"], ["choose"])
    and not parse_pipeline(name, {}).passes[0].CHANGES_VALUES
]
"""Passes of precisions are meant to change values: tests/unit/quantize, tests/unit/nn."""


@pytest.mark.parametrize("name", [name for name in _SINGLE if name != "kernel-form"])
def test_each_pass_alone_keeps_what_random_graphs_compute(name: str) -> None:
    for seed in range(100, 104):
        module = RandomGraph(seed).grown(10)
        x = np.random.default_rng(seed).standard_normal((2, 4, 5, 5)).astype(np.float32)
        run(name, module, x, tolerance=2e-3)
