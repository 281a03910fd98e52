"""What becomes of each case of the ONNX backend suite when our backend runs it.

python -m tests.e2e.onnx_compiled [WORD...]   run cases that have a word in their names; print how the ledger differs
python -m tests.e2e.onnx_compiled --shrink    take cases that pass now out of the ledger
python -m tests.e2e.onnx_compiled --rewrite   write the ledger anew
python -m tests.e2e.onnx_compiled --dynamic   the same cases with sizes that only the run knows

A case is right or is refused with an error code; wrong results are never listed. Cases run in processes of their
own: one that crashes is one failing case.
"""

import functools
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper

from tests.e2e.onnx_node_cases import NodeCase, node_cases, stored_cases
from tests.e2e.onnx_reference import difference, read_ledger, short, write_ledger
from xcompile.compiler.api import compile as compile_model
from xcompile.compiler.driver import worker_pool
from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.support.options import Options
from xcompile.compiler.worker.pool import WorkerPool
from xcompile.frontends.onnx.backend import XcompileBackend
from xcompile.runtime.errors import RuntimeModelError

LEDGER = Path(__file__).with_name("onnx_compiled_ledger.txt")

_HEAD = """\
# Cases of the ONNX backend suite that are not compiled, and why: each is refused with a code.
# This list may only shrink: python -m tests.e2e.onnx_compiled --shrink
"""
_ROOT = Path(__file__).parents[2]
_SECONDS = 300


def failure(case: NodeCase, pool: WorkerPool) -> str | None:
    """Why a compiled case is not right, beginning with a code when it is refused; None when it is right."""
    try:
        prepared = XcompileBackend.prepare(case.model, pool=pool, threads=1)
        for inputs, expected in case.data:
            results = prepared.run(inputs)
            for actual, wanted in zip(results, expected, strict=True):
                problem = difference(np.asarray(actual), np.asarray(wanted), case)
                if problem:
                    return problem
    except CompileError as error:
        return short(error)
    except RuntimeModelError as error:
        return f"at run time: {error}"[:100]
    return None


def dynamic_failure(case: NodeCase, pool: WorkerPool) -> str | None:
    """Why a case is not right when the size of every axis of every input is known only when the model runs.

    Vectors of integers, which say sizes, axes or pads, are constants.
    """
    if not all(isinstance(v, np.ndarray | np.generic) for v in case.data[0][0]):
        return "XC1012 sequences and optional values"
    model, arrays = symbolic(case)
    try:
        compiled = compile_model(model, pool=pool, threads=1)
        results = compiled.run(arrays).values()
    except CompileError as error:
        return short(error)
    except RuntimeModelError as error:
        return f"at run time: {error}"[:100]
    pairs = zip(results, case.data[0][1], strict=True)
    problems = (difference(np.asarray(a), np.asarray(w), case) for a, w in pairs)
    return next((problem for problem in problems if problem), None)


