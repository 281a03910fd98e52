"""kernel-form: group nn ops into kernels and outline them.

Walking the function backwards, each op joins the kernel of its consumers when that saves memory
traffic and recomputes next to nothing, or else starts a kernel of its own:

- elementwise and data-movement ops join the kernel that reads them, when it reads each element once;
- an anchor (convolution, contraction, pooling, …) joins the elementwise ops behind it: they become its epilogue;
- what widens 8-bit integers to be read by another anchor's kernel is computed there, so that these bytes are in memory;
- a view (reshape and its like) between kernels is a `kernel.view`: no code at all; so is a slice whose elements follow
  one another in memory, of a value that is there;
- ops that only serve shape arithmetic disappear: sizes are Dims by now;
- branches and loops stay, and each of their blocks has kernels of its own: what a block uses of those around it is in
  memory, as is what it yields;
- tensors that sizes depend on, and that a run must read, are results of kernels; a `kernel.read` follows them.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xcompile.compiler.ir.location import describe
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Op, Value, view
from xcompile.compiler.ir.passes import Pass, PassContext
from xcompile.compiler.ir.regions import blocks_of, nested, uses_of
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.base import Shape
from xcompile.dialects.nn.const import Const
from xcompile.dialects.nn.control import ControlOp
from xcompile.dialects.nn.kinds import (
    ALONE,
    MOVEMENT,
    PROLOGUE_OPERANDS,
    READS_STRIDED,
    REPEATS,
    TAKES_EPILOGUE,
    VIEWS,
    WIDENS,
    is_elementwise,
)
from xcompile.dialects.nn.layouts import block_of
from xcompile.dialects.nn.reshape import Transpose
from xcompile.dialects.nn.shapes import ShapeAnalysis, refine_types
from xcompile.passes.common.widening import widens_bytes
from xcompile.passes.kernel.late_sizes import LateSizes, operand_roles
from xcompile.passes.kernel.outline import Group, Outliner
from xcompile.passes.kernel.windows import Window, find_windows

MOST_OPS = 64
"""Ops in one kernel at most, so that code generation stays fast."""

MOST_PLACES = 2
"""At how many places of a value one element of the result may depend, when the value is not in memory.

