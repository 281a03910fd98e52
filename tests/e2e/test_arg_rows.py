"""ArgMax and ArgMin, compiled, against numpy: ties, NaN, both ends of the axis, element types, rows of any length."""

import numpy as np
import pytest
from onnx import helper

from tests.e2e.compiled_node import compiled, run


def wanted(op: str, x: np.ndarray, axis: int, last: int) -> np.ndarray:
    find = np.argmax if op == "ArgMax" else np.argmin
    if not last:
        return np.expand_dims(find(x, axis), axis)
    return x.shape[axis] - 1 - np.expand_dims(find(np.flip(x, axis), axis), axis)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int8", "uint8", "int64"])
@pytest.mark.parametrize(("op", "last"), [("ArgMax", 0), ("ArgMin", 1)])
def test_equal_elements_and_nan(op: str, last: int, dtype: str) -> None:
    x = np.random.default_rng(0).integers(0, 9, (6, 37)).astype(dtype)
    if dtype.startswith("float"):
        x[1, 5] = x[1, 36] = x[2, 0] = np.nan
        x[3], x[4] = np.inf, -np.inf
    y = run(op, x, axis=-1, select_last_index=last)
    np.testing.assert_array_equal(y, wanted(op, x, -1, last))


@pytest.mark.parametrize("length", [1, 16, 50])
def test_rows_of_any_length(length: int) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, length)).astype(np.float32)
    y = run("ArgMax", x, axis=2, keepdims=0)
    np.testing.assert_array_equal(y, x.argmax(2))


@pytest.mark.parametrize("axis", [0, 1])
def test_other_axes_have_a_lane_a_row(axis: int) -> None:
    x = np.random.default_rng(0).standard_normal((4, 5, 19)).astype(np.float32)
    node = helper.make_node("ArgMin", ["x"], ["y"], axis=axis)
    made = compiled([node], {"x": ("float32", x.shape)}, ["y"])
    assert {k.family for k in made.artifact.kernels.values()} == {"map"}
    np.testing.assert_array_equal(made.executable.run({"x": x})["y"], wanted("ArgMin", x, axis, 0))


def test_the_place_is_converted_in_the_same_kernel() -> None:
    nodes = [
        helper.make_node("ArgMax", ["x"], ["a"], axis=-1),
        helper.make_node("Cast", ["a"], ["y"], to=6),
    ]
    made = compiled(nodes, {"x": ("float32", [3, 40])}, ["y"])
    assert [k.family for k in made.artifact.kernels.values()] == ["arg"]
    x = np.eye(3, 40, dtype=np.float32)
    assert made.executable.run({"x": x})["y"].tolist() == [[0], [1], [2]]
