"""Kernels whose operands have axes of length 1, or move, where the kernel walks several axes as one."""

import numpy as np
import onnx
import pytest

import xcompile
from tests.e2e.networks import reference
from tests.unit.frontends.onnx_models import model
from xcompile.compiler.worker.pool import WorkerPool

node = onnx.helper.make_node


@pytest.fixture(scope="module")
def pool():
    with WorkerPool(1) as workers:
        yield workers


def compare(pool, nodes, inputs, constants=None, **sizes):
    """The compiled model against onnxruntime on random inputs."""
    made = model(nodes, inputs, ["y"], constants)
    generator = np.random.default_rng(0)
    feeds = {
        name: generator.standard_normal([sizes.get(d, d) for d in shape]).astype(np.float32)
        for name, shape in inputs.items()
    }
    y = xcompile.compile(made, pool=pool).run(feeds)["y"]
    (expected,) = reference(made, feeds)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("x", "mask", "axis"),
    [
        (["B", 1, "K"], ["B", 1, "K"], -1),
        (["B", 1, "K"], ["B", 1, 1], -1),
        (["B", "H", "S", "K"], ["B", 1, 1, "K"], -1),
        ([3, 1, 1], [4, 1], 0),
        (["M", "K", 1], ["L"], 0),
        ([2, 3, 4, 1], [4, 1], 1),
    ],
)
def test_a_mask_with_axes_of_length_one_before_and_behind_softmax(pool, x, mask, axis):
    before = [node("Add", ["x", "m"], ["s"]), node("Softmax", ["s"], ["y"], axis=axis)]
    compare(pool, before, {"x": x, "m": mask}, B=3, H=2, S=4, K=5, M=3, L=6)
    behind = [node("Softmax", ["x"], ["s"], axis=axis), node("Mul", ["s", "m"], ["y"])]
    compare(pool, behind, {"x": x, "m": mask}, B=3, H=2, S=4, K=5, M=3, L=6)


def test_a_residual_of_one_token_before_layer_norm(pool):
    nodes = [
        node("Add", ["x", "r"], ["s"]),
        node("LayerNormalization", ["s", "g"], ["y"], axis=-1),
    ]
    weights = {"g": np.arange(8, dtype=np.float32)}
    compare(pool, nodes, {"x": ["B", 1, 8], "r": ["B", 1, 8]}, weights, B=4)


@pytest.mark.parametrize("consumer", ["Softmax", "ReduceMax"])
def test_axes_of_equal_length_that_are_swapped_before_a_row_kernel(pool, consumer):
    attributes = {"axis": -1} if consumer == "Softmax" else {"axes": [-1]}
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
        node("Exp", ["t"], ["e"]),
        node(consumer, ["e"], ["y"], **attributes),
    ]
    compare(pool, nodes, {"x": [4, 4, 5]})


def test_rows_in_reverse_before_a_softmax(pool):
    constants = {
        "start": np.array([-1]),
        "end": np.array([-9]),
        "axis": np.array([0]),
        "step": np.array([-1]),
    }
    nodes = [
        node("Slice", ["x", "start", "end", "axis", "step"], ["r"]),
        node("Exp", ["r"], ["e"]),
        node("Softmax", ["e"], ["y"], axis=-1),
    ]
    compare(pool, nodes, {"x": [4, 4, 5]}, constants)


@pytest.mark.parametrize("batch", [["B", 1], ["B", "S", 1], ["B", 1, 1], [3, 1, 4]])
def test_a_residual_behind_a_matrix_product_of_a_flattened_batch(pool, batch):
    nodes = [node("MatMul", ["x", "w"], ["t"]), node("Add", ["t", "r"], ["y"])]
    weights = {"w": np.arange(30, dtype=np.float32).reshape(5, 6)}
    compare(pool, nodes, {"x": [*batch, 5], "r": [*batch, 6]}, weights, B=3, S=4)


def test_the_right_factor_of_a_product_is_added_to_it(pool):
    nodes = [node("MatMul", ["x", "w"], ["t"]), node("Add", ["t", "w"], ["y"])]
    compare(pool, nodes, {"x": ["B", 5, 5], "w": [5, 5]}, B=3)
