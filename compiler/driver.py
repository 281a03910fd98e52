"""One compile from start to end: read, passes, kernels, workers, artifact."""

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from xcompile import passes as _passes  # registers the passes
from xcompile.compiler.artifact import Artifact, KernelFacts
from xcompile.compiler.codegen.cache import ObjectCache
from xcompile.compiler.codegen.cuda.assembler import (
    AssemblyFacts,
    assembled,
    assembly_job,
    find_assembler,
)
from xcompile.compiler.codegen.job import Job, MachineSpec
from xcompile.compiler.codegen.program.build import Built, build
from xcompile.compiler.codegen.program.program import Check, Program
from xcompile.compiler.codegen.program.verify import verify_program
from xcompile.compiler.ir.dtypes import DTYPES
from xcompile.compiler.ir.instruments import Verify
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.passes import PASS_REGISTRY, Instrument, PassContext
from xcompile.compiler.ir.pipeline import Pipeline, parse_pipeline
from xcompile.compiler.ir.runner import run_pipeline
from xcompile.compiler.numerics.check import VerifyNumerics
from xcompile.compiler.pipelines import PIPELINES, default_pipeline
from xcompile.compiler.quantize.names import digest_of
from xcompile.compiler.quantize.plan import KEPT_IN_FLOAT
from xcompile.compiler.quantize.table import CalibrationTable
from xcompile.compiler.request import Progress, Request
from xcompile.compiler.statements import NoteOps
from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.support.fingerprint import code_fingerprint
from xcompile.compiler.support.options import (
    CACHE,
    JOBS,
    VERIFY_EACH,
    VERIFY_NUMERICS,
    WORKER_TIMEOUT,
    Options,
)
from xcompile.compiler.support.trace import TRACE
from xcompile.compiler.target.device import Device
from xcompile.compiler.target.target import Target
from xcompile.compiler.worker.pool import Outcome, WorkerPool
from xcompile.dialects.nn.base import Shape, dtype_of
from xcompile.dialects.nn.shapes import refine_types
from xcompile.runtime.abi import ALIGNMENT, DTYPE_CODES, Default, Manifest, TensorSpec
from xcompile.runtime.device import PTX
from xcompile.runtime.errors import shorten

assert _passes.PASSES
_TEXT_LIMIT = 1000


def resolved_pipeline(request: Request) -> Pipeline:
    """The request's pipeline with its edits."""
    text = request.pipeline or default_pipeline(request.target, request.precisions)
    made = parse_pipeline(text, PIPELINES)
    return made.edited(request.passes, PIPELINES) if request.passes else made


def compile_module(
    module: Module,
    request: Request,
    progress: Progress | None = None,
    pool: WorkerPool | None = None,
) -> Artifact:
    """Compile a module of the nn level; the module is changed.

    Args:
        module: the model.
        request: what to compile for, and how.
        progress: told of what is being done.
        pool: workers to use and to leave running; by default some are started for this compile.

    Raises:
        CompileError: what is wrong with the model, a pass or the machine.
    """
    artifact, jobs = plan_module(module, request, progress)
    return finish(artifact, jobs, request, progress, pool)


def plan_module(
    module: Module, request: Request, progress: Progress | None = None
) -> tuple[Artifact, Mapping[str, Job]]:
    """Do all that comes before compiling kernels; the module is changed.

    Returns:
        The artifact without objects, and the jobs that make them, by the objects' names.

    Raises:
        CompileError: what is wrong with the model or a pass.
    """
    for name in request.explain - {"*"}:
        PASS_REGISTRY.get(name)
    with module.context, ir.Location.unknown():
        signature = _signature(module)
        if request.calibration:
            _check_calibration(module, request.calibration)
        analysis = refine_types(module, module.input_shapes())
        checks = tuple(Check(a, b, text) for a, b, text in analysis.constraints)
        if progress is not None:
            progress("passes", 0, 1)
        watching: list[Instrument] = [Verify(each=request.options[VERIFY_EACH])]
        if request.options[VERIFY_NUMERICS]:
            watching.append(VerifyNumerics())
        watching += request.instruments
        watching.append(noted := NoteOps())
        context = PassContext(
            request.target,
            request.explain,
            instruments=watching,
            calibration=request.calibration,
            precisions=request.precisions,
        )
        run_pipeline(module, resolved_pipeline(request), context)
        TRACE.enter(None)
        built = build(module, request.target, request.prefix, checks)
        if request.options[VERIFY_EACH]:
            verify_program(built.program)
    entry = _entry_job(built.program, request.target)
    jobs = {**built.jobs, f"{request.prefix}_entry": entry}
    loading = {name: replace(job, load=request.load) for name, job in jobs.items()}
    artifact = _artifact(module, built, signature, request, context)
    return replace(artifact, statements=noted.statements(artifact, module.kinds)), loading


