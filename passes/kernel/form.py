"""kernel-form: group nn ops into kernels and outline them.

Walking the function backwards, each op joins the kernel of its consumers when that saves memory
traffic and recomputes nothing, or else starts a kernel of its own:

- elementwise and data-movement ops join the kernel that reads them, when it reads each element once;
- an anchor (convolution, contraction, pooling, …) joins the elementwise ops behind it: they become its epilogue;
- a view (reshape and its like) between kernels is a `kernel.view`: no code at all;
- ops that only serve shape arithmetic disappear: sizes are Dims by now.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from xcompile.compiler.ir.location import describe, fuse
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Op, Value, view
from xcompile.compiler.ir.passes import Pass, PassContext
from xcompile.compiler.support.dims import Dim, bounds, symbol
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.kernel import SHAPES, Dims, Func, Launch, Return, View, shape_text
from xcompile.dialects.nn.base import Shape, dtype_of, rank_of
from xcompile.dialects.nn.const import Const, const_of
from xcompile.dialects.nn.kinds import (
    ACCEPTS_PROLOGUE,
    MOVEMENT,
    READS_STRIDED,
    REPEATS,
    SIZE_OPERANDS,
    TAKES_EPILOGUE,
    VIEWS,
    is_elementwise,
)
from xcompile.dialects.nn.reshape import Transpose
from xcompile.dialects.nn.shapes import ShapeAnalysis

MOST_OPS = 64
"""Ops in one kernel at most, so that code generation stays fast."""


@dataclass
class _Group:
    """A kernel in the making; `root` is the op whose results it gives."""

    root: Op
    ops: list[Op] = field(default_factory=list)
    anchor: Op | None = None


@dataclass(frozen=True)
class FormKernels(Pass):
    """Group nn ops into kernels; see the module's docstring.

    Attributes:
        fuse: whether ops may share a kernel at all.
    """

    NAME: ClassVar[str] = "kernel-form"

    fuse: bool = True

    def run(self, module: Module, context: PassContext) -> None:
        analysis = ShapeAnalysis(module.main, module.input_shapes())
        groups = _Grouping(module, analysis, self.fuse).groups()
        _Outliner(module, analysis).outline(groups)


class _Grouping:
    """Decides which ops share a kernel."""

    def __init__(self, module: Module, analysis: ShapeAnalysis, fuse: bool) -> None:
        self._analysis = analysis
        self._fuse = fuse
        self._block = module.main.regions[0].blocks[0]
        self._group_of: dict[Op, _Group] = {}
        self._readers: dict[Value, list[Op | None]] = {}

    def groups(self) -> list[_Group]:
        """The kernels, in program order of their roots."""
        *body, terminator = [o.operation for o in self._block.operations]
        for value in terminator.operands:
            self._readers.setdefault(value, []).append(None)
        found: list[_Group] = []
        for operation in reversed(body):
            op = view(operation)
            if op is None:
                raise CompileError(
                    "XC3010",
                    f"{operation.name} cannot be lowered",
                    node=describe(operation.location),
                )
            readers = [r for v in op.results for r in self._readers.get(v, [])]
            if not readers or isinstance(op, Const):
                continue
            if self._known(op):
                found.append(_Group(op, [op]))
                continue
            for value in self.data_operands(op):
                self._readers.setdefault(value, []).append(op)
            if op.NAME not in VIEWS:
                self._place(op, readers, found)
        return found[::-1]

    def _place(self, op: Op, readers: list[Op | None], found: list[_Group]) -> None:
        group = self._joinable(op, readers)
        if group is None:
            group = _Group(op)
            found.append(group)
        group.ops.append(op)
        self._group_of[op] = group
        if not is_elementwise(op.NAME) and op.NAME not in MOVEMENT and op.NAME != "nn.concat":
            group.anchor = op

    def _joinable(self, op: Op, readers: list[Op | None]) -> _Group | None:
        """The group of the readers, when `op` may join it."""
        if not self._fuse or len(op.results) != 1:
            return None
        group = self._group_of.get(readers[0]) if readers[0] is not None else None
        if group is None or any(r is None or self._group_of.get(r) is not group for r in readers):
            return None
        if len(group.ops) >= MOST_OPS:
            return None
        anchor = self._anchor_before(op) if is_elementwise(op.NAME) else None
        if anchor is not None:
            fits = group.anchor is None and self._is_epilogue(op, group, anchor.NAME)
        elif is_elementwise(op.NAME) or op.NAME in MOVEMENT:
            fits = all(self._may_pull(op, r, group) for r in readers if r is not None)
        else:
            fits = group.anchor is None and self._is_epilogue(op, group, op.NAME)
        return group if fits else None

    def _may_pull(self, op: Op, reader: Op, group: _Group) -> bool:
        """Whether `reader` reads each element of `op` about once, and can take it as an expression."""
        if is_elementwise(reader.NAME) or reader.NAME == "nn.concat":
            same = self._shape(op) == self._shape(reader) or reader.NAME == "nn.concat"
            return same or op.NAME in MOVEMENT - REPEATS
        if reader.NAME in READS_STRIDED:
            return op.NAME == "nn.transpose"
        if reader.NAME in MOVEMENT:
            if (
                group.anchor is not None
                and group.anchor.NAME in READS_STRIDED
                and reader != group.root
            ):
                return op.NAME == "nn.transpose"
            return reader.NAME not in REPEATS or op.NAME in MOVEMENT
        return (
            reader.NAME in ACCEPTS_PROLOGUE
            and op.results[0] == reader.operands[0]
            and is_elementwise(op.NAME)
        )

    def _anchor_before(self, op: Op) -> Op | None:
        """The anchor whose epilogue the op can be: that is worth more than being read by another kernel."""
        pending, seen = [op], 0
        while pending and seen < MOST_OPS:
            current = pending.pop()
            seen += 1
            for value in self.data_operands(current):
                source = view(value.owner) if not isinstance(value.owner, ir.Block) else None
                if source is None or isinstance(source, Const) or len(list(value.uses)) != 1:
                    continue
                if self._analysis.shape(value) != self._shape(op):
                    continue
                if is_elementwise(source.NAME):
                    pending.append(source)
                elif source.NAME in TAKES_EPILOGUE:
                    return source
        return None

    def _is_epilogue(self, first: Op, group: _Group, anchor: str) -> bool:
        """Whether everything behind `first` is elementwise, of its shape, so that an anchor's kernel can do it.

        Contractions may end in transpositions that leave the last axis where it is.
        """
        shape, moved = self._shape(first), False
        reached = {first.results[0]}
        for op in reversed(group.ops):
            if not any(v in reached for v in op.operands):
                continue
            if isinstance(op, Transpose) and anchor in READS_STRIDED:
                moved = True
                if op.perm[-1] != len(shape) - 1:
                    return False
            elif moved or not is_elementwise(op.NAME) or self._shape(op) != shape:
                return False
            reached.add(op.results[0])
        return group.root.results[0] in reached

    def _shape(self, op: Op) -> Shape:
        return self._analysis.shape(op.results[0])

    def _known(self, op: Op) -> bool:
        """Whether the op's result is sizes only, and can be written down without computing it."""
        return len(op.results) == 1 and self._analysis.content(op.results[0]) is not None

    def data_operands(self, op: Op) -> list[Value]:
        return [v for v, is_size in operand_roles(op, self._analysis) if not is_size]


