"""Outlining: groups of nn ops become `kernel.func`s, and launches of them.

A kernel is written as text first: groups of equal text are one kernel.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from xcompile.compiler.ir.location import describe, fuse
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Op, Value, view
from xcompile.compiler.support.dims import Dim, bounds, symbol, symbols_of
from xcompile.dialects.kernel import (
    CARRIED,
    FITS,
    PLAIN,
    SHAPES,
    TRIP,
    Dims,
    Func,
    Launch,
    Return,
    View,
    parse_shape,
    shape_text,
    stated_shapes,
)
from xcompile.dialects.nn.base import Shape, dtype_of, is_static, rank_of
from xcompile.dialects.nn.binary import Maximum, Minimum
from xcompile.dialects.nn.const import Const, const_of
from xcompile.dialects.nn.control import ControlOp, If, Loop
from xcompile.dialects.nn.kinds import VIEWS, is_elementwise
from xcompile.dialects.nn.shapes import ShapeAnalysis
from xcompile.dialects.nn.unary import Cast
from xcompile.passes.kernel.bounds import fits_int32, float_before, plain_numbers
from xcompile.passes.kernel.late_sizes import LateSizes, operand_roles
from xcompile.passes.kernel.windows import Window

MOST_VARIANTS = 4
"""Kernels that differ in the scalars that stand in them."""


@dataclass
class Group:
    """A kernel in the making.

    Attributes:
        root: the op whose results it gives.
        ops: all its ops, in reverse program order.
        anchor: the op that is neither elementwise nor data movement, if there is one.
        claim: the anchor whose epilogue the ops so far are, before it joins.
        sizes_only: whether the result is made of sizes, and no operand is read.
    """

    root: Op
    ops: list[Op] = field(default_factory=list[Op])
    anchor: Op | None = None
    claim: Op | None = None
    sizes_only: bool = False

    def takes(self, anchor: Op) -> bool:
        """Whether an anchor may join, or what belongs to its epilogue."""
        return self.anchor is None and self.claim in (None, anchor)


class Outliner:
    """Writes the kernels and the launches, and removes what they replace."""

    def __init__(self, module: Module, analysis: ShapeAnalysis, late: LateSizes) -> None:
        self._module = module
        self._analysis = analysis
        self._late = late
        self._kernels: dict[str, str] = {}
        self._variants: dict[str, int] = {}
        self._new: dict[Value, Value] = {}
        self._roots: dict[Op, Group] = {}
        self._controls: AbstractSet[Op] = frozenset()
        self._windows: Mapping[Op, Window] = {}
        shapes = module.input_shapes()
        self._input_symbols = {s for shape in shapes for d in shape for s in symbols_of(d)}

    def outline(
        self, groups: Iterable[Group], controls: AbstractSet[Op], windows: Mapping[Op, Window]
    ) -> None:
        """Outline the groups of all blocks; only `controls` are kept of branches and loops; `windows` are views."""
        self._roots = {group.root: group for group in groups}
        self._controls = controls
        self._windows = windows
        self._outline_block(self._module.main.regions[0].blocks[0])

    def _outline_block(self, block: ir.Block) -> None:
        *body, terminator = [o.operation for o in block.operations]
        with ir.InsertionPoint(terminator):
            self._late.begin(block)
            for operation in body:
                op = view(operation)
                assert op is not None
                if op in self._roots:
                    self._launch(self._roots[op])
                elif op.NAME in VIEWS or op in self._windows:
                    self._view(op)
                elif isinstance(op, Const):
                    self._constant(op)
                elif isinstance(op, ControlOp) and op in self._controls:
                    self._control(op)
                for result in op.results:
                    self._late.read_if_needed(result, self._value(result))
            self._finish(terminator)
        for operation in reversed(body):
            operation.erase()
        _drop_unused(block)

    def _control(self, op: ControlOp) -> None:
        """The same branch or loop around the outlined blocks, with the shapes that its types do not say."""
        fields = {
            name: [self._value(v) for v in given]
            if isinstance(given, list)
            else given and self._value(given)
            for name, given in op.operand_fields().items()
        }
        made = type(op).build(fields, [r.type for r in op.results], loc=op.location)
        _state(made, SHAPES, [self._analysis.shape(r) for r in op.results])
        if isinstance(op, Loop):
            _state(made, CARRIED, [self._analysis.shape(v) for v in op.carried])
            trip = None if op.trip is None else self._analysis.content(op.trip)
            if trip is not None:
                made.operation.attributes[TRIP] = ir.StringAttr.get(str(trip[0]))
        for block, region in zip(op.blocks, made.operation.regions, strict=True):
            block.append_to(region)
            self._outline_block(block)
        self._new.update(zip(op.results, made.results, strict=True))
        self._late.bound(op.results)

    def _value(self, value: Value) -> Value:
        return self._new.get(value, value)

    def _constant(self, op: Const) -> None:
        made = Const.build({"value": op.value}, [op.y.type], loc=op.location)
        self._new[op.y] = made.y

    def _view(self, op: Op) -> None:
        source, result = op.operands[0], op.results[0]
        if source not in self._new and not isinstance(source.owner, ir.Block):
            return  # shape arithmetic: nobody reads it as data
        shape = shape_text(self._analysis.shape(result))
        window = self._windows.get(op)
        part = {} if window is None else {"start": str(window.start), "axis": window.axis}
        fields = {"x": self._value(source), "shape": shape, **part}
        made = View.build(fields, [result.type], loc=op.location)
        self._new[result] = made.y

    def _launch(self, group: Group) -> None:
        text, inputs, sizes = self._outlined(group)
        name = self._kernels.get(text)
        if name is None:
            name = self._kernels[text] = _kernel_name(group, len(self._kernels))
            self._append_kernel(text, name)
        launch = Launch.build(
            {
                "inputs": [self._value(v) for v in inputs],
                "callee": name,
                "shapes": tuple(shape_text(self._analysis.shape(r)) for r in group.root.results),
                "sizes": tuple(str(s) for s in sizes),
                "nodes": _nodes(group),
            },
            [r.type for r in group.root.results],
            loc=fuse(op.location for op in reversed(group.ops)),
        )
        self._new.update(zip(group.root.results, launch.results, strict=True))

    def _outlined(self, group: Group) -> tuple[str, list[Value], list[Dim]]:
        """A kernel's text, its operands and sizes. Scalars stand in the kernel, until too many kernels differ in
        nothing else: then they are operands.
        """
        embedded = _Outlined(self._module, self._analysis, group).write()
        if embedded[0] in self._kernels:
            return embedded
        general = _Outlined(self._module, self._analysis, group, embed_scalars=False).write()
        if general[0] == embedded[0]:
            return embedded
        self._variants[general[0]] = self._variants.get(general[0], 0) + 1
        return embedded if self._variants[general[0]] <= MOST_VARIANTS else general

    def _append_kernel(self, text: str, name: str) -> None:
        parsed = ir.Module.parse(text, self._module.context)
        operation = parsed.body.operations[0].operation
        operation.attributes["sym_name"] = ir.StringAttr.get(name)
        operation.detach_from_parent()
        self._module.module.body.append(operation)

    def _finish(self, terminator: ir.Operation) -> None:
        """End a block with values that it stores itself, each once: others, and constants, are copied.

        So is a view whose sizes follow from those of inputs while data say how large its memory is, or the other way
        round: the two are kept in different memory.
        """
        stored: set[Value] = set()
        for position, value in enumerate(list(terminator.operands)):
            new = self._value(value)
            base, whole = new, True
            while (
                seen := View.of(
                    base.owner if isinstance(base.owner, ir.Operation | ir.OpView) else None
                )
            ) is not None:
                base, whole = seen.x, whole and not seen.start
            if (
                not whole
                or base in stored
                or not _is_stored_in(base, terminator.block)
                or self._is_late(_stated_shape(base)) != self._is_late(self._analysis.shape(value))
            ):
                new = base = self._copy(value, new)
            stored.add(base)
            terminator.operands[position] = new

    def _is_late(self, shape: Shape) -> bool:
        """Whether data say one of the sizes."""
        return any(s not in self._input_symbols for d in shape for s in symbols_of(d))

    def _copy(self, old: Value, new: Value) -> Value:
        shape = self._analysis.shape(old)
        names: dict[Dim, str] = {}
        dims = tuple(_bind(d, names) for d in shape)
        text = _func_text(self._module, [new.type], [";".join(dims)], list, ())
        name = self._kernels.get(text)
        if name is None:
            name = self._kernels[text] = f"copy_{len(self._kernels)}"
            self._append_kernel(text, name)
        made = Launch.build(
            {
                "inputs": [new],
                "callee": name,
                "shapes": (shape_text(shape),),
                "sizes": tuple(map(str, names)),
            },
            [new.type],
        )
        return made.results[0]


def _drop_unused(block: ir.Block) -> None:
    for operation in reversed([o.operation for o in block.operations]):
        op = view(operation)
        if op is not None and op.PURE and not any(True for r in op.results for _ in r.uses):
            operation.erase()


def _state(op: Op, name: str, shapes: Iterable[Shape]) -> None:
    texts = [ir.StringAttr.get(shape_text(shape)) for shape in shapes]
    op.operation.attributes[name] = ir.ArrayAttr.get(texts)


def _is_stored_in(value: Value, block: ir.Block) -> bool:
    """Whether a launch, a branch or a loop of the block gives the value; what loops stack does not count."""
    if isinstance(value.owner, ir.Block) or value.owner.operation.block != block:
        return False
    op = view(value.owner)
    return isinstance(op, Launch | If) or (isinstance(op, Loop) and value in op.finals)


def _stated_shape(value: Value) -> Shape:
    """The shape of a result of a launch, a branch or a loop."""
    assert not isinstance(value.owner, ir.Block)
    op = view(value.owner)
    assert op is not None
    place = op.results.index(value)
    if isinstance(op, Launch):
        return parse_shape(op.shapes[place])
    assert isinstance(op, ControlOp)
    return stated_shapes(op, SHAPES)[place]


def _nodes(group: Group) -> tuple[str, ...]:
    """The model nodes of each op; nothing when none is known."""
    nodes = tuple(describe(op.location) or "" for op in reversed(group.ops))
    return nodes if any(nodes) else ()


def _kernel_name(group: Group, number: int) -> str:
    words = [op.NAME.partition(".")[2] for op in reversed(group.ops)]
    return "_".join(words[:4]) + f"_{number}"


def _bind(dim: Dim, names: dict[Dim, str]) -> str:
    """The kernel's word for a size of the program: an integer or d0, d1, …"""
    if isinstance(dim, int):
        return str(dim)
    if bounds(dim)[1] < 0:
        return str(
            -symbol(names.setdefault(-dim, f"d{len(names)}"))
        )  # sizes are not negative, places may be
    return names.setdefault(dim, f"d{len(names)}")


