"""The engines that are compared, behind one interface: load a model for some threads, run it on named inputs."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

Inputs = Mapping[str, np.ndarray]
Runner = Callable[[], list[np.ndarray]]


def xcompile_runner(path: Path, inputs: Inputs, threads: int, target: str = "cpu") -> Runner:
    """This compiler, for the machine it runs on or a target that this machine runs."""
    import xcompile

    model = xcompile.compile(path, target, threads=threads)
    return lambda: list(model.run(inputs).values())


def onnxruntime_runner(path: Path, inputs: Inputs, threads: int) -> Runner:
    """Onnxruntime's CPU provider with all optimizations."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "1")
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feeds = dict(inputs)
    return lambda: session.run(None, feeds)


def openvino_runner(path: Path, inputs: Inputs, threads: int, precision: str = "f32") -> Runner:
    """OpenVINO's CPU plug-in, tuned for latency, in "f32", or where it can in "bf16" or "f16"."""
    import openvino

    core = openvino.Core()
    settings = {
        "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": precision,
        "NUM_STREAMS": 1,
    }  # fmt: skip
    model = core.read_model(str(path))
    model.reshape({port.any_name: list(inputs[port.any_name].shape) for port in model.inputs})
    compiled = core.compile_model(model, "CPU", settings)
    request = compiled.create_infer_request()
    ports = list(compiled.outputs)

    def run() -> list[np.ndarray]:
        found = request.infer(dict(inputs), share_inputs=True, share_outputs=True)
        return [np.asarray(found[port]) for port in ports]

    return run


def mnn_runner(path: Path, inputs: Inputs, threads: int) -> Runner:
    """MNN in float32."""
    import subprocess
    import sys
    import tempfile

    import MNN

    converted = Path(tempfile.mkdtemp()) / "model.mnn"
    subprocess.run(
        [sys.executable, "-m", "MNN.tools.mnnconvert", "-f", "ONNX", "--modelFile", str(path), "--MNNModel",
         str(converted), "--bizCode", "x"],
        check=True, capture_output=True,
    )  # fmt: skip
    interpreter: Any = MNN.Interpreter(str(converted))
    session = interpreter.createSession(
        {"numThread": threads, "precision": "high", "backend": "CPU"}
    )
    tensors = interpreter.getSessionInputAll(session)
    for name, array in inputs.items():
        tensor = tensors[name]
        interpreter.resizeTensor(tensor, tuple(array.shape))
    interpreter.resizeSession(session)

    def run() -> list[np.ndarray]:
        for name, array in inputs.items():
            host = MNN.Tensor(
                array.shape, MNN.Halide_Type_Float, array, MNN.Tensor_DimensionType_Caffe
            )
            tensors[name].copyFrom(host)
        interpreter.runSession(session)
        outputs = interpreter.getSessionOutputAll(session)
        return [np.array(t.getNumpyData(), copy=True) for t in outputs.values()]

    return run


ENGINES: dict[str, Callable[[Path, Inputs, int], Runner]] = {
    "xcompile": xcompile_runner,
    "onnxruntime": onnxruntime_runner,
    "openvino": openvino_runner,
    "mnn": mnn_runner,
}