def operand_roles(op: Op, analysis: ShapeAnalysis) -> list[tuple[Value, bool]]:
    """Each operand, and whether it only says sizes or places that are known."""
    sized: set[int] = set()
    position = 0
    for name, value in op.operand_fields().items():
        values: list[Value] = value if isinstance(value, list) else [] if value is None else [value]
        count = len(values)
        if (
            name in SIZE_OPERANDS.get(op.NAME, ())
            and count == 1
            and analysis.content(values[0]) is not None
        ):
            sized.add(position)
        position += count
    return [(v, i in sized) for i, v in enumerate(op.operands)]


class _Outliner:
    """Writes the kernels and the launches, and removes what they replace."""

    def __init__(self, module: Module, analysis: ShapeAnalysis) -> None:
        self._module = module
        self._analysis = analysis
        self._kernels: dict[str, str] = {}
        self._block = module.main.regions[0].blocks[0]
        self._new: dict[Value, Value] = {}

    def outline(self, groups: Iterable[_Group]) -> None:
        roots = {group.root: group for group in groups}
        old = [o.operation for o in self._block.operations]
        *body, terminator = old
        with ir.InsertionPoint(terminator):
            for operation in body:
                op = view(operation)
                assert op is not None
                if op in roots:
                    self._launch(roots[op])
                elif op.NAME in VIEWS:
                    self._view(op)
                elif isinstance(op, Const):
                    self._constant(op)
            self._finish(terminator)
        for operation in reversed(body):
            operation.erase()
        self._drop_unused(terminator)

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
        made = View.build(
            {"x": self._value(source), "shape": shape}, [result.type], loc=op.location
        )
        self._new[result] = made.y

    def _launch(self, group: _Group) -> None:
        text, inputs, sizes = _Outlined(self._module, self._analysis, group).write()
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
            },
            [r.type for r in group.root.results],
            loc=fuse(op.location for op in reversed(group.ops)),
        )
        self._new.update(zip(group.root.results, launch.results, strict=True))

    def _append_kernel(self, text: str, name: str) -> None:
        parsed = ir.Module.parse(text, self._module.context)
        operation = parsed.body.operations[0].operation
        operation.attributes["sym_name"] = ir.StringAttr.get(name)
        operation.detach_from_parent()
        self._module.module.body.append(operation)

    def _finish(self, terminator: ir.Operation) -> None:
        """Return values that are stored by a launch of their own: copies of arguments, constants and duplicates."""
        stored: set[Value] = set()
        for position, value in enumerate(list(terminator.operands)):
            new = self._value(value)
            base = new
            while (
                seen := View.of(
                    base.owner if isinstance(base.owner, ir.Operation | ir.OpView) else None
                )
            ) is not None:
                base = seen.x
            if base in stored or Launch.of(_owner(base)) is None:
                new = base = self._copy(value, new)
            stored.add(base)
            terminator.operands[position] = new

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

    def _drop_unused(self, terminator: ir.Operation) -> None:
        for operation in reversed([o.operation for o in self._block.operations]):
            op = view(operation)
            if op is not None and not any(True for r in op.results for _ in r.uses):
                operation.erase()


