"""AttributeProto to Python: numbers, text, tuples of them, arrays."""

from collections.abc import Mapping
from typing import Any

import onnx

from xcompile.compiler.support.errors import CompileError
from xcompile.frontends.onnx.external import ExternalData
from xcompile.frontends.onnx.tensors import densify, to_array

_A = onnx.AttributeProto


def decode(attribute: onnx.AttributeProto, external: ExternalData, node: str) -> Any:
    """The value of an attribute: int, float, str, a tuple of these, an ndarray, or the message of a
    graph or type.

    Raises:
        CompileError: XC1010 for attributes without a known type, and what reading a tensor raises.
    """
    kind = attribute.type
    if kind == _A.FLOAT:
        return float(attribute.f)
    if kind == _A.INT:
        return int(attribute.i)
    if kind == _A.STRING:
        return _text(attribute.s, attribute.name, node)
    if kind == _A.FLOATS:
        return tuple(float(v) for v in attribute.floats)
    if kind == _A.INTS:
        return tuple(int(v) for v in attribute.ints)
    if kind == _A.STRINGS:
        return tuple(_text(v, attribute.name, node) for v in attribute.strings)
    what = f"the attribute '{attribute.name}'"
    try:
        if kind == _A.TENSOR:
            return to_array(attribute.t, external, what)
        if kind == _A.SPARSE_TENSOR:
            return densify(attribute.sparse_tensor, external, what)
    except CompileError as error:
        error.node = error.node or node
        raise
    if kind in (_A.GRAPH, _A.TYPE_PROTO):
        return attribute.g if kind == _A.GRAPH else attribute.tp
    raise CompileError("XC1010", f"{what} has no type that is supported", node=node)


def _text(data: bytes, name: str, node: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CompileError(
            "XC1010", f"the attribute '{name}' is not UTF-8 text", node=node
        ) from error


def has_graph(attributes: Mapping[str, onnx.AttributeProto]) -> bool:
    """Whether a node carries graphs (If, Loop, Scan)."""
    return any(
        a.type in (_A.GRAPH, _A.GRAPHS) or a.HasField("g") or len(a.graphs)
        for a in attributes.values()
    )