Each place is computed anew, and so is everything behind it: without a bound, code doubles with each op.
"""


@dataclass(frozen=True)
class FormKernels(Pass):
    """Group nn ops into kernels; see the module's docstring.

    Attributes:
        fuse: whether ops may share a kernel at all.
    """

    NAME: ClassVar[str] = "kernel-form"

    fuse: bool = True

    def run(self, module: Module, context: PassContext) -> None:
        analysis = refine_types(module, module.input_shapes())
        late = LateSizes(module, analysis)
        pending, groups, controls = [module.main.regions[0].blocks[0]], list[Group](), set[Op]()
        windows = dict[Op, Window]()
        while pending:
            grouping = _Grouping(pending.pop(), analysis, late, self.fuse)
            groups += grouping.groups()
            controls |= grouping.controls
            windows |= grouping.windows
            pending += [block for op in grouping.controls for block in blocks_of(op.operation)]
        Outliner(module, analysis, late).outline(groups, controls, windows)


@dataclass(frozen=True)
class _Behind:
    """What lies between an op and the root of its group, and where the root reads the op.

    Attributes:
        straight: elementwise ops of the op's shape only, but for transpositions at the end that leave the
            last axis where it is.
        moved: whether there are such transpositions.
        only_moved: whether there is nothing else.
        places: names of the places at which the op is read for one element of the root.
    """

    straight: bool = True
    moved: bool = False
    only_moved: bool = True
    places: frozenset[int] = frozenset({0})


class _Grouping:
    """Decides which ops of a block share a kernel.

    Attributes:
        controls: the branches and loops of the block that something needs, once `groups` has run.
        windows: slices that are a run of memory, and so need no kernel.
    """

    def __init__(
        self, block: ir.Block, analysis: ShapeAnalysis, late: LateSizes, fuse: bool
    ) -> None:
        self._analysis = analysis
        self._late = late
        self._fuse = fuse
        *body, self._terminator = [o.operation for o in block.operations]
        self._ops = [_known_op(operation) for operation in body]
        self._own = set(self._ops)
        self.controls: set[Op] = set()
        self._group_of: dict[Op, Group] = {}
        self._behind: dict[Op, _Behind] = {}
        self._places: dict[tuple[Op, Op, int, int], int] = {}
        self._readers: dict[Value, list[Op | None]] = {}
        self._anchors = self._find_anchors()
        self.windows = find_windows(self._ops, analysis, self._anchors) if fuse else {}

    def groups(self) -> list[Group]:
        """The kernels, in program order of their roots."""
        for value in (*self._terminator.operands, *self._late.read):
            self._readers.setdefault(value, []).append(None)
        found: list[Group] = []
        for op in reversed(self._ops):
            readers = [r for v in op.results for r in self._readers.get(v, [])]
            if not readers or isinstance(op, Const):
                continue
            if isinstance(op, ControlOp):
                self.controls.add(op)
                for value in self._used(op):
                    self._readers.setdefault(value, []).append(None)
                continue
            if self._late.is_known(op):
                found.append(Group(op, [op], sizes_only=True))
                continue
            for value in self.data_operands(op):
                self._readers.setdefault(value, []).append(op)
            if op.NAME not in VIEWS and op not in self.windows:
                self._place(op, readers, found)
        return found[::-1]

    def _place(self, op: Op, readers: Sequence[Op | None], found: list[Group]) -> None:
        group, behind = self._join(op, readers)
        if group is None:
            group = Group(op)
            found.append(group)
        group.ops.append(op)
        self._group_of[op] = group
        self._behind[op] = behind
        if not is_elementwise(op.NAME) and op.NAME not in MOVEMENT and op.NAME != "nn.concat":
            group.anchor = op

    def _join(self, op: Op, readers: Sequence[Op | None]) -> tuple[Group | None, _Behind]:
        """The group of the readers, when `op` may join it, and what lies behind `op` there."""
        alone = None, _Behind()
        if not self._fuse or len(op.results) != 1 or op.NAME in ALONE:
            return alone
        inside = [r for r in readers if r is not None]
        group = self._group_of.get(inside[0]) if inside else None
        if group is None or len(inside) != len(readers) or len(group.ops) >= MOST_OPS:
            return alone
        if any(self._group_of.get(r) is not group for r in inside):
            return alone
        behind = self._look_behind(op, inside)
        anchor = self._anchors.get(op)
        if is_elementwise(op.NAME) and anchor is not None:
            fits = group.takes(anchor) and self._is_epilogue(behind, anchor.NAME)
            if fits:
                group.claim = anchor
            elif widens_bytes(op, self._analysis):
                fits = all(self._may_pull(op, r, group) for r in inside)
        elif is_elementwise(op.NAME) or op.NAME in MOVEMENT:
            fits = all(self._may_pull(op, r, group) for r in inside)
        else:
            fits = group.takes(op) and self._is_epilogue(behind, op.NAME)
        return (group, behind) if fits and len(behind.places) <= MOST_PLACES else alone

    def _look_behind(self, op: Op, readers: Sequence[Op]) -> _Behind:
        """What lies behind an op that only `readers`, all of one group, read."""
        shape, last = self._shape(op), len(self._shape(op)) - 1
        straight = only_moved = True
        moved = False
        places: set[int] = set()
        for number, reader in enumerate(readers):
            behind = self._behind[reader]
            alike = is_elementwise(reader.NAME) and self._shape(reader) == shape
            moves = isinstance(reader, Transpose) and reader.perm[-1] == last
            straight &= behind.straight if alike else moves and behind.only_moved
            moved |= moves or behind.moved
            only_moved &= moves and behind.only_moved
            places |= behind.places if alike else self._moved_places(op, reader, number)
        return _Behind(straight, moved, only_moved, frozenset(places))

    def _moved_places(self, op: Op, reader: Op, number: int) -> set[int]:
        """Names of the places at which a reader that is not elementwise reads an op."""
        return {
            self._places.setdefault((op, reader, number, place), len(self._places) + 1)
            for place in sorted(self._behind[reader].places)
        }

    def _may_pull(self, op: Op, reader: Op, group: Group) -> bool:
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
        if block_of(op.results[0].type):
            first = reader.operands[0] == op.results[0] and len(reader.operands) == 1
            return (
                first and reader.NAME in WIDENS and widens_bytes(op, self._analysis, pixels=False)
            )
        return self._is_prologue_operand(op, reader) and is_elementwise(op.NAME)

    @staticmethod
    def _is_prologue_operand(op: Op, reader: Op) -> bool:
        """Whether the reader takes the op's result as an expression wherever it reads it."""
        places = [i for i, v in enumerate(reader.operands) if v == op.results[0]]
        return set(places) <= set(PROLOGUE_OPERANDS.get(reader.NAME, ()))

    def _find_anchors(self) -> dict[Op, Op]:
        """The anchor whose epilogue an elementwise op can be: worth more than being read by another kernel."""
        uses = Counter(v for op in self._ops for v in uses_of(op.operation))
        uses.update(self._terminator.operands)
        found: dict[Op, tuple[Op, int]] = {}
        for op in self._ops:
            if not is_elementwise(op.NAME):
                continue
            for value in self.data_operands(op):
                source = None if isinstance(value.owner, ir.Block) else view(value.owner)
                if source is None or source not in self._own or uses[value] != 1:
                    continue
                if self._analysis.shape(value) != self._shape(op):
                    continue
                if source.NAME in TAKES_EPILOGUE:
                    found[op] = source, 1
                elif source in found and found[source][1] < MOST_OPS:
                    found.setdefault(op, (found[source][0], found[source][1] + 1))
        return {op: anchor for op, (anchor, _) in found.items()}

    @staticmethod
    def _is_epilogue(behind: _Behind, anchor: str) -> bool:
        """Whether the kernel of an anchor can do all that lies behind an op.

        Contractions may end in transpositions that leave the last axis where it is.
        """
        return behind.straight and (anchor in READS_STRIDED or not behind.moved)

    def _shape(self, op: Op) -> Shape:
        return self._analysis.shape(op.results[0])

    def data_operands(self, op: Op) -> list[Value]:
        return [v for v, is_size in operand_roles(op, self._analysis) if not is_size]

    def _used(self, control: Op) -> list[Value]:
        """What must be in memory for a branch or loop: its operands, and what its blocks read."""
        found = dict.fromkeys(control.operands)
        for operation in nested(control.operation):
            op = _known_op(operation)
            if isinstance(op, ControlOp) or not op.results:
                found.update(dict.fromkeys(op.operands))
            elif not self._late.is_known(op):
                found.update(dict.fromkeys(self.data_operands(op)))
        return list(found)


def _known_op(operation: ir.Operation) -> Op:
    op = view(operation)
    if op is None:
        raise CompileError(
            "XC3010", f"{operation.name} cannot be lowered", node=describe(operation.location)
        )
    return op
