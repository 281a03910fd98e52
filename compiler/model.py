"""The compiled model that `xcompile.compile` returns."""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Never

import numpy as np

from xcompile.compiler.artifact import Artifact, NodeStatement
from xcompile.compiler.codegen.cuda.assembler import INSTALL
from xcompile.compiler.precisions import NodePrecision, precisions_of
from xcompile.compiler.support.errors import CompileError
from xcompile.runtime.abi import TensorSpec
from xcompile.runtime.arena import Arena
from xcompile.runtime.device import Device
from xcompile.runtime.executable import Executable


class CompiledModel:
    """A model compiled for this machine and ready to run, or for another one and ready to save.

    Attributes:
        artifact: what the compiler made.
    """

    def __init__(
        self,
        artifact: Artifact,
        *,
        threads: int | None = None,
        device: Device | str | None = None,
    ) -> None:
        self.artifact = artifact
        self._threads = threads
        self._device = device
        self._executable: Executable | None = None

    @property
    def executable(self) -> Executable:
        """The loaded model; loading happens at the first use."""
        if self._executable is None:
            self._executable = self.artifact.load(threads=self._threads, device=self._device)
        return self._executable

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Name, dtype and sizes of each input."""
        return self.artifact.manifest.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Name, dtype and sizes of each output."""
        return self.artifact.manifest.outputs

    @property
    def required(self) -> tuple[TensorSpec, ...]:
        """The inputs that every run needs."""
        return self.artifact.manifest.required

    @property
    def threads(self) -> int:
        """The most parts that one kernel is split into."""
        return self.executable.threads

    def __repr__(self) -> str:
        manifest = self.artifact.manifest
        return f"<CompiledModel for {manifest.target}: {manifest.describe()}>"

    def __call__(self, *arrays: Any, **named: Any) -> np.ndarray | tuple[np.ndarray, ...]:
        """Run on inputs in order or by keyword; the output, or a tuple when the model has several."""
        results = tuple(self.executable(*arrays, **named).values())
        return results[0] if len(results) == 1 else results

    def run(
        self,
        inputs: Mapping[str, Any] | Sequence[Any],
        outputs: Mapping[str, Any] | Sequence[Any] | None = None,
        arena: Arena | None = None,
    ) -> dict[str, np.ndarray]:
        """Run on inputs by name (or in order); the outputs by name. See `Executable.run`."""
        return self.executable.run(inputs, outputs, arena)

    def report(self) -> str:
        """A line for each launch of a kernel: the model's nodes, who emits the kernel, and its schedule.

        For a GPU also what its assembler says of the kernel, or that there was none.
        """
        facts, lines = self.artifact.kernels, list[str]()
        for step in self.artifact.program.launches:
            line = f"{step.node}: {facts[step.symbol].family} {facts[step.symbol].schedule}"
            assembly = self.artifact.assembly.get(step.symbol, {})
            lines.append("; ".join([line, *(f"{arch}: {made}" for arch, made in assembly.items())]))
        if self.artifact.device_code and not self.artifact.assembly:
            lines.append(f"PTX only, as ptxas is not installed ({INSTALL}): the driver compiles it")
        return "\n".join(lines)

    def precisions(self) -> list[NodePrecision]:
        """Which products are of 8-bit integers, which are not, and why; in the order of running."""
        return precisions_of(self.artifact)

    def statements(self) -> list[NodeStatement]:
        """What each node of the model computes in, and why, in the model's order."""
        return list(self.artifact.statements)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model as a shared library that needs neither Python nor this package.

        Raises:
            CompileError: XC7xxx when it cannot be linked or written.
        """
        if not isinstance(path, str | PathLike):  # pyright: ignore[reportUnnecessaryIsInstance]
            what = type(path).__name__
            raise CompileError("XC7001", f"a library is written to a path, not {what}")
        self.artifact.save(Path(path))

    def __reduce__(self) -> Never:
        raise TypeError(
            "a compiled model cannot be pickled: save it, and xcompile.load the library where it is needed"
        )
