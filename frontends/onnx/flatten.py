"""From a model's message to the flat graph: names resolved, local functions inlined, in an order that can be executed.

Nothing here recurses but for graphs in graphs, whose depth is limited: a chain of 100,000 nodes or of functions is as
good as a short one.
"""

import heapq
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import onnx

from xcompile.compiler.support.errors import CompileError
from xcompile.frontends.onnx.graph import ABSENT, Graph, Node, Subgraph
from xcompile.frontends.onnx.reader import canonical_domain, opsets
from xcompile.runtime.errors import shorten

MAX_INLINED = 1_000_000
"""Nodes and their inputs and outputs that inlining may make; functions that call each other twice make
exponentially many.
"""


def flatten(model: onnx.ModelProto, overridable: Sequence[str] = ()) -> Graph:
    """The flat graph of a model.

    A graph input with an initializer of the same name is a constant, its default its value, unless it is one of those
    that are `overridable`: these come behind the other inputs.

    Raises:
        CompileError: XC6005 there is no such input, XC1007 versions, XC1008 undefined or repeated names, XC1009 cycles,
            XC1010 repeated attributes, XC1013 recursive functions or too many nodes.
    """
    graph = Graph()
    scope: _Scope = ChainMap()
    proto = model.graph
    chosen = _overridable(proto, overridable)
    _define_initializers(graph, scope, proto, apart=chosen)
    seen: set[str] = set()
    for info in proto.input:
        if info.name in seen:
            raise CompileError("XC1008", f"the model has two inputs with the name '{info.name}'")
        seen.add(info.name)
        if info.name not in scope and info.name not in chosen:
            graph.inputs.append((_define(graph, scope, info.name, "input"), info))
    for name, (tensor, info) in chosen.items():
        graph.defaults[name] = tensor
        graph.inputs.append((_define(graph, scope, name, "input"), info))
    _Inliner(model, graph).run(scope)
    for info in proto.output:
        if info.name not in scope:
            raise CompileError("XC1008", f"the model's output '{info.name}' is never computed")
        if any(info.name == name for _, name in graph.outputs):
            raise CompileError("XC1008", f"the model has two outputs with the name '{info.name}'")
        graph.outputs.append((scope[info.name], info.name))
        if info.type.tensor_type.HasField("shape"):
            graph.ranks[scope[info.name]] = len(info.type.tensor_type.shape.dim)
    _order(graph)
    return graph


_Scope = ChainMap[str, int]
"""From names to values: those of a graph, then those of the graphs around it, which it may hide."""


def _define(graph: Graph, scope: _Scope, name: str, what: str, node: str | None = None) -> int:
    if not name:
        raise CompileError("XC1008", f"an {what} has no name", node=node)
    if name in scope.maps[0]:
        raise CompileError("XC1008", f"the name '{name}' is defined twice", node=node)
    scope[name] = graph.new_value(name)
    return scope[name]


_Default = tuple[onnx.TensorProto, onnx.ValueInfoProto]


def _overridable(proto: onnx.GraphProto, names: Sequence[str]) -> dict[str, _Default]:
    """The initializers that runs may replace, with their declarations as inputs, in the model's order."""
    tensors = {tensor.name: tensor for tensor in proto.initializer}
    found = {i.name: (tensors[i.name], i) for i in proto.input if i.name in tensors}
    unknown = next((name for name in names if name not in found), None)
    if unknown is not None:
        raise CompileError(
            "XC6005", f"'{unknown}' is no input with an initializer",
            help=f"these are {shorten(', '.join(found), 200)}" if found else "the model has none",
        )  # fmt: skip
    return {name: default for name, default in found.items() if name in names}


def _define_initializers(
    graph: Graph,
    scope: _Scope,
    proto: onnx.GraphProto,
    node: str | None = None,
    apart: Mapping[str, object] = MappingProxyType({}),
) -> None:
    for tensor in (*proto.initializer, *proto.sparse_initializer):
        name = tensor.name if isinstance(tensor, onnx.TensorProto) else tensor.values.name
        if name in apart:
            continue
        graph.initializers[_define(graph, scope, name, "initializer", node)] = tensor


_Key = tuple[str, str, str]


