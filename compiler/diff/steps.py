"""The steps of a compiled model, each alone on operands as they should be, and all in a row."""

from collections.abc import Mapping, Sequence

import numpy as np

from xcompile.compiler.artifact import Artifact
from xcompile.compiler.diff.inside import WatchedChain, expected_inside
from xcompile.compiler.diff.native import NativeInterpreter, NativeKernel, compile_kernels
from xcompile.compiler.diff.report import Culprit, Row, Verdict
from xcompile.compiler.diff.split import Splitter
from xcompile.compiler.ir.location import describe
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.op import Op, Value, view
from xcompile.compiler.ir.regions import uses_of
from xcompile.compiler.numerics.compare import Allowed, metrics, mismatch
from xcompile.compiler.numerics.recording import Recording, operations_of
from xcompile.compiler.request import Request
from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.worker.pool import WorkerPool
from xcompile.dialects.kernel import Func, Launch


class Steps:
    """The launches of a module at the kernel level.

    Attributes:
        culprits: what `rows` found to be wrong.
    """

    def __init__(
        self,
        recording: Recording,
        request: Request,
        artifact: Artifact,
        pool: WorkerPool,
        expected: Mapping[str, np.ndarray],
    ) -> None:
        """Compile what is not compiled yet.

        Args:
            recording: the values of the module at the kernel level.
            request: what it is compiled for.
            artifact: the compiled model.
            pool: compiles parts of kernels that are wrong.
            expected: what the model's tensors should be, by name.

        Raises:
            CompileError: a kernel cannot be compiled.
        """
        self.culprits: list[Culprit] = []
        self._recording = recording
        self._request = request
        self._artifact = artifact
        self._expected = expected
        self._module = recording.module
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
        """Run each launch on its own and all in a row; a row for each result, and for each output of the model."""
        inputs = self._recording.inputs
        chain = WatchedChain(self._recording, self._native)
        arguments = self._module.main.regions[0].blocks[0].arguments
        known: dict[Value, np.ndarray] = dict(zip(arguments, inputs, strict=True))
        *body, terminator = operations_of(self._module)
        found: list[Row] = []
        for operation in body:
            op = view(operation)
            sizes = dict(chain.sizes)
            chain.execute(operation, known)
            if isinstance(op, Launch):
                found += self._launch(op, known, chain)
            elif op is not None and len(operation.regions):
                found += self._inside(operation, chain, sizes)
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

    def _inside(
        self, operation: ir.Operation, chain: WatchedChain, sizes: Mapping[str, int]
    ) -> list[Row]:
        """Rows for what a branch or loop launches: each kernel as it was first wrong, or else as it ran last."""
        values = self._recording.values
        used = {v: values[v].array for v in uses_of(operation) if v in values}
        wanted: dict[Launch, list[np.ndarray]] = {}
        if len(used) == len(uses_of(operation)):
            runs = {launch: seen.run for launch, seen in chain.seen.items()}
            wanted = expected_inside(self._recording, operation, used, sizes, runs)
        found: list[Row] = []
        for launch, seen in chain.seen.items():
            kernel = self._native[launch.callee]
            where = seen.where(chain.runs[launch])
            wrong = [text and text + where for text in seen.wrong]
            if any(wrong):
                text = next(filter(None, seen.wrong))
                self._blame(launch, kernel, seen.inputs, seen.sizes, text, where)
            for position, (got, own) in enumerate(zip(seen.results, wrong, strict=True)):
                right = wanted[launch][position] if launch in wanted else got
                family = kernel.plan.family
                found.append(self._inner_row(launch, family, got, right, seen.rounding, own))
        chain.forget()
        return found

    def _inner_row(
        self,
        launch: Launch,
        family: str,
        got: np.ndarray,
        wanted: np.ndarray,
        rounding: Allowed,
        own: str,
    ) -> Row:
        named = [t for node in launch.nodes for t in self._module.inner_tensors.get(node, ())]
        carried = got.shape != wanted.shape or mismatch(got, wanted, rounding) is not None
        verdict: Verdict = "differs" if own else "carries" if carried else "equal"
        seen = got if got.shape != wanted.shape else wanted
        return Row(
            named[-1] if named else "", describe(launch.location) or "", family, str(got.dtype), got.shape,
            metrics(got, seen), own, verdict,
        )  # fmt: skip

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
        where: str = "",
    ) -> None:
        """Name the op of a kernel that is wrong; `where` ends the text."""
        wrong = self._splitter.wrong_op(kernel.func, launch.nodes, arrays, sizes)
        every, family = describe(launch.location) or "", kernel.plan.family
        if wrong is None:
            self.culprits.append(Culprit("kernel", every, family, text + where))
            return
        how = (
            "alone too" if wrong.alone else f"only together with what stands before it in '{every}'"
        )
        self.culprits.append(
            Culprit(
                "kernel", wrong.nodes or every, family, f"{wrong.name}, {how}, {wrong.text}{where}"
            )
        )

    def _row(self, op: Op, value: Value, kernel: str, got: np.ndarray, own: str) -> Row:
        recorded = self._recording.values.get(value)
        names = recorded.names if recorded is not None else ()
        wanted = next((self._expected[name] for name in names if name in self._expected), None)
        wanted = recorded.array if wanted is None and recorded is not None else wanted
        allowed = recorded.rounding if recorded is not None else Allowed()
        carried = wanted is not None and mismatch(got, wanted, allowed) is not None
        verdict: Verdict = "differs" if own else "carries" if carried else "equal"
        return Row(
            names[0] if names else "", describe(op.location) or "", kernel, str(got.dtype), got.shape,
            metrics(got, got if wanted is None else wanted), own, verdict,
        )  # fmt: skip

    def _outputs(self, by_steps: Sequence[np.ndarray]) -> list[Row]:
        """What the whole program gives, which must be what its kernels give one by one."""
        executable = self._artifact.load(threads=self._request.target.cores)
        results = executable.run(self._recording.inputs)
        found: list[Row] = []
        for (name, got), alone in zip(results.items(), by_steps, strict=True):
            text = mismatch(got, alone, Allowed()) or ""
            if text:
                self.culprits.append(
                    Culprit(
                        "program", "", name, f"the output {text} when the kernels run one by one"
                    )
                )
            wanted = self._expected.get(name, alone)
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