def symbolic(case: NodeCase) -> tuple[onnx.ModelProto, list[np.ndarray]]:
    """The model with symbols `x_AXIS` for the sizes of its inputs, and the arrays of the inputs left."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    arrays: list[np.ndarray] = []
    constants = {tensor.name for tensor in model.graph.initializer}
    read = [info for info in case.model.graph.input if info.name not in constants]
    for info, given in zip(read, case.data[0][0], strict=True):
        array = np.asarray(given)
        copy = next(i for i in model.graph.input if i.name == info.name)
        if array.dtype in (np.int32, np.int64) and array.ndim <= 1:
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, info.name))
            model.graph.input.remove(copy)
            continue
        for axis, dim in enumerate(copy.type.tensor_type.shape.dim):
            dim.dim_param = f"x{len(arrays)}_{axis}"
        arrays.append(array)
    return model, arrays


@functools.cache
def all_cases() -> tuple[NodeCase, ...]:
    """The node cases and those that are files."""
    return (*node_cases(), *stored_cases())


class _Server:
    """A process that runs cases by name, with sizes known or not; it is started again after a crash."""

    def __init__(self, *, dynamic: bool) -> None:
        self._mode = ["--dynamic"] if dynamic else []
        self._process: subprocess.Popen[str] | None = None

    def outcome(self, name: str) -> str | None:
        """Why the case fails; None when it passes."""
        process = self._started()
        assert process.stdin and process.stdout
        process.stdin.write(name + "\n")
        process.stdin.flush()
        alarm = threading.Timer(_SECONDS, process.kill)
        alarm.start()
        line = process.stdout.readline()
        alarm.cancel()
        if line:
            return json.loads(line)
        status = process.wait()
        self._process = None
        return f"the process ended with status {status}"

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.onnx_compiled", "--serve", *self._mode],
                cwd=_ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        return self._process

    def close(self) -> None:
        if self._process is not None:
            self._process.communicate()


def failures(
    cases: Sequence[NodeCase], processes: int = 2, *, dynamic: bool = False
) -> dict[str, str]:
    """The failing cases and why, found by so many processes at a time."""
    servers = [_Server(dynamic=dynamic) for _ in range(processes)]
    local = iter(servers)
    mine = threading.local()

    def take() -> None:
        mine.server = next(local)

    try:
        with ThreadPoolExecutor(processes, initializer=take) as threads:
            found = threads.map(lambda case: mine.server.outcome(case.name), cases)
            return {case.name: why for case, why in zip(cases, found, strict=True) if why}
    finally:
        for server in servers:
            server.close()


def is_refusal(why: str) -> bool:
    """Whether a failure is an error with a code and not a wrong result or a crash."""
    return why.startswith("XC") and not why.startswith(("XC4004", "XC4009"))


def wrong(found: dict[str, str]) -> dict[str, str]:
    """The failures that are no refusals, without the cases whose expected values ONNX's text contradicts."""
    disputed = {name for name, why in read_ledger().items() if not is_refusal(why)}
    return {n: w for n, w in found.items() if not is_refusal(w) and n not in disputed}


def _serve(run: Callable[[NodeCase, WorkerPool], str | None]) -> None:
    """Answer each name on standard input with the outcome, as JSON, on standard output."""
    cases = {case.name: case for case in all_cases()}
    answers, sys.stdout = sys.stdout, sys.stderr
    with worker_pool(Options()) as pool:
        for line in sys.stdin:
            try:
                answer = run(cases[line.strip()], pool)
            except Exception as error:  # noqa: BLE001 - whatever goes wrong is this case's outcome
                answer = f"{type(error).__name__}: {error}"[:200]
            print(json.dumps(answer), file=answers, flush=True)


def main(arguments: list[str]) -> None:
    """Compare, and change the ledger when asked to."""
    dynamic = "--dynamic" in arguments
    if "--serve" in arguments:
        _serve(dynamic_failure if dynamic else failure)
        return
    words = [a for a in arguments if not a.startswith("-")]
    cases = [c for c in all_cases() if not words or any(w in c.name for w in words)]
    if dynamic:
        found = failures(cases, dynamic=True)
        print(
            f"{len(cases)} cases, {len(found)} fail, {wrong(found)} are wrong",
            *found.items(),
            sep="\n",
        )
        return
    found, ledger = failures(cases), read_ledger(LEDGER)
    passing = [c.name for c in cases if c.name in ledger and c.name not in found]
    fresh = {name: why for name, why in found.items() if name not in ledger}
    bad = wrong(found)
    if "--rewrite" in arguments:
        write_ledger({n: w for n, w in found.items() if n not in bad}, LEDGER, _HEAD)
    elif "--shrink" in arguments:
        kept = {name: why for name, why in ledger.items() if name not in passing}
        write_ledger(kept, LEDGER, _HEAD)
    print(f"{len(cases)} cases, {len(found)} fail, {len(bad)} of them are wrong: {bad}")
    print(f"listed and passing: {passing}")
    print("failing and not listed:", *(f"{n}: {w}" for n, w in fresh.items()), sep="\n  ")


if __name__ == "__main__":
    main(sys.argv[1:])