class _Outlined:
    """One group as the text of a kernel.func."""

    def __init__(
        self, module: Module, analysis: ShapeAnalysis, group: Group, *, embed_scalars: bool = True
    ) -> None:
        self._module = module
        self._analysis = analysis
        self._group = group
        self._embed_scalars = embed_scalars
        self._same = _floats_before(module, group)
        self._ops = self._needed(list(reversed(group.ops)))
        self._names: dict[Dim, str] = {}

    def write(self) -> tuple[str, list[Value], list[Dim]]:
        """The text, the values to launch it on, and what d0, d1, … are."""
        if self._only_sizes():
            inputs: list[Value] = []
        else:
            inputs = self._inputs()
        arguments = [
            ";".join(_bind(d, self._names) for d in self._analysis.shape(v)) for v in inputs
        ]
        constants = tuple(i for i, v in enumerate(inputs) if const_of(v) is not None)
        text = _func_text(
            self._module, [v.type for v in inputs], arguments,
            lambda parameters: self._body(dict(zip(inputs, parameters, strict=True))), constants,
        )  # fmt: skip
        return text, inputs, list(self._names)

    def _needed(self, ops: list[Op]) -> list[Op]:
        """The ops that the result is made of."""
        wanted, needed = set[Value](self._group.root.results), list[Op]()
        for op in reversed(ops):
            if wanted.isdisjoint(op.results):
                continue
            needed.append(op)
            wanted.update(self._operands(op))
        return needed[::-1]

    def _operands(self, op: Op) -> list[Value]:
        """What an op is made of; a cast that gives back floats of the kernel, of these."""
        same = self._same.get(op.results[0])
        return list(op.operands) if same is None else [same]

    def _only_sizes(self) -> bool:
        """Whether the kernel writes a tensor of sizes that are known before it runs."""
        return self._group.sizes_only

    def _inputs(self) -> list[Value]:
        inside = {r for op in self._ops for r in op.results}
        found: dict[Value, None] = {}
        for op in self._ops:
            if op.results[0] in self._same:
                continue
            for value, is_size in operand_roles(op, self._analysis):
                if value not in inside and not is_size and not self._embedded(op, value):
                    found.setdefault(value)
        return list(found)

    def _embedded(self, op: Op, value: Value) -> bool:
        """Whether a constant stands in the kernel itself: splats that elementwise ops read."""
        constant = const_of(value)
        if constant is None or not constant.splat or not is_elementwise(op.NAME):
            return False
        return self._embed_scalars or math.prod(ir.RankedTensorType(value.type).shape) != 1

    def _body(self, values: dict[Value, Value]) -> list[Value]:
        if self._only_sizes():
            return [self._dims(self._group.root.results[0])]
        for op in self._ops:
            same = self._same.get(op.results[0])
            if same is not None:
                values[op.results[0]] = values[same]
                continue
            operands = [
                self._operand(op, v, is_size, values)
                for v, is_size in operand_roles(op, self._analysis)
            ]
            made = ir.Operation.create(
                op.NAME,
                results=[r.type for r in op.results],
                operands=operands,
                attributes={k: op.operation.attributes[k] for k in op.operation.attributes},
            )
            self._state_shapes(op, made)
            self._state_numbers(op, made)
            values.update(zip(op.results, made.results, strict=True))
        return [values[r] for r in self._group.root.results]

    def _state_numbers(self, op: Op, made: ir.Operation) -> None:
        """What is known of the numbers that an op gets, where that makes it cheaper."""
        if not isinstance(op, Cast | Maximum | Minimum):
            return
        if isinstance(op, Cast):
            if not fits_int32(op):
                return
            made.attributes[FITS] = ir.UnitAttr.get()
        if plain_numbers(op, self._module.weights):
            made.attributes[PLAIN] = ir.UnitAttr.get()

    def _state_shapes(self, op: Op, made: ir.Operation) -> None:
        """Sizes that the types do not say are written to the op: the kernel need not infer them again."""
        if all(is_static(r) for r in op.results):
            return
        shapes = [self._analysis.shape(r) for r in op.results]
        texts = [";".join(_bind(d, self._names) for d in shape) for shape in shapes]
        made.attributes[SHAPES] = ir.ArrayAttr.get([ir.StringAttr.get(t) for t in texts])

    def _operand(self, op: Op, value: Value, is_size: bool, values: dict[Value, Value]) -> Value:
        if is_size:
            return self._dims(value)
        if value not in values:
            constant = const_of(value)
            assert constant is not None
            values[value] = Const.build({"value": constant.value}, [value.type]).y
        return values[value]

    def _dims(self, value: Value) -> Value:
        content = self._analysis.content(value)
        assert content is not None
        words = tuple(_bind(d, self._names) for d in content)
        made = Dims.build(
            {"values": words, "dtype": dtype_of(value), "rank": rank_of(value)}, [value.type]
        )
        return made.y


def _floats_before(module: Module, group: Group) -> dict[Value, Value]:
    """Of floats that a group casts integers to, those that the integers were made of, when the group has them."""
    inside = {r for op in group.ops for r in op.results}
    found = dict[Value, Value]()
    for op in group.ops:
        if not isinstance(op, Cast):
            continue
        before = float_before(op, module.weights)
        if before is not None and before in inside:
            found[op.y] = before
    return found


def _func_text(
    module: Module,
    types: list[ir.Type],
    arguments: list[str],
    body: Callable[[list[Value]], list[Value]],
    constants: tuple[int, ...],
) -> str:
    """The text of a kernel.func named "kernel"."""
    holder = ir.Module.create(ir.Location.unknown(module.context))
    with module.context, ir.Location.unknown(), ir.InsertionPoint(holder.body):
        made = Func.build(
            {"sym_name": "kernel", "arguments": tuple(arguments), "constants": constants},
            [],
        )
        block = ir.Block.create_at_start(
            made.operation.regions[0], types, [ir.Location.unknown()] * len(types)
        )
        with ir.InsertionPoint(block):
            Return.build({"values": body(list(block.arguments))}, [])
    return str(holder)
