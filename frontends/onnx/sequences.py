"""Sequences of tensors whose length is known: they are gone when the model is imported."""

from dataclasses import dataclass

from xcompile.compiler.ir.op import Value


@dataclass(frozen=True)
class TensorSequence:
    """The tensors of a sequence, in order."""

    items: tuple[Value, ...]
