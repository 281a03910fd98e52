"""Indices that are data and out of range: the run says so, and the model is as good as before."""

import numpy as np
import onnx
import pytest

import xcompile
from tests.e2e.compiled_node import shared_pool
from tests.unit.frontends.control_models import BOOL, graph
from tests.unit.frontends.onnx_models import model
from xcompile.compiler.codegen.program import program as rt

node = onnx.helper.make_node
INT32, INT64 = onnx.TensorProto.INT32, onnx.TensorProto.INT64
GREATEST, LEAST = 2**63 - 1, -(2**63)
X = np.arange(20, dtype=np.float32).reshape(5, 4)
ERROR = "XC5006 an index of node 'X' is out of range"


def compiled(nodes, inputs, outputs=("y",), constants=None, **options):
    proto = model(nodes, inputs, list(outputs), constants or {}, **options)
    return xcompile.compile(proto, pool=shared_pool(), options={"verify-each": True})


def refused(made, *inputs):
    with pytest.raises(xcompile.RuntimeModelError, match=ERROR):
        made(*inputs)


def i64(*values):
    return np.array(values, np.int64)


CASES = {
    "Gather": ({"axis": 0}, ["K"], []),
    "GatherElements": ({"axis": 0}, ["K", 1], []),
    "GatherND": ({}, ["K", 1], []),
    "ScatterElements": ({"axis": 0}, ["K", 1], ["K", 1]),
    "ScatterND": ({}, ["K", 1], ["K", 4]),
}
"""Attributes, the shape of the indices, that of the updates."""


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
@pytest.mark.parametrize("sizes", [[5, 4], ["N", "M"]], ids=["static", "dynamic"])
@pytest.mark.parametrize("op", CASES)
def test_only_indices_from_minus_n_to_n_minus_1_are_in_range(op, sizes, dtype):
    if op.endswith("ND") and dtype == np.int32:
        pytest.skip("the indices are int64 by the text of ONNX")
    attributes, indices, updates = CASES[op]
    n = 5
    inputs = {"x": sizes, "i": indices} | ({"u": updates} if updates else {})
    kinds = {"i": INT64 if dtype == np.int64 else INT32}
    made = compiled([node(op, list(inputs), ["y"], name="X", **attributes)], inputs, dtypes=kinds)

    def run(*values):
        given = np.array(values, dtype).reshape(-1, *[1] * (len(indices) - 1))
        shape = [len(values), *updates[1:]]
        return made(X, given, *([np.zeros(shape, np.float32)] if updates else []))

    right = run(0, n - 1, 1)
    assert run(-n, -1, 1 - n).tobytes() == right.tobytes()
    far = [2**40, -(2**40), GREATEST, LEAST] if dtype == np.int64 else [2**31 - 1, -(2**31)]
    for index in (n, -n - 1, *far):
        with pytest.raises(xcompile.RuntimeModelError, match=ERROR):
            run(0, index, 1)
    assert run(0, n - 1, 1).tobytes() == right.tobytes()
    assert run().size == (20 if updates else 0)


@pytest.mark.parametrize("op", ["GatherND", "ScatterND"])
@pytest.mark.parametrize("sizes", [[5, 4], ["N", "M"]], ids=["static", "dynamic"])
def test_each_coordinate_has_its_own_axis(op, sizes):
    inputs = {"x": sizes, "i": ["K", 2]} | ({"u": ["K"]} if op == "ScatterND" else {})
    made = compiled([node(op, list(inputs), ["y"], name="X")], inputs, dtypes={"i": INT64})
    more = [np.zeros(2, np.float32)] if op == "ScatterND" else []
    made(X, i64([4, 3], [-5, -4]), *more)
    for bad in ([0, 4], [0, -5], [5, 0], [-6, 0], [2**40, 0]):
        refused(made, X, i64([4, 3], bad), *more)
    made(X, i64([4, 3], [-5, -4]), *more)


def test_batch_axes_are_no_coordinates():
    gather = node("GatherND", ["x", "i"], ["y"], name="X", batch_dims=1)
    made = compiled([gather], {"x": [5, 4], "i": [5, 1]}, dtypes={"i": INT64})
    assert made(X, i64(0, 1, 2, 3, -4).reshape(5, 1)).tolist() == [0, 5, 10, 15, 16]
    refused(made, X, i64(0, 1, 2, 3, 4).reshape(5, 1))


