"""Row kernels on the interpreter of PTX give the CPU's bits."""

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

import xcompile
from tests.e2e.compiled_node import shared_pool

SHAPES = {
    2: [(1, 1), (3, 5), (2, 33), (5, 16), (9, 100)],
    3: [(2, 7, 3), (1, 40, 5), (3, 4, 17), (2, 1, 1), (1, 16, 33)],
}
"""By rank; one model serves all of a rank."""


def model(op: str, dtype: str, rank: int, **attributes: Any) -> Any:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    sizes = [f"d{i}" for i in range(rank)]
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], ["y"], **attributes)],
        "g",
        [helper.make_tensor_value_info("x", kind, sizes)],
        [helper.make_tensor_value_info("y", kind, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def check(op: str, rank: int, dtype: str = "float32", **attributes: Any) -> None:
    """The same bits from the CPU and from the emulated GPU, whose kernel is one of rows."""
    made = model(op, dtype, rank, **attributes)
    cpu = xcompile.compile(made, pool=shared_pool())
    gpu = xcompile.compile(made, "cuda", pool=shared_pool(), device="emulate")
    assert {facts.family for facts in gpu.artifact.kernels.values()} == {"rows"}
    for shape in SHAPES[rank]:
        x = (np.random.default_rng(len(shape)).standard_normal(shape) * 5).astype(dtype)
        assert np.asarray(gpu(x)).tobytes() == np.asarray(cpu(x)).tobytes()


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_softmax_along_any_axis_is_the_cpus(op: str, rank: int) -> None:
    check(op, rank, axis=1)


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("op", ["ReduceMean", "ReduceLogSumExp", "ReduceProd"])
def test_reductions_are_the_cpus(op: str, rank: int) -> None:
    check(op, rank, axes=[1])


def test_layer_norm_with_scale_and_bias_is_the_cpus() -> None:
    rng = np.random.default_rng(0)
    x, scale, bias = (rng.standard_normal(n).astype(np.float32) for n in ((5, 3, 40), (40,), (40,)))
    graph = helper.make_graph(
        [helper.make_node("LayerNormalization", ["x", "s", "b"], ["y"], axis=-1)],
        "g",
        [helper.make_tensor_value_info("x", 1, x.shape)],
        [helper.make_tensor_value_info("y", 1, None)],
        [numpy_helper.from_array(scale, "s"), numpy_helper.from_array(bias, "b")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    cpu = xcompile.compile(made, pool=shared_pool())
    gpu = xcompile.compile(made, "cuda", pool=shared_pool(), device="emulate")
    assert np.asarray(gpu(x)).tobytes() == np.asarray(cpu(x)).tobytes()


@pytest.mark.parametrize("dtype", ["float64", "int64"])
def test_words_of_64_bits_are_shuffled_in_halves(dtype: str) -> None:
    check("ReduceMax", 2, dtype, axes=[1])


def test_no_rows_and_rows_without_elements() -> None:
    made = model("ReduceMax", "float32", 2, axes=[1])
    gpu = xcompile.compile(made, "cuda", pool=shared_pool(), device="emulate")
    assert np.asarray(gpu(np.zeros((0, 4), np.float32))).shape == (0, 1)
    assert np.asarray(gpu(np.zeros((2, 0), np.float32))).tolist() == [[-np.inf], [-np.inf]]
