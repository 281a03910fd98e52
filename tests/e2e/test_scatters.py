"""Scatters of runs, compiled: which kernels they are, and their numbers against numpy."""

import numpy as np
import pytest
from onnx import helper

from tests.e2e.compiled_node import compiled, run
from xcompile.compiler.model import CompiledModel

JOIN = {"add": np.add.at, "mul": np.multiply.at, "max": np.maximum.at, "min": np.minimum.at}


def joined(x, places, updates, reduction):
    """What numpy makes of it, in double precision."""
    wide = x.astype(np.float64)
    if reduction == "none":
        wide[places] = updates
    else:
        JOIN[reduction](wide, places, updates.astype(np.float64))
    return wide


@pytest.mark.parametrize(
    ("dtype", "reduction", "run_shape"),
    [
        ("float32", "none", (37,)),
        ("float32", "add", (1,)),
        ("float32", "add", (3, 5)),
        ("float16", "mul", (37,)),
        ("float64", "max", (37,)),
        ("int8", "add", (37,)),
        ("int64", "min", (37,)),
    ],
)
def test_runs_of_any_length_go_to_their_rows(dtype, reduction, run_shape):
    rng = np.random.default_rng(0)
    x, updates = (rng.integers(-9, 9, (n, *run_shape)).astype(dtype) for n in (6, 5))
    rows = np.array([[4], [0], [-1], [0], [2]])
    y = run("ScatterND", x, rows, updates, constants=[1], opset=18, reduction=reduction)
    np.testing.assert_array_equal(y, joined(x, (rows[:, 0],), updates, reduction))


def test_coordinates_of_several_axes_name_runs():
    rng = np.random.default_rng(0)
    x, updates = rng.standard_normal((3, 4, 21)), rng.standard_normal((2, 2, 21))
    places = np.array([[[0, 1], [2, -1]], [[0, 1], [-3, 0]]])
    y = run("ScatterND", x, places, updates, constants=[1], opset=18, reduction="add")
    at = tuple(places[..., i] for i in range(2))
    np.testing.assert_allclose(y, joined(x, at, updates, "add"), 1e-15)


def graph(dynamic, *, threads=1):
    """`scatter_add` as frameworks write it: the index of a row is expanded, the updates are computed."""
    nodes = [
        helper.make_node("Expand", ["rows", "shape"], ["indices"]),
        helper.make_node("Relu", ["u"], ["updates"]),
        helper.make_node(
            "ScatterElements", ["x", "indices", "updates"], ["sums"], axis=0, reduction="add"
        ),
        helper.make_node("Add", ["sums", "x"], ["y"]),
    ]
    shapes = {
        "x": ("float32", [None if dynamic else 9, 70]),
        "u": ("float32", [40, 70]),
        "rows": ("int64", [40, 1]),
    }
    return compiled(nodes, shapes, ["y"], {"shape": np.array([40, 70])}, opset=18)


def inputs():
    rng = np.random.default_rng(1)
    x, u = (rng.standard_normal((n, 70)).astype(np.float32) for n in (9, 40))
    return {"x": x, "u": u, "rows": rng.integers(0, 9, (40, 1))}


@pytest.mark.parametrize("dynamic", [False, True])
def test_rows_with_expanded_indices_are_scattered_as_runs(dynamic):
    made = graph(dynamic)
    given = inputs()
    families = [made.artifact.kernels[s.symbol].family for s in made.artifact.program.launches]
    assert families == [
        "rows",
        "scatter",
        "map",
    ]  # the check of the rows; the relu is part of the scatter
    wanted = joined(given["x"], (given["rows"][:, 0],), np.maximum(given["u"], 0), "add")
    y = made.executable.run(given)["y"]
    np.testing.assert_allclose(y, wanted + given["x"], 1e-5, 1e-5)


def test_sums_do_not_depend_on_the_number_of_threads():
    made = graph(False)
    one, three = (CompiledModel(made.artifact, threads=n).executable.run(inputs()) for n in (1, 3))
    np.testing.assert_array_equal(one["y"], three["y"])


def test_a_weight_that_is_read_twice_is_not_stored_for_one_reader():
    w = np.arange(9, dtype=np.float32).reshape(3, 3)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "w"], ["y"])]  # fmt: skip
    made = compiled(nodes, {"x": ("float32", [3, 3])}, ["y"], {"w": w})
    x = np.eye(3, dtype=np.float32)
    np.testing.assert_array_equal(made.executable.run({"x": x})["y"], w + w)


def test_updates_of_runs_over_several_axes_are_computed_in_the_kernel():
    nodes = [
        helper.make_node("Add", ["u", "c"], ["updates"]),
        helper.make_node("ScatterND", ["x", "rows", "updates"], ["y"], reduction="add"),
    ]
    shapes = {"x": ("float32", [4, 3, 21]), "u": ("float32", [2, 3, 21])}
    c = np.arange(3, dtype=np.float32).reshape(3, 1)
    made = compiled(nodes, shapes, ["y"], {"c": c, "rows": np.array([[3], [1]])}, opset=18)
    assert len(made.artifact.program.launches) == 1
    x, u = np.zeros((4, 3, 21), np.float32), np.ones((2, 3, 21), np.float32)
    y = made.executable.run({"x": x, "u": u})["y"]
    np.testing.assert_array_equal(y[[3, 1]], u + c)
    np.testing.assert_array_equal(y[[0, 2]], x[:2])
