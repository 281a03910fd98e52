"""Passes of users run in a process of their own.

A pass is any Python code: it may loop for ever, eat all memory, or crash in native code. Where files are loaded
(`load=`), or a pipeline names a pass of another package or module (`compiler/foreign.py`), the front end, the passes
and the planning of kernels therefore run in a worker, whose death or lateness is one error that names pass, pattern
and model node. Passes that exist in the calling process only, and compiles with instruments, which are objects of that
process, run where they are.

`run_isolated` is this process's side, `following` the other's; `compiler/opt.py` uses them too.
"""

import importlib
import io
import os
import re
import shlex
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import Any

from xcompile.compiler.artifact import Artifact, KernelFacts, NodeStatement
from xcompile.compiler.codegen.job import Job, MachineSpec
from xcompile.compiler.codegen.program.program import Program
from xcompile.compiler.driver import plan_module
from xcompile.compiler.foreign import Foreign
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.passes import PASS_REGISTRY, Instrument, Pass, PassContext
from xcompile.compiler.request import Request
from xcompile.compiler.source import FileFacts, facts_of
from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.support.options import VERIFY_EACH, VERIFY_NUMERICS, WORKER_TIMEOUT, Options
from xcompile.compiler.support.precision_map import PrecisionMap
from xcompile.compiler.support.trace import TRACE, read
from xcompile.compiler.target.target import Target
from xcompile.compiler.worker.pool import WorkerPool
from xcompile.frontends.onnx.importer import import_onnx
from xcompile.runtime.abi import Manifest

_LEAST_MEMORY = 8 << 30
_ENDINGS = {"XC4001", "XC4002", "XC4003", "XC4004"}
"""Codes by which a worker tells that a job has not come to an end of its own."""
_PIPELINE = "// pipeline: "
_NOTE, _MODULE = "note", "module.mlir"
"""Files of the folder that the two processes share: what is going on, and the module that a user's pass was given."""


def plan_isolated(
    model: Any,
    request: Request,
    *,
    foreign: Foreign | None = None,
    memory_bytes: int | None = None,
) -> tuple[Artifact, Mapping[str, Job], Mapping[str, FileFacts]]:
    """Do everything before the kernels in another process.

    Args:
        model: a path, the bytes of a file, or a parsed model.
        request: what to compile for, and how; `request.load` is executed in the other process only.
        foreign: what that process imports besides.
        memory_bytes: the largest address space of that process; the machine's memory, but at least 8 GiB, when None.

    Returns:
        The artifact without objects, the jobs that make them, and what was read of external data.

    Raises:
        CompileError: as without isolation; XC3011 when a pass, pattern or verifier crashes, hangs or runs out of
            memory.
    """
    with tempfile.TemporaryDirectory(prefix="xcompile-") as scratch:
        folder = Path(scratch)
        answer = run_isolated(
            "xcompile.compiler.isolation:plan",
            {**_payload(model, request, folder), "foreign": asdict(foreign) if foreign else None},
            folder,
            target=request.target,
            load=request.load,
            seconds=request.options[WORKER_TIMEOUT],
            memory_bytes=memory_bytes,
        )
        jobs = {name: Job.from_json(fields) for name, fields in answer["jobs"].items()}
        external = {name: FileFacts(*facts) for name, facts in answer["external"].items()}
        return _artifact(answer, (folder / "weights").read_bytes()), jobs, external


