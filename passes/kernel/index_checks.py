"""Checks of indices that are data: kernels stay inside of tensors whatever these are, and the run says what was wrong.

An index `i` of an axis of size `n` is valid in [-n, n), which is to say that its *reach* `max(i, -1 - i)` is below
`n`. One small kernel finds the greatest reach of a tensor of indices, a run reads it and compares it with the sizes
of all axes that these indices go to. Some ops take no negative indices, which then reach farther than any axis.
Constants are checked when the model is compiled.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from xcompile.compiler.ir.location import describe
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Value, view
from xcompile.compiler.ir.regions import blocks_of
from xcompile.compiler.support.dims import Dim, known_nonnegative, maximum, minimum, product
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.base import NnOp, rank_of
from xcompile.dialects.nn.binary import Maximum, Sub
from xcompile.dialects.nn.composer import Composer
from xcompile.dialects.nn.const import Const, const_of
from xcompile.dialects.nn.counted import FindUnique, Leading, NonZero
from xcompile.dialects.nn.gather import Gather, GatherElements, GatherND, ReverseSequence
from xcompile.dialects.nn.generate import CumProd, CumSum, Cumulative
from xcompile.dialects.nn.kinds import VIEWS
from xcompile.dialects.nn.pool import MaxUnpool
from xcompile.dialects.nn.reduce import ArgExtreme, ReduceMax
from xcompile.dialects.nn.reshape import Expand, Transpose
from xcompile.dialects.nn.scatter import ScatterElements, ScatterND
from xcompile.dialects.nn.shapes import Check, ShapeAnalysis
from xcompile.dialects.nn.sizes import Range
from xcompile.dialects.nn.topk import TopK

Indexing = (
    Gather
    | GatherElements
    | GatherND
    | ScatterElements
    | ScatterND
    | MaxUnpool
    | ReverseSequence
    | Cumulative
)

_WHAT: dict[type[NnOp], str] = {
    ReverseSequence: "a length",
    CumSum: "the axis",
    CumProd: "the axis",
}
"""What the numbers of an op are that are no indices of elements."""

FAR = 1 << 48
"""More elements than any axis has."""


@dataclass(frozen=True)
class _Use:
    """Indices and where they go.

    Attributes:
        op: the op that uses them.
        indices: the values.
        sizes: the axes' sizes.
        coordinates: whether each index of the last axis goes to an axis of its own.
        from_zero: whether negative ones are not taken.
    """

    op: Indexing
    indices: Value
    sizes: tuple[Dim, ...]
    coordinates: bool = False
    from_zero: bool = False


class IndexChecks:
    """Writes the ops that find the greatest reach of indices, each before the first op of its block that needs it.

    Attributes:
        checks: what must hold each time that a block runs.
    """

    def __init__(self, module: Module, analysis: ShapeAnalysis) -> None:
        self.checks: dict[ir.Block, list[Check]] = {}
        self._module = module
        self._analysis = analysis
        self._sources = {reading.value for reading in analysis.readings.values()}
        self._main = module.main.regions[0].blocks[0]
        with module.context:
            self._guard(self._main)

    def _guard(self, block: ir.Block) -> None:
        found: dict[tuple[Value, bool, bool], tuple[Dim, ...]] = {}
        checks: dict[tuple[Dim, Dim], str] = {}
        for operation in [o.operation for o in block.operations]:
            op = view(operation)
            if isinstance(op, Indexing) and self._runs(op):
                use = self._use(op)
                key = use.indices, use.coordinates, use.from_zero
                if not use.sizes or self._is_within(use):
                    continue
                if key not in found:
                    found[key] = self._reaches(use)
                self._compare(use, found[key], checks, in_main=block == self._main)
            for inner in blocks_of(operation):
                self._guard(inner)
        self.checks[block] = [(a, b, text) for (a, b), text in checks.items()]

    def _runs(self, op: Indexing) -> bool:
        """Whether the op is executed, and not followed as shape arithmetic only."""
        return op.y in self._sources or self._analysis.content(op.y) is None

    def _use(self, op: Indexing) -> _Use:
        shape = self._analysis.shape(op.x)
        if isinstance(op, MaxUnpool):
            return _Use(op, self._source(op.indices), (product(op.natural(shape)),), from_zero=True)
        if isinstance(op, Cumulative):
            return _Use(op, self._source(op.axis), (len(shape),))
        if isinstance(op, ReverseSequence):
            lengths, steps = self._source(op.lengths), shape[op.time_axis]
            return _Use(op, lengths, (steps + 1,), from_zero=True)
        if isinstance(op, GatherND | ScatterND):
            first = op.batch_dims if isinstance(op, GatherND) else 0
            depth = self._analysis.shape(op.indices)[-1]
            assert isinstance(depth, int)
            sizes = shape[first : first + depth]
            if len(set(sizes)) != 1:
                return _Use(op, op.indices, sizes, coordinates=True)
            return _Use(op, self._source(op.indices), sizes[:1])
        return _Use(op, self._source(op.indices), (shape[op.axis % len(shape)],))

    def _source(self, indices: Value) -> Value:
        """The value whose elements all are indices, behind ops that only arrange them."""
        op = _maker(indices)
        while op is not None and (op.NAME in VIEWS or isinstance(op, Transpose | Expand)):
            if isinstance(op, Expand) and not self._is_positive(op.y):
                return indices
            indices = op.operands[0]
            op = _maker(indices)
        return indices

    def _is_positive(self, value: Value) -> bool:
        return all(known_nonnegative(d - 1) for d in self._analysis.shape(value))

    # -- what is known --------------------------------------------------------------------------

    def _is_within(self, use: _Use) -> bool:
        """Whether the indices are places that an op has found on axes of those sizes."""
        op = _maker(use.indices)
        if use.coordinates:
            if not isinstance(op, Transpose) or op.perm != (1, 0):
                return False
            source = _maker(op.x)
            return isinstance(source, NonZero) and self._analysis.shape(source.x) == use.sizes
        limit = self._limit(op, use.indices)
        return limit is not None and known_nonnegative(use.sizes[0] - limit)

    def _limit(self, op: Any, value: Value) -> Dim | None:
        """What all elements, which are not negative, are below."""
        if isinstance(op, ArgExtreme) or (isinstance(op, TopK) and value == op.indices):
            return self._analysis.shape(op.x)[op.axis]
        if isinstance(op, Leading):
            source = _maker(op.x)
            if isinstance(source, FindUnique) and op.x == source.first:
                return self._analysis.shape(source.first)[0]
        if isinstance(op, Range):
            start, delta = (self._analysis.content(v) for v in (op.start, op.delta))
            return self._analysis.shape(op.y)[0] if (start, delta) == ((0,), (1,)) else None
        return None

    # -- what is found out ----------------------------------------------------------------------

    def _reaches(self, use: _Use) -> tuple[Dim, ...]:
        """The greatest reach of the indices of each axis; -1 of none."""
        constant = const_of(use.indices)
        if constant is not None:
            array = constant.array(self._module.weights)
            rows = array.reshape(-1, len(use.sizes)).astype(np.int64)
            reaches = np.maximum(rows, np.where(rows < 0, FAR, -1) if use.from_zero else -1 - rows)
            return tuple(int(r) for r in reaches.max(0, initial=-1))
        content = None if use.coordinates else self._analysis.content(use.indices)
        if content is not None and not use.from_zero:
            return (maximum(-1, *(each for i in content for each in (i, -1 - i))),)
        with ir.InsertionPoint(use.op.operation), use.op.location:
            value = _Written(self._module).reach(use)
        found = self._analysis.elements(value)
        assert found is not None and len(found) == len(use.sizes)
        return tuple(maximum(reach, -1) for reach in found)

    def _compare(
        self,
        use: _Use,
        reaches: tuple[Dim, ...],
        checks: dict[tuple[Dim, Dim], str],
        *,
        in_main: bool,
    ) -> None:
        node = describe(use.op.location)
        what = _WHAT.get(type(use.op), "an index")
        text = f"{what} of node '{node}' is out of range" if node else f"{what} is out of range"
        for size, reach in zip(use.sizes, reaches, strict=True):
            spare = size - 1 - reach
            if isinstance(spare, int) and spare < 0 and in_main:
                message = f"{what} is out of range for an axis of {size} elements"
                raise CompileError("XC2013", message, node=node)
            if not known_nonnegative(spare):
                checks.setdefault((minimum(spare, 0), 0), text)


class _Written(Composer):
    """Writes ops at the insertion point."""

    def __init__(self, module: Module) -> None:
        self._module = module

    def make(self, cls: type[NnOp], **fields: Any) -> Value:
        """The one result of a new op."""
        return cls.create(**fields).operation.results[0]

    def constant(self, array: np.ndarray) -> Value:
        """A new constant."""
        return Const.from_array(array, self._module.weights).y

    def reach(self, use: _Use) -> Value:
        """The greatest reach of all indices, or of each axis of coordinates; the least number of none."""
        indices = use.indices if rank_of(use.indices) else self.unsqueeze(use.indices, 0)
        if use.from_zero:
            indices = self.cast(indices, "i64")
            reach = self.where(self.less(indices, 0), FAR, indices)
        else:
            reach = self.binary(Maximum, indices, self.binary(Sub, -1, indices))
        axes = tuple(range(rank_of(indices) - use.coordinates))
        return self.make(ReduceMax, x=reach, axes=axes, keepdims=False)


def _maker(value: Value) -> Any:
    return None if isinstance(value.owner, ir.Block) else view(value.owner)
