"""The only place that makes MLIR contexts.

A context with multithreading on deadlocks with Python-defined ops, and one without our dialects can't read our
text: `context()` gives one that is right. Making one costs about 10 ms and the dialects as much again, so reuse it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from torch_mlir import ir
from torch_mlir.dialects import irdl

from xcompile.compiler.ir.op import Dialect


def new_context() -> ir.Context:
    """An MLIR context without threads, with every dialect that has been declared so far."""
    made = ir.Context()
    made.enable_multithreading(False)
    with made, ir.Location.unknown():
        for dialect in Dialect.declared():
            irdl.load_dialects(ir.Module.parse(dialect.irdl()))
            for op in dialect.ops.values():
                if op.TERMINATOR:
                    ir.IsTerminatorTrait.attach(op.NAME)
                if op.ISOLATED:
                    ir.IsIsolatedFromAboveTrait.attach(op.NAME)
    return made


@contextmanager
def context() -> Iterator[ir.Context]:
    """Enter a new context and an unknown default location."""
    with new_context() as made, ir.Location.unknown():
        yield made
