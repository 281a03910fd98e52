"""onnxruntime: what a model is compared with, and what may run its unsupported ops."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xcompile.compiler.support.errors import CompileError


def open_session(
    model: str | bytes, *, threads: int, optimize: bool = True, folder: Path | None = None
) -> Any:
    """A session of onnxruntime on the CPU.

    Args:
        model: a path, or the bytes of a model.
        threads: to run on.
        optimize: whether onnxruntime may change the graph.
        folder: where the external data of a model in bytes lies.

    Raises:
        CompileError: XC6006 it is not installed, or does not take the model.
    """
    try:
        import onnxruntime
    except ImportError:
        raise CompileError(
            "XC6006", "onnxruntime is not installed", help="pip install onnxruntime"
        ) from None
    ort: Any = onnxruntime
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.log_severity_level = 3
    if not optimize:
        settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if folder is not None:
        key = "session.model_external_initializers_file_folder_path"
        settings.add_session_config_entry(key, str(folder))
    try:
        return ort.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise refusal(error) from error


def run_session(
    session: Any, names: Sequence[str], inputs: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The outputs of a session that are tensors, by name.

    Raises:
        CompileError: XC6006 onnxruntime fails.
    """
    taken = {i.name for i in session.get_inputs()}
    given = {name: array for name, array in inputs.items() if name in taken}
    try:
        results = session.run(list(names), given)
    except Exception as error:
        raise refusal(error) from error
    pairs = zip(names, results, strict=True)
    return {name: array for name, array in pairs if isinstance(array, np.ndarray)}


def refusal(error: Exception) -> CompileError:
    """What onnxruntime raised, as an error of ours."""
    return CompileError("XC6006", f"onnxruntime does not run the model: {error}")
