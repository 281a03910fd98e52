"""One node of a flat graph to ops: by its converter, or by the function that ONNX defines it with.

Many ops of ONNX are functions: their definition is a small graph of simpler ops. Such an op needs no converter; one
whose converter covers only a part of it may ask for the rest with `expand`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import onnx

from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.op import Value
from xcompile.dialects.nn.base import dtype_of
from xcompile.frontends.onnx.attributes import has_graph
from xcompile.frontends.onnx.context import NodeContext
from xcompile.frontends.onnx.flatten import flatten
from xcompile.frontends.onnx.graph import ABSENT, Node
from xcompile.frontends.onnx.reader import canonical_domain
from xcompile.frontends.onnx.registry import find_converter
from xcompile.frontends.onnx.schemas import check_dtypes, check_node, schema_of
from xcompile.frontends.onnx.sequences import Known, tensors_of
from xcompile.frontends.onnx.tensors import element_count, onnx_dtype

if TYPE_CHECKING:
    from xcompile.frontends.onnx.scope import Scope

_FIRST = 7
"""The oldest opset in which the body of a function may be written."""


def is_supported(node: Node) -> bool:
    """Whether the node has a converter, or a definition that is a function."""
    if not node.domain and node.op == "If":  # `scope` converts it
        return node.opset > 0
    if has_graph(node.attributes) and (
        node.domain or node.op not in ("Loop", "Scan", "SequenceMap")
    ):
        return has_function(node)
    if find_converter(node.domain, node.op, node.opset) is not None:
        return True
    return has_function(node)


def has_function(node: Node) -> bool:
    """Whether ONNX defines the node's op by a function."""
    schema: Any = schema_of(node.domain, node.op, node.opset)  # the stubs lack functions
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def convert_node(node: Node, scope: "Scope") -> None:
    """Make the ops of a node and define its outputs.

    Raises:
        CompileError: the node is not supported (XC1006) or contradicts its definition.
    """
    context = NodeContext(node, scope)
    check_dtypes(
        node,
        [_dtype(context, i) for i in range(len(node.inputs))],
    )
    convert = find_converter(node.domain, node.op, node.opset)
    results = context.guarded(lambda: convert(context) if convert else expand(context))
    wanted = max((i + 1 for i, v in enumerate(node.outputs) if scope.is_read(v)), default=0)
    if len(results) < wanted:
        raise context.error("XC1006", f"output {wanted - 1} of {node.op} is not supported")
    for number, result in zip(node.outputs, results, strict=False):
        if number != ABSENT and result is not None:
            for value in tensors_of(result):
                _check_size(value, context)
            scope.values.define(number, result)


def _dtype(context: NodeContext, index: int) -> str | None:
    """The element type of an input that is a tensor."""
    if not context.has_input(index) or context.is_sequence(index):
        return None
    return context.dtype(index)


def _check_size(value: Value, context: NodeContext) -> None:
    kind = ir.ShapedType(value.type)
    static = [kind.get_dim_size(i) for i in range(kind.rank) if not kind.is_dynamic_dim(i)]
    context.guarded(
        lambda: element_count(static, dtype_of(value), f"a result of {context.op_type}")
    )


def expand(context: NodeContext) -> Sequence[Known | None]:
    """The outputs of a node by the function that defines its op (None for omitted ones).

    The function's nodes are named after the node.

    Raises:
        CompileError: XC1006 when there is no such function, or it uses what is not supported.
    """
    node = context.node
    inputs = [
        context.any_input(i) if context.has_input(i) else None for i in range(context.input_count)
    ]
    call = _call(node)
    function = _function(node, call, [None if v is None else _type_of(v) for v in inputs])
    if function is None:
        raise context.error("XC1006", f"{node.op} is not supported for operands of these types")
    graph = flatten(_model_of(call, function, node))
    inner = context.scope.inner(graph)
    given = [v for v in inputs if v is not None]
    for (number, _), value in zip(graph.inputs, given, strict=True):
        inner.values.define(number, value)
    for part in graph.all_nodes():
        if not is_supported(part):
            raise context.error(
                "XC1006", f"{node.op} is not supported: its definition uses {part.op}"
            )
        check_node(part)
    outputs = [number for number, _ in graph.outputs]
    produced = iter(inner.run(graph.nodes, outputs, context.location))
    return [next(produced) if v != ABSENT else None for v in node.outputs]


def _call(node: Node) -> onnx.NodeProto:
    """The node's message, with names that say nothing."""
    call = onnx.NodeProto(op_type=node.op, domain=node.domain, name=node.name)
    call.input.extend("" if v == ABSENT else f"i{k}" for k, v in enumerate(node.inputs))
    call.output.extend("" if v == ABSENT else f"o{k}" for k, v in enumerate(node.outputs))
    for name, attribute in node.attributes.items():
        call.attribute.add().CopyFrom(attribute)
        call.attribute[-1].name = name
    return call


def _type_of(value: Known) -> onnx.TypeProto:
    made = onnx.TypeProto()
    if not isinstance(value, Value):
        made.sequence_type.elem_type.tensor_type.elem_type = onnx_dtype(value.dtype)
        return made
    kind = ir.ShapedType(value.type)
    made.tensor_type.elem_type = onnx_dtype(dtype_of(value))
    made.tensor_type.shape.SetInParent()
    for axis in range(kind.rank):
        dim = made.tensor_type.shape.dim.add()
        if not kind.is_dynamic_dim(axis):
            dim.dim_value = kind.get_dim_size(axis)
    return made


def _function(
    node: Node, call: onnx.NodeProto, types: Sequence[onnx.TypeProto | None]
) -> onnx.FunctionProto | None:
    """The definition of an op as a function in the newest form that the node's opset allows.

    None where there is none, or none for operands of these types: some need sizes to be known.
    """
    schema: Any = schema_of(node.domain, node.op, node.opset)  # the stubs lack functions
    if schema is None:
        return None
    if schema.has_function:
        return schema.function_body
    if not schema.has_context_dependent_function:
        return None
    versions = schema.context_dependent_function_opset_versions
    chosen = max((v for v in versions if v <= node.opset), default=max(versions))
    messages = [(t or onnx.TypeProto()).SerializeToString() for t in types]
    data = schema.get_context_dependent_function_with_opset_version(
        chosen, call.SerializeToString(), messages
    )
    function = onnx.FunctionProto.FromString(data)
    return function if function.node else None


def _model_of(call: onnx.NodeProto, function: onnx.FunctionProto, node: Node) -> onnx.ModelProto:
    """A model that calls the function once."""
    model = onnx.ModelProto()
    model.functions.add().CopyFrom(function)
    made = model.functions[0]
    made.domain, made.name = node.domain, node.op
    known = {canonical_domain(entry.domain) for entry in made.opset_import}
    for domain, version in node.opsets.items():
        if domain not in known:
            made.opset_import.add(domain=domain, version=version)
    schema: Any = schema_of(node.domain, node.op, node.opset)  # the stubs lack functions
    defaults = [a.default_value for a in schema.attributes.values()] if schema else []
    made.attribute_proto.extend(a for a in defaults if a.name)
    model.opset_import.add(domain=node.domain, version=max(node.opset, _FIRST))
    model.graph.node.add().CopyFrom(call)
    model.graph.input.extend(onnx.ValueInfoProto(name=n) for n in call.input if n)
    model.graph.output.extend(onnx.ValueInfoProto(name=n) for n in call.output if n)
    return model