def test_a_scalar_index():
    made = compiled(
        [node("Gather", ["x", "i"], ["y"], name="X")], {"x": [5, 4], "i": []}, dtypes={"i": INT64}
    )
    assert made(X, np.array(-5)).tolist() == X[0].tolist()
    for index in (5, -6, GREATEST, LEAST):
        refused(made, X, np.array(index))


def test_no_index_is_in_range_of_an_empty_axis():
    scatter = node("ScatterND", ["x", "i", "u"], ["y"], name="X")
    made = compiled([scatter], {"x": ["N", 4], "i": ["K", 1], "u": ["K", 4]}, dtypes={"i": INT64})
    empty = np.empty((0, 4), np.float32)
    for index in (0, -1):
        refused(made, empty, i64([index]), np.ones((1, 4), np.float32))
    assert made(empty, np.empty((0, 1), np.int64), empty).size == 0


def test_tensor_scatter_behind_the_end_of_the_cache():
    scatter = node("TensorScatter", ["x", "u", "w"], ["y"], name="X", axis=1)
    inputs = {"x": [2, 4, 3], "u": [2, 2, 3], "w": [2]}
    made = compiled([scatter], inputs, dtypes={"w": INT64}, opset=24)
    cache, update = np.zeros((2, 4, 3), np.float32), np.ones((2, 2, 3), np.float32)
    assert made(cache, update, i64(0, 2)).sum() == 12
    refused(made, cache, update, i64(0, 3))


def test_a_branch_checks_its_indices_when_it_is_taken():
    then = graph([node("Gather", ["x", "i"], ["t"], name="X")], [], ["t"])
    other = graph([node("Identity", ["x"], ["e"])], [], ["e"])
    nodes = [node("If", ["c"], ["y"], then_branch=then, else_branch=other)]
    kinds = {"c": BOOL, "i": INT64}
    made = compiled(nodes, {"c": [], "x": ["N", 4], "i": ["K"]}, dtypes=kinds)
    assert made(np.array(False), X, i64(9)).tolist() == X.tolist()
    assert made(np.array(True), X, i64(-5)).tolist() == X[:1].tolist()
    refused(made, np.array(True), X, i64(0, 5))


def test_a_loop_checks_the_indices_of_each_iteration():
    body = [
        node("Gather", ["x", "i"], ["row"], axis=0, name="X"),
        node("Add", ["a", "row"], ["b"]),
        node("Identity", ["go"], ["on"]),
    ]
    steps = graph(body, ["i", "go", "a"], ["on", "b"])
    nodes = [node("Loop", ["n", "", "a0"], ["y"], body=steps)]
    inputs = {"n": [], "a0": [4], "x": ["N", 4]}
    made = compiled(nodes, inputs, dtypes={"n": INT64})
    assert made(np.array(5), X[0], X).tolist() == (X[0] + X.sum(0)).tolist()
    refused(made, np.array(6), X[0], X)


@pytest.mark.parametrize("index", [5, -6, 2**40])
def test_a_constant_index_that_no_input_makes_valid_is_an_error_of_the_compilation(index):
    gather = node("Gather", ["x", "i"], ["y"], name="X")
    with pytest.raises(xcompile.CompileError, match=r"XC2013 .*5 elements") as caught:
        compiled([gather], {"x": [5, 4]}, constants={"i": i64(*range(-5, 5), *[0] * 60, index)})
    assert caught.value.node == "X"


def test_a_constant_index_of_an_axis_of_unknown_size_is_checked_by_the_run():
    gather = node("Gather", ["x", "i"], ["y"], name="X")
    made = compiled([gather], {"x": ["N", 4]}, constants={"i": i64(4, -2)})
    assert made(X).tolist() == X[[4, -2]].tolist()
    refused(made, X[:4])


def test_gathers_of_the_same_indices_share_one_check():
    nodes = [node("Gather", [x, "i"], [f"of_{x}"], name=x.upper()) for x in ("x", "z")]
    made = compiled(nodes, {"x": [5, 4], "z": [5], "i": [3]}, ["of_x", "of_z"], dtypes={"i": INT64})
    assert [type(s) for s in made.artifact.program.steps].count(rt.Check) == 1
    refused(made, X, X[:, 0], i64(0, 1, 5))


