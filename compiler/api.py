"""The functions that users call; `xcompile` re-exports them."""

import contextlib
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from xcompile.compiler.artifact_cache import Slot
from xcompile.compiler.model import CompiledModel
from xcompile.compiler.quantize.table import CalibrationTable
from xcompile.compiler.request import Progress, Request
from xcompile.compiler.source import facts_of
from xcompile.compiler.support.errors import UNSUPPORTED, CompileError
from xcompile.compiler.support.options import (
    CACHE,
    ISOLATE,
    JOBS,
    THREADS,
    WORKER_TIMEOUT,
    Options,
)
from xcompile.compiler.support.plugins import load_plugin, plugin_module_name
from xcompile.compiler.support.precision_map import ALL_FLOAT, FLOAT, PrecisionMap
from xcompile.compiler.target.registry import (
    MIXED,
    check_precision,
    parse_target,
    with_architectures,
)
from xcompile.compiler.target.target import Target
from xcompile.runtime.abi import is_prefix
from xcompile.runtime.device import Device

if TYPE_CHECKING:
    import onnx

    from xcompile.compiler.artifact import Artifact
    from xcompile.compiler.calibration.budget import BudgetReport
    from xcompile.compiler.worker.pool import WorkerPool


Metric = Callable[[Any], float]
"""Scores a model on held-out data: it is given what can be called as a `CompiledModel` is. More is better."""


def compile(
    model: "str | PathLike[str] | bytes | onnx.ModelProto",
    target: str | Target = "cpu",
    *,
    threads: int | None = None,
    passes: str = "",
    pipeline: str = "",
    load: str | PathLike[str] | Sequence[str | PathLike[str]] = (),
    explain: str | Sequence[str] = (),
    prefix: str = "model",
    options: Mapping[str, object] | None = None,
    progress: Progress | None = None,
    pool: "WorkerPool | None" = None,
    fallback: str | None = None,
    overridable: str | Sequence[str] = (),
    precisions: Mapping[str, str] | None = None,
    calibrate: Any = None,
    calibration_table: str | PathLike[str] | CalibrationTable | None = None,
    observer: str = "mse",
    keep_float: str | Sequence[str] = (),
    accuracy_budget: float | None = None,
    metric: Metric | None = None,
    equalize: bool = False,
    smooth: float | None = None,
    rounding: str = "nearest",
    arch: str | Sequence[str] = (),
    device: Device | str | None = None,
) -> CompiledModel:
    """Compile a model.

    A model that was compiled before, by equal code with equal options, comes from the cache at once.

    Args:
        model: an ONNX model: a path, the bytes of a file, or a parsed `ModelProto`.
        target: `DEVICE[-ISA][-PRECISION]`: "cpu" is this machine; `xcompile.targets()` lists them.
        threads: the most threads a kernel runs on in this process, which schedules are chosen for; as many as the
            process may use by default.
        passes: edits of the pipeline: "+after(nn-assign-layout):my-pass;-nn-choose-winograd", or
            "nn-choose-winograd{mode=f2}" to set the options of a pass.
        pipeline: a whole pipeline instead of the target's.
        load: Python files (or one) with passes, ops or emitters of your own.
        explain: passes (or one) that record in `artifact.explanations` why they did not fire; "*" for all.
        prefix: of the names that a saved library exports to C programs.
        options: further options by name, see docs/options.md.
        progress: called with what is being done, how much of it is done, and of how much.
        pool: worker processes to use and to leave running, for those who compile many models.
        fallback: "onnxruntime" runs the ops that are not supported, exactly these, if it is installed; `report()` of
            the model says which they are, and it cannot be saved.
        overridable: inputs (or one) that have an initializer and that a run may replace; they come behind the other
            inputs, and what a run leaves out is the initializer. By default initializers are constants, which is what
            weights are packed and folded as.
        precisions: of parts of the model, where they differ from the target's: globs of nodes or tensors to names, of
            which the last that fits holds: {"layer3/*": "fp32"}.
        calibrate: samples for a float model that is compiled for "int8" (100 to 1,000 are usual): an iterable of
            inputs, a path of an .npz file or a folder, "FILE.py:FUNCTION"; see `compiler/calibration/data.py`. For
            "fp16": what makes and reads tensors with numbers over 65504 stays in float32.
        calibration_table: what calibration found before, instead: a table or the path of one.
        observer: how the range of a tensor is chosen from samples: "min-max", "percentile", "percentile:99.9",
            "entropy" or "mse".
        keep_float: globs (or one) of nodes or tensors that stay in float32: rules of `precisions` behind the others.
        accuracy_budget: what an int8 model may lose of the float model's `metric`, in its unit: as few products as that
            takes are not of integers, but of 16-bit floats, or of float32 where these lose too much. `meet_budget` says
            how it is found. The target "cpu-mixed" is "cpu-int8" that needs one.
        metric: a function that is given a model, calls it on held-out data and gives a number; more is better.
        equalize: with `calibrate`: scale channels between convolutions first, so that their ranges are alike; it helps
            models with depthwise convolutions most.
        smooth: with `calibrate`: which part of the spread of channels in front of matrix products goes to the weights,
            from 0 to 1 (0.5 is usual); it helps transformers most. Samples are run twice.
        rounding: with `calibrate`: "nearest", or "adaround": weights are rounded up or down as the inputs of each
            product need it.
        arch: GPU architectures (or one) of a target such as "cuda": "sm_80,sm_90". PTX is made for the oldest.
        device: what runs a model that is for a GPU: "cuda" (the first one, by default), "cuda:1", "emulate", or a
            device itself.

    Returns:
        The model, ready to run (on this machine) and to save.

    Raises:
        CompileError: what is wrong, where in the model, and what to do.
    """
    check_callbacks(progress, pool)
    require_budget(target, accuracy_budget)
    request, most = make_request(
        target, threads=threads, passes=passes, pipeline=pipeline, load=load, explain=explain, prefix=prefix,
        options=options, overridable=overridable, precisions=precisions, calibration_table=calibration_table,
        keep_float=keep_float, arch=arch,
    )  # fmt: skip
    if fallback is not None and request.overridable:
        raise CompileError("XC6005", "a fallback and overridable inputs do not go together")
    if calibrate is not None and looks_for_overflow(request):
        request = _without_overflow(model, calibrate, request, progress)
    elif calibrate is not None:
        request = _calibrated(
            model,
            calibrate,
            request,
            observer,
            keep_float,
            threads=most,
            progress=progress,
            pool=pool,
            overridable=request.overridable,
            equalize=equalize,
            smooth=smooth,
            rounding=rounding,
        )
    if accuracy_budget is not None or metric is not None:
        report = budget_report(model, request, accuracy_budget, metric, most, progress, pool)
        if not report.met:
            raise CompileError(
                "XC6010", report.statement(), help="compile for float, or allow a larger loss"
            )
        request = replace(request, precisions=request.precisions.with_rules(report.rules))
    check_fallback(fallback)

    def compiled(part: "str | PathLike[str] | bytes | onnx.ModelProto") -> CompiledModel:
        slot = Slot(part, request)
        artifact = slot.get()
        if artifact is None:
            artifact = _make(part, request, slot, progress, pool)
        return CompiledModel(artifact, threads=most, device=device)

    try:
        return compiled(model)
    except CompileError as error:
        if fallback is None or error.code not in UNSUPPORTED:
            raise
        from xcompile.compiler.fallback import compile_mixed

        return compile_mixed(model, compiled, threads=most)


