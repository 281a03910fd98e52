"""`diff` of models of which onnxruntime runs a part: each compiled part as a model of its own."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from xcompile.compiler.api import compile as compile_model
from xcompile.compiler.diff.report import Culprit, Report, Row
from xcompile.compiler.fallback import Native, compile_mixed
from xcompile.compiler.model import CompiledModel
from xcompile.compiler.numerics.samples import DEFAULT_SIZE, sample
from xcompile.runtime.abi import TensorSpec
from xcompile.runtime.arrays import Port


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
    """The inputs by name, those that are missing random (`sample`); open sizes are 3."""
    names = [spec.name for spec in specs]
    arrays = dict(given if isinstance(given, Mapping) else zip(names, given, strict=False))
    random = np.random.default_rng(0)
    for spec in specs:
        if spec.name not in arrays:
            shape = [DEFAULT_SIZE if size is None else size for size in spec.static_dims]
            floating = "float" in spec.dtype
            dtype = Port("input", spec).dtype
            arrays[spec.name] = sample(random, shape, dtype, floating=floating)
    return arrays
