"""Where the values of a program lie: with the caller, in the arena, or on the heap of the run.

A value whose size follows from those of the inputs has a place in the arena that is known before the run. One whose
size depends on data is allocated just before it is written, and freed after its last use. What a branch or a loop
gives is written where its result lies; what a loop carries has a second place for the next iteration's value.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from xcompile.compiler.codegen.program import program as rt
from xcompile.compiler.codegen.program.storage import Life, place
from xcompile.compiler.codegen.program.values import Values
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.op import Op, Value, view
from xcompile.compiler.support.dims import Dim
from xcompile.dialects.kernel import Launch
from xcompile.dialects.nn.control import ControlOp, Loop, yielded


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
        for ops in values.ops.values():
            for op in ops:
                self._visit(op)
        self._place()

    @property
    def heap(self) -> int:
        return len(self._heap)

    def place(self, value: Value) -> rt.Place:
        """Where a value that is no constant lies."""
        whole, offset = self._values.whole(value)
        found = self._places[whole].behind(offset)
        part = self._values.inside.get(value)
        return found if part is None else replace(found, rows=part.rows, pitch=part.pitch)

    def slot(self, value: Value) -> int | None:
        """The number of the address of a value on the heap; None for one that lies elsewhere."""
        return self._heap.get(self._values.whole(value)[0])

    def born(self, op: Launch) -> list[tuple[int, Dim]]:
        """The addresses' numbers and sizes of what a launch writes to the heap."""
        slots = [(self.slot(v), v) for v in op.results]
        return [(s, self._values.bytes_of(v)) for s, v in slots if s is not None]

    def dead(self, number: int, block: ir.Block) -> list[int]:
        """The addresses' numbers of the heap values of a block that are not used after a place in the text."""
        return [
            slot
            for v, slot in self._heap.items()
            if self._last[v] == number and block_of_value(v) == block
        ]

    def given(self) -> Sequence[tuple[int, int, Value]]:
        """The outputs on the heap, in order: position, address's number, value."""
        returned = enumerate(self._values.returned)
        based = [(position, self._values.base(value), value) for position, value in returned]
        return [(p, self._heap[base], v) for p, base, v in based if base in self._heap]

    # -- lives ----------------------------------------------------------------------------------

    def _visit(self, op: Op) -> None:
        """Note what an op writes and reads, at its beginning, and what its regions yield, where it ends."""
        number = self._values.numbers[op]
        if not isinstance(op, ControlOp):
            self._use(op.operands, op, number)
            self._use(op.results, op, number, writes=isinstance(op, Launch))
            return
        end = self._values.ends[op]
        self._use(op.operands, op, number)
        self._use(op.results, op, end, writes=isinstance(op, Loop), since=number)
        for block in op.blocks:
            for value in yielded(block) or ():
                self._keep(value, block, end)
            if isinstance(op, Loop):
                whole, _ = self._values.whole(block.arguments[0])
                self._first[whole], self._last[whole] = number, end

    def _use(
        self,
        values: Sequence[Value],
        op: Op,
        number: int,
        *,
        writes: bool = False,
        since: int | None = None,
    ) -> None:
        for value in values:
            self._keep(value, op.operation.block, number)
            if writes:
                whole, _ = self._values.whole(value)
                begin = number if since is None else since
                self._first[whole] = min(self._first.get(whole, begin), begin)

    def _keep(self, value: Value, block: ir.Block, number: int) -> None:
        """A use in a block: values from around it are kept until the branch or loop that holds the block ends."""
        whole, _ = self._values.whole(value)
        own = block_of_value(whole)
        for each in _around(block):
            if each.operation.block == own:
                number = max(number, self._values.ends[each])
                break
        self._last[whole] = max(self._last.get(whole, number), number)

    def _place(self) -> None:
        inner: list[Value] = []
        for value in self._first:
            position = self._outputs.get(value)
            if self._values.is_late(value):
                self._places[value] = rt.Place("heap", 0, len(self._heap))
                self._heap[value] = len(self._heap)
                if position is not None:
                    self._last[value] = self._values.past
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


def _around(block: ir.Block) -> Iterator[ControlOp]:
    """The branches and loops around a block, the innermost first."""
    while isinstance(op := view(block.owner), ControlOp):
        yield op
        block = op.operation.block


def block_of_value(value: Value) -> ir.Block:
    """The block in which a value is made."""
    return value.owner if isinstance(value.owner, ir.Block) else value.owner.operation.block
