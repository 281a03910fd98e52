"""Constants and ops that do nothing in inference."""

import numpy as np

from xcompile.compiler.ir.op import Value
from xcompile.frontends.onnx.context import NodeContext
from xcompile.frontends.onnx.registry import onnx_op
from xcompile.frontends.onnx.sequences import Known

_DTYPES = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
}


@onnx_op("Constant")
def constant(node: NodeContext) -> list[Value]:
    if len(node.attrs) != 1:
        raise node.error("XC1010", f"Constant has {len(node.attrs)} values, not one")
    ((name, value),) = node.attrs.items()
    if name in ("value", "sparse_value"):
        return [node.constant(value)]
    if name not in _DTYPES:
        raise node.error(
            "XC1012", f"Constant has the attribute '{name}'; strings are not supported"
        )
    return [node.constant(np.array(value, _DTYPES[name]))]


@onnx_op("Identity")
def identity(node: NodeContext) -> list[Known]:
    return [node.any_input(0)]
