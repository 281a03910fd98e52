"""nn-tabulate-bytes: what turns bytes into bytes becomes a table of 256 of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.op import Op, Value, view
from xcompile.compiler.ir.passes import PassContext, PatternPass
from xcompile.compiler.ir.rewrite import Pattern, Rewriter, no_match
from xcompile.dialects.nn.base import NnOp, dtype_of, numpy_dtype
from xcompile.dialects.nn.const import Const, const_of
from xcompile.dialects.nn.kinds import is_elementwise
from xcompile.dialects.nn.lookup import ENTRIES, Lookup
from xcompile.dialects.nn.quantize import Quantization
from xcompile.passes.common.constants import constant

_CHEAP = frozenset(
    f"nn.{name}"
    for name in ("add", "sub", "mul", "maximum", "minimum", "relu", "clip", "cast", "lookup", "neg")
)
_FUNCTION_WORK = 4
"""Of functions, divisions, quantization, in cheap ops."""

MOST_OPS = 96
"""So many ops behind each other are looked at."""


@dataclass
class _Sources:
    """Of values, the 8-bit tensors that each element follows from, at its place.

    Attributes:
        known: what was found: None for what follows from something else.
        depth: of ops that are being followed.
    """

    known: dict[Value, frozenset[Value] | None] = field(
        default_factory=dict[Value, "frozenset[Value] | None"]
    )
    depth: int = 0

    def of(self, value: Value) -> frozenset[Value] | None:
        """None of them for a number, one at most; a byte that follows from more follows from itself."""
        if value not in self.known:
            found = self._look(value)
            if _is_byte(value) and (found is None or len(found) > 1):
                found = frozenset({value})
            self.known[value] = found
        return self.known[value]

    def _look(self, value: Value) -> frozenset[Value] | None:
        if _is_number(value):
            return frozenset()
        op = _function(value)
        if op is None or self.depth >= MOST_OPS:
            return None
        self.depth += 1
        parts = [self.of(v) for v in _elements(op)]
        self.depth -= 1
        if any(part is None for part in parts):
            return None
        found = frozenset[Value]().union(*(part for part in parts if part is not None))
        return found if all(_shape(v) == _shape(value) for v in found) else None


def _ops_between(source: Value, value: Value) -> list[Op]:
    """The ops that make a value of its source, in an order in which they can be evaluated."""
    found = dict[Value, Op]()

    def visit(value: Value) -> None:
        op = _function(value)
        if value == source or value in found or op is None:
            return
        for operand in _elements(op):
            visit(operand)
        found[value] = op

    visit(value)
    return list(found.values())


def _function(value: Value) -> Op | None:
    """The op that makes each element of the value from those at its place."""
    op = None if isinstance(value.owner, ir.Block) else view(value.owner)
    if op is None or not op.PURE or len(op.results) != 1:
        return None
    if isinstance(op, Quantization):
        return op if op.per_tensor(op.scale) else None
    return op if is_elementwise(op.NAME) else None


def _work(ops: list[Op]) -> int:
    """About how many instructions the ops take for a vector."""
    return sum(1 if op.NAME in _CHEAP else _FUNCTION_WORK for op in ops)


def _elements(op: Op) -> Sequence[Value]:
    """The operands of which an element of the result takes that at its place: all but a table."""
    return [op.x] if isinstance(op, Lookup) else op.operands


def _is_number(value: Value) -> bool:
    """Whether the value is a constant with the same number everywhere."""
    made = const_of(value)
    return made is not None and (made.splat or made.dims == (1,) * len(made.dims))


def _is_byte(value: Value) -> bool:
    return dtype_of(value) in ("i8", "ui8")


def _shape(value: Value) -> list[int]:
    return list(ir.RankedTensorType(value.type).shape)


class Tabulate(Pattern[NnOp]):
    """Ops from 8-bit integers to 8-bit integers that work on each element with the same numbers.

    The table holds what their references give.

        %1 = "nn.dequantize"(%x, %scale, %zero) {to = "f32"} : (tensor<4xui8>) -> tensor<4xf32>
        %2 = "nn.sigmoid"(%1)
        %3 = "nn.quantize"(%2, %scale2, %zero2) {to = "ui8"}
    ->
        %3 = "nn.lookup"(%x, %table)
    """

    def __init__(self, least: int) -> None:
        self._least = least

    def rewrite(self, op: NnOp, rewriter: Rewriter) -> None:
        if isinstance(op, Lookup | Const) or len(op.results) != 1 or not _is_byte(op.results[0]):
            no_match("")
        result = op.results[0]
        sources = _Sources().of(result) or frozenset()
        if len(sources) != 1 or result in sources:
            no_match("it depends on more than the bytes of one tensor")
        (source,) = sources
        ops = _ops_between(source, result)
        work = _work(ops)
        if work < self._least:
            no_match(f"it is less work than a table: {work}, not {self._least}")
        table = _table(source, ops, rewriter)
        if (table == table[0]).all():
            no_match("it is the same for all bytes")
        rewriter.replace(op, rewriter.create(Lookup, x=source, table=constant(rewriter, table)))


def _table(source: Value, ops: list[Op], rewriter: Rewriter) -> np.ndarray:
    """What the last op gives for each byte."""
    known: dict[Value, Any] = {source: np.arange(ENTRIES, dtype=np.uint8).view(numpy_dtype(source))}

    def read(op: Op, value: Value | None) -> Any:
        if value is None or value in known:
            return None if value is None else known[value]
        made = const_of(value)
        assert made is not None
        array = made.array(rewriter.weights)
        return array.reshape(-1)[0].reshape(()) if value in _elements(op) else array

    array = known[source]
    for op in ops:
        assert isinstance(op, NnOp)
        with np.errstate(all="ignore"):
            array = op.reference(*[read(op, v) for v in op.operand_fields().values()])
        known[op.results[0]] = array
    return array


@dataclass(frozen=True)
class TabulateBytes(PatternPass):
    """Write functions from 8-bit integers to 8-bit integers as tables.

    Attributes:
        work: so many cheap ops, or what takes as long, a table must replace.
    """

    NAME: ClassVar[str] = "nn-tabulate-bytes"

    work: int = 10

    def patterns(self, context: PassContext) -> list[Pattern[Any]]:
        return [Tabulate(self.work)]
