"""Axes and steps that only a run knows."""

import itertools

import numpy as np
import pytest
from onnx import helper

import xcompile
from tests.e2e.compiled_node import compiled

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
GREATEST, LEAST = 2**63 - 1, -(2**63)
_MADE = {}


def i64(*values):
    return np.array(values, np.int64)


def model(op, given, *, sizes=("a", "b", "c"), constants=None, opset=18, **attributes):
    """`run(x, ...)` of one node; `given` are the names and shapes of its integer inputs that are data."""
    key = (op, str(given), sizes, str(constants), str(attributes))
    if key not in _MADE:
        inputs = {"x": (np.float32, sizes)} | {n: (np.int64, s) for n, s in given.items()}
        names = ["x", "starts", "ends", "axes", "steps"] if op == "Slice" else [
            *inputs, *(constants or {})]  # fmt: skip
        names = [n if n in inputs or n in (constants or {}) else "" for n in names]
        node = helper.make_node(op, names, ["y"], name="node", **attributes)
        made = compiled([node], inputs, ["y"], constants, opset=opset).executable
        _MADE[key] = lambda *arrays: made.run(list(arrays))["y"]
    return _MADE[key]


def sliced(n, start, end, step):
    """ONNX's slice of n elements as places."""
    start, end = (v + n if v < 0 else v for v in (start, end))
    low, high = (0, n) if step > 0 else (-1, n - 1)
    start, end = min(max(start, 0), high), min(max(end, low), high)
    return list(range(start, end, step))


BOUNDS = [(0, 4), (1, -1), (-2, GREATEST), (3, 0), (-1, LEAST), (9, -9)]
BOUNDS += [(GREATEST, LEAST), (LEAST, GREATEST)]


@pytest.mark.parametrize("sizes", [(2, 3, 4), ("a", "b", "c")], ids=["static", "dynamic"])
@pytest.mark.parametrize("step", [1, 2, 3, -1, -2, GREATEST, LEAST, 2**31])
def test_steps_that_are_data(sizes, step):
    given = {"starts": [1], "ends": [1], "steps": [1]}
    run = model("Slice", given, sizes=sizes, constants={"axes": i64(2)})
    for start, end in BOUNDS:
        wanted = X[:, :, sliced(4, start, end, step)]
        np.testing.assert_array_equal(run(X, i64(start), i64(end), i64(step)), wanted)


def test_a_step_of_zero_ends_the_run():
    given = {"starts": [1], "ends": [1], "steps": [1]}
    run = model("Slice", given, constants={"axes": i64(2)})
    with pytest.raises(xcompile.RuntimeModelError, match=r"XC5006 .*negative"):
        run(X, i64(0), i64(3), i64(0))


@pytest.mark.parametrize("count", [2, None])
def test_axes_that_are_data(count):
    given = {name: [count] for name in ("starts", "ends", "axes", "steps")}
    run = model("Slice", given)
    for axes in ((0, 2), (2, 1), (-1, 0), (-2, -3)):
        for step in ((1, 1), (-1, 2), (2, -3)):
            for bounds in itertools.pairwise(BOUNDS):
                wanted = X
                for axis, (start, end), by in zip(axes, bounds, step, strict=True):
                    places = sliced(X.shape[axis], start, end, by)
                    wanted = np.take(wanted, places, axis)
                starts, ends = zip(*bounds, strict=True)
                got = run(X, i64(*starts), i64(*ends), i64(*axes), i64(*step))
                np.testing.assert_array_equal(got, wanted)


def test_how_many_axes_are_sliced_may_be_data():
    run = model("Slice", {"starts": [None], "ends": [None]})
    np.testing.assert_array_equal(run(X, i64(1), i64(2)), X[1:2])
    np.testing.assert_array_equal(run(X, i64(0, 1, 2), i64(2, 2, -1)), X[:, 1:2, 2:-1])
    np.testing.assert_array_equal(run(X, i64(), i64()), X)
    with pytest.raises(xcompile.RuntimeModelError):
        run(X, i64(0, 0, 0, 0), i64(1, 1, 1, 1))
    with pytest.raises(xcompile.RuntimeModelError):
        run(X, i64(0, 0), i64(1))