def finish(
    artifact: Artifact,
    jobs: Mapping[str, Job],
    request: Request,
    progress: Progress | None = None,
    pool: WorkerPool | None = None,
) -> Artifact:
    """The artifact with its objects; arguments and errors are those of `compile_module`."""

    def report(job: Job, outcome: Outcome, done: int, total: int) -> None:
        if progress is not None:
            progress("kernels", done, total)

    with contextlib.ExitStack() as stack:
        workers = pool or stack.enter_context(worker_pool(request.options))
        results = workers.map(list(jobs.values()), report)
        made = dict(zip(jobs, (result.code for result in results), strict=True))
        kernels = {name: job for name, job in jobs.items() if job.machine.is_device}
        finished = replace(artifact, objects={n: c for n, c in made.items() if n not in kernels})
        device = request.target.device
        if device is None:
            return finished
        device_code = {name: {PTX: made[name]} for name in kernels}
        return _assembled(replace(finished, device_code=device_code), kernels, device, workers)


def _assembled(
    artifact: Artifact, kernels: Mapping[str, Job], device: Device, pool: WorkerPool
) -> Artifact:
    """The artifact with machine code for each architecture of the device, where there is an assembler."""
    assembler = find_assembler()
    if assembler is None:
        return artifact
    wanted = [(name, arch) for name in kernels for arch in device.architectures]
    results = pool.map(
        [
            assembly_job(kernels[name], artifact.device_code[name][PTX], arch, assembler)
            for name, arch in wanted
        ]
    )
    code = {name: dict(kinds) for name, kinds in artifact.device_code.items()}
    facts: dict[str, dict[str, AssemblyFacts]] = {name: {} for name in kernels}
    for (name, arch), result in zip(wanted, results, strict=True):
        code[name][arch], facts[name][arch] = assembled(result)
    return replace(artifact, device_code=code, assembly=facts)


def _spec(name: str, dtype: str, shape: Shape) -> TensorSpec:
    if dtype not in DTYPE_CODES:
        raise CompileError(
            "XC1012", f"'{name}' has the data type {dtype}, which no compiled model has"
        )
    return TensorSpec(name, dtype, tuple(str(d) for d in shape))


def input_specs(module: Module) -> list[TensorSpec]:
    """Name, dtype and sizes of each input of a model."""
    arguments = module.main.regions[0].blocks[0].arguments
    return [
        _spec(name, DTYPES[dtype_of(a)].name, shape)
        for name, a, shape in zip(
            module.input_names(), arguments, module.input_shapes(), strict=True
        )
    ]


def _signature(module: Module) -> tuple[list[TensorSpec], list[str]]:
    """The inputs, and the dtypes of the outputs."""
    returned = list(module.main.regions[0].blocks[0].operations)[-1].operation.operands
    return input_specs(module), [DTYPES[dtype_of(v)].name for v in returned]


def worker_pool(options: Options) -> WorkerPool:
    """A pool of workers as the options say, with the cache of objects."""
    folder = options[CACHE]
    cache = ObjectCache(folder / "objects") if folder else None
    return WorkerPool(options[JOBS], timeout_s=options[WORKER_TIMEOUT], cache=cache)


