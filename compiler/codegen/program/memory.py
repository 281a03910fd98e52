"""Where the values of a program lie: with the caller, in the arena, or on the heap of the run.

A value whose size follows from those of the inputs has a place in the arena that is known before the run. One whose
size depends on data is allocated just before it is written, and freed after its last use.
"""

from collections.abc import Sequence
from dataclasses import replace

from xcompile.compiler.codegen.program import program as rt
from xcompile.compiler.codegen.program.storage import Life, place
from xcompile.compiler.codegen.program.values import Values
from xcompile.compiler.ir.op import Op, Value
from xcompile.compiler.support.dims import Dim
from xcompile.dialects.kernel import Launch


class Memory:
    """The place of each value.

    Attributes:
        arena: bytes of the arena.
        definitions: symbols that its offsets use, each with its meaning.
        heap: how many values the heap holds.
    """

    def __init__(self, values: Values) -> None:
        self._values = values
        self._outputs: dict[Value, int] = {}
        self._heap: dict[Value, int] = {}
        self._places: dict[Value, rt.Place] = {
            a: rt.Place("input", i) for i, a in enumerate(values.arguments)
        }
        for position, value in enumerate(values.returned):
            self._outputs[values.base(value)] = position
        self._first: dict[Value, int] = {}
        self._last: dict[Value, int] = {}
        for number, op in enumerate(values.ops):
            self._visit(op, number)
        self._place()

    @property
    def heap(self) -> int:
        return len(self._heap)

    def place(self, value: Value) -> rt.Place:
        """Where a value that is no constant lies."""
        whole, offset = self._values.whole(value)
        found = self._places[whole]
        return found if offset == 0 else replace(found, offset=found.offset + offset)

    def born(self, op: Op, number: int) -> list[tuple[int, Dim]]:
        """The heap values that an op is the first to write: their addresses' numbers and sizes."""
        return [
            (self._heap[v], self._values.bytes_of(v))
            for v in op.results
            if v in self._heap and self._first[v] == number
        ]

    def dead(self, number: int) -> list[int]:
        """The addresses' numbers of the heap values that are not used after an op."""
        return [slot for v, slot in self._heap.items() if self._last[v] == number]

    def given(self) -> Sequence[tuple[int, int, Value]]:
        """The outputs on the heap, in order: position, address's number, value."""
        returned = enumerate(self._values.returned)
        based = [(position, self._values.base(value), value) for position, value in returned]
        return [(p, self._heap[base], v) for p, base, v in based if base in self._heap]

    def _visit(self, op: Op, number: int) -> None:
        for value in (*op.operands, *op.results):
            whole, _ = self._values.whole(value)
            self._last[whole] = number
            if isinstance(op, Launch) and value in op.results:
                self._first.setdefault(whole, number)

    def _place(self) -> None:
        inner: list[Value] = []
        for value in self._first:
            position = self._outputs.get(value)
            if self._values.is_late(value):
                self._places[value] = rt.Place("heap", 0, len(self._heap))
                self._heap[value] = len(self._heap)
                if position is not None:
                    self._last[value] = len(self._values.ops)
            elif position is not None:
                self._places[value] = rt.Place("output", position)
            else:
                inner.append(value)
        lives = [Life(self._values.bytes_of(v), self._first[v], self._last[v]) for v in inner]
        layout = place(lives)
        self.arena, self.definitions = layout.total, layout.definitions
        self._places.update(
            (v, rt.Place("arena", offset, value=number))
            for number, (v, offset) in enumerate(zip(inner, layout.offsets, strict=True))
        )
