"""Compares a compiled model with an oracle, tensor by tensor and step by step."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from xcompile.compiler.diff.inputs import Given, complete_inputs
from xcompile.compiler.diff.report import Culprit, Report
from xcompile.compiler.diff.steps import Steps
from xcompile.compiler.driver import finish, input_specs, plan_module, worker_pool
from xcompile.compiler.engine import open_session, run_session
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Value, view
from xcompile.compiler.numerics.check import VerifyNumerics
from xcompile.compiler.numerics.compare import mismatch
from xcompile.compiler.numerics.recording import Recorded, Recording, operations_of
from xcompile.compiler.numerics.tolerance import BOUNDED
from xcompile.compiler.request import Progress, Request
from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.support.plugins import load_plugin
from xcompile.compiler.worker.pool import WorkerPool
from xcompile.dialects.nn.const import Const
from xcompile.frontends.onnx.expose import expose_tensors
from xcompile.frontends.onnx.importer import import_onnx
from xcompile.runtime.abi import TensorSpec

AGAINST = ("reference", "onnxruntime")
"""What a model may be compared with: our own numpy meaning of its ops, or another engine."""


@dataclass
class _Named:
    """What the front end said of the model's tensors: the node and the value of each, in order."""

    nodes: dict[str, str] = field(default_factory=dict[str, str])
    values: dict[str, Value] = field(default_factory=dict[str, Value])

    def observe(self, tensor: str, node: str, value: Value) -> None:
        if tensor not in self.values:
            self.nodes[tensor], self.values[tensor] = node, value

    def by_value(self) -> dict[Value, tuple[str, ...]]:
        found: dict[Value, tuple[str, ...]] = {}
        for name, value in self.values.items():
            found[value] = (*found.get(value, ()), name)
        return found


def compare(
    model: Any,
    request: Request,
    inputs: Given | Callable[[Sequence[TensorSpec]], Given] | None = None,
    *,
    against: str = "reference",
    progress: Progress | None = None,
    pool: WorkerPool | None = None,
) -> Report:
    """Compile a model and find what is wrong with it.

    Args:
        model: an ONNX model: a path, the bytes of a file, or a parsed model.
        request: what to compile for, this machine, and how. Plug-ins run in this process.
        inputs: arrays by name or in order, or a function that makes them from what the inputs are; what is missing is
            random.
        against: one of `AGAINST`.
        progress: told of what is being done.
        pool: workers to use.

    Raises:
        CompileError: the model cannot be compiled, evaluated by the reference, or run by the other engine.
    """
    if against not in AGAINST:
        raise CompileError(
            "XC6006", f"nothing is called '{against}'", help=f"one of {', '.join(AGAINST)}"
        )
    for path in request.load:
        load_plugin(Path(path))
    named = _Named()
    module = import_onnx(model, observe=named.observe, overridable=request.overridable)
    with ExitStack() as stack:
        stack.enter_context(module.context)
        stack.enter_context(ir.Location.unknown())
        workers = pool or stack.enter_context(worker_pool(request.options))
        given = inputs(input_specs(module)) if callable(inputs) else inputs
        arrays = complete_inputs(module, given) if given else None
        return _Comparison(model, module, named, request, arrays, against, workers, progress).run()


class _Comparison:
    def __init__(
        self,
        model: Any,
        module: Module,
        named: _Named,
        request: Request,
        inputs: Sequence[np.ndarray] | None,
        against: str,
        pool: WorkerPool,
        progress: Progress | None,
    ) -> None:
        self._model = model
        self._module = module
        self._named = named
        self._request = request
        self._given = inputs
        self._inputs: list[np.ndarray] = []
        self._against = against
        self._pool = pool
        self._progress = progress
        self._culprits: list[Culprit] = []
        self._expected: dict[str, np.ndarray] = {}

    def run(self) -> Report:
        module, request = self._module, self._request
        names, outputs = module.input_names(), module.output_names()
        check = VerifyNumerics(self._given, stop=False)
        recording = check.start(module, self._named.by_value())
        self._inputs = recording.inputs
        self._tell("reference")
        self._expect(recording, outputs, dict(zip(names, self._inputs, strict=True)))
        watched = replace(request, instruments=(*request.instruments, check))
        artifact, jobs = plan_module(module, watched, self._progress)
        for error in check.found:
            text = error.message.removeprefix("the pass changed what the model computes: ")
            self._culprits.append(Culprit("pass", error.node or "", error.pass_name or "", text))
        artifact = finish(artifact, jobs, request, self._progress, self._pool)
        self._tell("comparing")
        steps = Steps(recording, request, artifact, self._pool, self._expected)
        rows = steps.rows()
        culprits = (*self._culprits, *steps.culprits)
        return Report(module.name, self._against, request.target.name, culprits, tuple(rows))

    # -- what is expected ---------------------------------------------------------------------

    def _expect(
        self, recording: Recording, outputs: Sequence[str], inputs: Mapping[str, np.ndarray]
    ) -> None:
        """Fill in the expected tensors by name; find ops of the front end that are wrong."""
        returned = operations_of(self._module)[-1].operands
        pairs = [*self._named.values.items(), *zip(outputs, returned, strict=True)]
        for name, value in pairs:
            if value in recording.values:
                self._expected[name] = recording.values[value].array
        if self._against != "onnxruntime":
            return
        exposed = expose_tensors(self._model)
        session = open_session(exposed.model, threads=1, optimize=False, folder=exposed.folder)
        found = run_session(session, exposed.names, inputs)
        self._check_front_end(found)
        self._expected.update(found)

    def _check_front_end(self, found: Mapping[str, np.ndarray]) -> None:
        """Evaluate each node on the operands that the other engine has recorded."""
        names = self._named.by_value()
        alone = Recording(self._module, self._inputs)
        drawn: set[Value] = set()  # random numbers, of which each engine has its own
        for operation in operations_of(self._module)[:-1]:
            alone.execute(operation, alone.values)
            random = operation.name.startswith("nn.random")
            if random or not drawn.isdisjoint(operation.operands):
                drawn.update(operation.results)
            for value in operation.results:
                tensor = next((n for n in names.get(value, ()) if n in found), None)
                made = alone.values.get(value)
                if tensor is None or made is None or isinstance(view(operation), Const):
                    continue
                if value not in drawn:
                    self._compare_node(operation.name, tensor, made, found[tensor])
                if (
                    found[tensor].dtype == made.array.dtype
                    and found[tensor].shape == made.array.shape
                ):
                    alone.values[value] = Recorded(found[tensor])
                    drawn.discard(value)

    def _compare_node(self, op: str, tensor: str, made: Recorded, wanted: np.ndarray) -> None:
        """Blame the node that gives a tensor when it is wrong."""
        allowed = replace(made.allowed, floor=1.0) if op in BOUNDED else made.allowed
        text = mismatch(made.array, wanted, allowed)
        if text is not None:
            node = self._named.nodes[tensor]
            self._culprits.append(Culprit("front end", node, op, f"'{tensor}' {text}"))

    def _tell(self, what: str) -> None:
        if self._progress is not None:
            self._progress(what, 0, 1)
