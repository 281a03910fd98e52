"""Kernels of one thread an element on the interpreter of PTX compute what the CPU's compute."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

import xcompile
from tests.e2e.compiled_node import shared_pool
from xcompile.compiler.ptx.device import EmulatedDevice

RNG = np.random.default_rng(3)
IMAGE = (1, 19, 7, 6)
PLACES = np.array([[3], [1], [3]])


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def on_both(op: str, x: Any, constants: Sequence[Any] = (), **attributes: Any) -> tuple[Any, Any]:
    """The results of the CPU and of an emulated GPU for a node whose other inputs are constants."""
    names = [f"c{i}" for i in range(len(constants))]
    graph = helper.make_graph(
        [helper.make_node(op, ["x", *names], ["y"], **attributes)],
        "g",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)],
        [helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(x.dtype), None)],
        [numpy_helper.from_array(c, name) for c, name in zip(constants, names, strict=True)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    cpu = xcompile.compile(model, pool=shared_pool())
    gpu = xcompile.compile(model, "cuda", pool=shared_pool(), device=EmulatedDevice())
    return np.asarray(cpu(x)), np.asarray(gpu(x))


@pytest.mark.parametrize(
    ("op", "x", "constants", "attributes"),
    [
        ("MaxPool", floats(*IMAGE), [], {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}),
        ("AveragePool", floats(*IMAGE), [], {"kernel_shape": [2, 2], "pads": [0, 1, 0, 1]}),
        ("ScatterND", floats(5, 4), [PLACES, floats(3, 4)], {"reduction": "add"}),
        ("ScatterND", floats(5, 4), [PLACES[:2], floats(2, 4)], {}),
        ("Gather", floats(5, 4), [np.array([4, -5, 0])], {"axis": 0}),
        ("Transpose", floats(3, 5, 2), [], {"perm": [2, 0, 1]}),
        ("Erf", floats(200), [], {}),
        ("Pow", np.abs(floats(40)), [np.float32(1.7)], {}),
        ("Mod", RNG.integers(-99, 99, 50), [np.int64(7)], {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_results_are_the_cpus_bytes(
    op: str, x: Any, constants: Sequence[Any], attributes: dict[str, Any]
) -> None:
    cpu, gpu = on_both(op, x, constants, **attributes)
    assert gpu.tobytes() == cpu.tobytes()


@pytest.mark.parametrize(
    ("op", "weights", "attributes"),
    [
        ("Conv", floats(21, 19, 3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 1]}),
        ("Conv", floats(19, 1, 3, 3), {"group": 19, "dilations": [1, 2], "pads": [1, 2, 1, 2]}),
        ("ConvTranspose", floats(19, 5, 2, 2), {"strides": [2, 2]}),
    ],
    ids=["dense", "depthwise", "transposed"],
)
def test_convolutions_differ_by_the_order_of_sums_alone(
    op: str, weights: Any, attributes: dict[str, Any]
) -> None:
    cpu, gpu = on_both(op, floats(*IMAGE), [weights], **attributes)
    np.testing.assert_allclose(gpu, cpu, rtol=0, atol=1e-5 * np.abs(cpu).max())


@pytest.mark.parametrize("precision", ["w8", "dynamic"])
@pytest.mark.parametrize(
    ("op", "gates", "attributes"),
    [("RNN", 1, {}), ("GRU", 3, {}), ("GRU", 3, {"linear_before_reset": 1}), ("LSTM", 4, {})],
)
def test_recurrent_layers_with_weights_of_8_bits(
    op: str, gates: int, attributes: dict[str, Any], precision: str
) -> None:
    """Sums of floats have another order here; a state that is rounded otherwise would be seen."""
    x, w, r = floats(3, 2, 5), floats(1, gates * 6, 5), floats(1, gates * 6, 6)
    node = helper.make_node(op, ["x", "w", "r", "b"], ["y"], hidden_size=6, **attributes)
    constants = {"w": w, "r": r, "b": floats(1, 2 * gates * 6)}
    graph = helper.make_graph(
        [node], "g",
        [helper.make_tensor_value_info("x", 1, x.shape)],
        [helper.make_tensor_value_info("y", 1, None)],
        [numpy_helper.from_array(c, name) for name, c in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    given: Any = {"precisions": {"*": precision}, "pool": shared_pool()}
    cpu = xcompile.compile(model, **given)
    gpu = xcompile.compile(model, "cuda", device=EmulatedDevice(), **given)
    np.testing.assert_allclose(np.asarray(gpu(x)), np.asarray(cpu(x)), rtol=0, atol=2e-6)
