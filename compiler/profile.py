"""What a compiled model spends its time on: `xcompile profile`.

The model runs as it always does. Only its runs are told of another function that makes launches, which notes when each
part of each begins and ends (`runtime/profile.py`). A saved library has a section that says what its launches are,
which is not loaded when it runs. FLOPs count a
multiplication and an addition as two; bytes are those of operands and results, once.
"""

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xcompile.compiler.api import compile as compile_model
from xcompile.compiler.artifact import Artifact
from xcompile.compiler.codegen.program.launch_table import LaunchTable
from xcompile.compiler.fallback import ENGINE, MixedModel, Native, Session
from xcompile.compiler.model import CompiledModel
from xcompile.compiler.peak import Peak, measure_peak
from xcompile.compiler.profile_report import Profile, Row, Span
from xcompile.compiler.support.dims import Dim, evaluate
from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.target.host import host_target
from xcompile.runtime import native_library
from xcompile.runtime.elf_image import all_symbols
from xcompile.runtime.executable import Executable
from xcompile.runtime.library import load
from xcompile.runtime.profile import record

if TYPE_CHECKING:
    import onnx

_WHOLE = -1
"""The part of the event that is a launch as its caller sees it."""


def profile(
    model: "str | PathLike[str] | bytes | onnx.ModelProto",
    inputs: Mapping[str, Any] | Sequence[Any],
    *,
    repeats: int = 9,
    **arguments: Any,
) -> Profile:
    """Compile a model, run it, and say how long each launch takes.

    Args:
        model: an ONNX model: a path, the bytes of a file, or a parsed `ModelProto`.
        inputs: arrays by name or in order.
        repeats: how many runs are measured, after one that is not.
        arguments: those of `xcompile.compile`.

    Raises:
        CompileError: the model cannot be compiled for this machine.
        RuntimeModelError: it does not take the inputs.
    """
    _check_repeats(repeats)
    return measure_model(compile_model(model, **arguments), inputs, repeats=repeats)


def measure_model(
    model: CompiledModel, inputs: Mapping[str, Any] | Sequence[Any], *, repeats: int = 9
) -> Profile:
    """Run a model some times and record its launches; a part that onnxruntime runs is one of them.

    Args:
        model: a model for this machine.
        inputs: arrays by name or in order.
        repeats: how many runs are measured; medians count.
    """
    if isinstance(model, MixedModel):
        return _measure_mixed(model, inputs, repeats)
    return measure(model.artifact, inputs, threads=model.threads, repeats=repeats)


def _measure_mixed(
    model: MixedModel, inputs: Mapping[str, Any] | Sequence[Any], repeats: int
) -> Profile:
    most = model.threads
    known = model.tensors(inputs)
    rows: list[Row] = []
    spans: list[Span] = []
    for step in model.steps:
        given = {name: known[name] for name in step.part.inputs}
        if isinstance(step, Native):
            found = measure(step.model.artifact, given, threads=most, repeats=repeats)
            first, begin = len(rows), max((span.stop for span in spans), default=0)
            rows += found.rows
            spans += [
                replace(s, row=s.row + first, start=s.start + begin, stop=s.stop + begin)
                for s in found.spans
            ]
        else:
            seconds = statistics.median(_time(step, given) for _ in range(repeats))
            rows.append(Row(", ".join(step.part.nodes), ENGINE, ENGINE, seconds, 1, 0, 0))
    return Profile(tuple(rows), tuple(spans), most)


def _time(part: Session, given: Mapping[str, Any]) -> float:
    start = time.perf_counter()
    part.run(dict(given), {})
    return time.perf_counter() - start


def profile_library(
    library: str | PathLike[str],
    inputs: Mapping[str, Any] | Sequence[Any],
    *,
    threads: int | None = None,
    repeats: int = 9,
) -> Profile:
    """Load a compiled library, run it, and say how long each launch takes.

    Args:
        library: what `CompiledModel.save` wrote.
        inputs: arrays by name or in order.
        threads: the most parts of a launch; as many as the process may use by default.
        repeats: how many runs are measured, after one that is not.

    Raises:
        CompileError: XC7002 when the library does not say what its launches are.
        RuntimeModelError: it cannot be loaded, or does not take the inputs.
    """
    _check_repeats(repeats)
    data = Path(library).read_bytes()
    table = LaunchTable.from_library(memoryview(data))
    executable = load(data, threads=threads, observed=True)
    places = all_symbols(memoryview(data))
    base = executable.entry.run - places[f"{executable.manifest.prefix}_run"].address
    symbols = {base + places[f"{symbol}_task"].address: symbol for symbol in table.symbols}
    return _measured(executable, table, symbols, inputs, repeats)


