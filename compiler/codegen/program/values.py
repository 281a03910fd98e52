"""The values of a module at the kernel level: their shapes, and which share memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xcompile.compiler.codegen.cpu.layout import Layout
from xcompile.compiler.codegen.cpu.pull import memory_dtype
from xcompile.compiler.ir.dtypes import bits_of
from xcompile.compiler.ir.location import describe
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Op, Value, view
from xcompile.compiler.support.dims import Dim, parse, product, symbol, symbols_of
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.kernel import (
    CARRIED,
    SHAPES,
    Check,
    Define,
    Launch,
    Read,
    View,
    parse_shape,
    stated_shapes,
)
from xcompile.dialects.nn.base import Shape, dtype_of
from xcompile.dialects.nn.const import Const
from xcompile.dialects.nn.control import ControlOp, If, Loop, yielded


@dataclass(frozen=True)
class Part:
    """Where a value lies in another one.

    Attributes:
        whole: the other one.
        offset: the byte of it where the value begins.
        rows: how many rows the value lies in, each in one piece.
        pitch: bytes from the beginning of one row to that of the next, where there are several.
    """

    whole: Value
    offset: Dim
    rows: Dim = 1
    pitch: Dim = 0


class Values:
    """Shapes and memory of all values.

    Attributes:
        returned: the values that `@main` returns.
        ops: the ops that there are steps for, of each block.
        numbers: the place of each op in the order of the text; of one with regions that is where it begins.
        ends: where ops with regions end.
    """

    def __init__(self, module: Module) -> None:
        self._module = module
        self._block = module.main.regions[0].blocks[0]
        self._shapes: dict[Value, Shape] = {}
        self._inside: dict[Value, Part] = {}
        self._stored_in: dict[Value, Value] = {}
        self._opened: dict[Op, set[Dim]] = {}
        self._late: set[str] = set()
        self._known: set[str] = set()
        self.ops: dict[ir.Block, list[Op]] = {}
        self.numbers: dict[Op, int] = {}
        self.ends: dict[Op, int] = {}
        shapes = module.input_shapes()
        self._shapes.update(zip(self.arguments, shapes, strict=True))
        self._known.update(s for shape in shapes for d in shape for s in symbols_of(d))
        self._find_shapes(self._block)
        self.returned: list[Value] = list(list(self._block.operations)[-1].operation.operands)
        self._count = 0
        self._number(self._block)

    @property
    def past(self) -> int:
        """The place in the order of the text behind all ops."""
        return self._count

    @property
    def main(self) -> ir.Block:
        return self._block

    @property
    def arguments(self) -> list[Value]:
        return list(self._block.arguments)

    @property
    def launches(self) -> list[Launch]:
        """All launches, in order."""
        return [op for ops in self.ops.values() for op in ops if isinstance(op, Launch)]

    def _number(self, block: ir.Block) -> None:
        for op in self.ops[block]:
            self.numbers[op] = self._count
            self._count += 1
            if isinstance(op, ControlOp):
                for inner in op.blocks:
                    self._number(inner)
                self.ends[op] = self._count
                self._count += 1

    @property
    def inside(self) -> Mapping[Value, Part]:
        """Values that lie in another one, and where."""
        return self._inside

    def shape(self, value: Value) -> Shape:
        return self._shapes[value]

    def opened_by(self, dim: Dim, op: Loop) -> bool:
        """Whether a size of a result is one that only the loop itself gives a value to."""
        return dim in self._opened.get(op, ())

    def is_late(self, value: Value) -> bool:
        """Whether the size of a value depends on data."""
        return not self._late.isdisjoint(s for d in self._shapes[value] for s in symbols_of(d))

    def _find_shapes(self, block: ir.Block) -> None:
        """Record the shape of every value, and the ops that the program has steps for."""
        ops = self.ops[block] = []
        for operation in [o.operation for o in block.operations][:-1]:
            op = view(operation)
            match op:
                case Launch():
                    self._check_sizes(op)
                    ops.append(op)
                    for result, text in zip(op.results, op.shapes, strict=True):
                        self._shapes[result] = parse_shape(text)
                case View():
                    self._shapes[op.y] = parse_shape(op.shape)
                case Const():
                    self._shapes[op.y] = op.dims
                case Read():
                    ops.append(op)
                    self._late.update(filter(None, op.symbols))
                case Define():
                    ops.append(op)
                    self._late.add(op.symbol)
                case Check():
                    ops.append(op)
                case If() | Loop():
                    ops.append(op)
                    self._find_inner_shapes(op)
                case _:
                    raise CompileError(
                        "XC3010",
                        f"{operation.name} is in no kernel after the passes",
                        node=describe(operation.location),
                        help="the last pass of a pipeline is kernel-form",
                    )

    def _check_sizes(self, launch: Launch) -> None:
        """Raise XC2010 for sizes that no run can find out, such as those along axes that are data."""
        dims = [d for text in launch.shapes for d in parse_shape(text)]
        for dim in (*dims, *map(parse, launch.sizes)):
            if not (self._known | self._late).issuperset(symbols_of(dim)):
                raise CompileError(
                    "XC2010",
                    "a size depends on axes or steps that only data say",
                    node=describe(launch.location),
                    help="make the operand that says them a constant",
                )

    def _find_inner_shapes(self, op: If | Loop) -> None:
        """The shapes of the values of an op with regions, and where its results lie."""
        if isinstance(op, Loop):
            number, *carried = op.block.arguments
            self._shapes[number] = ()
            self._bind(carried, stated_shapes(op, CARRIED))
            self._stored_in.update(zip(carried, op.finals, strict=True))
        for block in op.blocks:
            self._find_shapes(block)
        before = set(self._late)
        self._bind(op.results, stated_shapes(op, SHAPES))
        self._opened[op] = {symbol(name) for name in self._late - before}
        for block in op.blocks if isinstance(op, If) else ():
            for result, value in zip(op.results, yielded(block) or (), strict=False):
                self._stored_in[self.base(value)] = result

    def _bind(self, values: Sequence[Value], shapes: Sequence[Shape]) -> None:
        """Record shapes; their symbols that are not known yet are those that the op gives values to."""
        for value, shape in zip(values, shapes, strict=True):
            self._shapes[value] = shape
            for dim in shape:
                self._late.update(s for s in symbols_of(dim) if s not in self._known)

    def base(self, value: Value) -> Value:
        """The value whose memory `value` is, or a part of."""
        return self.based(value)[0]

    def based(self, value: Value) -> tuple[Value, Dim, bool]:
        """The value whose memory `value` is, the byte where it begins there, and whether it may be only a part."""
        offset: Dim = 0
        part = False
        while not isinstance(value.owner, ir.Block) and (seen := View.of(value.owner)) is not None:
            if seen.start:
                behind = self._shapes[seen.x][seen.axis + 1 :]
                offset = offset + parse(seen.start) * product(behind) * self.item_bytes(value)
                part = True
            value = seen.x
        return value, offset, part

    def join(self, launch: Launch, parts: Mapping[Value, Part]) -> None:
        """Let a launch need no step, since the values that it reads are made where its result lies."""
        self._inside.update(parts)
        self.ops[launch.operation.block].remove(launch)

    def whole(self, value: Value) -> tuple[Value, Dim]:
        """The value that owns the memory, and the byte where `value` starts in it."""
        value, offset, _ = self.based(value)
        while value in self._inside or value in self._stored_in:
            if value in self._stored_in:
                value = self._stored_in[value]
                continue
            part = self._inside[value]
            value, offset = part.whole, offset + part.offset
        return value, offset

    def bytes_of(self, value: Value) -> Dim:
        """How many bytes the value takes in memory."""
        return Layout.of(value.type).elements(self._shapes[value]) * self.item_bytes(value)

    @staticmethod
    def item_bytes(value: Value) -> int:
        """How many bytes an element of the value takes in memory."""
        return bits_of(memory_dtype(dtype_of(value))) // 8
