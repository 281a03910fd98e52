"""Einsum as matrix products and reductions over any axes, compiled, against numpy in double precision."""

import numpy as np
import pytest
from onnx import helper

from tests.e2e.compiled_node import compiled

SIZES = {"b": 2, "h": 3, "i": 5, "j": 4, "k": 6, "d": 7}


def _operands(equation: str) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    terms = equation.partition("->")[0].split(",")
    return [rng.standard_normal([SIZES[n] for n in term]).astype(np.float32) for term in terms]


@pytest.mark.parametrize(
    "equation",
    [
        "bid,bjd->bij", "bhid,bhjd->bhij", "ij,jk->ik", "ij,jk->ki", "bihd,bjhd->bhij", "i,i->", "i,j->ij",
        "bij,jk->bik", "bi,bi->b", "bij,bij->i", "bhij,hjk->bik", "bijk,bk->ijb", "ijk->ik", "ij->ji", "bik,kj->b",
        "i,ij->j",
    ],
)  # fmt: skip
def test_one_and_two_operands_are_products_of_matrices(equation: str) -> None:
    xs = _operands(equation)
    names = [f"x{i}" for i in range(len(xs))]
    node = helper.make_node("Einsum", names, ["y"], equation=equation)
    made = compiled(
        [node], {n: ("float32", x.shape) for n, x in zip(names, xs, strict=True)}, ["y"]
    )
    found = made.executable.run(dict(zip(names, xs, strict=True)))["y"]
    wanted = np.einsum(equation, *(x.astype(np.float64) for x in xs))
    np.testing.assert_allclose(found, wanted, 2e-5, 2e-5)
    assert "fallback" not in {k.family for k in made.artifact.kernels.values()}


@pytest.mark.parametrize("batch", [1, 3])
def test_one_size_may_be_open(batch: int) -> None:
    node = helper.make_node("Einsum", ["x", "y"], ["z"], equation="bihd,bjhd->bhij")
    shapes = {n: ("float32", ["b", "t", 3, 7]) for n in "xy"}
    made = compiled([node], shapes, ["z"])
    x, y = np.random.default_rng(0).standard_normal((2, batch, 5, 3, 7)).astype(np.float32)
    wanted = np.einsum("bihd,bjhd->bhij", x.astype(np.float64), y)
    np.testing.assert_allclose(made.executable.run({"x": x, "y": y})["z"], wanted, 1e-5, 1e-5)
    assert {k.family for k in made.artifact.kernels.values()} == {"contraction"}


OPS = {
    "ReduceL1": lambda x, a: np.abs(x).sum(a),
    "ReduceL2": lambda x, a: np.sqrt((x * x).sum(a)),
    "ReduceLogSum": lambda x, a: np.log(x.sum(a)),
    "ReduceLogSumExp": lambda x, a: np.log(np.exp(x).sum(a)),
    "ReduceMax": lambda x, a: x.max(a),
    "ReduceMean": lambda x, a: x.mean(a),
    "ReduceMin": lambda x, a: x.min(a),
    "ReduceProd": lambda x, a: x.prod(a),
    "ReduceSum": lambda x, a: x.sum(a),
    "ReduceSumSquare": lambda x, a: (x * x).sum(a),
}


@pytest.mark.parametrize("op", sorted(OPS))
def test_reductions_over_axes_that_are_no_neighbours(op: str) -> None:
    x = np.random.default_rng(0).uniform(0.5, 1.5, (3, 4, 2, 5)).astype(np.float32)
    axes, keepdims = ((0, 2), 0) if op < "ReduceM" else ((0, 2, 3), 1)
    node = helper.make_node(op, ["x", "axes"], ["y"], keepdims=keepdims)
    made = compiled([node], {"x": ("float32", [None, 4, 2, 5])}, ["y"], {"axes": np.array(axes)}, opset=18)  # fmt: skip
    wanted = OPS[op](x.astype(np.float64), axes)
    found = made.executable.run({"x": x})["y"]
    assert found.shape == ((1, 4, 1, 1) if keepdims else (4, 5))
    np.testing.assert_allclose(found.reshape(wanted.shape), wanted, 1e-5)
    assert "fallback" not in {k.family for k in made.artifact.kernels.values()}
