"""Cases from the field, compiled: the values are stated, they come from no other implementation."""

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

from tests.e2e.compiled_node import compiled, run
from xcompile.runtime.errors import RuntimeModelError

INF, NAN = np.inf, np.nan
FLOATS = ("float32", "float64", "float16")
INTEGERS = ("int8", "int16", "int32", "int64")


def f32(values):
    return np.array(values, np.float32)


def arange(*shape, dtype=np.float32):
    return np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)


def close(actual, wanted, rtol=1e-4):
    np.testing.assert_allclose(
        np.asarray(actual).astype(np.float64).reshape(-1),
        np.reshape(wanted, -1),
        rtol=rtol,
        atol=1e-6,
    )


def equal(actual, wanted):
    np.testing.assert_array_equal(
        np.asarray(actual).astype(np.float64).reshape(-1), np.reshape(wanted, -1)
    )


# -- average pools: the divisor --------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
def test_average_pool_counts_padding_but_no_phantom_cells(dtype):
    x = arange(1, 1, 4, 4, dtype=dtype) + np.array(1, dtype)
    window = {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}
    y = run("AveragePool", x, pads=[1] * 4, count_include_pad=1, opset=19, **window)
    close(y, [1.5556, 3.3333, 2, 6.3333, 11, 6, 4.5, 7.5, 4], 1e-3)
    close(run("AveragePool", x, opset=19, **window), [6, 7.5, 12, 13.5], 1e-3)


@pytest.mark.parametrize("opset", [11, 19])
def test_average_pool_same_lower_counts_its_padding(opset):
    y = run(
        "AveragePool", arange(1, 1, 6, 2), kernel_shape=[5, 1], auto_pad="SAME_LOWER", count_include_pad=1, opset=opset
    )  # fmt: skip
    close(y, [1.2, 1.8, 2.4, 3.2, 4, 5, 6, 7, 5.6, 6.4, 4.8, 5.4])


# -- slices -----------------------------------------------------------------------------------------


def test_a_slice_that_counts_from_the_back_by_a_size_takes_all_where_that_is_0():
    nodes = [
        helper.make_node("Shape", ["z"], ["k"]),
        helper.make_node("Neg", ["k"], ["back"]),
        helper.make_node("Slice", ["x", "back", "far"], ["y"]),
        helper.make_node("Slice", ["x", "start", "back"], ["z0"]),
    ]
    constants = {"start": np.array([0]), "far": np.array([2**63 - 1])}
    kinds = {"x": ("float32", ["n"]), "z": ("float32", ["k"])}
    model = compiled(nodes, kinds, ["y", "z0"], constants)
    for n, k in ((5, 2), (5, 5), (5, 7), (5, 0)):
        x = arange(n)
        results = model.executable.run([x, np.zeros(k, np.float32)])
        equal(results["y"], x[-k:])
        equal(results["z0"], x[:-k] if k else [])


# -- negative pads ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*FLOATS, "int8", "int64", "bool"])
def test_pads_that_move_the_whole_tensor_out_leave_zeros(dtype):
    x = np.ones((1, 1, 4, 4), dtype)
    y = run("Pad", x, np.array([0, 0, 4, 1, 0, 0, -4, -1]), constants=[1])
    assert y.shape == x.shape and not y.any()


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_negative_pads_crop(dtype):
    x = np.arange(4).astype(dtype)
    equal(run("Pad", x, np.array([-1, 1]), constants=[1]), [1, 2, 3, 0])
    equal(run("Pad", x, np.array([-1, 2]), constants=[1], mode="reflect"), [1, 2, 3, 2, 1])


def test_convolution_with_a_negative_pad_crops():
    w = f32([[[1, 10]]])
    equal(run("Conv", f32([[[1, 2, 3, 4]]]), w, kernel_shape=[2], pads=[-1, 0]), [32, 43])


def test_convolution_with_asymmetric_pads_dilation_and_stride():
    y = run(
        "Conv", f32([[[1, 2, 3, 4, 5, 6]]]), f32([[[1, 10, 100]]]), pads=[2, 0], dilations=[2], strides=[2]
    )  # fmt: skip
    equal(y, [310, 531])


# -- resize ----------------------------------------------------------------------------------------


def _resized(x, scales=None, sizes=None, opset=17, **attributes):
    empty = np.array([], np.float32)
    if sizes is not None:
        return run(
            "Resize", x, empty, None, np.array(sizes), constants=[1, 3], opset=opset, **attributes
        )
    return run("Resize", x, empty, f32(scales), constants=[1, 2], opset=opset, **attributes)


