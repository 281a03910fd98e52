"""The only place that makes MLIR contexts.

A context with multithreading on deadlocks with Python-defined ops, and one without our dialects can't read our
text: `context()` gives one that is right. Making one costs about 10 ms, so reuse it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from torch_mlir import ir


def new_context() -> ir.Context:
    """An MLIR context without threads that takes our dialects' ops, which only Python knows."""
    made = ir.Context()
    made.enable_multithreading(False)
    made.allow_unregistered_dialects = True
    return made


@contextmanager
def context() -> Iterator[ir.Context]:
    """Enter a new context and an unknown default location."""
    with new_context() as made, ir.Location.unknown():
        yield made