def run_isolated(
    function: str,
    payload: Mapping[str, Any],
    folder: Path,
    *,
    target: Target,
    load: Sequence[str],
    seconds: float,
    memory_bytes: int | None = None,
) -> Mapping[str, Any]:
    """Call a function in another process, and print what was printed there.

    Args:
        function: "package.module:function"; it works inside of `following(folder)` and returns JSON values, "printed"
            among them.
        payload: its argument, JSON values; "folder" is added.
        folder: empty, for what the two processes share.
        target: the machine that passes ask about.
        load: files that are executed in the other process first.
        seconds: the longest it may take.
        memory_bytes: see `plan_isolated`.

    Raises:
        CompileError: of the function; XC3011 when it does not come to an end of its own. It says where the module is
            that a pass of a file failed on.
    """
    memory = memory_bytes or max(
        os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), _LEAST_MEMORY
    )
    job = Job(
        function, {**payload, "folder": str(folder)}, MachineSpec.of(target), load=tuple(load)
    )
    with WorkerPool(
        1, timeout_s=seconds, memory_limit_bytes=memory, keep_reproducers=False
    ) as pool:
        (outcome,) = pool.outcomes([job])
    if isinstance(outcome, CompileError):
        error = _blamed(outcome, read(folder / _NOTE), load, seconds)
        raise _with_reproducer(error, folder / _MODULE, load)
    sys.stdout.write(outcome.metadata["printed"])
    return outcome.metadata


def _payload(model: Any, request: Request, folder: Path) -> dict[str, Any]:
    is_path = isinstance(model, str | os.PathLike)
    if not is_path:
        data = model if isinstance(model, bytes) else model.SerializeToString()
        (folder / "model").write_bytes(data)
    return {
        "model": os.fspath(model) if is_path else None,
        "target": request.target.to_json(),
        "pipeline": request.pipeline,
        "passes": request.passes,
        "prefix": request.prefix,
        "precisions": request.precisions.to_json(),
        "calibration": request.calibration,
        "explain": sorted(request.explain),
        "overridable": list(request.overridable),
        "load": list(request.load),
        "verify": {o.name: request.options[o] for o in (VERIFY_EACH, VERIFY_NUMERICS)},
    }


class Follow(Instrument):
    """Notes which pass runs; keeps the module that a pass of a user's file is given, and what it must keep."""

    def __init__(self, folder: Path) -> None:
        self._kept = folder / _MODULE
        self._interface: tuple[list[Any], int] | None = None

    def before(self, pass_: Pass, module: Module, context: PassContext) -> None:
        TRACE.enter(pass_.NAME)
        if _is_users(pass_):
            text = f"{_PIPELINE}{pass_}\n{module.text(locations=True)}"
            self._kept.write_text(text, encoding="utf-8")
            self._interface = _interface(module)

    def after(self, pass_: Pass, module: Module, context: PassContext) -> None:
        if _is_users(pass_) and _interface(module) != self._interface:
            raise CompileError("XC3005", "the pass has changed the model's inputs or outputs")
        self._kept.unlink(missing_ok=True)


def _is_users(pass_: Pass) -> bool:
    return not type(pass_).__module__.startswith("xcompile.")


def _interface(module: Module) -> tuple[list[Any], int] | None:
    """The types of the inputs and the number of outputs; None where there is no `@main`."""
    try:
        main = module.main.type
    except LookupError:
        return None
    return list(main.inputs), len(main.results)


@contextmanager
def following(folder: Path) -> Iterator[io.StringIO]:
    """Meanwhile this process notes in `folder` what it does, and collects what is printed.

    Yields:
        What has been printed.
    """
    TRACE.start(folder / _NOTE)
    printed = io.StringIO()
    try:
        with redirect_stdout(printed):
            yield printed
    except CompileError:
        sys.stderr.write(printed.getvalue())
        raise
    except Exception:
        traceback.print_exc()
        raise
    finally:
        TRACE.stop()