def make_request(
    target: str | Target = "cpu",
    *,
    threads: int | None = None,
    passes: str = "",
    pipeline: str = "",
    load: str | PathLike[str] | Sequence[str | PathLike[str]] = (),
    explain: str | Sequence[str] = (),
    prefix: str = "model",
    options: Mapping[str, object] | None = None,
    overridable: str | Sequence[str] = (),
    precisions: Mapping[str, str] | None = None,
    calibration_table: str | PathLike[str] | CalibrationTable | None = None,
    keep_float: str | Sequence[str] = (),
    arch: str | Sequence[str] = (),
) -> tuple[Request, int | None]:
    """What the arguments of `compile` ask for, and on how many threads.

    Raises:
        CompileError: an argument is not what it should be.
    """
    _check_kinds(target, passes, pipeline)
    resolved, default = (target, FLOAT) if isinstance(target, Target) else parse_target(target)
    resolved = with_architectures(
        resolved, _listed(arch, (str,), "XC6001", "names of architectures")
    )
    kept = _listed(keep_float, (str,), "XC6005", "globs of nodes")
    default = "int8" if default == MIXED else default
    chosen = PrecisionMap(default, _rules(precisions or {})).keeping_float(kept)
    table = _table(calibration_table, chosen)
    given = Options(options)
    most = given[THREADS] if threads is None else THREADS.parse(threads)
    resolved = replace(resolved, cores=most) if most else resolved
    files = [
        Path(path) for path in _listed(load, (str, PathLike), "XC3009", "paths of Python files")
    ]
    for file in files:
        plugin_module_name(file)  # a file that cannot be read is told by the name that was given
    explained = frozenset(_listed(explain, (str,), "XC3001", "names of passes"))
    _check_prefix(prefix)
    made = Request(
        target=resolved,
        pipeline=pipeline,
        passes=passes,
        explain=explained,
        load=tuple(str(file.resolve()) for file in files),
        prefix=prefix,
        options=given,
        overridable=tuple(_listed(overridable, (str,), "XC6005", "names of inputs")),
        precisions=chosen,
        calibration=table.to_text() if table is not None else "",
    )
    return made, most