@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8", "int8"])
def test_resize_nearest_prefers_the_floor_at_half(dtype):
    y = _resized(arange(1, 1, 3, 3, dtype=dtype), [1, 1, 1.5, 1.5], mode="nearest")
    equal(y, [0, 0, 1, 2, 0, 0, 1, 2, 3, 3, 4, 5, 6, 6, 7, 8])


def test_resize_does_not_mix_batches():
    attributes = {"coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": "ceil"}
    y = _resized(arange(2, 2, 1, 2), [1, 1, 1, 3], opset=11, mode="nearest", **attributes)
    equal(y, [1] * 6 + [3] * 6 + [5] * 6 + [7] * 6)


def test_linear_resize_of_one_pixel_repeats_it():
    equal(_resized(f32([[[[1]]]]), sizes=[1, 2, 2, 1], mode="linear"), [1] * 4)


@pytest.mark.parametrize("dtype", FLOATS)
def test_linear_resize_has_the_steps_of_its_coordinates(dtype):
    x = arange(1, 1, 4, dtype=dtype)
    mode = "coordinate_transformation_mode"
    y = _resized(x, [1, 1, 2], mode="linear", **{mode: "align_corners"})
    close(y, np.arange(8) * 3 / 7, 1e-3)
    y = _resized(x, [1, 1, 2], mode="linear", **{mode: "asymmetric"})
    equal(y, [0, 0.5, 1, 1.5, 2, 2.5, 3, 3])


# -- slices ----------------------------------------------------------------------------------------

MOST, LEAST = 2**63 - 1, -(2**63)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "int64", "bool"])
@pytest.mark.parametrize(
    ("start", "end", "step", "wanted"),
    [
        (9, 0, -1, [9, 8, 7, 6, 5, 4, 3, 2, 1]),
        (9, 2, -1, [9, 8, 7, 6, 5, 4, 3]),
        (9, 0, -3, [9, 6, 3]),
        (-1, LEAST, -1, [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]),
        (-1, MOST, -1, []),
        (0, 5, -1, []),
        (20, -20, -1, [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]),
        (0, MOST, 2**62, [0]),
        (9, LEAST, -(2**62), [9]),
    ],
)
def test_slices_with_negative_and_huge_steps(dtype, start, end, step, wanted):
    places = [np.array([v]) for v in (start, end, 0, step)]
    y = run("Slice", np.arange(10).astype(dtype), *places, constants=range(1, 5))
    equal(y, np.array(wanted).astype(dtype).astype(np.float64))


# -- reductions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_a_reduction_over_no_axes_applies_the_function_of_each_element(dtype):
    axes = np.array([], np.int64)
    x = np.array([1, -2, 3], dtype)
    options = {"constants": [1], "noop_with_empty_axes": 1, "opset": 18}
    equal(run("ReduceSumSquare", x, axes, **options), [1, 4, 9])
    equal(run("ReduceSum", x, axes, **options), [1, -2, 3])
    equal(run("ReduceMean", x, opset=18, noop_with_empty_axes=1), [1, -2, 3])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("op", "wanted"),
    [("Sum", 0), ("Prod", 1), ("Max", -INF), ("Min", INF), ("Mean", NAN), ("LogSumExp", -INF)],
)
def test_reductions_over_an_empty_axis(dtype, op, wanted):
    axes = np.array([1])
    y = run(f"Reduce{op}", np.zeros((2, 0, 2), dtype), axes, constants=[1], opset=18)
    assert y.shape == (2, 1, 2)
    equal(y, [wanted] * 4)


def test_the_sum_of_no_elements_is_a_zero_without_axes():
    y = run("ReduceSum", f32([]), keepdims=0)
    assert y.shape == () and y == 0


@pytest.mark.parametrize("dtype", ["int32", "uint32"])
def test_means_and_norms_of_integers_do_not_wrap(dtype):
    equal(run("ReduceMean", np.full(9, 2**30, dtype), keepdims=0), [2**30])
    equal(run("ReduceL2", np.full(4, 2**29, dtype), keepdims=0), [2**30])


def test_reductions_of_booleans():
    x = np.array([[True, False], [False, False]])
    equal(run("ReduceMax", x, np.array([1]), constants=[1], opset=20, keepdims=0), [1, 0])
    equal(run("ReduceMin", x, np.array([1]), constants=[1], opset=20, keepdims=0), [0, 0])


