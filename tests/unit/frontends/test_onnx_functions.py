"""Ops that ONNX defines by functions, imported by their definition."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.unit.frontends.onnx_models import identity_model, model
from xcompile.compiler.ir.location import node_names
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.interpreter import interpret
from xcompile.frontends.onnx.importer import import_onnx

node = helper.make_node


def operations(module):
    return [op.operation for op in module.main.regions[0].blocks[0].operations]


def test_nodes_of_the_definition_are_named_after_the_node():
    swiglu = node("SwiGLU", ["x", "g"], ["y"], name="gate")
    module = import_onnx(model([swiglu], {"x": [2], "g": [2]}, ["y"], opset=28))
    names = [node_names(op.location) for op in operations(module) if op.name != "func.return"]
    assert names and all(name[0].startswith("gate/") for name in names)


def test_attributes_that_are_not_given_have_their_defaults():
    window = node("HannWindow", ["size"], ["y"])
    size = np.array(4, np.int64)
    module = import_onnx(model([window], {}, ["y"], {"size": size}, opset=17))
    assert interpret(module, [])[0].tolist() == pytest.approx([0, 0.5, 1, 0.5])


def test_definitions_that_depend_on_types_and_on_what_is_given():
    loss = node("SoftmaxCrossEntropyLoss", ["scores", "labels"], ["y", "logs"])
    sizes, kinds = {"scores": [1, 2], "labels": [1]}, {"labels": TensorProto.INT64}
    module = import_onnx(model([loss], sizes, ["y", "logs"], opset=13, dtypes=kinds))
    y, logs = interpret(module, [np.array([[0, 0]], np.float32), np.array([1])])
    assert y == pytest.approx(np.log(2))
    np.testing.assert_allclose(logs, [[-np.log(2), -np.log(2)]], rtol=1e-6)


def test_a_definition_that_uses_what_is_not_supported_is_refused_with_both_names():
    shapes = node("SequenceMap", ["x"], ["y"], name="each", body=identity_model().graph)
    with pytest.raises(CompileError, match="SequenceMap") as caught:
        import_onnx(model([shapes], {"x": [1]}, ["y"], opset=17))
    assert caught.value.code in ("XC1006", "XC1012", "XC2002")