def _key(node: onnx.NodeProto) -> _Key:
    """What names the function that a node would call: domain, name, overload."""
    return canonical_domain(node.domain), node.op_type, node.overload


@dataclass
class _Frame:
    """A function, or a graph, whose nodes are being copied.

    Attributes:
        target: where its nodes go.
        prefix: begins the names of all its nodes.
        path: begins those of nodes without a name, in a graph inside a node.
    """

    target: list[Node]
    nodes: Iterator[tuple[int, onnx.NodeProto]]
    scope: _Scope
    attributes: Mapping[str, onnx.AttributeProto] | None
    opsets: Mapping[str, int]
    prefix: str
    path: str = ""

    def name_of(self, node: onnx.NodeProto, index: int) -> str:
        """The model's name for a node, or its op and the position."""
        return self.prefix + (node.name or f"{self.path}{node.op_type}_{index}")


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

    def run(self, scope: _Scope) -> None:
        nodes = self._model.graph.node
        self._check_growth()
        versions = opsets(self._model.opset_import)
        frames = [_Frame(self._graph.nodes, iter(enumerate(nodes)), scope, None, versions, "")]
        self._define_outputs(nodes, frames[0])
        while frames:
            entry = next(frames[-1].nodes, None)
            if entry is None:
                frames.pop()
                continue
            frames += self._copy(frames[-1], *entry)

    def _check_growth(self) -> None:
        """Refuse recursive functions and those whose inlining makes too much, before any of it is done."""
        sizes: dict[_Key, int] = {}
        active: set[_Key] = set()
        called_first = map(_key, _deep(self._model.graph.node))
        pending = [key for key in called_first if key in self._functions]
        total = list(pending)
        while pending:
            key = pending[-1]
            if key in sizes:
                pending.pop()
                continue
            nodes = list(_deep(self._functions[key].node))
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

    def _define_outputs(self, nodes: Sequence[onnx.NodeProto], frame: _Frame) -> None:
        for index, node in enumerate(nodes):
            for name in node.output:
                if name:
                    _define(self._graph, frame.scope, name, "output", frame.name_of(node, index))

    def _copy(self, frame: _Frame, index: int, proto: onnx.NodeProto) -> list[_Frame]:
        """Append a node; what is to be copied next: the graphs inside it, or the function that it calls."""
        name = frame.name_of(proto, index)
        domain = canonical_domain(proto.domain)
        inputs: list[int] = []
        for value in proto.input:
            if value and value not in frame.scope:
                raise CompileError("XC1008", f"the input '{value}' is never defined", node=name)
            inputs.append(frame.scope[value] if value else ABSENT)
        attributes = _attributes(proto, frame.attributes, name)
        called = self._functions.get(_key(proto))
        opened = {} if called else self._open_graphs(frame, name, attributes)
        node = Node(
            name,
            proto.op_type,
            domain,
            frame.opsets.get(domain, 0),
            tuple(inputs),
            tuple(frame.scope[value] if value else ABSENT for value in proto.output),
            attributes,
            frame.opsets,
            {attribute: body for attribute, (body, _) in opened.items()},
        )
        if called is not None:
            return [self._open(called, node, frame.target)]
        frame.target.append(node)
        return [inner for _, inner in opened.values()]

    def _open_graphs(
        self, frame: _Frame, node: str, attributes: Mapping[str, onnx.AttributeProto]
    ) -> dict[str, tuple[Subgraph, _Frame]]:
        """The graphs inside a node, and the frames that copy their nodes."""
        found: dict[str, tuple[Subgraph, _Frame]] = {}
        for name, attribute in attributes.items():
            if attribute.type == onnx.AttributeProto.GRAPH:
                found[name] = self._open_graph(attribute.g, frame, f"{node}/{name}", node)
        return found

    def _open_graph(
        self, proto: onnx.GraphProto, around: _Frame, name: str, node: str
    ) -> tuple[Subgraph, _Frame]:
        """A graph without its nodes, and the frame that copies them."""
        scope, nodes = around.scope.new_child(), list[Node]()
        _define_initializers(self._graph, scope, proto, node)
        inputs: dict[str, tuple[int, bool]] = {}
        for info in proto.input:
            default = info.name in scope.maps[0]
            if info.name in inputs:
                message = f"the graph '{name}' has two inputs with the name '{info.name}'"
                raise CompileError("XC1008", message, node=node)
            if not default:
                _define(self._graph, scope, info.name, "input", node)
            inputs[info.name] = scope[info.name], default
        path = node.removeprefix(around.prefix) + "/"
        frame = _Frame(
            nodes, iter(enumerate(proto.node)), scope, around.attributes, around.opsets, around.prefix, path
        )  # fmt: skip
        self._define_outputs(proto.node, frame)
        for info in proto.output:
            if info.name not in scope:
                message = f"the output '{info.name}' of the graph '{name}' is never computed"
                raise CompileError("XC1008", message, node=node)
        outputs = tuple(scope[info.name] for info in proto.output)
        own = frozenset(scope.maps[0].values())
        return Subgraph(name, tuple(inputs.values()), outputs, own, nodes), frame

    def _open(self, function: onnx.FunctionProto, call: Node, target: list[Node]) -> _Frame:
        if len(call.inputs) > len(function.input) or len(call.outputs) > len(function.output):
            raise CompileError(
                "XC1011",
                f"the function '{function.name}' is called with too many inputs or outputs",
                node=call.name,
            )
        scope: _Scope = ChainMap()
        actual = call.inputs + (ABSENT,) * (len(function.input) - len(call.inputs))
        for formal, value in zip(function.input, actual, strict=True):
            if formal in scope:
                raise CompileError(
                    "XC1008", f"the function '{function.name}' has two inputs '{formal}'"
                )
            scope[formal] = value
        attributes = {a.name: a for a in function.attribute_proto} | dict(call.attributes)
        versions, prefix = opsets(function.opset_import), call.name + "/"
        inner = scope.copy()
        nodes = function.node
        frame = _Frame(target, iter(enumerate(nodes)), inner, attributes, versions, prefix)
        self._define_outputs(nodes, frame)
        for formal, value in zip(function.output, call.outputs, strict=False):
            if value == ABSENT:
                continue
            if formal not in inner:
                raise CompileError(
                    "XC1008", f"the output '{formal}' of '{function.name}' is never computed"
                )
            if formal in scope or inner[formal] in call.outputs:
                target.append(_identity(inner[formal], value, formal, call))
            else:
                inner[formal] = value
        return frame


