"""What a loop carries: tensors, and sequences, each of which is two tensors.

The tensors of a sequence have one rank. Where it is empty when the loop begins, nothing says which: one is guessed, the
body is made, and where that inserts a tensor of another rank, or means nothing, another one is tried. What is true of a
rank for which the body is right is true of every run, since each tensor in the sequence was inserted by the body.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeVar

from xcompile.compiler.ir.op import Value
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.base import dtype_of, rank_of
from xcompile.frontends.onnx.context import NodeContext
from xcompile.frontends.onnx.packed import Packing
from xcompile.frontends.onnx.sequences import (
    Known,
    OtherRank,
    PackedSequence,
    RankGuess,
    TensorSequence,
    made_of,
    tensors_of,
)

_MOST_RANK = 8
_MOST_TRIES = 100
Made = TypeVar("Made")


@dataclass(frozen=True)
class Carried:
    """The values that a loop begins with."""

    node: NodeContext
    initial: Sequence[Known]

    @property
    def tensors(self) -> list[Value]:
        """All tensors that are carried."""
        return [tensor for value in self.initial for tensor in tensors_of(value)]

    @property
    def growing(self) -> list[int]:
        """The positions of tensors whose first axis changes whenever a sequence does."""
        ours = [isinstance(v, PackedSequence) for v in self.initial for _ in tensors_of(v)]
        return [i for i, of_sequence in enumerate(ours) if of_sequence]

    def values(self, tensors: Iterator[Value]) -> list[Known]:
        """Values like the initial ones, of the next tensors."""
        return [made_of(tensors, value) for value in self.initial]

    def spread(self, values: Sequence[Known]) -> list[Value]:
        """The tensors of what a body gives for the next iteration.

        Raises:
            CompileError: a sequence where a tensor is carried (XC1012) or the other way round, or of another dtype
                (XC2002), or of tensors of another rank (XC2003).
        """
        return [
            tensor
            for position, pair in enumerate(zip(self.initial, values, strict=True))
            for tensor in self._spread(position, *pair)
        ]

    def _spread(self, position: int, before: Known, after: Known) -> tuple[Value, ...]:
        what = f"the carried value {position}"
        if not isinstance(before, PackedSequence):
            after = self.node.tensor(after, what)
            assert isinstance(before, Value)
            self._check_same(what, before, after)
            return (after,)
        if isinstance(after, Value):
            raise self.node.error("XC2002", f"{what} is a sequence; the body gives a tensor for it")
        packing = Packing(self.node)
        if isinstance(after, TensorSequence) and after.items:
            packing.expect_rank(before, packing.common_rank([after]))
        packed = packing.packed(after, before.rank)
        packing.expect_rank(before, packed.rank)
        if packed.dtype != before.dtype:
            raise self.node.error("XC2002", f"{what} is of {before.dtype} and {packed.dtype}")
        if before.guess is not None and packed.guess is not before.guess:
            before.guess.proven = True
        return tensors_of(packed)

    def _check_same(self, what: str, before: Value, after: Value) -> None:
        """What `Loop` checks too, but before there is a loop of ranks that were guessed."""
        if dtype_of(before) != dtype_of(after):
            text = f"{what} is {dtype_of(before)} and {dtype_of(after)}"
            raise self.node.error("XC2002", text)
        if rank_of(before) != rank_of(after):
            text = f"{what} has {rank_of(before)} and {rank_of(after)} axes"
            raise self.node.error("XC2003", text)


def with_ranks(
    node: NodeContext,
    initial: Sequence[Known],
    build: Callable[[Carried], Made],
    discard: Callable[[Made], None],
) -> Made:
    """What `build` makes of a loop's initial values, with ranks for which that is right.

    Args:
        node: the loop.
        initial: its initial values.
        build: makes the loop.
        discard: drops a loop.

    Raises:
        CompileError: there are no such ranks: the first error of `build`.
    """
    search = _Search(node, initial)
    while True:
        try:
            made = build(search.carried())
        except CompileError as error:
            search.go_on(error)
            continue
        if search.is_right:
            return made
        discard(made)
        search.go_on(node.error("XC2007", "a tensor is taken out of a sequence that is empty"))


class _Search:
    """The ranks that are tried for the empty sequences among the initial values of a loop."""

    def __init__(self, node: NodeContext, initial: Sequence[Known]) -> None:
        self._node, self._initial = node, initial
        empty = [i for i, v in enumerate(initial) if isinstance(v, TensorSequence) and not v.items]
        self._guesses = {i: RankGuess(0) for i in empty}
        self._key = node.name, len(empty)
        self._ranks = node.scope.element_ranks.get(self._key, (0,) * len(empty))
        self._others = product(range(_MOST_RANK + 1), repeat=len(empty))
        self._tried: set[tuple[int, ...]] = set()
        self._first: CompileError | None = None

    def carried(self) -> Carried:
        """The initial values with the ranks that are tried now."""
        for guess, rank in zip(self._guesses.values(), self._ranks, strict=True):
            guess.rank, guess.proven, guess.read = rank, False, False
        return Carried(self._node, [self._packed(i, v) for i, v in enumerate(self._initial)])

    def _packed(self, position: int, value: Known) -> Known:
        if isinstance(value, Value):
            return value
        guess = self._guesses.get(position)
        return Packing(self._node).packed(value, 0 if guess is None else guess.rank, guess)

    @property
    def is_right(self) -> bool:
        """Whether a tensor was inserted wherever one is taken out. Ranks that are right are tried first next time."""
        self._node.scope.element_ranks[self._key] = self._ranks
        return all(guess.proven or not guess.read for guess in self._guesses.values())

    def go_on(self, error: CompileError) -> None:
        """Try other ranks, those that the error tells if it does; raise the first error when there are none left."""
        self._tried.add(self._ranks)
        self._first = self._first or error
        following = self._told(error) if isinstance(error, OtherRank) else self._ranks
        if following is None or not self._guesses or not error.code.startswith("XC2"):
            raise error
        if following in self._tried:
            following = next((r for r in self._others if r not in self._tried), None)
        if following is None or len(self._tried) == _MOST_TRIES:
            raise self._first
        self._ranks = following

    def _told(self, error: OtherRank) -> tuple[int, ...] | None:
        """The ranks with that of the tensor that contradicts one; None when it is another loop's."""
        guesses = list(self._guesses.values())
        if not any(guess is error.guess for guess in guesses):
            return None
        pairs = zip(guesses, self._ranks, strict=True)
        return tuple(error.found if guess is error.guess else rank for guess, rank in pairs)
