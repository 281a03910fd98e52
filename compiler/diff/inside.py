"""What kernels in branches and loops compute: in the branch that was taken, in the first iteration that is wrong."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from xcompile.compiler.diff.native import NativeInterpreter, NativeKernel
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Value
from xcompile.compiler.numerics.compare import Allowed, mismatch
from xcompile.compiler.numerics.recording import Recording
from xcompile.dialects.kernel import Launch
from xcompile.dialects.kernel_interpreter import KernelInterpreter


@dataclass(frozen=True)
class Seen:
    """A launch as it was done.

    Attributes:
        inputs: its operands.
        sizes: what the kernel's d0, d1, … were.
        results: what it gave.
        wrong: what is wrong with each of these for these operands; "" for those that are right.
        rounding: the differences that count as right.
        run: how often it had been done before.
    """

    inputs: Sequence[np.ndarray]
    sizes: Mapping[str, int]
    results: Sequence[np.ndarray]
    wrong: Sequence[str]
    rounding: Allowed
    run: int

    def where(self, runs: int) -> str:
        """The end of a text about what is wrong: in which of several runs."""
        return f", in run {self.run + 1} of {runs}" if runs > 1 else ""


class WatchedChain(NativeInterpreter):
    """Runs compiled kernels in a row, and keeps the launches inside branches and loops.

    Attributes:
        seen: these launches, in the order in which they were first done; each as it was first wrong, or else as it was
            done last.
        runs: how often each was done.
    """

    def __init__(self, recording: Recording, kernels: Mapping[str, NativeKernel]) -> None:
        super().__init__(recording.module, recording.inputs, kernels)
        self._recording = recording
        self.seen: dict[Launch, Seen] = {}
        self.runs: Counter[Launch] = Counter()

    def launch(self, op: Launch, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        results = super().launch(op, inputs)
        if op.operation.block != self.module.main.regions[0].blocks[0]:
            before = self.seen.get(op)
            if before is None or not any(before.wrong):
                self.seen[op] = self._compared(op, inputs, results)
            self.runs[op] += 1
        return results

    def _compared(
        self, op: Launch, inputs: Sequence[np.ndarray], results: Sequence[np.ndarray]
    ) -> Seen:
        sizes = self.bindings(op)
        exact, rounding = self._recording.launched(op, inputs, sizes)
        wrong = [mismatch(*pair, rounding) or "" for pair in zip(results, exact, strict=True)]
        return Seen(inputs, sizes, results, wrong, rounding, self.runs[op])

    def forget(self) -> None:
        """Begin anew, for the next branch or loop."""
        self.seen.clear()
        self.runs.clear()


def expected_inside(
    recording: Recording,
    operation: ir.Operation,
    used: Mapping[Value, np.ndarray],
    sizes: Mapping[str, int],
    runs: Mapping[Launch, int],
) -> dict[Launch, list[np.ndarray]]:
    """What launches inside a branch or loop give by the reference.

    Args:
        recording: of the module at the kernel level.
        operation: the branch or loop.
        used: the values around it.
        sizes: the symbols that are known there.
        runs: which run of each launch is wanted.
    """
    reference = _Reference(recording.module, recording.inputs, runs)
    reference.sizes.update(sizes)
    reference.execute(operation, dict(used))
    return reference.given


class _Reference(KernelInterpreter):
    def __init__(
        self, module: Module, inputs: Sequence[np.ndarray], wanted: Mapping[Launch, int]
    ) -> None:
        super().__init__(module, inputs)
        self._wanted = wanted
        self._runs: Counter[Launch] = Counter()
        self.given: dict[Launch, list[np.ndarray]] = {}

    def launch(self, op: Launch, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        results = super().launch(op, inputs)
        if self._wanted.get(op) == self._runs[op]:
            self.given[op] = results
        self._runs[op] += 1
        return results
