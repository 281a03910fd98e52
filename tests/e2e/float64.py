"""A model's outputs computed in float64: what results in float32 are measured by."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from xcompile.dialects.nn.interpreter import interpret
from xcompile.frontends.onnx.importer import import_onnx

_FLOAT_ONLY = {"Resize": (1, 2), "Upsample": (1,)}
"""Inputs that say sizes and must be float32 by their ops' definitions."""


def reference64(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs of the float64 model by the numpy meanings of its ops."""
    module = import_onnx(widened(model))
    return interpret(module, [_wide(feeds[name]) for name in module.input_names()])


def widened(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with every float32 tensor made float64."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    every = list(graphs(changed.graph))
    kept = {name for graph in every for name in _size_operands(graph.node)}
    for graph in every:
        for tensor in graph.initializer:
            if tensor.name not in kept:
                _widen(tensor)
        for node in graph.node:
            if not (node.op_type == "Constant" and node.output[0] in kept):
                _widen_attributes(node)
        del graph.value_info[:]
        for info in (*graph.input, *graph.output):
            if info.type.tensor_type.elem_type == TensorProto.FLOAT:
                info.type.tensor_type.elem_type = TensorProto.DOUBLE
    return changed


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph and all graphs in its nodes' attributes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from graphs(attribute.g)


def _size_operands(nodes: Sequence[onnx.NodeProto]) -> Iterator[str]:
    for node in nodes:
        yield from (node.input[i] for i in _FLOAT_ONLY.get(node.op_type, ()) if i < len(node.input))


def _widen_attributes(node: onnx.NodeProto) -> None:
    if node.op_type == "ConstantOfShape" and not node.attribute:
        zero = numpy_helper.from_array(np.zeros(1, np.float64))
        node.attribute.append(onnx.helper.make_attribute("value", zero))
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.TENSOR:
            _widen(attribute.t)
        elif node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
            values = attribute.f if attribute.name == "value_float" else attribute.floats
            made = numpy_helper.from_array(np.array(values, np.float64))
            attribute.CopyFrom(onnx.helper.make_attribute("value", made))
        elif node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
            attribute.i = TensorProto.DOUBLE


def _widen(tensor: onnx.TensorProto) -> None:
    if tensor.data_type == TensorProto.FLOAT:
        array = numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if array.dtype == np.float32 else array