@pytest.mark.parametrize("axes", [(3,), (-4,), (GREATEST,), (LEAST,), (1, 1), (1, -2)])
def test_axes_that_there_are_not_or_twice_end_the_run(axes):
    run = model("Slice", {name: [None] for name in ("starts", "ends", "axes")})
    with pytest.raises(xcompile.RuntimeModelError, match="XC5006 an index of node 'node'"):
        run(X, i64(*[0] * len(axes)), i64(*[1] * len(axes)), i64(*axes))
    np.testing.assert_array_equal(run(X, i64(0), i64(1), i64(-3)), X[:1])


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
def test_pads_along_axes_that_are_data(mode):
    modes = {"constant_values": 7} if mode == "constant" else {}
    node = helper.make_node("Pad", ["x", "p", "v", "axes"], ["y"], name="node", mode=mode)
    inputs = {
        "x": (np.float32, ["a", "b", "c"]),
        "p": (np.int64, [None]),
        "axes": (np.int64, ["k"]),
    }
    data = compiled([node], inputs, ["y"], {"v": np.float32(7)}, opset=18).executable
    for axes, pads in (((1,), (1, 2)), ((-1, 1), (1, 0, 2, 1)), ((0, 2), (1, -1, 0, 3)), ((), ())):
        widths = [(0, 0)] * 3
        for i, axis in enumerate(axes):
            widths[axis] = pads[i], pads[i + len(axes)]
        sides = zip(X.shape, widths, strict=True)
        kept = X[tuple(slice(max(-b, 0), n + min(a, 0)) for n, (b, a) in sides)]
        wanted = np.pad(kept, [(max(b, 0), max(a, 0)) for b, a in widths], mode, **modes)
        np.testing.assert_array_equal(data.run([X, i64(*pads), i64(*axes)])["y"], wanted)
    with pytest.raises(xcompile.RuntimeModelError):
        data.run([X, i64(1, 1), i64(3)])


@pytest.mark.parametrize("sizes", [(2, 3, 4), ("a", "b", "c")], ids=["static", "dynamic"])
def test_unsqueeze_by_axes_that_are_data(sizes):
    run = model("Unsqueeze", {"axes": [2]}, sizes=sizes)
    for axes in ((0, 1), (4, 0), (-1, -2), (2, 3), (3, 1), (-5, 2)):
        np.testing.assert_array_equal(run(X, i64(*axes)), np.expand_dims(X, axes))
    for axes in ((0, 5), (-6, 0), (1, 1), (0, -5)):
        with pytest.raises(xcompile.RuntimeModelError, match="XC5006"):
            run(X, i64(*axes))


def test_one_axis_may_be_a_scalar():
    run = model("Unsqueeze", {"axes": []})
    np.testing.assert_array_equal(run(X, np.array(-1)), X[..., None])


@pytest.mark.parametrize("sizes", [(2, 1, 3, 1), ("a", "b", "c", "d")], ids=["static", "dynamic"])
def test_squeeze_by_axes_that_are_data(sizes):
    run, x = model("Squeeze", {"axes": [1]}, sizes=sizes), X[0, :2, :3].reshape(2, 1, 3, 1)
    for axis in (1, 3, -1, -3):
        np.testing.assert_array_equal(run(x, i64(axis)), np.squeeze(x, axis))
    for axis in (0, 2, 4, -5):
        with pytest.raises(xcompile.RuntimeModelError, match="XC5006"):
            run(x, i64(axis))
    if sizes[0] == "a":
        with pytest.raises(xcompile.RuntimeModelError, match="XC5006"):
            run(x[:, :0], i64(0))


def test_vectors_of_different_lengths_are_refused():
    given = {"starts": [2], "ends": [1], "steps": [1]}
    with pytest.raises(xcompile.CompileError, match="XC2004 starts, ends, axes and steps differ"):
        model("Slice", given, constants={"axes": i64(2)})


@pytest.mark.parametrize("op", ["Squeeze", "Unsqueeze"])
def test_a_number_of_axes_that_is_data_leaves_no_rank(op):
    with pytest.raises(xcompile.CompileError, match=f"XC2010 the number of axes of {op}"):
        model(op, {"axes": [None]})
