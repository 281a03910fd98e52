"""A model as one flat list of nodes: names resolved, local functions inlined, in an order that can
be
executed.

Values are numbers, so names of inlined functions cannot collide with the model's, and nothing here
recurses: a chain of 100,000 nodes or of functions is as good as a short one.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import onnx

from xcompile.compiler.support.errors import CompileError
from xcompile.frontends.onnx.reader import canonical_domain, opsets

MAX_INLINED = 1_000_000
"""Nodes and their inputs and outputs that inlining may make; functions that call each other twice
make
exponentially many.
"""

ABSENT = -1
"""The value of an omitted optional input or output."""


@dataclass(frozen=True)
class Node:
    """One node of the flat graph.

    Attributes:
        name: the model's name for it, or the op type and the position.
        op: the op type.
        domain: "" is the default one.
        opset: the version of its domain that the model (or function) imports; 0 when it imports none.
        inputs: values, `ABSENT` for omitted ones.
        outputs: values, `ABSENT` for omitted ones.
        attributes: the attributes' messages by name, references to a function's attributes resolved.
        opsets: the version of each domain where the node stands.
    """

    name: str
    op: str
    domain: str
    opset: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attributes: Mapping[str, onnx.AttributeProto]
    opsets: Mapping[str, int] = field(default_factory=dict)


@dataclass
class Graph:
    """A flat graph.

    Attributes:
        nodes: in executable order.
        inputs: the model's inputs that have no initializer: value and declaration.
        initializers: the constants' messages by value.
        outputs: value and name.
        names: the model's name of each value.
    """

    nodes: list[Node] = field(default_factory=list)
    inputs: list[tuple[int, onnx.ValueInfoProto]] = field(default_factory=list)
    initializers: dict[int, onnx.TensorProto | onnx.SparseTensorProto] = field(default_factory=dict)
    outputs: list[tuple[int, str]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def new_value(self, name: str) -> int:
        self.names.append(name)
        return len(self.names) - 1


def flatten(model: onnx.ModelProto) -> Graph:
    """The flat graph of a model.

    A graph input with an initializer of the same name is a constant: its default is its value.

    Raises:
        CompileError: XC1007 versions, XC1008 undefined or repeated names, XC1009 cycles, XC1010
            repeated attributes, XC1013 recursive functions or too many nodes.
    """
    graph = Graph()
    scope: dict[str, int] = {}
    proto = model.graph
    for tensor in (*proto.initializer, *proto.sparse_initializer):
        name = tensor.name if isinstance(tensor, onnx.TensorProto) else tensor.values.name
        graph.initializers[_define(graph, scope, name, "initializer")] = tensor
    seen: set[str] = set()
    for info in proto.input:
        if info.name in seen:
            raise CompileError("XC1008", f"the model has two inputs with the name '{info.name}'")
        seen.add(info.name)
        if info.name not in scope:
            graph.inputs.append((_define(graph, scope, info.name, "input"), info))
    _Inliner(model, graph).run(scope)
    for info in proto.output:
        if info.name not in scope:
            raise CompileError("XC1008", f"the model's output '{info.name}' is never computed")
        if any(info.name == name for _, name in graph.outputs):
            raise CompileError("XC1008", f"the model has two outputs with the name '{info.name}'")
        graph.outputs.append((scope[info.name], info.name))
    graph.nodes = _ordered(graph)
    return graph


def _define(
    graph: Graph, scope: dict[str, int], name: str, what: str, node: str | None = None
) -> int:
    if not name:
        raise CompileError("XC1008", f"an {what} has no name", node=node)
    if name in scope:
        raise CompileError("XC1008", f"the name '{name}' is defined twice", node=node)
    scope[name] = graph.new_value(name)
    return scope[name]


_Key = tuple[str, str, str]


def _key(node: onnx.NodeProto) -> _Key:
    """What names the function that a node would call: domain, name, overload."""
    return canonical_domain(node.domain), node.op_type, node.overload


@dataclass
class _Frame:
    """A function (or the model's graph) whose nodes are being copied."""

    nodes: Iterator[tuple[int, onnx.NodeProto]]
    scope: dict[str, int]
    attributes: Mapping[str, onnx.AttributeProto] | None
    opsets: Mapping[str, int]
    prefix: str


class _Inliner:
    """Copies the model's nodes into the flat graph, local functions opened."""

    def __init__(self, model: onnx.ModelProto, graph: Graph) -> None:
        self._model = model
        self._graph = graph
        self._functions: dict[_Key, onnx.FunctionProto] = {}
        for function in model.functions:
            key = (canonical_domain(function.domain), function.name, function.overload)
            if key in self._functions:
                raise CompileError("XC1008", f"the function '{function.name}' is defined twice")
            self._functions[key] = function

    def run(self, scope: dict[str, int]) -> None:
        nodes = self._model.graph.node
        self._check_growth()
        self._define_outputs(nodes, scope, "")
        frames = [_Frame(iter(enumerate(nodes)), scope, None, opsets(self._model.opset_import), "")]
        while frames:
            entry = next(frames[-1].nodes, None)
            if entry is None:
                frames.pop()
                continue
            opened = self._copy(frames[-1], *entry)
            if opened is not None:
                frames.append(opened)

    def _check_growth(self) -> None:
        """Refuse recursive functions and those whose inlining makes too much, before any of it is done."""
        sizes: dict[_Key, int] = {}
        active: set[_Key] = set()
        pending = [key for key in map(_key, self._model.graph.node) if key in self._functions]
        total = list(pending)
        while pending:
            key = pending[-1]
            if key in sizes:
                pending.pop()
                continue
            nodes = self._functions[key].node
            called = [k for k in map(_key, nodes) if k in self._functions]
            missing = [k for k in dict.fromkeys(called) if k not in sizes]
            if missing:
                active.add(key)
                if not active.isdisjoint(missing):
                    raise CompileError("XC1013", f"the function '{key[1]}' calls itself")
                pending += missing
                continue
            active.discard(key)
            own = sum(1 + len(n.input) + len(n.output) for n in nodes)
            sizes[key] = own + sum(sizes[k] for k in called)
        if sum(sizes[key] for key in total) > MAX_INLINED:
            raise CompileError("XC1013", "inlining the model's functions makes too many nodes")

    def _define_outputs(
        self, nodes: Sequence[onnx.NodeProto], scope: dict[str, int], prefix: str
    ) -> None:
        for index, node in enumerate(nodes):
            for name in node.output:
                if name:
                    _define(self._graph, scope, name, "output", _node_name(node, index, prefix))

    def _copy(self, frame: _Frame, index: int, proto: onnx.NodeProto) -> _Frame | None:
        """Append a node, or return the frame of the function that it calls."""
        name = _node_name(proto, index, frame.prefix)
        domain = canonical_domain(proto.domain)
        inputs: list[int] = []
        for value in proto.input:
            if value and value not in frame.scope:
                raise CompileError("XC1008", f"the input '{value}' is never defined", node=name)
            inputs.append(frame.scope[value] if value else ABSENT)
        node = Node(
            name,
            proto.op_type,
            domain,
            frame.opsets.get(domain, 0),
            tuple(inputs),
            tuple(frame.scope[value] if value else ABSENT for value in proto.output),
            _attributes(proto, frame.attributes, name),
            frame.opsets,
        )
        function = self._functions.get(_key(proto))
        if function is not None:
            return self._open(function, node)
        self._graph.nodes.append(node)
        return None

    def _open(self, function: onnx.FunctionProto, call: Node) -> _Frame:
        if len(call.inputs) > len(function.input) or len(call.outputs) > len(function.output):
            raise CompileError(
                "XC1011",
                f"the function '{function.name}' is called with too many inputs or outputs",
                node=call.name,
            )
        scope: dict[str, int] = {}
        actual = call.inputs + (ABSENT,) * (len(function.input) - len(call.inputs))
        for formal, value in zip(function.input, actual, strict=True):
            if formal in scope:
                raise CompileError(
                    "XC1008", f"the function '{function.name}' has two inputs '{formal}'"
                )
            scope[formal] = value
        inner = dict(scope)
        self._define_outputs(function.node, inner, call.name + "/")
        for formal, value in zip(function.output, call.outputs, strict=False):
            if value == ABSENT:
                continue
            if formal not in inner:
                raise CompileError(
                    "XC1008", f"the output '{formal}' of '{function.name}' is never computed"
                )
            self._connect(inner, formal, value, formal in scope, call)
        attributes = {a.name: a for a in function.attribute_proto} | dict(call.attributes)
        versions = opsets(function.opset_import)
        return _Frame(iter(enumerate(function.node)), inner, attributes, versions, call.name + "/")

    def _connect(
        self, inner: dict[str, int], formal: str, value: int, is_input: bool, call: Node
    ) -> None:
        """Make `value` of the caller what the function calls `formal`."""
        if is_input or inner[formal] in call.outputs:
            if inner[formal] == ABSENT:
                raise CompileError(
                    "XC1011", f"the input '{formal}' that is returned is missing", node=call.name
                )
            self._graph.nodes.append(
                Node(call.name, "Identity", "", 13, (inner[formal],), (value,), {})
            )
        else:
            inner[formal] = value


def _node_name(node: onnx.NodeProto, index: int, prefix: str) -> str:
    return prefix + (node.name or f"{node.op_type}_{index}")


def _attributes(
    node: onnx.NodeProto, bound: Mapping[str, onnx.AttributeProto] | None, name: str
) -> dict[str, onnx.AttributeProto]:
    found: dict[str, onnx.AttributeProto] = {}
    for attribute in node.attribute:
        if attribute.name in found:
            raise CompileError(
                "XC1010", f"the attribute '{attribute.name}' is given twice", node=name
            )
        if not attribute.ref_attr_name:
            found[attribute.name] = attribute
        elif bound is None:
            raise CompileError(
                "XC1010",
                f"the attribute '{attribute.name}' refers to no function's attribute",
                node=name,
            )
        elif attribute.ref_attr_name in bound:
            found[attribute.name] = bound[attribute.ref_attr_name]
    return found


def _ordered(graph: Graph) -> list[Node]:
    """The nodes in executable order: the model's own wherever that is one."""
    producer = {
        value: i for i, node in enumerate(graph.nodes) for value in node.outputs if value != ABSENT
    }
    waiting = [0] * len(graph.nodes)
    users: list[list[int]] = [[] for _ in graph.nodes]
    for i, node in enumerate(graph.nodes):
        for value in set(node.inputs):
            if value in producer:
                waiting[i] += 1
                users[producer[value]].append(i)
    ready = [i for i, count in enumerate(waiting) if count == 0]
    order: list[Node] = []
    while ready:
        i = heapq.heappop(ready)
        order.append(graph.nodes[i])
        for user in users[i]:
            waiting[user] -= 1
            if waiting[user] == 0:
                heapq.heappush(ready, user)
    if len(order) < len(graph.nodes):
        stuck = next(graph.nodes[i].name for i, count in enumerate(waiting) if count)
        raise CompileError("XC1009", "the graph has a cycle", node=stuck)
    return order