# -- rounding and division -------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
def test_round_goes_to_even_and_keeps_the_sign_of_zero(dtype):
    y = run("Round", np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5], dtype))
    equal(y, [0, 2, 2, -0.0, -2, -2])
    assert list(np.signbit(y)) == [False, False, False, True, True, True]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_division_rounds_toward_zero_and_mod_has_its_two_signs(dtype):
    a = np.array([-7, 7, -7, 7], dtype)
    equal(run("Div", a, np.array([2, -2, -2, 2], dtype)), [-3, -3, 3, 3])
    b = np.array([3, -3, -3, 3], dtype)
    equal(run("Mod", a, b), [2, -2, -1, 1])
    equal(run("Mod", a, b, fmod=1), [-1, 1, -1, 1])


@pytest.mark.parametrize("dtype", INTEGERS)
def test_division_by_zero_and_of_the_least_integer_ends_the_process_on_no_machine(dtype):
    least = np.iinfo(dtype).min
    a, b = np.array([7, -7, 0, least, least], dtype), np.array([0, 0, 0, -1, 0], dtype)
    assert run("Div", a, b).tolist() == [0, 0, 0, least, 0]
    assert run("Mod", a, b).tolist() == [0, 0, 0, 0, 0]


def test_sizes_divide_as_integers():
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Div", ["n", "three"], ["end"]),
        helper.make_node("Slice", ["x", "begin", "end"], ["y"]),
    ]
    constants = {"zero": np.array([0]), "three": np.array([3]), "begin": np.array([0])}
    for size in (386, None):
        model = compiled(nodes, {"x": ("float32", [size])}, ["y"], constants)
        (y,) = model.executable.run([arange(386)]).values()
        assert y.shape == (128,)


# -- casts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["float32", "float64"])
def test_casts_to_integers_keep_low_bits_and_take_nan_and_infinities_to_zero(source):
    x = np.array([300, NAN, INF, -INF, 50, -50], source)
    for to in ("int8", "uint8", "int16", "uint16"):
        kept = np.array([300, 0, 0, 0, 50, -50]).astype(to).tolist()
        y = run("Cast", x, to=helper.np_dtype_to_tensor_dtype(np.dtype(to)))
        assert y.tolist() == kept, to


@pytest.mark.parametrize("source", ["float32", "float64"])
@pytest.mark.parametrize(
    ("to", "wanted"),
    [
        ("int32", [0, 0, 0, -(2**30)]),
        ("int64", [0, 0, 0, 3 * 2**30]),
        ("uint32", [0, 0, 0, 3 * 2**30]),
        ("uint64", [0, 0, 0, 3 * 2**30]),
    ],
)
def test_what_does_not_fit_64_bits_is_0_and_low_bits_of_the_rest_are_kept(source, to, wanted):
    x = np.array([NAN, INF, -INF, 3 * 2**30], source)
    y = run("Cast", x, to=helper.np_dtype_to_tensor_dtype(np.dtype(to)))
    assert y.tolist() == wanted


def test_casts_to_half_precision_round_to_even_and_overflow():
    y = run("Cast", f32([65504, 65519.99, 65520, 1e-8, 2049, -1e6]), to=10)
    equal(y, [65504, 65504, INF, 0, 2048, -INF])
    y = run("Cast", f32([1.00390625, 1.01171875, 3.4e38, NAN]), to=16)
    assert y.dtype == ml_dtypes.bfloat16
    equal(y, [1, 1.015625, INF, NAN])


@pytest.mark.parametrize("source", FLOATS)
def test_casts_to_bool_ask_whether_it_is_not_zero(source):
    y = run("Cast", np.array([NAN, -0.0, 0.0, 1e-7, INF], source), to=9)
    assert y.tolist() == [True, False, False, True, True]


# -- NaN and infinities ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("count", [1, 37])
def test_nan_passes_relu_max_and_min(dtype, count):
    x = np.full(count, NAN, dtype)
    zero = np.zeros(count, dtype)
    assert np.isnan(run("Relu", x)).all()
    for op in ("Max", "Min"):
        assert np.isnan(run(op, x, zero)).all() and np.isnan(run(op, zero, x)).all()


@pytest.mark.parametrize("dtype", [*FLOATS, ml_dtypes.bfloat16])
def test_softmax_of_infinities_and_of_large_values(dtype):
    rows = [[-INF, -INF, -INF], [-INF, 0, -INF], [1000, 1000, -1000]]
    close(run("Softmax", np.array(rows, dtype), axis=-1), [NAN] * 3 + [0, 1, 0, 0.5, 0.5, 0])
    close(run("Softmax", np.array(rows, dtype).T, axis=0).T, [NAN] * 3 + [0, 1, 0, 0.5, 0.5, 0])


