"""Cases from the field about precision, compiled: where narrow floats are rounded, and what is computed in float32."""

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

from tests.e2e.compiled_node import compiled, run

NARROW = (np.float16, ml_dtypes.bfloat16)
ROW = [1000, -1000, 1000, -1000, 500, -500, 2000, -2000]
"""Its variance, 1,562,500, is beyond float16."""
NORMALIZED = [0.8, -0.8, 0.8, -0.8, 0.4, -0.4, 1.6, -1.6]


def close(actual, wanted, rtol=1e-3):
    np.testing.assert_allclose(
        np.asarray(actual).astype(np.float64).reshape(-1), np.reshape(wanted, -1), rtol=rtol
    )


# -- statistics of narrow floats -------------------------------------------------------------------


def layer_norm(x, epsilon=1e-5):
    return run(
        "LayerNormalization", x, np.ones(8, x.dtype), constants=[1], axis=-1, epsilon=epsilon
    )


@pytest.mark.parametrize("dtype", NARROW)
def test_layer_norm_of_narrow_floats_has_its_statistics_in_float32(dtype):
    close(layer_norm(np.array([ROW], dtype)), NORMALIZED, 1e-2)


def test_an_epsilon_that_float16_does_not_have_keeps_zeros_finite():
    close(layer_norm(np.zeros((1, 8), np.float16), epsilon=1e-12), np.zeros(8))


@pytest.mark.parametrize("dtype", NARROW)
def test_rms_norm_of_narrow_floats_has_its_statistics_in_float32(dtype):
    scale = np.ones(8, dtype)
    y = run("RMSNormalization", np.array([ROW], dtype), scale, constants=[1], axis=-1, opset=23)
    close(y, NORMALIZED, 1e-2)


@pytest.mark.parametrize("dtype", NARROW)
def test_instance_and_group_norm_of_narrow_floats_have_their_statistics_in_float32(dtype):
    x = np.array(ROW, dtype).reshape(1, 1, 8)
    one, zero = np.ones(1, dtype), np.zeros(1, dtype)
    if dtype is np.float16:
        close(run("InstanceNormalization", x, one, zero, constants=[1, 2]), NORMALIZED, 1e-2)
    y = run("GroupNormalization", x, one, zero, constants=[1, 2], num_groups=1, opset=21)
    close(y, NORMALIZED, 1e-2)


@pytest.mark.parametrize("dtype", NARROW)
def test_means_of_narrow_floats_do_not_overflow_on_the_way(dtype):
    x = np.full((1, 128), 60000, dtype)
    close(run("ReduceMean", x, np.array([1]), constants=[1], opset=18), float(x[0, 0]), 1e-2)


@pytest.mark.parametrize("dtype", NARROW)
def test_softmax_of_many_narrow_floats_sums_in_float32(dtype):
    close(run("Softmax", np.zeros((1, 4096), dtype), axis=-1), np.full(4096, 1 / 4096), 1e-2)


def test_a_square_that_float16_does_not_have_is_infinite():
    y = run("Pow", np.array([300, 200], np.float16), np.float16(2), constants=[1])
    np.testing.assert_array_equal(y.astype(np.float64), [np.inf, 40000])


# -- rounding where the graph says so --------------------------------------------------------------

A, B = np.array([3.021, 6.277], np.float16), np.array([1.001, 3.3], np.float16)


@pytest.mark.parametrize("others", [[], ["p"], ["t"]])
def test_a_product_of_float16_is_rounded_whoever_else_reads_it(others):
    nodes = [
        helper.make_node("Mul", ["a", "b"], ["p"]),
        helper.make_node("Cast", ["p"], ["y"], to=11),
        helper.make_node("Identity", ["p"], ["t"]),
    ]
    kept = nodes if "t" in others else nodes[:2]
    inputs = {"a": (np.float16, [2]), "b": (np.float16, [2])}
    model = compiled(kept, inputs, ["y", *others])
    y = model.run({"a": A, "b": B})["y"]
    np.testing.assert_array_equal(y, [3.025390625, 20.71875])


@pytest.mark.parametrize("dtype", NARROW)
def test_every_op_of_a_fused_chain_rounds_to_its_type(dtype):
    nodes = [
        helper.make_node("Add", ["x", "big"], ["s"]),
        helper.make_node("Sub", ["s", "big"], ["y"]),
    ]
    big = np.array(1024, dtype)
    model = compiled(nodes, {"x": (dtype, [2])}, ["y"], {"big": big})
    x = np.array([0.25, 2], dtype)
    (y,) = model.executable.run([x]).values()
    wanted = (x + big) - big
    np.testing.assert_array_equal(y.astype(np.float64), wanted.astype(np.float64))
    assert y[0] == 0


# -- rows that are masked whole --------------------------------------------------------------------


def attention(mask, fused=True):
    q = np.zeros((1, 1, 3, 4), np.float32)
    v = np.array([3, 30, 9], np.float32).reshape(1, 1, 3, 1) * np.ones((1, 1, 3, 4), np.float32)
    node = helper.make_node("Attention", ["q", "k", "v", "m"], ["y"])
    shapes = {"q": ("float32", q.shape), "k": ("float32", q.shape), "v": ("float32", v.shape)}
    model = compiled([node], {**shapes, "m": (mask.dtype, mask.shape)}, ["y"], opset=23)
    return model.run({"q": q, "k": q, "v": v, "m": mask})["y"][0, 0, :, 0]


def test_attention_gives_zeros_to_queries_that_see_no_key():
    seen = np.array([[True, False, True], [False, False, False], [True, True, True]])
    close(attention(seen), [6, 0, 14], 1e-6)
    close(attention(np.where(seen, 0, -np.inf).astype(np.float32)), [6, 0, 14], 1e-6)


def test_softmax_written_out_gives_nan_where_the_attention_op_gives_zeros():
    mask = np.array([[0, -np.inf], [-np.inf, -np.inf]], np.float32)
    nodes = [
        helper.make_node("MatMul", ["q", "k"], ["s"]),
        helper.make_node("Add", ["s", "m"], ["t"]),
        helper.make_node("Softmax", ["t"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["y"]),
    ]
    two = ("float32", [1, 2, 2])
    model = compiled(nodes, {"q": two, "k": two, "v": two}, ["y"], {"m": mask})
    one = np.ones((1, 2, 2), np.float32)
    y = model.run({"q": one, "k": one, "v": one})["y"]
    np.testing.assert_array_equal(y[0], [[1, 1], [np.nan, np.nan]])
