"""`profile` and `diff` of models of which onnxruntime runs a part: each compiled part as a model of its own."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from xcompile.compiler.api import compile as compile_model
from xcompile.compiler.diff.report import Culprit, Report, Row
from xcompile.compiler.fallback import ENGINE, MixedModel, Native, Session, compile_mixed
from xcompile.compiler.model import CompiledModel
from xcompile.compiler.profile import Profile, Span, measure
from xcompile.compiler.profile import Row as LaunchRow
from xcompile.runtime.abi import TensorSpec
from xcompile.runtime.arrays import Port

_OPEN_SIZE = 3


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
    rows: list[LaunchRow] = []
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
            rows.append(LaunchRow(", ".join(step.part.nodes), ENGINE, ENGINE, seconds, 1, 0, 0))
    return Profile(tuple(rows), tuple(spans), most)


def _time(part: Session, given: Mapping[str, Any]) -> float:
    start = time.perf_counter()
    part.run(dict(given), {})
    return time.perf_counter() - start


def diff_mixed(
    model: Any,
    inputs: Mapping[str, Any]
    | Sequence[Any]
    | Callable[[Sequence[TensorSpec]], Mapping[str, Any] | Sequence[Any]]
    | None,
    compare: Callable[[bytes, Mapping[str, np.ndarray]], Report],
    **arguments: Any,
) -> Report:
    """Compare the compiled parts of a model with an oracle, each on what the parts before it give.

    Args:
        model: an ONNX model: a path, the bytes of a file, or a parsed `ModelProto`.
        inputs: as for `xcompile.diff`.
        compare: compares a part, given as a model, on its inputs by name.
        arguments: those of `xcompile.compile`.

    Raises:
        CompileError: see `compile_mixed`.
    """
    source: dict[int, bytes] = {}

    def compiled(part: bytes) -> CompiledModel:
        made = compile_model(part, **arguments)
        source[id(made)] = part
        return made

    mixed = compile_mixed(model, compiled, threads=arguments.get("threads"))
    given = inputs(mixed.inputs) if callable(inputs) else inputs
    known = mixed.tensors(_completed(mixed.inputs, given or {}))
    culprits: list[Culprit] = []
    rows: list[Row] = []
    report: Report | None = None
    for step in mixed.steps:
        if isinstance(step, Native):
            own = {name: np.asarray(known[name]) for name in step.part.inputs}
            report = compare(source[id(step.model)], own)
            culprits += report.culprits
            rows += report.rows
    first = report or Report("model", "reference", "cpu", (), ())
    return replace(first, culprits=tuple(culprits), rows=tuple(rows))


def _completed(
    specs: Sequence[TensorSpec], given: Mapping[str, Any] | Sequence[Any]
) -> dict[str, Any]:
    """The inputs by name, those that are missing random; open sizes are 3."""
    names = [spec.name for spec in specs]
    arrays = dict(given if isinstance(given, Mapping) else zip(names, given, strict=False))
    random = np.random.default_rng(0)
    for spec in specs:
        if spec.name not in arrays:
            shape = [_OPEN_SIZE if size is None else size for size in spec.static_dims]
            arrays[spec.name] = random.standard_normal(shape).astype(Port("input", spec).dtype)
    return arrays
