"""A model cut into parts: those whose nodes are compiled, and those that are left to another engine.

Parts run one after the other. Nodes of a kind that do not wait for one of the other kind are one part, so there are
as few parts as the order of the graph allows.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.external_data_helper import load_external_data_for_model

from xcompile.compiler.ir.dtypes import DTYPES
from xcompile.compiler.support.errors import CompileError
from xcompile.frontends.onnx.conversion import is_supported
from xcompile.frontends.onnx.flatten import flatten
from xcompile.frontends.onnx.graph import Node
from xcompile.frontends.onnx.reader import MAX_FILE_BYTES, read_model
from xcompile.frontends.onnx.registry import load_converters
from xcompile.frontends.onnx.tensors import dtype_name, onnx_dtype
from xcompile.runtime.abi import TensorSpec


@dataclass(frozen=True)
class Part:
    """Some nodes of a model.

    Attributes:
        native: whether they are compiled.
        nodes: their names.
        inputs: the tensors that they take from the model's inputs or other parts.
        outputs: the tensors that others or the model's outputs take from them.
    """

    native: bool
    nodes: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class Partition:
    """A model, and which of its nodes are left to another engine.

    Attributes:
        left: the names of these nodes; those of ops without a converter to begin with.
    """

    def __init__(self, source: object) -> None:
        """Read a model; the arguments and errors are those of `import_onnx`."""
        read = read_model(source)  # pyright: ignore[reportArgumentType]
        load_converters()
        self._model = onnx.ModelProto()
        self._model.CopyFrom(read.model)
        if read.folder is not None:
            try:
                load_external_data_for_model(self._model, str(read.folder))
            except (OSError, ValueError, onnx.checker.ValidationError) as error:
                raise CompileError("XC1004", f"external data cannot be read: {error}") from error
        self._name_nodes()
        graph = self._model.graph
        self._constants = {tensor.name: tensor for tensor in graph.initializer}
        self._inputs = [info for info in graph.input if info.name not in self._constants]
        self._known = {v.name: v for v in (*graph.value_info, *graph.output, *graph.input)}
        flat = flatten(self._model)
        order = list(
            dict.fromkeys(owner for node in flat.nodes if (owner := self.owner(node.name)))
        )
        self._order = [self._by_name[name] for name in order]
        refused = (node for node in flat.nodes if not all(map(is_supported, _deep(node))))
        self.left = {owner for node in refused if (owner := self.owner(node.name))}

    @property
    def inputs(self) -> list[str]:
        """The names of the model's inputs."""
        return [info.name for info in self._inputs]

    @property
    def outputs(self) -> list[str]:
        """The names of the model's outputs."""
        return [info.name for info in self._model.graph.output]

    def owner(self, node: str | None) -> str | None:
        """The node of the model's own graph that a node is, or is part of: a function's or an inner graph's."""
        while node and node not in self._by_name:
            node = node.rpartition("/")[0]
        return node or None

    def constant(self, name: str) -> np.ndarray | None:
        """The value of an initializer; None for another tensor."""
        return numpy_helper.to_array(self._constants[name]) if name in self._constants else None

    def declared(self, name: str) -> TensorSpec | None:
        """What the model says of a tensor; None when it does not say its type and rank."""
        kind = self._known[name].type if name in self._known else onnx.TypeProto()
        if not kind.tensor_type.HasField("shape"):
            return None
        dims = [
            str(d.dim_value) if d.HasField("dim_value") else d.dim_param or f"{name}_dim{axis}"
            for axis, d in enumerate(kind.tensor_type.shape.dim)
        ]
        dtype = dtype_name(kind.tensor_type.elem_type, f"the tensor '{name}'")
        return TensorSpec(name, DTYPES[dtype].name, tuple(dims))

    def parts(self) -> list[Part]:
        """The parts, in the order in which they run."""
        levels: dict[str, int] = {}  # of tensors; even: compiled, odd: left
        members: dict[int, list[onnx.NodeProto]] = {}
        for node in self._order:
            kind = int(node.name in self.left)
            level = max((levels.get(name, 0) for name in _reads(node)), default=0)
            level += (level + kind) % 2
            levels.update(dict.fromkeys(node.output, level))
            members.setdefault(level, []).append(node)
        wanted = dict.fromkeys(self.outputs)
        made: list[Part] = []
        for level in sorted(members, reverse=True):
            own = {name for node in members[level] for name in node.output if name}
            reads = dict.fromkeys(name for node in members[level] for name in _reads(node))
            inputs = [n for n in reads if n not in own and n not in self._constants]
            outputs = tuple(name for name in wanted if name in own)
            if not outputs:  # nobody reads what these nodes give
                continue
            names = tuple(node.name for node in members[level])
            made.append(Part(level % 2 == 0, names, tuple(inputs), outputs))
            wanted |= dict.fromkeys(inputs)
        return made[::-1]

    def model_of(self, part: Part, specs: Mapping[str, TensorSpec]) -> bytes:
        """A part as a model of its own.

        Args:
            part: one of `parts`.
            specs: of its inputs.
        """
        model = onnx.ModelProto(ir_version=self._model.ir_version)
        model.opset_import.extend(self._model.opset_import)
        model.functions.extend(self._model.functions)
        graph = model.graph
        graph.name = self._model.graph.name or "part"
        graph.node.extend(self._by_name[name] for name in part.nodes)
        reads = {name for node in graph.node for name in _reads(node)}
        graph.initializer.extend(t for name, t in self._constants.items() if name in reads)
        graph.input.extend(_value_info(specs[name]) for name in part.inputs)
        graph.output.extend(
            self._known.get(name, onnx.ValueInfoProto(name=name)) for name in part.outputs
        )
        if model.ByteSize() > MAX_FILE_BYTES:
            raise CompileError("XC1013", f"a part of the model has {model.ByteSize()} bytes")
        return model.SerializeToString()

    def _name_nodes(self) -> None:
        """Give nodes without a name, or with one that is taken, a name of their own."""
        self._by_name: dict[str, onnx.NodeProto] = {}
        taken = {node.name for node in self._model.graph.node}
        for position, node in enumerate(self._model.graph.node):
            if not node.name or node.name in self._by_name:
                name = f"{node.op_type}_{position}"
                while name in taken:
                    name += "_"
                taken.add(name)
                node.name = name
            self._by_name[node.name] = node


def _deep(node: Node) -> Iterator[Node]:
    """A node and those of graphs inside it."""
    yield node
    for body in node.bodies.values():
        for inner in body.nodes:
            yield from _deep(inner)


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    """The tensors that a node takes: its inputs, and what graphs inside it use of those around them."""
    yield from filter(None, node.input)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            own = {v.name for v in (*graph.input, *graph.initializer)}
            own |= {name for inner in graph.node for name in inner.output}
            used = [name for inner in graph.node for name in _reads(inner)]
            used += [info.name for info in graph.output]
            yield from (name for name in used if name not in own)


def _value_info(spec: TensorSpec) -> onnx.ValueInfoProto:
    known: Sequence[int | str | None] = [
        size if size is not None else (dim if dim.isidentifier() else None)
        for size, dim in zip(spec.static_dims, spec.dims, strict=True)
    ]
    short = next(short for short, dtype in DTYPES.items() if dtype.name == spec.dtype)
    return helper.make_tensor_value_info(spec.name, onnx_dtype(short), known)
