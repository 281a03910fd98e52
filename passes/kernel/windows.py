"""Slices that are a run of memory: no code, if what they are cut from is in memory."""

from collections.abc import Container, Mapping
from dataclasses import dataclass

from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.op import Op, Value, view
from xcompile.compiler.support.dims import Dim
from xcompile.dialects.nn.base import Shape
from xcompile.dialects.nn.const import Const
from xcompile.dialects.nn.kinds import MOVEMENT, VIEWS, is_elementwise
from xcompile.dialects.nn.layouts import block_of
from xcompile.dialects.nn.shapes import ShapeAnalysis
from xcompile.dialects.nn.slicing import Slice


@dataclass(frozen=True)
class Window:
    """A part of one axis, before which no axis is longer than 1.

    Attributes:
        axis: which one.
        start: the first of its places that is taken.
    """

    axis: int
    start: int


def find_windows(
    ops: list[Op], analysis: ShapeAnalysis, epilogues: Mapping[Op, Op]
) -> dict[Op, Window]:
    """The slices of a block that need no code.

    Args:
        ops: of the block.
        analysis: their sizes.
        epilogues: elementwise ops that end the kernel of an anchor, and so are in memory.
    """
    found: dict[Op, Window] = {}
    for op in ops:
        if isinstance(op, Slice) and _is_stored(op.x, found, epilogues):
            window = _window(op, analysis)
            if window is not None:
                found[op] = window
    return found


def _is_stored(value: Value, windows: Container[Op], epilogues: Mapping[Op, Op]) -> bool:
    """Whether a value is in memory, whoever reads it."""
    while not isinstance(value.owner, ir.Block):
        op = view(value.owner)
        if op is None or isinstance(op, Const):
            return False
        if op.NAME not in VIEWS and op not in windows:
            moves = op.NAME in MOVEMENT or (is_elementwise(op.NAME) and op not in epilogues)
            return not moves
        value = op.operands[0]
    return True


def _window(op: Slice, analysis: ShapeAnalysis) -> Window | None:
    """The part of one axis that a slice takes, if its elements follow one another in memory."""
    whole, part = analysis.shape(op.x), analysis.shape(op.y)
    contents = [analysis.content(v) for v in (op.starts, op.axes, op.steps) if v is not None]
    if None in contents:
        return None
    starts = analysis.content(op.starts) or ()
    axes = tuple(range(len(starts))) if op.axes is None else analysis.content(op.axes) or ()
    steps = () if op.steps is None else analysis.content(op.steps) or ()
    if any(step != 1 for step in steps):
        return None
    cut = {
        axis % len(whole): start
        for axis, start in zip(axes, starts, strict=True)
        if isinstance(axis, int) and whole[axis] != part[axis]
    }
    if len(cut) != 1:
        return None
    ((axis, start),) = cut.items()
    first = _counted(start, whole[axis])
    if first is None or any(d != 1 for d in whole[:axis]):
        return None
    return Window(axis, first) if _fits_blocks(op, axis, first, whole, part) else None


def _counted(start: Dim, size: Dim) -> int | None:
    """A start counted from the front, if that is known."""
    if not isinstance(start, int):
        return None
    if start >= 0:
        return min(start, size) if isinstance(size, int) else start
    return max(start + size, 0) if isinstance(size, int) else None


def _fits_blocks(op: Slice, axis: int, start: int, whole: Shape, part: Shape) -> bool:
    """Whether whole blocks of channels are taken, where memory is in blocks."""
    block, size = block_of(op.x.type), part[axis]
    if block_of(op.y.type) != block:
        return False
    if not block:
        return True
    if axis != 1 or not isinstance(size, int):
        return False
    return start % block == 0 and (size % block == 0 or start + size == whole[1])