def _table(
    given: str | PathLike[str] | CalibrationTable | None, precisions: PrecisionMap
) -> CalibrationTable | None:
    """The calibration table that was given."""
    if given is None:
        return None
    if not isinstance(given, str | PathLike | CalibrationTable):
        what = type(given).__name__
        raise CompileError("XC6005", f"a calibration table is a table or a path, not {what}")
    require_int8(precisions)
    return given if isinstance(given, CalibrationTable) else CalibrationTable.load(Path(given))


def _rules(given: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The rules that the argument `precisions` has."""
    if not isinstance(given, Mapping) or not all(isinstance(glob, str) for glob in given):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise CompileError(
            "XC6005", "precisions are a mapping from globs of nodes to names of precisions"
        )
    for glob, name in given.items():
        check_precision(name, f"the precision of '{glob}'")
    return tuple(given.items())


def budget_report(
    model: "str | PathLike[str] | bytes | onnx.ModelProto",
    request: Request,
    budget: float | None,
    metric: Metric | None,
    threads: int | None = None,
    progress: Progress | None = None,
    pool: "WorkerPool | None" = None,
) -> "BudgetReport":
    """What must not be of integers for an accuracy, and what it is of then; see `compile`.

    Models are measured on this machine, whatever the target: integer results are the same everywhere.

    Raises:
        CompileError: XC6005 the arguments are wrong, XC6008 there is no calibration.
    """
    from xcompile.compiler.calibration.budget import Rules, meet_budget, narrow_precision
    from xcompile.compiler.calibration.sensitivity import SwitchedModel
    from xcompile.compiler.driver import worker_pool
    from xcompile.compiler.target.host import host_target

    require_int8(request.precisions)
    if budget is None or metric is None or not callable(metric) or not budget >= 0:
        raise CompileError("XC6005", "a budget is a number from 0 and goes with a metric to call")
    if not request.calibration:
        raise CompileError("XC6008", "an accuracy budget needs calibration samples or a table")
    table = CalibrationTable.from_text(request.calibration)
    host = host_target()
    target = request.target if request.target.runs_on(host) else host
    with contextlib.ExitStack() as stack:
        workers = pool or stack.enter_context(worker_pool(request.options))

        narrow = narrow_precision(request.target)

        def build(rules: Rules | None) -> CompiledModel:
            wanted = replace(request, target=target, precisions=ALL_FLOAT, calibration="")
            if rules is not None:
                precisions = request.precisions.with_rules(rules)
                wanted = replace(wanted, precisions=precisions, calibration=request.calibration)
            slot = Slot(model, wanted)
            artifact = slot.get() or _make(model, wanted, slot, None, workers)
            return CompiledModel(artifact, threads=threads)

        switched = functools.partial(
            SwitchedModel,
            model,
            table,
            request.precisions.keeping_float(table.keep_float),
            target,
            options=request.options,
            threads=threads,
            pool=workers,
            overridable=request.overridable,
            narrow=narrow,
        )
        return meet_budget(build, switched, table, metric, budget, progress, narrow=narrow)


def require_budget(target: str | Target, budget: float | None) -> None:
    """Raise where a target asks for the precision that a budget chooses, and there is no budget.

    Raises:
        CompileError: XC6005.
    """
    if budget is None and isinstance(target, str) and target.endswith(f"-{MIXED}"):
        raise CompileError(
            "XC6005", f"'{target}' leaves the precision of each node to an accuracy budget, and there is none",
            help="give accuracy_budget= and metric= (--accuracy-budget, --metric), or name int8 and the exceptions"
            " (precisions=, --precision)",
        )  # fmt: skip


def looks_for_overflow(request: Request) -> bool:
    """Whether samples are for float16: some of the model has that precision, and none has 8-bit integers."""
    used = request.precisions.used()
    return "fp16" in used and "int8" not in used


def _without_overflow(
    model: "str | PathLike[str] | bytes | onnx.ModelProto",
    samples: Any,
    request: Request,
    progress: Progress | None,
) -> Request:
    """The request with what float16 does not hold on these samples in float32."""
    from xcompile.compiler.calibration.overflow import extremes_of, rules_against_overflow

    found = extremes_of(model, samples, overridable=request.overridable, progress=progress)
    precisions = request.precisions.with_rules(rules_against_overflow(found))
    return replace(request, precisions=precisions)


def require_int8(precisions: PrecisionMap) -> None:
    """Raise unless a model, or a part of it, is to be of integers with scales that samples give.

    Raises:
        CompileError: XC6005.
    """
    if "int8" not in precisions.used():
        raise CompileError(
            "XC6005", "calibration is for the precision int8",
            help="name it in the target: cpu-int8, x86-vnni-int8, arm-dotprod-int8",
        )  # fmt: skip


def _calibrated(
    model: "str | PathLike[str] | bytes | onnx.ModelProto",
    samples: Any,
    request: Request,
    observer: str,
    keep_float: str | Sequence[str],
    **arguments: Any,
) -> Request:
    """The request with a calibration table of these samples."""
    from xcompile.compiler.calibration.run import calibrate_model

    require_int8(request.precisions)
    if request.calibration:
        raise CompileError("XC6005", "samples and a calibration table are given: one is enough")
    kept = _listed(keep_float, (str,), "XC6005", "globs of nodes")
    given = {
        CACHE.name: request.options[CACHE],
        JOBS.name: request.options[JOBS],
        WORKER_TIMEOUT.name: request.options[WORKER_TIMEOUT],
    }
    table = calibrate_model(
        model, samples, observer=observer, keep_float=kept, options=given, **arguments
    )
    return replace(request, calibration=table.to_text())


def _make(
    model: "str | PathLike[str] | bytes | onnx.ModelProto",
    request: Request,
    slot: Slot,
    progress: Progress | None,
    pool: "WorkerPool | None",
) -> "Artifact":
    """Compile. MLIR and ONNX are imported here: a model from the cache needs neither."""
    from xcompile.compiler.driver import finish, plan_module
    from xcompile.compiler.foreign import foreign_code
    from xcompile.compiler.isolation import plan_isolated
    from xcompile.frontends.onnx.importer import import_onnx

    if progress is not None:
        progress("import", 0, 1)
    foreign = foreign_code(request.pipeline, request.passes)
    bound = foreign.bound if foreign and request.options[ISOLATE] else {}
    if (request.load or foreign) and request.options[ISOLATE] and not bound:
        artifact, jobs, external = plan_isolated(model, request, foreign=foreign)
    else:
        if foreign and bound:
            foreign.warn()
        for path in request.load:
            load_plugin(Path(path))
        module = import_onnx(model, overridable=request.overridable)
        artifact, jobs = plan_module(module, request, progress)
        external = facts_of(module.external)
        said = [f"{n}: {why}" for n, why in bound.items() if request.explain & {n, "*"}]
        artifact = replace(artifact, explanations=(*said, *artifact.explanations))
    made = finish(artifact, jobs, request, progress, pool)
    slot.put(made, external)
    return made


def check_fallback(fallback: str | None) -> None:
    """Check who is to run what is not supported.

    Raises:
        CompileError: XC6005.
    """
    if fallback not in (None, "onnxruntime"):
        raise CompileError("XC6005", f"the fallback is '{fallback}'", help="onnxruntime, or None")


def check_callbacks(progress: object, pool: object) -> None:
    """Check two arguments of `compile` that it hands on.

    Raises:
        CompileError: XC6005.
    """
    if progress is not None and not callable(progress):
        raise CompileError("XC6005", f"progress is called; {type(progress).__name__} cannot be")
    if pool is not None and not callable(getattr(pool, "map", None)):
        raise CompileError("XC6005", f"a pool is a WorkerPool, not {type(pool).__name__}")


def _listed(given: Any, kinds: tuple[type, ...], code: str, what: str) -> list[Any]:
    """One value, or several, as a list."""
    if isinstance(given, kinds):
        return [given]
    if not isinstance(given, Iterable) or isinstance(given, bytes | Mapping):
        raise CompileError(code, f"{what} are expected, not {type(given).__name__}")
    values = list(cast("Iterable[object]", given))
    wrong = next((value for value in values if not isinstance(value, kinds)), None)
    if wrong is not None:
        raise CompileError(code, f"{what} are expected, not {type(wrong).__name__}")
    return values


def _check_kinds(target: object, *pipelines: object) -> None:
    if not isinstance(target, str | Target):
        raise CompileError("XC6001", f"a target is a name or a Target, not {type(target).__name__}")
    for text in pipelines:
        if not isinstance(text, str):
            raise CompileError(
                "XC3002", f"a pipeline and its edits are text, not {type(text).__name__}",
                help="write the edits in one text with ';' between them",
            )  # fmt: skip


def _check_prefix(prefix: str) -> None:
    if not isinstance(prefix, str) or not is_prefix(prefix):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise CompileError(
            "XC6005", f"the prefix '{prefix}' cannot start the names of C functions",
            help="a C identifier of at most 64 characters that is not one of the C library's",
        )  # fmt: skip
