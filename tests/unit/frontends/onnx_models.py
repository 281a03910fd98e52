"""Small ONNX models for the tests of the importer."""

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

FLOAT = onnx.TensorProto.FLOAT


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, Sequence[int | str | None]],
    outputs: Sequence[str],
    constants: dict[str, np.ndarray] | None = None,
    *,
    opset: int = 17,
    dtypes: dict[str, int] | None = None,
    functions: Sequence[onnx.FunctionProto] = (),
    domains: dict[str, int] | None = None,
) -> onnx.ModelProto:
    """A model of float inputs (unless `dtypes` says otherwise) with undeclared output shapes."""
    kinds = dtypes or {}
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(n, kinds.get(n, FLOAT), s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, kinds.get(n, FLOAT), None) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid(d, v) for d, v in {"": opset, **(domains or {})}.items()]
    return helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=10)


def identity_model(size: Sequence[int | str | None] = (2,)) -> onnx.ModelProto:
    """y = x."""
    return model([helper.make_node("Identity", ["x"], ["y"])], {"x": size}, ["y"])
