"""The instrument behind `--verify-numerics`: after each pass, the region that it changed is evaluated anew.

    xcompile.compile("model.onnx", options={"verify-numerics": True})

The reference interpreter runs the whole model once, to record the inputs of all regions (`recording.py`).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack

import numpy as np

from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Value
from xcompile.compiler.ir.passes import Instrument, Pass, PassContext
from xcompile.compiler.ir.rewrite import RewriteStats
from xcompile.compiler.numerics.recording import Fault, Recording
from xcompile.compiler.numerics.samples import larger_samples
from xcompile.compiler.support.errors import CompileError

_REWRITES_NAMED = 3


class VerifyNumerics(Instrument):
    """Ends the compile behind the first pass that changes what the model computes.

    Attributes:
        inputs: the arguments of `@main`; samples on which it runs when None.
        stop: whether to end the compile; else what the passes did wrong is collected.
        found: the errors of passes, in the order of running.
        recording: the values of the model; None before the first pass.
    """

    def __init__(self, inputs: Sequence[np.ndarray] | None = None, *, stop: bool = True) -> None:
        self.inputs = inputs
        self.stop = stop
        self.found: list[CompileError] = []
        self.recording: Recording | None = None
        self._catching = ExitStack()

    def start(
        self, module: Module, names: Mapping[Value, tuple[str, ...]] | None = None
    ) -> Recording:
        """Record the values of the module, which the model gives these names, unless that is done."""
        if self.recording is None or self.recording.module is not module:
            given = larger_samples(module) if self.inputs is None else [self.inputs]
            self.recording = _first_that_runs(module, given, names)
        return self.recording

    def before(self, pass_: Pass, module: Module, context: PassContext) -> None:
        self.start(module).before()
        # ops that the pass erases stay where they are in memory: no new op can be taken for one of them
        self._catching.enter_context(module.graveyard.catching_erase(lambda: pass_.NAME))

    def after(self, pass_: Pass, module: Module, context: PassContext) -> None:
        self._catching.close()
        done = context.last
        if self.recording is None or (done is not None and not done.any):
            return
        try:
            fault = self.recording.after(done.changed if done is not None else ())
        except CompileError as error:
            raise CompileError(
                "XC3008", f"the pass leaves a model that cannot be evaluated: {error.message}", node=error.node
            ) from error  # fmt: skip
        if fault is None or pass_.CHANGES_VALUES:
            return
        error = _error(fault, done)
        if self.stop:
            raise error
        error.pass_name = pass_.NAME
        self.found.append(error)

    def failed(
        self, pass_: Pass, module: Module, context: PassContext, error: CompileError
    ) -> None:
        self._catching.close()


def _first_that_runs(
    module: Module,
    candidates: Iterable[Sequence[np.ndarray]],
    names: Mapping[Value, tuple[str, ...]] | None,
) -> Recording:
    """A recording on the first inputs on which the model runs; the error of the last ones when it runs on none."""
    failed: CompileError | None = None
    for inputs in candidates:
        recording = Recording(module, inputs)
        try:
            recording.run(names)
        except CompileError as error:
            failed = error
        else:
            return recording
    assert failed is not None, "there are candidates"
    failed.help = (
        failed.help or "the model does not run on sample inputs: `xcompile diff` takes yours"
    )
    raise failed


def _error(fault: Fault, done: RewriteStats | None) -> CompileError:
    rewrites = _rewrites(fault.nodes, done)
    by = f"; rewrites: {rewrites}" if rewrites else ""
    return CompileError(
        "XC3008", f"the pass changed what the model computes: a value {fault.text}{by}",
        node=" + ".join(fault.nodes) or None, help="the fault is the pass's, not the model's",
    )  # fmt: skip


def _rewrites(nodes: Iterable[str], done: RewriteStats | None) -> str:
    """The patterns that fired at these model nodes, the most frequent first; all when none did, as inside a branch."""
    if done is None:
        return ""
    wanted = set(nodes)
    fired = Counter(
        pattern for pattern, at in done.fired_at if wanted.intersection(at.split(" + "))
    )
    fired = fired or done.fired
    return ", ".join(f"{name} ({count}×)" for name, count in fired.most_common(_REWRITES_NAMED))
