"""What kernels in branches and loops compute: of the branch that was taken, and in the last iteration."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from xcompile.compiler.diff.native import NativeInterpreter, NativeKernel
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Value
from xcompile.dialects.kernel import Launch
from xcompile.dialects.kernel_interpreter import KernelInterpreter


@dataclass(frozen=True)
class Seen:
    """A launch as it was done.

    Attributes:
        inputs: its operands.
        sizes: what the kernel's d0, d1, … were.
        results: what it gave.
    """

    inputs: Sequence[np.ndarray]
    sizes: Mapping[str, int]
    results: Sequence[np.ndarray]


class WatchedChain(NativeInterpreter):
    """Runs compiled kernels in a row, and keeps the launches inside branches and loops, each as it was last done.

    Attributes:
        seen: these launches, in the order in which they were first done.
    """

    def __init__(
        self, module: Module, inputs: Sequence[np.ndarray], kernels: Mapping[str, NativeKernel]
    ) -> None:
        super().__init__(module, inputs, kernels)
        self.seen: dict[Launch, Seen] = {}

    def launch(self, op: Launch, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        results = super().launch(op, inputs)
        if op.operation.block != self.module.main.regions[0].blocks[0]:
            self.seen[op] = Seen(inputs, self.bindings(op), results)
        return results


def expected_inside(
    module: Module,
    inputs: Sequence[np.ndarray],
    operation: ir.Operation,
    used: Mapping[Value, np.ndarray],
    sizes: Mapping[str, int],
) -> dict[Launch, list[np.ndarray]]:
    """What the launches inside a branch or loop give by the reference, each as it is last done.

    Args:
        module: at the kernel level.
        inputs: the arguments of `@main`.
        operation: the branch or loop.
        used: the values around it.
        sizes: the symbols that are known there.
    """
    reference = _Reference(module, inputs)
    reference.sizes.update(sizes)
    reference.execute(operation, dict(used))
    return reference.given


class _Reference(KernelInterpreter):
    def __init__(self, module: Module, inputs: Sequence[np.ndarray]) -> None:
        super().__init__(module, inputs)
        self.given: dict[Launch, list[np.ndarray]] = {}

    def launch(self, op: Launch, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        self.given[op] = super().launch(op, inputs)
        return self.given[op]
