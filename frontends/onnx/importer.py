"""From an ONNX model to a module of the nn level.

    module = import_onnx("model.onnx")

`@main` takes the model's inputs in order (those without an initializer first) and returns its outputs.
The module carries the names that MLIR has no place for:

    xc.inputs     = ["ids", "mask"]
    xc.input_dims = ["batch,128", "batch,128"]     sizes as Dim text; one symbol, one size
    xc.outputs    = ["logits"]

Every op's location is the name of its node ("Conv_17", or the op type and the position when the
node has no name).
"""

import itertools
import keyword
import os
import re
from collections.abc import Callable, Sequence

import onnx

from xcompile.compiler.ir.context import new_context
from xcompile.compiler.ir.mlir import func, ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.support.dims import Dim, symbol
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.base import tensor_type
from xcompile.frontends.onnx.conversion import is_supported
from xcompile.frontends.onnx.external import ExternalData
from xcompile.frontends.onnx.flatten import flatten
from xcompile.frontends.onnx.graph import Graph, Node
from xcompile.frontends.onnx.reader import read_model
from xcompile.frontends.onnx.registry import close_names, load_converters
from xcompile.frontends.onnx.schemas import check_node
from xcompile.frontends.onnx.scope import Scope
from xcompile.frontends.onnx.sequences import Known
from xcompile.frontends.onnx.tensors import dtype_name, element_count, to_array
from xcompile.frontends.onnx.values import Values
from xcompile.runtime.abi import MAX_NAME, MAX_RANK, MAX_TENSORS

Observe = Callable[[str, str, ir.Value], None]
"""Called with the name of a tensor, that of the node that gives it, and the value of the IR that it becomes."""

_NODES_NAMED = 5
"""Nodes that the report of unsupported ops names for each op."""


def import_onnx(
    source: str | os.PathLike[str] | bytes | onnx.ModelProto,
    *,
    name: str | None = None,
    context: ir.Context | None = None,  # noqa: TID251 (only a type)
    observe: Observe | None = None,
    overridable: Sequence[str] = (),
) -> Module:
    """Import a model.

    Args:
        source: a path, the bytes of a file, or a parsed model. External data is found only from a
            path.
        name: the model's name for reports; the file's or the graph's when None.
        context: where to make the module, from `compiler.ir.context`; a new one when None.
        observe: told each tensor that a node gives, and its value.
        overridable: inputs with an initializer that are inputs nevertheless, behind the others; `Module.defaults` has
            their initializers. By default these are constants.

    Raises:
        CompileError: XC1xxx when the model cannot be read or uses what is not supported (all
            unsupported ops in one error), XC2xxx when a node contradicts its op's definition.
    """
    read = read_model(source)
    load_converters()
    graph = flatten(read.model, overridable)
    _check_supported(graph)
    for node in graph.all_nodes():
        check_node(node)
    with context or new_context(), ir.Location.unknown():
        module = Module(ir.Module.create(), name=name or read.name)
        external = ExternalData(read.folder)
        _Importer(graph, module, external, observe).run()
        module.defaults = {
            name: to_array(tensor, external, f"the initializer '{name}'")
            for name, tensor in graph.defaults.items()
        }
        module.external = external.files()
    return module


def _check_supported(graph: Graph) -> None:
    """Report every op without a converter at once."""
    missing: dict[tuple[str, str, int], list[str]] = {}
    for node in graph.all_nodes():
        if not is_supported(node):
            missing.setdefault((node.domain, node.op, node.opset), []).append(node.name)
    if not missing:
        return
    lines: list[str] = []
    for (domain, op, opset), nodes in missing.items():
        named = ", ".join(f"'{n}'" for n in nodes[:_NODES_NAMED])
        more = f" and {len(nodes) - _NODES_NAMED} more" if len(nodes) > _NODES_NAMED else ""
        close = close_names(domain, op)
        hint = f"; known: {', '.join(close)}" if close else ""
        version = f"opset {opset}" if opset else "no opset imported"
        lines.append(f"{op} (domain '{domain or 'ai.onnx'}', {version}) at {named}{more}{hint}")
    raise CompileError(
        "XC1006",
        f"{len(missing)} {'op is' if len(missing) == 1 else 'ops are'} not supported: "
        + " | ".join(lines),
    )


