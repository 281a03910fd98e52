"""The interface to ONNX's tools: `onnx.backend.base`."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from xcompile.compiler.support.errors import CompileError
from xcompile.frontends.onnx import backend

ADD = helper.make_node("Add", ["a", "b"], ["c"])
ONES = np.ones(3, np.float32)


def reshape_model():
    """Its second input says a size."""
    return helper.make_model(
        helper.make_graph(
            [helper.make_node("Reshape", ["x", "shape"], ["y"])],
            "g",
            [
                helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"]),
                helper.make_tensor_value_info("shape", TensorProto.INT64, [2]),
            ],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
    )


def test_a_node_runs_by_itself_and_names_its_outputs():
    assert backend.run_node(ADD, [ONES, ONES]).c.tolist() == [2, 2, 2]


def test_a_model_is_compiled_for_the_sizes_that_its_inputs_say():
    prepared = backend.prepare(reshape_model())
    x = np.arange(6, dtype=np.float32)
    for shape in ([2, 3], [3, 2]):
        assert prepared.run([x, np.array(shape)])[0].shape == tuple(shape)
    assert prepared.run({"shape": np.array([6, 1]), "x": x})[0].shape == (6, 1)


def test_what_is_not_supported_is_not_compatible():
    words = helper.make_node("StringNormalizer", ["x"], ["y"])
    graph = helper.make_graph(
        [words],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.STRING, [1])],
        [helper.make_tensor_value_info("y", TensorProto.STRING, [1])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    assert not backend.XcompileBackend.is_compatible(model)
    assert backend.XcompileBackend.is_compatible(reshape_model())
    with pytest.raises(CompileError):
        backend.prepare(model)


def test_only_the_cpu_is_a_device():
    assert backend.supports_device("CPU")
    assert not backend.supports_device("CUDA:0")
    with pytest.raises(ValueError, match="CUDA"):
        backend.prepare(reshape_model(), "CUDA")
