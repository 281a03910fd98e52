"""Where the nodes of a graph are converted: a block, or the branches of an If that are kept apart there."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from xcompile.compiler.ir.op import Value
from xcompile.compiler.ir.regions import Body
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.base import rank_of
from xcompile.frontends.onnx.graph import Node
from xcompile.frontends.onnx.sequences import Known, PackedSequence, TensorSequence


@dataclass
class Place:
    """Where nodes are converted.

    Attributes:
        body: the block, when it is a branch's; else the insertion point of whoever converts.
        outer: the place around the branch.
        values: the values that were made here.
        fork: the branches that are kept apart at the end of the block.
        wrong: why this is no place: what stands in the branch contradicts itself.
    """

    body: Body | None = None
    outer: "Place | None" = None
    values: dict[int, Known] = field(default_factory=dict[int, Known])
    fork: "Fork | None" = None
    wrong: CompileError | None = None

    def has(self, number: int) -> bool:
        """Whether a value was made here or in the branches here."""
        return number in self.values or (self.fork is not None and self.fork.has(number))

    def numbers(self) -> dict[int, None]:
        """All values that were made here or in the branches here, in order."""
        found = dict.fromkeys(self.values)
        for side in () if self.fork is None else self.fork.sides:
            found.update(side.numbers())
        return found

    def leaves(self) -> "Iterator[Place]":
        """The places that are not forked: itself, or those in its branches that mean something."""
        if self.wrong is not None:
            return
        if self.fork is None:
            yield self
        else:
            for side in self.fork.sides:
                yield from side.leaves()


@dataclass
class Fork:
    """The two branches of an If that is not built yet."""

    node: Node
    cond: Value
    sides: tuple[Place, Place]

    def has(self, number: int) -> bool:
        return any(side.has(number) for side in self.sides)


def form(value: Known) -> tuple[object, ...]:
    """What must be the same of a value in all branches, besides the dtype."""
    if isinstance(value, PackedSequence):
        return PackedSequence, value.rank
    if isinstance(value, TensorSequence):
        return TensorSequence, *map(rank_of, value.items)
    return Value, rank_of(value)