def test_places_that_an_op_has_found_are_not_checked():
    nodes = [
        node("ArgMax", ["x"], ["at"], axis=0, keepdims=0),
        node("Gather", ["x", "at"], ["rows"]),
        node("NonZero", ["x"], ["where"]),
        node("Transpose", ["where"], ["places"]),
        node("GatherND", ["x", "places"], ["found"]),
    ]
    made = compiled(nodes, {"x": [5, 4]}, ["rows", "found"])
    assert not any("range" in s.text for s in made.artifact.program.walk if isinstance(s, rt.Check))
    rows, found = made(X)
    assert rows.tolist() == [X[4].tolist()] * 4
    assert found.tolist() == X[X != 0].tolist()


@pytest.mark.parametrize("sizes", [[2, 3, 4], ["N", "M", "K"]], ids=["static", "dynamic"])
@pytest.mark.parametrize("batch", [0, 1])
def test_lengths_of_sequences_go_from_0_to_all_steps(batch, sizes):
    axes = {"batch_axis": batch, "time_axis": 1 - batch}
    reverse = node("ReverseSequence", ["x", "i"], ["y"], name="X", **axes)
    made = compiled([reverse], {"x": sizes, "i": [None]}, dtypes={"i": INT64})
    x, steps = np.arange(24, dtype=np.float32).reshape(2, 3, 4), (3, 2)[batch]
    lengths = np.full((2, 3)[batch], steps)
    np.testing.assert_array_equal(made(x, lengths), np.flip(x, 1 - batch))
    np.testing.assert_array_equal(made(x, 0 * lengths), x)
    for bad in (steps + 1, -1, -steps, GREATEST, LEAST):
        wrong = lengths.copy()
        wrong[-1] = bad
        with pytest.raises(xcompile.RuntimeModelError, match="XC5006 a length of node 'X'"):
            made(x, wrong)
    np.testing.assert_array_equal(made(x, lengths), np.flip(x, 1 - batch))


@pytest.mark.parametrize("sizes", [[1, 2, 2, 2], ["N", "C", "H", "W"]], ids=["static", "dynamic"])
@pytest.mark.parametrize("shape", [None, [1, 2, 5, 5]])
def test_places_of_max_unpool_count_from_0_in_the_whole_result(shape, sizes):
    inputs = {"x": sizes, "i": sizes}
    fixed = {"s": i64(*shape)} if shape else {}
    names, window = [*inputs, *fixed], {"kernel_shape": [2, 2], "strides": [2, 2]}
    unpool = node("MaxUnpool", names, ["y"], name="X", **window)
    made = compiled([unpool], inputs, dtypes={"i": INT64}, constants=fixed)
    x = np.arange(1, 9, dtype=np.float32).reshape(1, 2, 2, 2)
    places = i64(0, 2, 8, 10, 21, 23, 29, 31).reshape(1, 2, 2, 2)
    y = made(x, places)
    assert y[0, 0, 0, 0] == 1 and y[0, 1, 3, 3] == 8 and y.sum() == 36
    for bad in (32, -1, -32, GREATEST, LEAST):
        wrong = places.copy()
        wrong[0, 1, 1, 1] = bad
        refused(made, x, wrong)
    np.testing.assert_array_equal(made(x, places), y)


def test_constant_lengths_and_places_are_checked_when_the_model_is_compiled():
    reverse = node("ReverseSequence", ["x", "i"], ["y"], name="X")
    for bad in (4, -1):
        with pytest.raises(xcompile.CompileError, match="XC2013 a length is out of range"):
            compiled([reverse], {"x": [3, 2]}, constants={"i": i64(1, bad)})
    unpool = node("MaxUnpool", ["x", "i"], ["y"], name="X", kernel_shape=[2])
    for bad in (3, -1):
        with pytest.raises(xcompile.CompileError, match="XC2013 an index is out of range"):
            compiled([unpool], {"x": [1, 1, 2]}, constants={"i": i64([[0, bad]])})