def _identity(source: int, value: int, formal: str, call: Node) -> Node:
    """A node for an output of a call that is something else already."""
    if source == ABSENT:
        message = f"the input '{formal}' that is returned is missing"
        raise CompileError("XC1011", message, node=call.name)
    return Node(call.name, "Identity", "", 13, (source,), (value,), {})


def _deep(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Nodes and those of graphs inside them."""
    pending = [nodes]
    while pending:
        for node in pending.pop():
            yield node
            for attribute in node.attribute:
                pending += [graph.node for graph in attribute.graphs]
                if attribute.HasField("g"):
                    pending.append(attribute.g.node)


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


def _order(graph: Graph) -> None:
    """Put all lists of nodes in executable order: the model's own wherever that is one."""
    pending = [graph.nodes]
    while pending:
        nodes = pending.pop()
        nodes[:] = _ordered(nodes)
        pending += (body.nodes for node in nodes for body in node.bodies.values())


def _ordered(nodes: Sequence[Node]) -> list[Node]:
    producer = {
        value: i for i, node in enumerate(nodes) for value in node.outputs if value != ABSENT
    }
    waiting = [0] * len(nodes)
    users: list[list[int]] = [[] for _ in nodes]
    for i, node in enumerate(nodes):
        for value in node.reads:
            if value in producer:
                waiting[i] += 1
                users[producer[value]].append(i)
    ready = [i for i, count in enumerate(waiting) if count == 0]
    order: list[Node] = []
    while ready:
        i = heapq.heappop(ready)
        order.append(nodes[i])
        for user in users[i]:
            waiting[user] -= 1
            if waiting[user] == 0:
                heapq.heappush(ready, user)
    if len(order) < len(nodes):
        stuck = next(nodes[i].name for i, count in enumerate(waiting) if count)
        raise CompileError("XC1009", "the graph has a cycle", node=stuck)
    return order