def _owner(value: Value) -> ir.Operation | None:
    return None if isinstance(value.owner, ir.Block) else value.owner.operation


def _kernel_name(group: _Group, number: int) -> str:
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

    def __init__(self, module: Module, analysis: ShapeAnalysis, group: _Group) -> None:
        self._module = module
        self._analysis = analysis
        self._group = group
        self._ops = list(reversed(group.ops))
        self._names: dict[Dim, str] = {}

    def write(self) -> tuple[str, list[Value], list[Dim]]:
        """The text, the values to launch it on, and what d0, d1, … are."""
        if self._analysis.content(self._group.root.results[0]) is not None and len(self._ops) == 1:
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

    def _inputs(self) -> list[Value]:
        inside = {r for op in self._ops for r in op.results}
        found: dict[Value, None] = {}
        for op in self._ops:
            for value, is_size in operand_roles(op, self._analysis):
                if value not in inside and not is_size and not self._embedded(op, value):
                    found.setdefault(value)
        return list(found)

    def _embedded(self, op: Op, value: Value) -> bool:
        """Whether a constant stands in the kernel itself: splats that elementwise ops read."""
        constant = const_of(value)
        return constant is not None and constant.splat and is_elementwise(op.NAME)

    def _body(self, values: dict[Value, Value]) -> list[Value]:
        if not values and self._analysis.content(self._group.root.results[0]) is not None:
            return [self._dims(self._group.root.results[0])]
        for op in self._ops:
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
            values.update(zip(op.results, made.results, strict=True))
        return [values[r] for r in self._group.root.results]

    def _state_shapes(self, op: Op, made: ir.Operation) -> None:
        """Sizes known only at run time are written to the op: the kernel need not infer them again."""
        shapes = [self._analysis.shape(r) for r in op.results]
        if all(isinstance(d, int) for shape in shapes for d in shape):
            return
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
            regions=1,
        )
        block = ir.Block.create_at_start(
            made.operation.regions[0], types, [ir.Location.unknown()] * len(types)
        )
        with ir.InsertionPoint(block):
            Return.build({"values": body(list(block.arguments))}, [])
    return str(holder)
