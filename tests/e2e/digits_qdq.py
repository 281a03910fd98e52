"""The digits network with QuantizeLinear and DequantizeLinear nodes, made by a plain rule from its float weights.

Activations are uint8 with one scale and zero point, from the least and greatest value of the training digits; weights
int8 with a scale for each output channel; biases int32 with the product of both scales, as exporters write it.
"""

from collections.abc import Mapping

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

PRODUCTS = ("Conv", "Gemm")


def quantized_digits(model: onnx.ModelProto, images: np.ndarray) -> onnx.ModelProto:
    """The model with the inputs, weights and biases of its products quantized; `images` calibrate it."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph = made.graph
    weights = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    products = [node for node in graph.node if node.op_type in PRODUCTS]
    seen = _values(model, [node.input[0] for node in products], images)
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        if node.op_type in PRODUCTS:
            x, w, bias = node.input
            x_scale, x_zero = _unsigned(seen[x])
            w_scale = np.abs(weights[w].reshape(len(weights[w]), -1)).max(axis=1) / np.float32(127)
            if not any(x in other.input for other in nodes if other.op_type == "QuantizeLinear"):
                _put(nodes, graph, x, x_scale, x_zero)
            columns = w_scale.reshape(-1, *[1] * (weights[w].ndim - 1))
            integers = np.rint(weights[w] / columns).clip(-127, 127).astype(np.int8)
            _constant(nodes, graph, w, integers, w_scale)
            b_scale = (x_scale * w_scale).astype(np.float32)
            _constant(
                nodes, graph, bias, np.rint(weights[bias] / b_scale).astype(np.int32), b_scale
            )
            node.input[:] = [f"{name}_dq" for name in node.input]
        nodes.append(node)
    kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(kept)
    return made


def _values(
    model: onnx.ModelProto, names: list[str], images: np.ndarray
) -> Mapping[str, np.ndarray]:
    """Tensors of the float model for the images."""
    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    for name in names:
        watched.graph.output.append(
            helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
        )
    session = onnxruntime.InferenceSession(
        watched.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    feeds = {model.graph.input[0].name: images}
    return dict(zip(names, session.run(names, feeds), strict=True))


def _unsigned(values: np.ndarray) -> tuple[np.float32, np.uint8]:
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    scale = np.float32((high - low) / 255)
    return scale, np.uint8(np.rint(-low / scale))


def _put(
    nodes: list[onnx.NodeProto], graph: onnx.GraphProto, x: str, scale: np.ndarray, zero: np.ndarray
) -> None:
    """A pair of quantization and dequantization of x."""
    graph.initializer.append(numpy_helper.from_array(np.asarray(scale), f"{x}_scale"))
    graph.initializer.append(numpy_helper.from_array(np.asarray(zero), f"{x}_zero"))
    parameters = [f"{x}_scale", f"{x}_zero"]
    nodes.append(helper.make_node("QuantizeLinear", [x, *parameters], [f"{x}_q"], f"{x}_q"))
    nodes.append(
        helper.make_node("DequantizeLinear", [f"{x}_q", *parameters], [f"{x}_dq"], f"{x}_dq")
    )


def _constant(
    nodes: list[onnx.NodeProto],
    graph: onnx.GraphProto,
    name: str,
    integers: np.ndarray,
    scale: np.ndarray,
) -> None:
    """A constant as integers that are dequantized along the first axis."""
    tensor = next(t for t in graph.initializer if t.name == name)
    tensor.CopyFrom(numpy_helper.from_array(integers, name))
    graph.initializer.append(numpy_helper.from_array(scale, f"{name}_scale"))
    nodes.append(
        helper.make_node(
            "DequantizeLinear", [name, f"{name}_scale"], [f"{name}_dq"], f"{name}_dq", axis=0
        )
    )
