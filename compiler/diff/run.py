"""Compares a compiled model with an oracle, tensor by tensor and step by step."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from xcompile.compiler.artifact import Artifact
from xcompile.compiler.diff.native import NativeInterpreter, NativeKernel, compile_kernels
from xcompile.compiler.diff.report import Culprit, Report, Row, Verdict
from xcompile.compiler.diff.split import Splitter
from xcompile.compiler.driver import finish, input_specs, plan_module, worker_pool
from xcompile.compiler.engine import open_session, run_session
from xcompile.compiler.ir.location import describe
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Op, Value, view
from xcompile.compiler.numerics.check import VerifyNumerics
from xcompile.compiler.numerics.compare import Allowed, metrics, mismatch
from xcompile.compiler.numerics.recording import Recorded, Recording
from xcompile.compiler.numerics.samples import sample_inputs
from xcompile.compiler.numerics.tolerance import BOUNDED
from xcompile.compiler.request import Progress, Request
from xcompile.compiler.support.dims import Dim
from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.support.plugins import load_plugin
from xcompile.compiler.worker.pool import WorkerPool
from xcompile.dialects.kernel import Func, Launch
from xcompile.dialects.nn.base import numpy_dtype
from xcompile.dialects.nn.const import Const
from xcompile.frontends.onnx.expose import expose_tensors
from xcompile.frontends.onnx.importer import import_onnx
from xcompile.runtime.abi import TensorSpec

AGAINST = ("reference", "onnxruntime")
"""What a model may be compared with: our own numpy meaning of its ops, or another engine."""

Given = Mapping[str, np.ndarray] | Sequence[np.ndarray]
"""Arrays by name, or in order."""


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
    module = import_onnx(model, observe=named.observe)
    with ExitStack() as stack:
        stack.enter_context(module.context)
        stack.enter_context(ir.Location.unknown())
        workers = pool or stack.enter_context(worker_pool(request.options))
        given = inputs(input_specs(module)) if callable(inputs) else inputs
        arrays = _complete(module, given) if given else None
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
        rows = _Steps(self, recording, artifact, self._pool).rows()
        return Report(
            module.name, self._against, request.target.name, tuple(self._culprits), tuple(rows)
        )

    # -- what is expected ---------------------------------------------------------------------

    def _expect(
        self, recording: Recording, outputs: Sequence[str], inputs: Mapping[str, np.ndarray]
    ) -> None:
        """Fill in the expected tensors by name; find ops of the front end that are wrong."""
        returned = _operations(self._module)[-1].operands
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
        for operation in _operations(self._module)[:-1]:
            alone.execute(operation, alone.values)
            for value in operation.results:
                tensor = next((n for n in names.get(value, ()) if n in found), None)
                made = alone.values.get(value)
                if tensor is None or made is None or isinstance(view(operation), Const):
                    continue
                floor = 1.0 if operation.name in BOUNDED else 0.0
                allowed = replace(made.allowed, floor=floor)
                text = mismatch(made.array, found[tensor], allowed)
                if text is not None:
                    node = self._named.nodes[tensor]
                    self._culprits.append(
                        Culprit("front end", node, operation.name, f"'{tensor}' {text}")
                    )
                if (
                    found[tensor].dtype == made.array.dtype
                    and found[tensor].shape == made.array.shape
                ):
                    alone.values[value] = Recorded(found[tensor])

    # -- for the steps ------------------------------------------------------------------------

    @property
    def module(self) -> Module:
        return self._module

    @property
    def request(self) -> Request:
        return self._request

    @property
    def inputs(self) -> list[np.ndarray]:
        return self._inputs

    def blame(self, culprit: Culprit) -> None:
        """Add to what is wrong."""
        self._culprits.append(culprit)

    def expected(self, recorded: Recorded | None) -> np.ndarray | None:
        """What a value should be."""
        for name in recorded.names if recorded is not None else ():
            if name in self._expected:
                return self._expected[name]
        return None if recorded is None else recorded.array

    def expected_output(self, name: str) -> np.ndarray | None:
        return self._expected.get(name)

    def _tell(self, what: str) -> None:
        if self._progress is not None:
            self._progress(what, 0, 1)


class _Steps:
    """The launches of a module at the kernel level, each alone and all in a row."""

    def __init__(
        self, comparison: _Comparison, recording: Recording, artifact: Artifact, pool: WorkerPool
    ) -> None:
        self._comparison = comparison
        self._recording = recording
        self._artifact = artifact
        self._pool = pool
        self._module = comparison.module
        request = comparison.request
        funcs = [f for o in self._module.module.body.operations if (f := Func.of(o))]
        made = compile_kernels(
            funcs, request.target, pool, load=request.load, known=artifact.objects
        )
        self._native: dict[str, NativeKernel] = {}
        for func, kernel in zip(funcs, made, strict=True):
            if isinstance(kernel, CompileError):
                raise kernel
            self._native[func.sym_name] = kernel
        self._splitter = Splitter(self._module, request.target, pool, request.load)

    def rows(self) -> list[Row]:
        inputs = self._comparison.inputs
        chain = NativeInterpreter(self._module, inputs, self._native)
        arguments = self._module.main.regions[0].blocks[0].arguments
        known: dict[Value, np.ndarray] = dict(zip(arguments, inputs, strict=True))
        *body, terminator = _operations(self._module)
        found: list[Row] = []
        for operation in body:
            chain.execute(operation, known)
            op = view(operation)
            if isinstance(op, Launch):
                found += self._launch(op, known, chain)
            elif op is not None and len(operation.regions):
                found += [self._row(op, r, "control", known[r], "") for r in op.results]
        return found + self._outputs([known[v] for v in terminator.operands])

    def _launch(
        self, launch: Launch, known: Mapping[Value, np.ndarray], chain: NativeInterpreter
    ) -> list[Row]:
        kernel = self._native[launch.callee]
        values = self._recording.values
        operands = [values.get(v) for v in launch.inputs]
        wrong = [""] * len(launch.results)
        if all(operands) and all(r in values for r in launch.results):
            arrays = [r.array for r in operands if r is not None]
            results = kernel.run(arrays, chain.bindings(launch))
            wrong = self._mismatches(launch, results, [values[v].array for v in launch.results])
            if any(wrong):  # which may be because what is recorded came by another way
                exact = self._recording.kernels.launch(launch, arrays)
                wrong = self._mismatches(launch, results, exact)
            if any(wrong):
                self._blame(
                    launch, kernel, arrays, chain.bindings(launch), next(filter(None, wrong))
                )
        return [
            self._row(launch, value, kernel.plan.family, known[value], text)
            for value, text in zip(launch.results, wrong, strict=True)
        ]

    def _mismatches(
        self, launch: Launch, got: Sequence[np.ndarray], wanted: Sequence[np.ndarray]
    ) -> list[str]:
        """What is wrong with each result of a launch; "" for those that are right."""
        rounding = [self._recording.values[v].rounding for v in launch.results]
        return [mismatch(*each) or "" for each in zip(got, wanted, rounding, strict=True)]

    def _blame(
        self,
        launch: Launch,
        kernel: NativeKernel,
        arrays: Sequence[np.ndarray],
        sizes: Mapping[str, int],
        text: str,
    ) -> None:
        """Name the op of a kernel that is wrong."""
        wrong = self._splitter.wrong_op(kernel.func, launch.nodes, arrays, sizes)
        every, family = describe(launch.location) or "", kernel.plan.family
        if wrong is None:
            self._comparison.blame(Culprit("kernel", every, family, text))
            return
        how = (
            "alone too" if wrong.alone else f"only together with what stands before it in '{every}'"
        )
        self._comparison.blame(
            Culprit("kernel", wrong.nodes or every, family, f"{wrong.name}, {how}, {wrong.text}")
        )

    def _row(self, op: Op, value: Value, kernel: str, got: np.ndarray, own: str) -> Row:
        recorded = self._recording.values.get(value)
        wanted = self._comparison.expected(recorded)
        names = recorded.names if recorded is not None else ()
        allowed = recorded.rounding if recorded is not None else Allowed()
        carried = wanted is not None and mismatch(got, wanted, allowed) is not None
        verdict: Verdict = "differs" if own else "carries" if carried else "equal"
        return Row(
            names[0] if names else "", describe(op.location) or "", kernel, str(got.dtype), got.shape,
            metrics(got, got if wanted is None else wanted), own, verdict,
        )  # fmt: skip

    def _outputs(self, by_steps: Sequence[np.ndarray]) -> list[Row]:
        """What the whole program gives, which must be what its kernels give one by one."""
        executable = self._artifact.load(threads=self._comparison.request.target.cores)
        results = executable.run(self._comparison.inputs)
        found: list[Row] = []
        for (name, got), alone in zip(results.items(), by_steps, strict=True):
            text = mismatch(got, alone, Allowed()) or ""
            if text:
                self._comparison.blame(
                    Culprit(
                        "program", "", name, f"the output {text} when the kernels run one by one"
                    )
                )
            wanted = self._comparison.expected_output(name)
            wanted = alone if wanted is None else wanted
            carried = mismatch(got, wanted, Allowed()) is not None
            verdict: Verdict = "differs" if text else "carries" if carried else "equal"
            found.append(
                Row(
                    name,
                    "",
                    "output",
                    str(got.dtype),
                    got.shape,
                    metrics(got, wanted),
                    text,
                    verdict,
                )
            )
        return found


def _operations(module: Module) -> list[ir.Operation]:
    return [o.operation for o in module.main.regions[0].blocks[0].operations]


def _complete(module: Module, given: Given) -> list[np.ndarray]:
    """One array an input: what is given, and samples for the rest, of sizes that fit."""
    names = module.input_names()
    if not isinstance(given, Mapping):
        if len(given) > len(names):
            raise CompileError("XC5001", f"{len(given)} inputs for a model of {len(names)}")
        given = dict(zip(names, given, strict=False))
    unknown = [name for name in given if name not in names]
    if unknown:
        raise CompileError(
            "XC5001", f"no input '{unknown[0]}'", help=f"the inputs are {', '.join(names)}"
        )
    sizes: dict[str, int] = {}
    arguments = module.main.regions[0].blocks[0].arguments
    arrays: dict[str, np.ndarray] = {}
    for name, value, shape in zip(names, arguments, module.input_shapes(), strict=True):
        if name in given:
            arrays[name] = np.asarray(given[name]).astype(numpy_dtype(value), copy=False)
            _bind(name, shape, arrays[name], sizes)
    samples = sample_inputs(module, sizes=sizes)
    return [arrays.get(name, sample) for name, sample in zip(names, samples, strict=True)]


def _bind(name: str, shape: Sequence[Dim], array: np.ndarray, sizes: dict[str, int]) -> None:
    """Learn what symbols are from the shape of an array."""
    fits = array.ndim == len(shape) and all(
        not isinstance(d, int) or d == n for d, n in zip(shape, array.shape, strict=True)
    )
    if not fits:
        wanted = ", ".join(map(str, shape))
        raise CompileError(
            "XC5003", f"the input '{name}' has the shape {list(array.shape)}, not [{wanted}]"
        )
    sizes.update(
        {str(d): n for d, n in zip(shape, array.shape, strict=True) if not isinstance(d, int)}
    )