def plan(payload: Mapping[str, Any]) -> dict[str, Any]:
    """What the worker does: read the model, run the passes, plan the kernels."""
    folder = Path(payload["folder"])
    request = Request(
        target=Target.from_json(payload["target"]),
        pipeline=payload["pipeline"],
        passes=payload["passes"],
        prefix=payload["prefix"],
        explain=frozenset(payload["explain"]),
        load=tuple(payload["load"]),
        overridable=tuple(payload["overridable"]),
        options=Options(payload["verify"]),
        instruments=(Follow(folder),),
        precisions=PrecisionMap.from_json(payload["precisions"]),
        calibration=payload["calibration"],
    )
    with following(folder) as printed:
        if payload["foreign"]:
            _import(Foreign(**payload["foreign"]))
        source = payload["model"] or (folder / "model").read_bytes()
        module = import_onnx(source, overridable=request.overridable)
        artifact, jobs = plan_module(module, request)
    (folder / "weights").write_bytes(artifact.weights)
    return {
        "architecture": artifact.architecture,
        "explanations": list(artifact.explanations),
        "kept_float": list(artifact.kept_float),
        "statements": [asdict(statement) for statement in artifact.statements],
        "external": facts_of(module.external),
        "jobs": {name: job.to_json() for name, job in jobs.items()},
        "kernels": {symbol: asdict(facts) for symbol, facts in artifact.kernels.items()},
        "manifest": artifact.manifest.to_json(),
        "printed": printed.getvalue(),
        "program": artifact.program.to_json(),
    }


def _import(foreign: Foreign) -> None:
    """Have the passes and converters of the other process."""
    PASS_REGISTRY.add(foreign.passes)
    for name in foreign.modules:
        try:
            importlib.import_module(name)
        except Exception as error:
            raise CompileError(
                "XC3009", f"the module {name}, which brings passes or converters, cannot be imported: "
                f"{type(error).__name__}: {error}",
                help="set the option isolate to off to use it as it is in this process",
            ) from error  # fmt: skip


def _artifact(answer: Mapping[str, Any], weights: bytes) -> Artifact:
    return Artifact(
        manifest=Manifest.from_json(answer["manifest"]),
        objects={},
        weights=weights,
        program=Program.from_json(answer["program"]),
        architecture=answer["architecture"],
        kernels={symbol: KernelFacts(**facts) for symbol, facts in answer["kernels"].items()},
        explanations=tuple(answer["explanations"]),
        kept_float=tuple((node, why) for node, why in answer["kept_float"]),
        statements=tuple(NodeStatement(**statement) for statement in answer["statements"]),
    )


def _blamed(
    error: CompileError, note: Mapping[str, str | None], load: Sequence[str], seconds: float
) -> CompileError:
    """The error, told as that of what was going on; an error of the compile itself stays as it is."""
    if error.code not in _ENDINGS or error.pass_name is not None:
        return error
    files = ", ".join(Path(path).name for path in load)
    default = "the pass" if note.get("pass") else "the compile" if note else f"loading {files}"
    what = note.get("doing") or default
    return CompileError(
        "XC3011", f"{what} {_ending(error, seconds)}", node=note.get("node"), pass_name=note.get("pass"),
        help="set the option isolate to off to debug it in this process",
    )  # fmt: skip


def _with_reproducer(error: CompileError, module: Path, load: Sequence[str]) -> CompileError:
    """The error with what shows it again, if a user's pass was at work."""
    if module.exists():
        text = module.read_text(encoding="utf-8")
        kept = Path(tempfile.mkdtemp(prefix="xcompile-pass-")) / module.name
        kept.write_text(f"// {error}\n{text}", encoding="utf-8")
        if load:
            words = [str(kept), *(f"--load={path}" for path in load)]
            pipeline = text.partition("\n")[0].removeprefix(_PIPELINE)
            command = shlex.join([*words, f"--passes={pipeline}"])
            where = f"to reproduce: xcompile opt {command}"
        else:
            where = f"the module that it was given is in {kept}"
        error.help = f"{error.help}; {where}" if error.help else where
    return error


def _ending(error: CompileError, seconds: float) -> str:
    if error.code == "XC4002":
        return f"took longer than {seconds:g} s"
    if error.code == "XC4003":
        return "ran out of memory"
    if error.code == "XC4004":
        return f"failed: {error.message.partition(' failed: ')[2]}"
    how = re.search(r"\(([^)]*)\)", error.message)
    return f"ended its process ({how[1] if how else 'unknown'})"
