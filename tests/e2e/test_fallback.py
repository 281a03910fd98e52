"""Kernels of last resort: every op has one, they say what they are, and they are right for rare types and sizes."""

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

from tests.e2e.compiled_node import compiled, run, shared_pool
from xcompile.compiler.api import compile as compile_model
from xcompile.compiler.codegen.cpu import families
from xcompile.compiler.codegen.cpu.pull import PARTS, PULLS
from xcompile.compiler.codegen.cpu.whole import WHOLE
from xcompile.dialects.nn.base import nn
from xcompile.dialects.nn.kinds import ALONE
from xcompile.dialects.nn.numeric import convert

OF_A_FAMILY = {"nn.scatter_nd"}
OF_REGIONS = {"nn.if", "nn.loop", "nn.yield", "nn.fail"}
WRITTEN_AS_OTHERS = {"nn.quantize", "nn.dequantize"}
KNOWN_WHEN_COMPILED = {"nn.shape", "nn.size"}


def test_every_op_can_be_computed_by_a_kernel_of_last_resort():
    assert families.FAMILIES
    lowered = PULLS.keys() | PARTS.keys() | WHOLE.keys()
    missing = {op.NAME for op in nn.ops.values()} - lowered
    assert WHOLE.keys() <= ALONE
    otherwise = OF_A_FAMILY | OF_REGIONS | WRITTEN_AS_OTHERS
    assert missing - otherwise == KNOWN_WHEN_COMPILED


def _families(op, *shapes, constants=(), **attributes):
    names = [f"x{i}" for i in range(len(shapes))]
    node = helper.make_node(
        op, [*names, *(f"c{i}" for i in range(len(constants)))], ["y"], **attributes
    )
    inputs = {n: ("float32", s) for n, s in zip(names, shapes, strict=True)}
    fixed = {f"c{i}": a for i, a in enumerate(constants)}
    artifact = compiled([node], inputs, ["y"], fixed, opset=18).artifact
    return {facts.family for facts in artifact.kernels.values()}


def test_kernels_that_loop_for_each_element_are_called_fallback():
    assert _families("CumSum", (3, 4), constants=[np.array(1)]) == {"scan"}
    assert _families("LpPool", (1, 1, 4), kernel_shape=[2]) == {"fallback"}
    assert _families("Add", (3, 4), (3, 4)) == {"map"}
    assert _families("Transpose", (3, 4)) == {"map"}


# -- 8-bit floats ----------------------------------------------------------------------------------

FLOAT8 = [
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e4m3fnuz,
    ml_dtypes.float8_e5m2,
    ml_dtypes.float8_e5m2fnuz,
]


@pytest.mark.parametrize("dtype", FLOAT8)
@pytest.mark.parametrize("to", ["float32", "float16", "float64"])
def test_all_8_bit_floats_are_decoded_exactly(dtype, to):
    x = np.arange(256, dtype=np.uint8).view(dtype)
    y = run("Cast", x, opset=19, to=helper.np_dtype_to_tensor_dtype(np.dtype(to)))
    np.testing.assert_array_equal(y, x.astype(to))


@pytest.mark.parametrize("dtype", FLOAT8)
@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("source", ["float32", "float64"])
def test_floats_are_rounded_to_the_nearest_of_8_bits(dtype, saturate, source):
    numbers = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float64)
    numbers = np.unique(numbers[np.isfinite(numbers)])
    middle = (numbers[1:] + numbers[:-1]) / 2
    near = [np.nextafter(middle.astype(source), np.array(way, source)) for way in (-np.inf, np.inf)]
    beyond = [numbers.max() * 1.03, numbers.max() * 1.1, numbers.max() * 4, np.inf, np.nan]
    x = np.concatenate([numbers, middle, *near, beyond, np.negative(beyond)]).astype(source)
    y = run(
        "Cast", x, opset=19, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), saturate=saturate
    )
    wanted = convert(x, np.dtype(dtype), saturate=bool(saturate))
    np.testing.assert_array_equal(y.astype(np.float64), wanted.astype(np.float64))