class _Importer:
    """Builds `@main` of one graph."""

    def __init__(
        self, graph: Graph, module: Module, external: ExternalData, observe: Observe | None
    ) -> None:
        self._graph = graph
        self._module = module
        self._external = external
        self._observe = observe

    def run(self) -> None:
        self._check_limits()
        shapes = self._input_shapes()
        dtypes = [self._input_dtype(info) for _, info in self._graph.inputs]
        types = [tensor_type(s, d) for s, d in zip(shapes, dtypes, strict=True)]
        with ir.InsertionPoint(self._module.module.body):
            main = func.FuncOp("main", ir.FunctionType.get(types, []))
        block = main.add_entry_block()
        home = ir.InsertionPoint(block)
        values = Values(self._graph, self._module, self._external, home)
        for (number, _), argument in zip(self._graph.inputs, block.arguments, strict=True):
            values.define(number, argument)
        self._set_names([",".join(map(str, shape)) for shape in shapes])
        outputs = [number for number, _ in self._graph.outputs]
        with home:
            scope = Scope.of(self._graph, values)
            given = scope.run(self._graph.nodes, outputs, ir.Location.unknown(), self._graph.ranks)
            names = [name for _, name in self._graph.outputs]
            results = [_tensor(v, name) for v, name in zip(given, names, strict=True)]
            self._tell(scope)
            own = list(self._graph.nodes)
            inner = [n for node in own for n in _inside(node)]
            self._module.tensors = self._tensors(scope, own)
            self._module.inner_tensors = self._tensors(scope, inner)
            self._module.kinds = {node.name: node.op for node in self._graph.nodes}
            func.ReturnOp(results)
        main.attributes["function_type"] = ir.TypeAttr.get(
            ir.FunctionType.get(types, [r.type for r in results])
        )

    def _tell(self, scope: Scope) -> None:
        if self._observe is not None:
            for node in self._graph.nodes:
                for number in node.outputs:
                    value = scope.made.get(number)
                    if scope.is_read(number) and isinstance(value, ir.Value):
                        self._observe(self._graph.names[number], node.name, value)

    def _tensors(self, scope: Scope, nodes: Sequence[Node]) -> dict[str, tuple[str, ...]]:
        """The tensors of each node that somebody reads."""
        found: dict[str, tuple[str, ...]] = {}
        for node in nodes:
            read = [self._graph.names[v] for v in node.outputs if scope.is_read(v)]
            found[node.name] = (*found.get(node.name, ()), *read)
        return found

    def _check_limits(self) -> None:
        """What the runtime can describe: see `runtime.abi`."""
        names = [[info.name for _, info in self._graph.inputs], [n for _, n in self._graph.outputs]]
        ranks = [len(info.type.tensor_type.shape.dim) for _, info in self._graph.inputs]
        for what, count, most in (
            ("inputs or outputs", max(map(len, names)), MAX_TENSORS),
            ("axes of an input", max(ranks, default=0), MAX_RANK),
            ("characters in a name", max(map(len, itertools.chain(*names)), default=0), MAX_NAME),
        ):
            if count > most:
                raise CompileError("XC1013", f"{count} {what}; there may be {most}")

    # -- inputs ---------------------------------------------------------------------------------

    def _input_dtype(self, info: onnx.ValueInfoProto) -> str:
        what = f"the input '{info.name}'"
        if not info.type.HasField("tensor_type"):
            raise CompileError(
                "XC1012",
                f"{what} is no tensor; sequences, maps and optional values are not supported",
            )
        return dtype_name(info.type.tensor_type.elem_type, what)

    def _input_shapes(self) -> list[tuple[Dim, ...]]:
        taken = {
            d.dim_param for _, info in self._graph.inputs for d in info.type.tensor_type.shape.dim
        }
        symbols = _Symbols(taken)
        return [self._input_shape(info, symbols) for _, info in self._graph.inputs]

    def _input_shape(self, info: onnx.ValueInfoProto, symbols: "_Symbols") -> tuple[Dim, ...]:
        what = f"the input '{info.name}'"
        kind = info.type.tensor_type
        if info.type.HasField("tensor_type") and not kind.HasField("shape"):
            raise CompileError(
                "XC2010",
                f"{what} has no shape; its rank must be known",
                help="declare its dimensions",
            )
        dims: list[Dim] = []
        for axis, dim in enumerate(kind.shape.dim):
            if (
                dim.HasField("dim_value") and dim.dim_value != -1
            ):  # -1 is some exporters' way to say "any"
                dims.append(dim.dim_value)
            elif any(c.isalnum() for c in dim.dim_param):  # "?" names nothing
                dims.append(symbols.of_param(dim.dim_param))
            else:
                dims.append(symbols.unnamed(info.name, axis))
        static = [d for d in dims if isinstance(d, int)]
        element_count(static, self._input_dtype(info), what)
        return tuple(dims)

    def _set_names(self, dims: list[str]) -> None:
        attributes = self._module.module.operation.attributes
        attributes["xc.inputs"] = _texts([info.name for _, info in self._graph.inputs])
        attributes["xc.input_dims"] = _texts(dims)
        attributes["xc.outputs"] = _texts([name for _, name in self._graph.outputs])


def _inside(node: Node) -> list[Node]:
    """The nodes of the graphs inside a node, at any depth."""
    own = [inner for body in node.bodies.values() for inner in body.nodes]
    return [n for inner in own for n in (inner, *_inside(inner))]


class _Symbols:
    """Symbols of the inputs' sizes: an identifier for each `dim_param`, a new one for each unnamed size."""

    def __init__(self, params: set[str]) -> None:
        self._taken = {p for p in params if _is_plain(p)}
        self._of_param: dict[str, str] = {}

    def of_param(self, param: str) -> Dim:
        if param not in self._of_param:
            self._of_param[param] = param if _is_plain(param) else self._new(param)
        return symbol(self._of_param[param])

    def unnamed(self, name: str, axis: int) -> Dim:
        return symbol(self._new(f"{name}_dim{axis}"))

    def _new(self, text: str) -> str:
        base = "".join(c if c.isascii() and c.isalnum() else "_" for c in text[:40])
        base = base if _is_plain(base) else f"s_{base}"
        name, count = base, 1
        while name in self._taken:
            count += 1
            name = f"{base}_{count}"
        self._taken.add(name)
        return name


def _is_plain(text: str) -> bool:
    word = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text) is not None
    return word and len(text) <= 40 and not keyword.iskeyword(text)


def _texts(texts: list[str]) -> ir.Attribute:
    return ir.ArrayAttr.get([ir.StringAttr.get(t) for t in texts])


def _tensor(value: Known, name: str) -> ir.Value:
    """An output of the model; CompileError XC1012 when it is a sequence."""
    if isinstance(value, ir.Value):
        return value
    raise CompileError("XC1012", f"the value '{name}' is a sequence; a tensor is needed")
