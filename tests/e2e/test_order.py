"""TopK and CumSum, compiled, against numpy: sizes from one element to whole sorts, ties, NaN, every axis form."""

import numpy as np
import pytest
from onnx import helper

from tests.e2e.compiled_node import compiled, run


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize(("size", "k"), [(1, 1), (5, 0), (300, 1), (100, 17), (257, 256), (500, 500)])  # fmt: skip
def test_topk_of_few_and_of_all_keeps_the_order_of_equal_elements(
    size: int, k: int, largest: int
) -> None:
    x = np.random.default_rng(size).integers(0, 50, (3, size)).astype(np.float32)
    x[0, ::7] = np.nan
    values, places = run("TopK", x, np.array([k]), constants=[1], outputs=2, largest=largest)
    keys = np.where(np.isnan(x), 1e9, x)
    wanted = np.argsort(-keys if largest else keys, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(places, wanted)
    np.testing.assert_array_equal(values, np.take_along_axis(x, wanted, 1))


@pytest.mark.parametrize(
    ("dtype", "axis", "exclusive", "reverse"),
    [
        ("float32", 0, 0, 0),
        ("float32", 1, 1, 1),
        ("float32", -1, 1, 0),
        ("int32", 1, 0, 1),
        ("float64", 2, 0, 1),
    ],
)
def test_running_sums(dtype: str, axis: int, exclusive: int, reverse: int) -> None:
    x = np.random.default_rng(0).integers(-9, 9, (3, 5, 37)).astype(dtype)
    y = run("CumSum", x, np.array(axis), constants=[1], exclusive=exclusive, reverse=reverse)
    turned = np.flip(x, axis) if reverse else x
    sums = np.cumsum(turned, axis) - (turned if exclusive else 0)
    np.testing.assert_array_equal(y, np.flip(sums, axis) if reverse else sums)


@pytest.mark.parametrize("shape", [(3, 5, 37), (None, None, 37)])
def test_what_a_running_sum_adds_is_computed_in_its_kernel(shape: tuple[int | None, ...]) -> None:
    nodes = [
        helper.make_node("Add", ["x", "c"], ["a"]),
        helper.make_node("CumSum", ["a", "axis"], ["y"]),
    ]
    c = np.arange(5 * 37, dtype=np.float32).reshape(5, 37)
    made = compiled(nodes, {"x": ("float32", shape)}, ["y"], {"c": c, "axis": np.array(0)})
    assert [k.family for k in made.artifact.kernels.values()] == ["scan"]
    x = np.ones((3, 5, 37), np.float32)
    np.testing.assert_array_equal(made.executable.run({"x": x})["y"], np.cumsum(x + c, 0))
