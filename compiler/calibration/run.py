"""From a model and samples to a calibration table, in one call that can be interrupted and taken up again."""

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xcompile.compiler.calibration.calibrator import Calibrator
from xcompile.compiler.calibration.data import Preprocessing, Samples, open_samples, skipped
from xcompile.compiler.quantize.observers import observer_of
from xcompile.compiler.quantize.smooth import Exponents
from xcompile.compiler.quantize.table import CalibrationTable
from xcompile.compiler.request import Progress
from xcompile.compiler.support.errors import CompileError

if TYPE_CHECKING:
    import onnx

    from xcompile.compiler.worker.pool import WorkerPool


def calibrate_model(
    model: "str | PathLike[str] | bytes | onnx.ModelProto",
    source: Any,
    *,
    observer: str = "mse",
    keep_float: Sequence[str] = (),
    preprocessing: str = "",
    state: Path | None = None,
    threads: int | None = None,
    options: Mapping[str, object] | None = None,
    progress: Progress | None = None,
    pool: "WorkerPool | None" = None,
    overridable: Sequence[str] = (),
    equalize: bool = False,
    smooth: float | None = None,
    rounding: str = "nearest",
) -> CalibrationTable:
    """Run a model on samples and choose the ranges of its tensors.

    Args:
        model: in floating point.
        source: of samples, see `open_samples`.
        observer: see `Calibrator.table`.
        keep_float: globs of nodes that stay in floating point.
        preprocessing: of images, see `Preprocessing.parse`.
        state: a file where the work so far is kept when it is interrupted, and taken up from; it is gone at the end.
        threads: to run on.
        options: as `xcompile.compile` takes them.
        progress: told of each sample.
        pool: worker processes to compile with.
        overridable: as `xcompile.compile` takes them; samples have them too.
        equalize: see `Calibrator`.
        smooth: how much of the spread of channels in front of matrix products goes to the weights, from 0 to 1; see
            `Calibrator.smoothing`. Samples are run twice then.
        rounding: see `Calibrator`.

    Raises:
        CompileError: the model cannot be compiled, or the samples cannot be used (XC6009).
    """
    observer_of(observer)
    spec = Preprocessing.parse(preprocessing)
    if smooth is not None and isinstance(source, Iterator):
        raise CompileError(
            "XC6009", "smoothing runs the samples twice, and these can be read once",
            help="give a list, a path, or the function that gives them",
        )  # fmt: skip

    def observed(factors: Exponents | None, kept: Path | None, rounds: str) -> Calibrator:
        calibrator = Calibrator(
            model,
            threads=threads,
            options=options,
            progress=progress,
            pool=pool,
            overridable=overridable,
            equalize=equalize,
            smooth=factors,
            rounding=rounds,
        )
        samples = open_samples(source, calibrator.inputs, spec)
        _observe(calibrator, samples, kept, progress)
        return calibrator

    if smooth is None:
        made, states = observed(None, state, rounding), [state]
    else:
        first = None if state is None else state.with_name(f"{state.name}.smooth")
        before = observed(None, first, "nearest")
        if first is not None:
            before.save(first)
        made, states = observed(before.smoothing(smooth), state, rounding), [state, first]
    table = made.table(observer, keep_float=keep_float)
    for path in states:
        if path is not None:
            path.unlink(missing_ok=True)
    return table


def _observe(
    calibrator: Calibrator, samples: Samples, state: Path | None, progress: Progress | None
) -> None:
    """Observe samples, going on from a state where there is one, and keeping it when the work is interrupted."""
    if state is not None and state.exists():
        calibrator.restore(state)
        samples = skipped(samples, calibrator.calls)
    try:
        calibrator.observe_all(samples.samples, total=samples.total, progress=progress)
    except KeyboardInterrupt:
        if state is not None:
            calibrator.save(state)
        raise
