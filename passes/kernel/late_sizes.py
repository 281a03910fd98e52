"""Sizes that a run finds out: which tensors it reads, and when the sizes that depend on them are known."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Op, Value, view
from xcompile.compiler.ir.regions import blocks_of, nested
from xcompile.compiler.support.dims import Dim, symbols_of
from xcompile.dialects.kernel import Check, Define, Read
from xcompile.dialects.nn.base import rank_of
from xcompile.dialects.nn.kinds import SIZE_OPERANDS
from xcompile.dialects.nn.shapes import ShapeAnalysis
from xcompile.passes.kernel.index_checks import IndexChecks


def operand_roles(op: Op, analysis: ShapeAnalysis) -> list[tuple[Value, bool]]:
    """Each operand, and whether it only says sizes or places that are known."""
    sized: set[int] = set()
    position = 0
    for name, value in op.operand_fields().items():
        values: list[Value] = value if isinstance(value, list) else [] if value is None else [value]
        count = len(values)
        content = analysis.content(values[0]) if count == 1 else None
        is_size = name in SIZE_OPERANDS.get(op.NAME, ()) and content is not None
        if is_size and (name != "dynamic_axes" or all(isinstance(d, int) for d in content or ())):
            sized.add(position)
        position += count
    return [(v, i in sized) for i, v in enumerate(op.operands)]


@dataclass
class _Waiting:
    """An op that is written when no symbol is missing any more."""

    missing: set[str]
    op: type[Define | Check]
    fields: dict[str, str]


class LateSizes:
    """Writes `kernel.read`, `kernel.define` and `kernel.check`, each as soon as what it needs is there.

    Attributes:
        read: the values that are read, with the symbol of each of their elements ("" where nothing depends on it).
    """

    def __init__(self, module: Module, analysis: ShapeAnalysis) -> None:
        self._analysis = analysis
        self._index_checks = IndexChecks(module, analysis).checks
        self._sources = {reading.value for reading in analysis.readings.values()}
        needed = self._needed(module)
        self.read: dict[Value, list[str]] = {}
        for name, reading in analysis.readings.items():
            if name in needed:
                words = self.read.setdefault(reading.value, [""] * _length(analysis, reading.value))
                words[reading.index] = name
        self._opened = analysis.opened
        self._late = {*analysis.readings, *analysis.definitions, *self._opened.values()}
        self._known: set[str] = set()
        self._waiting: list[_Waiting] = []
        for name, dim in analysis.definitions.items():
            if name in needed:
                fields = {"symbol": name, "dim": str(dim)}
                self._waiting.append(_Waiting(self._late & {*symbols_of(dim)}, Define, fields))
        self._check_later(analysis.late_constraints)

    def is_known(self, op: Op) -> bool:
        """Whether the op's result is sizes only, and can be written down without computing it."""
        if len(op.results) != 1 or op.results[0] in self._sources:
            return False
        return self._analysis.content(op.results[0]) is not None

    def _is_written_down(self, value: Value) -> bool:
        """Whether a tensor is sizes only, which a kernel of no operands writes."""
        op = None if isinstance(value.owner, ir.Block) else view(value.owner)
        return op is not None and self.is_known(op)

    def _needed(self, module: Module) -> set[str]:
        """The symbols that sizes and places of the program depend on, directly or through others."""
        analysis, checks = self._analysis, self._index_checks
        found: set[str] = set()
        pending: list[Dim] = [d for a, b, _ in analysis.late_constraints for d in (a, b)]
        pending += [d for each in checks.values() for a, b, _ in each for d in (a, b)]
        for operation in nested(module.main.operation):
            op = view(operation)
            if op is None:
                continue
            for block in blocks_of(operation):
                pending += [d for a, b, _ in analysis.constraints_in(block) for d in (a, b)]
                pending += [d for argument in block.arguments for d in analysis.shape(argument)]
            pending += [d for result in op.results for d in analysis.shape(result)]
            for value, is_size in operand_roles(op, analysis):
                if is_size or self._is_written_down(value):
                    pending += analysis.content(value) or ()
        while pending:
            for name in symbols_of(pending.pop()):
                if name not in found:
                    found.add(name)
                    pending += [analysis.definitions[name]] if name in analysis.definitions else []
        return found

    def _check_later(self, checks: Iterable[tuple[Dim, Dim, str]]) -> None:
        for left, right, text in checks:
            fields = {"left": str(left), "right": str(right), "text": text}
            missing = (self._late - self._known) & {*symbols_of(left), *symbols_of(right)}
            self._waiting.append(_Waiting(missing, Check, fields))

    def begin(self, block: ir.Block) -> None:
        """Write what can be known when the block begins."""
        self._check_later(self._analysis.constraints_in(block))
        self._check_later(self._index_checks[block])
        self.bound(block.arguments)
        for argument in block.arguments:
            self.read_if_needed(argument, argument)

    def bound(self, values: Sequence[Value]) -> None:
        """Write what can be known now that an op with regions has given sizes to results or arguments."""
        axes = [(v, axis) for v in values for axis in range(rank_of(v))]
        self._write_ready([self._opened[each] for each in axes if each in self._opened])

    def read_if_needed(self, value: Value, new: Value) -> None:
        """Write what follows a value: it is `new` in the outlined program."""
        symbols = self.read.get(value)
        if symbols is None:
            return
        Read.build({"x": new, "symbols": tuple(symbols)}, [])
        self._write_ready(symbols)

    def _write_ready(self, known: Iterable[str]) -> None:
        """Write the definitions and checks that wait for nothing but these symbols."""
        fresh = set(known)
        while True:
            self._known |= fresh
            for waiting in self._waiting:
                waiting.missing.difference_update(fresh)
            ready = [w for w in self._waiting if not w.missing]
            if not ready:
                return
            self._waiting = [w for w in self._waiting if w.missing]
            for waiting in ready:
                waiting.op.build(waiting.fields, [])
            fresh = {w.fields["symbol"] for w in ready if w.op is Define}


def _length(analysis: ShapeAnalysis, value: Value) -> int:
    return len(analysis.content(value) or ())