def _check_repeats(repeats: int) -> None:
    if type(repeats) is not int or repeats < 1:
        raise CompileError("XC6005", f"repeats is {repeats!r}; a positive integer is expected")


def measure(
    artifact: Artifact,
    inputs: Mapping[str, Any] | Sequence[Any],
    *,
    threads: int = 1,
    repeats: int = 9,
) -> Profile:
    """Run a model some times and record its launches.

    Args:
        artifact: a model for this machine.
        inputs: arrays by name or in order.
        threads: the most parts of a launch.
        repeats: how many runs are measured; medians count.
    """
    table = artifact.launch_table
    tasks = [f"{symbol}_task" for symbol in table.symbols]
    entry, code = artifact.link(native_library.symbols(), tasks)
    symbols = {code.address(task): task.removesuffix("_task") for task in tasks}
    executable = Executable(
        entry, artifact.manifest, artifact.weights, threads=threads, observed=True
    )
    return _measured(executable, table, symbols, inputs, repeats)


def _measured(
    executable: Executable,
    table: LaunchTable,
    symbols: Mapping[int, str],
    inputs: Mapping[str, Any] | Sequence[Any],
    repeats: int,
) -> Profile:
    """Run an observed model some times; `symbols` says the kernel of each task's address."""
    launches, threads = table.launches, executable.threads
    names = [launch.symbol for launch in launches]
    executable.run(inputs)
    runs = [_Run(record(lambda: executable.run(inputs)), symbols, names) for _ in range(repeats)]
    sizes = table.sizes(_shapes(executable, inputs))
    rows = [
        Row(
            launch.node,
            launch.family,
            launch.symbol,
            statistics.median(run.seconds(number, threads) for run in runs),
            len(runs[-1].launches[number]),
            _size(launch.flops, sizes),
            _size(launch.bytes, sizes),
        )
        for number, launch in enumerate(launches)
    ]
    return Profile(tuple(rows), tuple(runs[-1].spans()), threads)


class _Run:
    """The events of one run by the launches of the program, whose kernels are `names`.

    Attributes:
        launches: for each of them, the numbers of the events.
    """

    def __init__(
        self, events: np.ndarray, symbols: Mapping[int, str], names: Sequence[str]
    ) -> None:
        self._whole = np.sort(events[events["part"] == _WHOLE], order="launch")
        self._parts = np.sort(events[events["part"] != _WHOLE], order="start")
        self.launches: list[list[int]] = [[] for _ in names]
        position = 0
        for event in self._whole:
            name = symbols[int(event["task"])]
            # a launch that comes before the last one in the text is that of a loop's next iteration
            position = names.index(name, position if name in names[position:] else 0)
            self.launches[position].append(int(event["launch"]))
            position += 1

    def seconds(self, step: int, threads: int) -> float:
        """The time of all launches of a step."""
        numbers = self.launches[step]
        if threads == 1:
            return float(np.sum(self._parts["cpu"][np.isin(self._parts["launch"], numbers)])) / 1e9
        chosen = self._whole[np.isin(self._whole["launch"], numbers)]
        return float(np.sum(chosen["stop"] - chosen["start"])) / 1e9

    def spans(self) -> list[Span]:
        """The parts, by their start."""
        step_of = {number: step for step, numbers in enumerate(self.launches) for number in numbers}
        origin = int(min(self._whole["start"], default=0))
        return [
            Span(
                step_of[int(e["launch"])], int(e["part"]), int(e["thread"]),
                int(e["start"]) - origin, int(e["stop"]) - origin,
            )
            for e in self._parts
        ]  # fmt: skip


def _shapes(
    executable: Executable, inputs: Mapping[str, Any] | Sequence[Any]
) -> list[tuple[int, ...]]:
    names = [spec.name for spec in executable.inputs]
    arrays = [inputs[n] for n in names] if isinstance(inputs, Mapping) else inputs
    return [np.shape(x) for x in arrays]


def _size(dim: Dim, sizes: Mapping[str, int]) -> int:
    """The value of a size; 0 when it depends on data."""
    try:
        return evaluate(dim, sizes)
    except KeyError:
        return 0


def peak_here(threads: int) -> Peak:
    """What this machine can do on so many threads, measured now."""
    return measure_peak(host_target(), threads)
