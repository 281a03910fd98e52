"""A model as a flat list of nodes, whose values are numbers: names of inlined functions and of graphs inside nodes
cannot collide.
"""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property

import onnx

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
        bodies: the graphs inside the node, by the name of the attribute.
    """

    name: str
    op: str
    domain: str
    opset: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attributes: Mapping[str, onnx.AttributeProto]
    opsets: Mapping[str, int] = field(default_factory=dict)
    bodies: Mapping[str, "Subgraph"] = field(default_factory=dict)

    @cached_property
    def reads(self) -> frozenset[int]:
        """The values that must be there before the node: its inputs, and what graphs inside it use."""
        inner = (body.captured for body in self.bodies.values())
        return frozenset(self.inputs).union(*inner) - {ABSENT}


@dataclass(frozen=True)
class Subgraph:
    """A graph inside a node.

    Attributes:
        name: of the node and the attribute, for errors.
        inputs: its inputs in order: the value, and whether an initializer gives it a default.
        outputs: its outputs in order.
        nodes: in executable order.
        own: values of its inputs, initializers and nodes.
    """

    name: str
    inputs: tuple[tuple[int, bool], ...]
    outputs: tuple[int, ...]
    own: AbstractSet[int]
    nodes: list[Node] = field(default_factory=list)

    @cached_property
    def captured(self) -> frozenset[int]:
        """The values of graphs around it that it uses."""
        used = frozenset(self.outputs).union(*(node.reads for node in self.nodes))
        made = {value for node in self.nodes for value in node.outputs}
        return used - self.own - made


@dataclass
class Graph:
    """A flat graph.

    Attributes:
        nodes: in executable order.
        inputs: the model's inputs, without those that are constants: value and declaration.
        defaults: the messages of what those inputs are that a run may leave out, by name.
        initializers: the constants' messages by value.
        outputs: value and name.
        ranks: the rank that the model declares of an output, by its value, where it does.
        names: the model's name of each value.
    """

    nodes: list[Node] = field(default_factory=list)
    inputs: list[tuple[int, onnx.ValueInfoProto]] = field(default_factory=list)
    defaults: dict[str, onnx.TensorProto] = field(default_factory=dict)
    initializers: dict[int, onnx.TensorProto | onnx.SparseTensorProto] = field(default_factory=dict)
    outputs: list[tuple[int, str]] = field(default_factory=list)
    ranks: dict[int, int] = field(default_factory=dict[int, int])
    names: list[str] = field(default_factory=list)

    def new_value(self, name: str) -> int:
        self.names.append(name)
        return len(self.names) - 1

    def all_nodes(self) -> Iterator[Node]:
        """The nodes and those of graphs inside them, at any depth."""
        pending = [self.nodes]
        while pending:
            for node in pending.pop():
                yield node
                pending += (body.nodes for body in node.bodies.values())
