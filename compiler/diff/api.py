"""`xcompile.diff` and `xcompile.diff_precision`."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from xcompile.compiler.api import check_callbacks, check_fallback, make_request
from xcompile.compiler.api import compile as compile_model
from xcompile.compiler.diff.report import Report
from xcompile.compiler.request import Progress
from xcompile.compiler.support.errors import UNSUPPORTED, CompileError
from xcompile.compiler.support.precision_map import FLOAT
from xcompile.compiler.target.host import host_target
from xcompile.compiler.target.target import Target
from xcompile.runtime.abi import TensorSpec

if TYPE_CHECKING:
    import onnx

    from xcompile.compiler.diff.precision_report import LossReport
    from xcompile.compiler.worker.pool import WorkerPool

Arrays = Mapping[str, np.ndarray] | Sequence[np.ndarray]


def diff(
    model: "str | PathLike[str] | bytes | onnx.ModelProto",
    inputs: Arrays | Callable[[Sequence[TensorSpec]], Arrays] | None = None,
    *,
    against: str = "reference",
    target: str | Target = "cpu",
    progress: Progress | None = None,
    pool: "WorkerPool | None" = None,
    fallback: str | None = None,
    **arguments: Any,
) -> Report:
    """Compile a model, compare it with an oracle tensor by tensor, and name the op, pass or kernel that is wrong.

    Args:
        model: an ONNX model: a path, the bytes of a file, or a parsed `ModelProto`.
        inputs: arrays by name or in order; what is missing is random, sizes that the model leaves open are 3. Or a
            function that makes them from what the inputs are.
        against: "reference", the numpy meaning of the ops, or "onnxruntime", which also checks how the model is read.
        target: one whose code this machine runs.
        progress: called with what is being done, how much of it is done, and of how much.
        pool: worker processes to use and to leave running.
        fallback: "onnxruntime" runs the ops that are not supported; the compiled parts of the model are compared.
        arguments: further ones of `xcompile.compile`: `threads`, `passes`, `pipeline`, `load` (in this process),
            `options`.

    Raises:
        CompileError: the model cannot be compiled, evaluated by the reference, or run by the other engine.
    """
    from xcompile.compiler.diff.run import compare

    check_callbacks(progress, pool)
    _check_inputs(inputs)
    request, _ = make_request(target, **arguments)
    if not request.target.runs_on(host_target()):
        raise CompileError(
            "XC6007", f"this machine cannot run code of the target '{request.target.name}'"
        )
    check_fallback(fallback)
    try:
        return compare(model, request, inputs, against=against, progress=progress, pool=pool)
    except CompileError as error:
        if fallback is None or error.code not in UNSUPPORTED:
            raise
    from xcompile.compiler.diff.mixed import diff_mixed

    def part(data: bytes, given: Mapping[str, np.ndarray]) -> Report:
        return compare(data, request, given, against=against, progress=progress, pool=pool)

    return diff_mixed(model, inputs, part, target=target, pool=pool, **arguments)


def diff_precision(
    model: "str | PathLike[str] | bytes | onnx.ModelProto",
    inputs: Arrays | Callable[[Sequence[TensorSpec]], Arrays] | None = None,
    *,
    target: str | Target = "cpu-int8",
    other: "str | PathLike[str] | bytes | onnx.ModelProto | None" = None,
    progress: Progress | None = None,
    pool: "WorkerPool | None" = None,
    **arguments: Any,
) -> "LossReport":
    """Compare a float model with itself in another precision, or with a quantized model, tensor by tensor.

        report = xcompile.diff_precision("m.onnx", {"x": x}, target="cpu-int8", calibration_table="m.json")
        report = xcompile.diff_precision("m.onnx", {"x": x}, other="m.qdq.onnx", target="cpu")
        report.sorted_rows()[0]  # the tensor whose op costs most alone

    Args:
        model: an ONNX model in floating point: a path, the bytes of a file, or a parsed `ModelProto`.
        inputs: arrays by name or in order; what is missing is random, sizes that the model leaves open are 3. Or a
            function that makes them from what the inputs are.
        target: with the precision; without `other` it is not fp32.
        other: a quantized model, compared by the names of its tensors.
        progress: called with what is being done, how much of it is done, and of how much.
        pool: worker processes to use and to leave running.
        arguments: further ones of `xcompile.compile`: `calibration_table`, `keep_float`, `passes`, `options`.

    Raises:
        CompileError: a model cannot be compiled, or evaluated by the reference.
    """
    from xcompile.compiler.diff.precision import compare_models, compare_precision

    check_callbacks(progress, pool)
    _check_inputs(inputs)
    request, _ = make_request(target, **arguments)
    if other is None and request.precisions.used() == (FLOAT,):
        raise CompileError(
            "XC6005", f"the target '{request.target.name}' is in floating point already",
            help="name a precision, as in cpu-int8, or another model",
        )  # fmt: skip
    if progress is not None:
        progress("reference", 0, 1)
    name = f"{request.target.name}-{request.precisions.default}"
    made = (
        compare_precision(model, request, inputs, name)
        if other is None
        else compare_models(model, other, inputs)
    )
    executed = None
    if request.target.runs_on(host_target()):
        compiled = compile_model(
            model if other is None else other, target, progress=progress, pool=pool, **arguments
        )
        executed = compiled.run(made.inputs)
    return made.report(executed)


def _check_inputs(inputs: object) -> None:
    if inputs is not None and not callable(inputs) and not isinstance(inputs, Mapping | Sequence):
        what = type(inputs).__name__
        raise CompileError("XC6005", f"inputs are arrays by name or in order, not {what}")
