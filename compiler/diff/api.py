"""`xcompile.diff`."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from xcompile.compiler.api import check_callbacks, make_request
from xcompile.compiler.diff.report import Report
from xcompile.compiler.request import Progress
from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.target.host import host_target
from xcompile.compiler.target.target import Target
from xcompile.runtime.abi import TensorSpec

if TYPE_CHECKING:
    import onnx

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
        arguments: further ones of `xcompile.compile`: `threads`, `passes`, `pipeline`, `load` (in this process),
            `options`.

    Raises:
        CompileError: the model cannot be compiled, evaluated by the reference, or run by the other engine.
    """
    from xcompile.compiler.diff.run import compare

    check_callbacks(progress, pool)
    if inputs is not None and not callable(inputs) and not isinstance(inputs, Mapping | Sequence):
        what = type(inputs).__name__
        raise CompileError("XC6005", f"inputs are arrays by name or in order, not {what}")
    request, _ = make_request(target, **arguments)
    if not request.target.runs_on(host_target()):
        raise CompileError(
            "XC6007", f"this machine cannot run code of the target '{request.target.name}'"
        )
    return compare(model, request, inputs, against=against, progress=progress, pool=pool)