# -- products --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_transpose_that_moves_nothing_does_not_turn_a_product(dtype):
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 1]),
        helper.make_node("MatMul", ["t", "eye"], ["p"]),
        helper.make_node("Add", ["p", "zero"], ["y"]),
    ]
    constants = {"eye": np.eye(2, dtype=dtype), "zero": np.zeros(2, dtype)}
    x = np.array([[1, 2], [3, 4]], dtype)
    (y,) = compiled(nodes, {"x": (dtype, [2, 2])}, ["y"], constants).executable.run([x]).values()
    equal(y, [1, 2, 3, 4])


def _product_and_sum(a, b, c):
    nodes = [
        helper.make_node("MatMul", ["a", "b"], ["p"]),
        helper.make_node("Add", ["p", "c"], ["y"]),
    ]
    values = {"a": a, "b": b, "c": c}
    free = {n: (v.dtype, v.shape) for n, v in values.items()}
    for constants in ({}, {"b": b, "c": c}):
        inputs = {n: s for n, s in free.items() if n not in constants}
        model = compiled(nodes, inputs, ["y"], constants)
        (y,) = model.executable.run([values[n] for n in inputs]).values()
        yield y


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_bias_that_enlarges_the_product_broadcasts(dtype):
    a, b = np.eye(3, dtype=dtype), np.array([[0], [10], [20]], dtype)
    for y in _product_and_sum(a, b, np.array([[0, 1, 2, 3]], dtype)):
        equal(y, [i * 10 + j for i in range(3) for j in range(4)])


def test_a_bias_that_is_a_column_is_added_along_rows():
    x = f32([[1, 2], [3, 4]])
    for y in _product_and_sum(x, np.eye(2, dtype=np.float32), f32([[10], [20]])):
        equal(y, [11, 12, 23, 24])


def test_a_bias_of_five_axes_makes_a_result_of_five():
    x = f32([[1, 2], [3, 4]])
    for y in _product_and_sum(x, np.eye(2, dtype=np.float32), np.ones((1, 1, 1, 1, 2), np.float32)):
        assert y.shape == (1, 1, 1, 2, 2)
        equal(y, [2, 3, 4, 5])


@pytest.mark.parametrize("dtype", FLOATS)
def test_gemm_of_transposed_operands_scales_product_and_bias(dtype):
    a, b, c = arange(3, 2, dtype=dtype), arange(4, 3, dtype=dtype), np.array([[2], [4]], dtype)
    y = run("Gemm", a, b, c, transA=1, transB=1, alpha=2.0, beta=0.5)
    equal(y, [21, 57, 93, 129, 28, 82, 136, 190])


def test_gemm_over_an_empty_axis_is_the_scaled_bias():
    y = run(
        "Gemm", np.zeros((2, 0), np.float32), np.zeros((0, 3), np.float32), f32([1, 2, 3]), beta=2.0
    )
    equal(y, [2, 4, 6, 2, 4, 6])


# -- convolutions and what stands around them ------------------------------------------------------

_ONE = [1, 1, 1, 1]


def _graph(nodes, outputs, x, **constants):
    arrays = {n: np.array(v, np.float32) for n, v in constants.items()}
    model = compiled(nodes, {"x": ("float32", x.shape)}, outputs, arrays)
    return list(model.executable.run([x]).values())


def _normalization(source, result):
    return helper.make_node(
        "BatchNormalization", [source, "s", "b", "m", "v"], [result], epsilon=0.0
    )


_NORM = {"s": [3], "b": [1], "m": [0.5], "v": [1]}


def test_a_convolution_that_others_read_keeps_its_value_when_a_normalization_follows():
    x = f32([-1, 2]).reshape(1, 1, 1, 2)
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), _normalization("c", "y")]
    y, c = _graph(nodes, ["y", "c"], x, w=np.full(_ONE, 2), **_NORM)
    equal(y, [-6.5, 11.5])
    equal(c, [-2, 4])


def test_a_normalization_is_not_moved_through_relu():
    x = f32([-1, 2]).reshape(1, 1, 1, 2)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Relu", ["c"], ["r"]),
        _normalization("r", "y"),
    ]
    equal(_graph(nodes, ["y"], x, w=np.full(_ONE, 2), **_NORM)[0], [-0.5, 11.5])


def test_a_weight_that_two_convolutions_share_is_changed_for_neither():
    x = f32([-1, 2]).reshape(1, 1, 1, 2)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        _normalization("c", "y"),
        helper.make_node("Conv", ["x", "w"], ["z"]),
    ]
    y, z = _graph(nodes, ["y", "z"], x, w=np.full(_ONE, 2), **_NORM)
    equal(y, [-6.5, 11.5])
    equal(z, [-2, 4])