# -- order and scatters ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "float64", "int8", "uint8", "int64", "uint64"]
)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_topk_orders_equal_elements_by_place(dtype, axis):
    x = np.random.default_rng(0).integers(0, 5, (4, 7, 5)).astype(dtype)
    for largest in (0, 1):
        values, places = run(
            "TopK", x, np.array([3]), constants=[1], outputs=2, axis=axis, largest=largest
        )
        keys = -x.astype(np.float64) if largest else x.astype(np.float64)
        wanted = np.argsort(keys, axis=axis, kind="stable").take(range(3), axis=axis)
        np.testing.assert_array_equal(places, wanted)
        np.testing.assert_array_equal(values, np.take_along_axis(x, wanted, axis=axis))


def test_topk_takes_nan_as_greatest():
    x = np.array([1, np.nan, 3, np.nan, -np.inf], np.float32)
    assert run("TopK", x, np.array([3]), constants=[1], outputs=2)[1].tolist() == [1, 3, 2]
    assert run("TopK", x, np.array([5]), constants=[1], outputs=2, largest=0)[1].tolist() == [
        4,
        0,
        2,
        1,
        3,
    ]


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("dtype", ["float32", "int8", "uint16", "int64"])
def test_scatters_join_updates_in_order(reduction, dtype):
    x = np.array([5, 6, 7], dtype)
    y = run(
        "ScatterElements",
        x,
        np.array([1, 1, 0]),
        np.array([2, 9, 3], dtype),
        opset=18,
        reduction=reduction,
    )
    wanted = {
        "none": [3, 9, 7],
        "add": [8, 17, 7],
        "mul": [15, 108, 7],
        "max": [5, 9, 7],
        "min": [3, 2, 7],
    }
    assert y.tolist() == wanted[reduction]


def test_bools_are_scattered_as_disjunctions_and_conjunctions():
    x, updates = np.array([True, True, False, False]), np.array([True, False, True, False])
    for reduction, wanted in (("add", x | updates), ("mul", x & updates)):
        y = run("ScatterElements", x, np.arange(4), updates, opset=18, reduction=reduction)
        np.testing.assert_array_equal(y, wanted)


# -- sizes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint64", "bool"])
@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)])
def test_scalars_and_empty_tensors_are_moved_and_computed(dtype, shape):
    x = np.ones(shape, dtype)
    for op in ("Transpose", "Identity"):
        np.testing.assert_array_equal(run(op, x), x.T if op == "Transpose" else x)
    np.testing.assert_array_equal(run("Equal", x, x), np.ones(shape, np.bool_))
    np.testing.assert_array_equal(run("Cast", x, to=1), np.ones(shape, np.float32))


def test_reductions_of_a_scalar_are_the_scalar():
    for op in ("Sum", "Mean", "Max", "L2"):
        y = run(f"Reduce{op}", np.float32(3), opset=18)
        assert y.shape == () and y == 3


def test_results_of_several_parts_keep_their_order():
    x = np.arange(24, dtype=np.float32).reshape(2, 12)
    parts = run("Split", x, np.array([3, 0, 8, 1]), constants=[1], outputs=4, axis=1)
    for part, wanted in zip(parts, np.split(x, [3, 3, 11], axis=1), strict=True):
        np.testing.assert_array_equal(part, wanted)


# -- composites that no pass has taken apart -------------------------------------------------------

KEPT = ";".join(
    f"-nn-decompose-{name}"
    for name in (
        "attention", "batch-norm", "instance-norm", "group-norm", "mean-variance-norm", "lp-norm", "hardmax", "lrn",
    )
)  # fmt: skip


def _case(name):
    from tests.e2e.onnx_node_cases import node_cases

    return next(case for case in node_cases() if case.name == name)


@pytest.mark.parametrize(
    "name",
    [
        "test_attention_4d_gqa_with_past_and_present_fp16",
        "test_attention_4d_diff_heads_mask4d_padded_kv",
        "test_batchnorm_epsilon",
        "test_instancenorm_epsilon",
        "test_group_normalization_example",
        "test_mvn",
        "test_l2normalization_axis_1",
        "test_hardmax_axis_1",
        "test_lrn",
    ],
)
def test_composites_are_computed_even_when_no_pass_takes_them_apart(name):
    from tests.e2e.onnx_reference import difference

    case = _case(name)
    model = compile_model(case.model, pool=shared_pool(), threads=1, passes=KEPT)
    for inputs, expected in case.data:
        results = model.executable.run([np.asarray(value) for value in inputs])
        for actual, wanted in zip(results.values(), expected, strict=True):
            assert difference(actual, np.asarray(wanted), case) is None
