"""From a model and samples to a calibration table, in one call that can be interrupted and taken up again."""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xcompile.compiler.calibration.calibrator import Calibrator
from xcompile.compiler.calibration.data import Preprocessing, open_samples, skipped
from xcompile.compiler.quantize.observers import observer_of
from xcompile.compiler.quantize.table import CalibrationTable
from xcompile.compiler.request import Progress

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

    Raises:
        CompileError: the model cannot be compiled, or the samples cannot be used (XC6009).
    """
    observer_of(observer)
    spec = Preprocessing.parse(preprocessing)
    calibrator = Calibrator(
        model,
        threads=threads,
        options=options,
        progress=progress,
        pool=pool,
        overridable=overridable,
        equalize=equalize,
    )
    samples = open_samples(source, calibrator.inputs, spec)
    if state is not None and state.exists():
        calibrator.restore(state)
        samples = skipped(samples, calibrator.calls)
    try:
        calibrator.observe_all(samples.samples, total=samples.total, progress=progress)
    except KeyboardInterrupt:
        if state is not None:
            calibrator.save(state)
        raise
    table = calibrator.table(observer, keep_float=keep_float)
    if state is not None:
        state.unlink(missing_ok=True)
    return table
