"""What ONNX's own table of operators says about a node: arity, attributes, element types.

Only the table is read (`onnx.defs`), no checker and no inference run. With it every converter may
rely on its attributes having their types and on its inputs having element types that the op is
defined for.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import onnx

from xcompile.compiler.ir.dtypes import DTYPES
from xcompile.compiler.support.errors import CompileError
from xcompile.frontends.onnx.graph import ABSENT, Node
from xcompile.frontends.onnx.reader import DEFAULT_DOMAIN

ONNX_NAMES = {
    "i1": "bool",
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float",
    "f64": "double",
    "complex<f32>": "complex64",
    "complex<f64>": "complex128",
    **{n: n.replace("ui", "uint") for n in DTYPES if n.startswith("ui")},
    **{n: n.replace("i", "int") for n in DTYPES if n.startswith("i") and n != "i1"},
    **{n: n.replace("f8", "float8").lower() for n in DTYPES if n.startswith("f8")},
    "f8E8M0FNU": "float8e8m0",
    "f4E2M1FN": "float4e2m1",
}
"""The names of element types in ONNX's type texts."""

_ATTRIBUTE = onnx.AttributeProto.AttributeType


@cache
def schema_of(domain: str, op: str, opset: int) -> onnx.defs.OpSchema | None:
    """The definition of an op in force at an opset; None when there is none or it is withdrawn."""
    try:
        schema = onnx.defs.get_schema(op, opset, domain)
    except onnx.defs.SchemaError:
        return None
    return None if schema.deprecated else schema


def check_node(node: Node) -> None:
    """Compare a node of the default domain with the definition of its op.

    Raises:
        CompileError: XC1010 attributes, XC1011 number of inputs or outputs.
    """
    schema = schema_of(node.domain, node.op, node.opset)
    if schema is None or node.domain != DEFAULT_DOMAIN:
        return
    for what, values, least, most in (
        ("inputs", node.inputs, schema.min_input, schema.max_input),
        ("outputs", node.outputs, schema.min_output, schema.max_output),
    ):
        if not least <= len(values) <= most:
            raise CompileError(
                "XC1011",
                f"{node.op} has {len(values)} {what}; it takes {least} to {most}",
                node=node.name,
            )
    for name, attribute in node.attributes.items():
        declared = schema.attributes.get(name)
        if declared is None:
            raise CompileError(
                "XC1010",
                f"{node.op} has no attribute '{name}' at opset {node.opset}",
                node=node.name,
            )
        kind: Any = declared.type  # an enum, which the stubs do not say
        if int(kind.value) != attribute.type:
            raise CompileError(
                "XC1010",
                f"the attribute '{name}' of {node.op} is {_ATTRIBUTE.Name(attribute.type)}, not {kind.name}",
                node=node.name,
            )
    for name, declared in schema.attributes.items():
        if declared.required and name not in node.attributes:
            raise CompileError("XC1010", f"{node.op} needs the attribute '{name}'", node=node.name)


def check_dtypes(node: Node, dtypes: Sequence[str | None]) -> None:
    """Compare the element types of a node's inputs (None for omitted ones) with what the op is defined for.

    Raises:
        CompileError: XC1011 a required input is omitted, XC1012 and XC2002 element types.
    """
    schema = schema_of(node.domain, node.op, node.opset)
    if schema is None or node.domain != DEFAULT_DOMAIN:
        return
    bound: dict[str, str] = {}
    for i, dtype in enumerate(dtypes):
        formal = schema.inputs[min(i, len(schema.inputs) - 1)]
        if dtype is None:
            if (
                node.inputs[i] == ABSENT
                and formal.option == onnx.defs.OpSchema.FormalParameterOption.Single
            ):
                raise CompileError(
                    "XC1011", f"the input '{formal.name}' of {node.op} is missing", node=node.name
                )
            continue
        name = f"tensor({ONNX_NAMES[dtype]})"
        if name not in formal.types and f"optional({name})" not in formal.types:
            raise CompileError(
                "XC2002",
                f"{node.op} is not defined for input '{formal.name}' of type {dtype}",
                node=node.name,
            )
        variadic = (
            formal.option == onnx.defs.OpSchema.FormalParameterOption.Variadic
            and not formal.is_homogeneous
        )
        if not variadic and bound.setdefault(formal.type_str, dtype) != dtype:
            raise CompileError(
                "XC2002",
                f"the input '{formal.name}' of {node.op} has the type {dtype}, another input {bound[formal.type_str]}",
                node=node.name,
            )