def test_steps_and_lengths_of_transforms_are_positive():
    stft = node("STFT", ["x", "step", "", "length"], ["y"], name="X")
    kinds = {"step": INT64, "length": INT64}
    made = compiled([stft], {"x": [1, 8, 1], "step": [], "length": []}, dtypes=kinds)
    x = np.ones((1, 8, 1), np.float32)
    assert made(x, np.array(2), np.array(4)).shape == (1, 3, 3, 2)
    for step, length in ((0, 4), (-1, 4), (2, 0), (2, -4), (LEAST, LEAST)):
        refused(made, x, np.array(step), np.array(length))
    dft = node("DFT", ["x", "length"], ["y"], name="X")
    made = compiled([dft], {"x": [1, 8, 1], "length": []}, dtypes=kinds)
    assert made(x, np.array(4)).shape == (1, 4, 2)
    for length in (0, -1):
        refused(made, x, np.array(length))
        with pytest.raises(xcompile.CompileError, match="XC2007 the length of DFT is"):
            compiled([dft], {"x": [1, 8, 1]}, constants={"length": np.array(length)})
    with pytest.raises(xcompile.CompileError, match="XC2007 the step of STFT is 0"):
        compiled([node("STFT", ["x", "s", "", "n"], ["y"])], {"x": [1, 8, 1]},
                 constants={"s": np.array(0), "n": np.array(4)})  # fmt: skip


def test_an_index_of_a_size_that_is_read_is_checked():
    nodes = [
        node("Gather", ["sizes", "i"], ["s"], name="X"),
        node("Expand", ["x", "s"], ["y"]),
    ]
    kinds = {"sizes": INT64, "i": INT64}
    made = compiled(nodes, {"x": [1], "sizes": [3], "i": [1]}, dtypes=kinds)
    x, sizes = np.ones(1, np.float32), i64(2, 3, 4)
    for index in (0, 2, -3):
        assert made(x, sizes, i64(index)).shape == (sizes[index],)
    for index in (3, -4, 2**62, -(2**62), GREATEST):
        refused(made, x, sizes, i64(index))


@pytest.mark.parametrize("op", ["CumSum", "CumProd"])
def test_the_axis_of_running_sums_is_one_that_exists(op):
    along = node(op, ["x", "a"], ["y"], name="X")
    made = compiled([along], {"x": [5, 4], "a": []}, dtypes={"a": INT64}, opset=26)
    function = np.cumsum if op == "CumSum" else np.cumprod
    for axis in (-2, -1, 0, 1):
        np.testing.assert_allclose(made(X, np.array(axis)), function(X, axis), rtol=1e-6)
    for axis in (-3, 2, GREATEST, LEAST):
        with pytest.raises(
            xcompile.RuntimeModelError, match="the axis of node 'X' is out of range"
        ):
            made(X, np.array(axis))


@pytest.mark.parametrize("op", ["GatherElements", "ScatterElements"])
def test_an_operand_reaches_as_far_as_its_indices(op):
    """Along the other axes an element stays where its index is."""
    names = ["x", "i", "u"][: 2 if op == "GatherElements" else 3]
    made = compiled(
        [node(op, names, ["y"], name="X", axis=0)],
        {n: ["N", "M"] if n == "x" else ["K", "L"] for n in names},
        dtypes={"i": INT64},
    )
    indices = np.zeros((1, 4), np.int64)
    arrays = [X, indices, indices.astype(np.float32)][: len(names)]
    assert made(*arrays).shape == ((1, 4) if op == "GatherElements" else (5, 4))
    with pytest.raises(xcompile.RuntimeModelError, match="axis 1 has L indices for M elements"):
        made(X[:, :3], *arrays[1:])


def test_one_hot_has_two_values():
    hot = node("OneHot", ["i", "d", "v"], ["y"], name="X")
    sizes = {"i": [3], "d": [], "v": ["N"]}
    made = compiled([hot], sizes, dtypes={"i": INT64, "d": INT64})
    places, depth = i64(0, 2, 1), np.array(3)
    values = np.array([0, 1, 2], np.float32)
    np.testing.assert_array_equal(made(places, depth, values[:2]), np.eye(3)[[0, 2, 1]])
    with pytest.raises(xcompile.RuntimeModelError, match="the number of values"):
        made(places, depth, values)
    with pytest.raises(xcompile.CompileError, match="XC2003 the values have 2 axes"):
        compiled([hot], {**sizes, "v": [2, 7]}, dtypes={"i": INT64, "d": INT64})