def _check_calibration(module: Module, text: str) -> None:
    """Raise unless a calibration table is of this model."""
    table = CalibrationTable.from_text(text)
    if table.digest != digest_of(module):
        raise CompileError(
            "XC6009", f"the calibration table was made for another model (then called '{table.model}')",
            help="weights, inputs or outputs differ: calibrate again",
        )  # fmt: skip


def _entry_job(program: Program, target: Target) -> Job:
    return Job(
        "xcompile.compiler.codegen.program.host_entry:emit", program.to_json(), MachineSpec.of(target),
        kernel=f"{program.prefix} (entry functions)",
    )  # fmt: skip


def _artifact(
    module: Module,
    built: Built,
    signature: tuple[list[TensorSpec], list[str]],
    request: Request,
    context: PassContext,
) -> Artifact:
    program, (inputs, dtypes) = built.program, signature
    weights, defaults = _with_defaults(module, built.weights)
    outputs = [
        _spec(name, dtype, shape)
        for name, dtype, shape in zip(module.output_names(), dtypes, program.outputs, strict=True)
    ]
    manifest = Manifest(
        prefix=request.prefix,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        table_slots=len(program.table),
        weights_bytes=len(weights),
        prepared_bytes=program.prepared,
        scratch_stride=program.scratch,
        target=request.target.name,
        features=tuple(sorted(request.target.instruction_sets)),
        checks=tuple(_check_texts(program, inputs)),
        defaults=defaults,
        provenance={
            "model": module.name,
            "pipeline": str(resolved_pipeline(request)),
            "program": hashlib.sha256(
                json.dumps(program.to_json(), sort_keys=True).encode()
            ).hexdigest(),
            "compiler": code_fingerprint(),
        },
    )
    return Artifact(
        manifest,
        {},
        weights,
        program,
        request.target.arch,
        kernels={symbol: _facts(symbol, built) for symbol in built.plans},
        explanations=tuple(dict.fromkeys(_explanations(context))),  # each line once
        kept_float=tuple(
            (node, why)
            for _, stats in context.stats
            for what, node, why in stats.missed
            if what == KEPT_IN_FLOAT
        ),
    )


def _facts(symbol: str, built: Built) -> KernelFacts:
    plan, work = built.plans[symbol], built.work[symbol]
    return KernelFacts(
        plan.family,
        str(plan.schedule),
        built.arithmetic[symbol],
        built.stores[symbol],
        work.form,
        str(work.products),
        str(work.steps),
    )


def _with_defaults(module: Module, weights: bytes) -> tuple[bytes, tuple[Default, ...]]:
    """The weights with what inputs are that a run may leave out behind them, and where these lie."""
    parts, size, defaults = [weights], len(weights), list[Default]()
    for name, array in module.defaults.items():
        gap = -size % ALIGNMENT
        defaults.append(Default(name, size + gap, array.shape))
        parts += [bytes(gap), np.ascontiguousarray(array).tobytes()]
        size += gap + array.nbytes
    return b"".join(parts), tuple(defaults)


def _check_texts(program: Program, inputs: list[TensorSpec]) -> Iterator[str]:
    """What it means that check i of `P_prepare`, or then of `P_run`, fails; names may be of any length."""
    for check in program.checks:
        yield shorten(check.text, _TEXT_LIMIT)
    for repeat in program.repeats:
        (one, axis), (other, before) = repeat.place, repeat.first
        names = [shorten(inputs[position].name, _TEXT_LIMIT // 4) for position in (one, other)]
        yield (
            f"axis {axis} of the input '{names[0]}' and axis {before} of '{names[1]}' "
            f"are both '{repeat.dim}' and must be equal"
        )
    yield "the sizes are too large"
    for text in program.failures:
        yield shorten(text, _TEXT_LIMIT)


def _explanations(context: PassContext) -> Iterator[str]:
    """What the passes that were asked to explain themselves did and did not do, and why."""
    for name, stats in context.stats:
        if not context.wants_reasons(name):
            continue
        for pattern, node in stats.fired_at:
            yield f"{name}: {pattern} fired at '{node}'"
        for pattern, node, reason in stats.missed:
            yield f"{name}: {pattern} did not fire at '{node}': {reason}"