def test_a_pad_with_another_value_than_zero_stays_before_its_convolution():
    x = f32([1, 2]).reshape(1, 1, 2)
    nodes = [
        helper.make_node("Pad", ["x", "p", "five"], ["q"]),
        helper.make_node("Conv", ["q", "w"], ["y"]),
    ]
    model = compiled(
        nodes, {"x": ("float32", x.shape)}, ["y"],
        {"p": np.array([0, 0, 1, 0, 0, 1]), "five": np.float32(5), "w": np.ones((1, 1, 3), np.float32)},
    )  # fmt: skip
    equal(next(iter(model.executable.run([x]).values())), [8, 8])


def test_a_sum_before_a_padded_convolution_is_no_bias():
    x = f32([1, 2]).reshape(1, 1, 2)
    nodes = [
        helper.make_node("Add", ["x", "ten"], ["q"]),
        helper.make_node("Conv", ["q", "w"], ["y"], pads=[1, 1]),
    ]
    equal(_graph(nodes, ["y"], x, ten=10, w=np.ones((1, 1, 3)))[0], [23, 23])


# -- constants that would grow ---------------------------------------------------------------------


def _with_constant(op, operands):
    names = [f"c{i}" for i in range(len(operands))]
    nodes = [helper.make_node(op, names, ["y"]), helper.make_node("Identity", ["x"], ["z"])]
    constants = dict(zip(names, operands, strict=True))
    return compiled(nodes, {"x": ("float32", [1])}, ["y", "z"], constants)


@pytest.mark.parametrize(
    ("op", "operands"),
    [
        ("ConstantOfShape", [np.array([16384, 16384])]),
        ("Expand", [np.ones((1, 4480), np.float32), np.array([1800, 4480, 4480])]),
        ("Tile", [np.ones(1, np.float32), np.array([2**36])]),
        ("Range", [np.array(0), np.array(2**40), np.array(1)]),
        ("ConstantOfShape", [np.array([2**20, 2**20])]),
        ("OneHot", [np.zeros(1 << 10, np.int64), np.array(1 << 24), np.array([0, 1])]),
        ("Pad", [np.ones(1, np.float32), np.array([0, 2**36])]),
    ],
)
def test_a_constant_that_would_be_huge_is_not_folded(op, operands):
    assert len(_with_constant(op, operands).artifact.weights) < 1 << 16


# -- inputs that do not lie in rows ----------------------------------------------------------------


def _unaligned(x):
    memory = np.frombuffer(b"\0" + x.tobytes(), np.uint8)
    return memory[1:].view(x.dtype).reshape(x.shape)


def _read_only(x):
    x = x.copy()
    x.flags.writeable = False
    return x


LAYOUTS = {
    "transposed": lambda x: np.ascontiguousarray(x.T).T,
    "every second": lambda x: np.repeat(x, 2, axis=0)[::2],
    "in Fortran order": np.asfortranarray,
    "backwards": lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
    "read only": _read_only,
    "not aligned": _unaligned,
    "big-endian": lambda x: x.astype(x.dtype.newbyteorder(">")),
}


def _double():
    return compiled(
        [helper.make_node("Add", ["x", "x"], ["y"])], {"x": ("float32", [4, 6])}, ["y"]
    ).executable


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_input_in_any_layout_gives_what_its_copy_gives(layout):
    x = arange(4, 6)
    given = LAYOUTS[layout](x)
    np.testing.assert_array_equal(given, x)
    (y,) = _double().run([given]).values()
    np.testing.assert_array_equal(y, 2 * x)


def test_a_broadcast_input_gives_what_its_copy_gives():
    (y,) = _double().run([np.broadcast_to(arange(6), (4, 6))]).values()
    np.testing.assert_array_equal(y, np.tile(2 * arange(6), (4, 1)))


# -- ranks that depend on sizes --------------------------------------------------------------------


def test_squeeze_without_axes_keeps_an_unknown_axis_and_refuses_it_to_be_one():
    node = helper.make_node("Squeeze", ["x"], ["y"], name="node")
    model = compiled([node], {"x": ("float32", ["n", 1, 3])}, ["y"])
    (y,) = model.executable.run([arange(2, 1, 3)]).values()
    np.testing.assert_array_equal(y, arange(2, 3))
    with pytest.raises(
        RuntimeModelError, match=r"must not be 1: the rank would be another.*node 'node'"
    ):
        model.executable.run([arange(1, 1, 3)])
