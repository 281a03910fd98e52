"""The end of every kernel family: what is done with a finished accumulator."""

from collections.abc import Sequence
from typing import Protocol

from xcompile.compiler.codegen.cpu.builder import Builder, Index, Value


class Sink(Protocol):
    """The epilogue and the store, given by whoever fuses a family into a kernel.

    A family computes accumulators and never stores to the output itself.
    """

    def __call__(
        self, b: Builder, /, value: Value, at: Sequence[Index], lanes: int, mask: Value | None
    ) -> None:
        """Take one accumulator.

        Args:
            b: where to write the code.
            value: a `vector<{lanes}xf32>`.
            at: the logical index in the output of lane 0.
            lanes: the length of the vector; lanes follow each other along the family's lane axis.
            mask: a `vector<{lanes}xi1>` of the lanes that exist in the output, or None when all do.
        """
        ...
