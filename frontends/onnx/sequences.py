"""Sequences of tensors while a model is imported: afterwards there are only tensors.

A sequence whose length is known is the list of its tensors. One whose length only a run knows, such as one that a loop
grows, is two tensors: see `packed.py` for what is done with these.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.op import Value
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.base import dtype_of


@dataclass(frozen=True)
class TensorSequence:
    """The tensors of a sequence, in order.

    Attributes:
        items: the tensors.
        dtype: their element type, which an empty sequence has too.
    """

    items: tuple[Value, ...]
    dtype: str


@dataclass
class RankGuess:
    """What rank the tensors of a sequence have that was empty when a loop began.

    Attributes:
        rank: the number of axes that is tried.
        proven: whether a tensor of that rank was inserted.
        read: whether a tensor was taken out.
    """

    rank: int
    proven: bool = False
    read: bool = False


@dataclass(frozen=True)
class PackedSequence:
    """A sequence of tensors of one rank, as many as a run makes.

    Attributes:
        elements: the elements of all tensors, one tensor behind the other (a vector).
        shapes: a row of sizes for each tensor (int64).
        guess: whose rank it has, when that is not certain.
    """

    elements: Value
    shapes: Value
    guess: RankGuess | None = None

    @property
    def dtype(self) -> str:
        """The element type of the tensors."""
        return dtype_of(self.elements)

    @property
    def rank(self) -> int:
        """The number of axes of each tensor."""
        return ir.ShapedType(self.shapes.type).shape[1]


AnySequence = TensorSequence | PackedSequence
Known = Value | AnySequence
"""What an ONNX value is: a tensor, or a sequence of tensors."""


class OtherRank(CompileError):
    """A tensor of another rank than was guessed for its sequence.

    Attributes:
        guess: the guess.
        found: the rank of the tensor.
    """

    def __init__(self, guess: RankGuess, found: int, node: str) -> None:
        message = f"a sequence holds tensors of rank {guess.rank} and {found}; they must have one"
        super().__init__("XC2003", message, node=node)
        self.guess = guess
        self.found = found


def tensors_of(value: Known) -> tuple[Value, ...]:
    """The tensors that a value consists of."""
    if isinstance(value, TensorSequence):
        return value.items
    if isinstance(value, PackedSequence):
        return value.elements, value.shapes
    return (value,)


def made_of(tensors: Iterator[Value], like: Known) -> Known:
    """A value like another one of the next tensors: the inverse of `tensors_of`."""
    if isinstance(like, TensorSequence):
        return TensorSequence(tuple(next(tensors) for _ in like.items), like.dtype)
    if isinstance(like, PackedSequence):
        return PackedSequence(next(tensors), next(tensors), like.guess)
    return next(tensors)
