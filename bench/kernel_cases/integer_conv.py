"""The benchmark of convolutions of 8-bit integers: ResNet-50's, each requantized to bytes.

    python -m bench.kernel_cases.integer_conv [filter]

prints, for each distinct layer, billions of multiply-adds in a second on one thread: of x86-avx2 and of the host's
kernels, of this compiler's float32 kernel for the host, and of onnxruntime's QLinearConv, whose time is its own
profile's of that node. All take turns, and the best of many rounds counts.
"""

import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from bench.blocked import CompiledConv
from bench.kernel_cases.conv import LAYERS, Layer
from bench.native import fastest
from xcompile.compiler.schedule.conv import ConvProblem
from xcompile.compiler.target.host import host_target
from xcompile.compiler.target.registry import targets
from xcompile.compiler.target.target import Target

ROUNDS = 12
TIMES = {
    "same3x3 3x3 64x56": 3,
    "same3x3 3x3 128x28": 3,
    "same3x3 3x3 256x14": 5,
    "same3x3 3x3 512x7": 2,
}


def layers() -> list[Layer]:
    """ResNet-50's convolutions, each with its number."""
    found = [layer for layer in LAYERS if layer.network == "resnet50"]
    for layer in LAYERS:
        times = TIMES.get(layer.name.partition(" ->")[0])
        if times:
            found.append(replace(layer, network="resnet50", times=times))
    return found


def integers(problem: ConvProblem) -> tuple[np.ndarray, np.ndarray]:
    """Input and weights."""
    rng = np.random.default_rng(0)
    kernel = (problem.oc, problem.c, *problem.window.kernel)
    x = rng.integers(0, 256, (problem.n, problem.c, problem.h, problem.w)).astype(np.uint8)
    return x, rng.integers(-127, 128, kernel).astype(np.int8)


def integer_call(problem: ConvProblem, target: Target) -> Callable[[], None]:
    """Our kernel on 8-bit integers."""
    x, weight = integers(problem)
    made = replace(problem, dtype="ui8", weights="i8")
    compiled = CompiledConv(made, target, fill=3, requantize=True)
    bias = np.zeros(problem.oc, np.int32)
    arguments, _, extent = compiled.arguments(x, weight, bias, {})
    return compiled.kernel.bind(*arguments, 0, extent)


def float_call(problem: ConvProblem, target: Target) -> Callable[[], None]:
    """Our kernel on floats."""
    x, weight = (a.astype(np.float32) for a in integers(problem))
    compiled = CompiledConv(problem, target)
    arguments, _, extent = compiled.arguments(x, weight, np.zeros(problem.oc, np.float32), {})
    return compiled.kernel.bind(*arguments, 0, extent)


class Peer:
    """Onnxruntime's QLinearConv on one thread; `seconds` is the best of its node alone."""

    def __init__(self, layer: Layer) -> None:
        problem = layer.problem
        x, weight = integers(problem)
        if problem.h == 1:  # flattened
            x = x.reshape(1, layer.c, layer.size, layer.size)
        constants = {
            "xs": np.float32(0.1), "xz": np.uint8(3), "w": weight, "wz": np.zeros(layer.oc, np.int8),
            "ws": np.full(layer.oc, 0.01, np.float32), "ys": np.float32(10), "yz": np.uint8(0),
            "b": np.zeros(layer.oc, np.int32),
        }  # fmt: skip
        node = helper.make_node(
            "QLinearConv", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"], ["y"],
            pads=[layer.pad] * 4, strides=[layer.stride] * 2,
        )  # fmt: skip
        graph = helper.make_graph(
            [node], "g", [helper.make_tensor_value_info("x", TensorProto.UINT8, x.shape)],
            [helper.make_tensor_value_info("y", TensorProto.UINT8, None)],
            [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()],
        )  # fmt: skip
        opsets = [helper.make_opsetid("", 17)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        self._folder = tempfile.TemporaryDirectory()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(self._folder.name) / "profile")
        self._session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        self._feeds = {"x": x}

    def step(self) -> None:
        """Run a few times."""
        for _ in range(5):
            self._session.run(None, self._feeds)

    def seconds(self) -> float:
        """The node's best time; ends the session's profile."""
        events = json.loads(Path(self._session.end_profiling()).read_text())
        times = [
            e["dur"]
            for e in events
            if e["name"].endswith("_kernel_time") and "Conv" in e["args"]["op_name"]
        ]
        return min(times) * 1e-6


def main(pattern: str = "") -> None:
    """Print the layers whose name contains `pattern`, then the network's convolutions as a whole."""
    host = host_target()
    named = {"x86-avx2": targets()["x86-avx2"], host.name: host}
    totals = dict.fromkeys([*named, "float32", "onnxruntime"], 0.0)
    print(f"{'GMAC/s':34}" + "".join(f"{name:>12}" for name in totals))
    work = 0
    for layer in layers():
        if pattern not in layer.name:
            continue
        problem = layer.problem
        calls = {name: integer_call(problem, target) for name, target in named.items()}
        calls["float32"] = float_call(problem, host)
        peer = Peer(layer)
        best = dict.fromkeys(calls, float("inf"))
        for _ in range(ROUNDS):
            for name, call in calls.items():
                best[name] = min(best[name], fastest(call, 3))
            peer.step()
        best["onnxruntime"] = peer.seconds()
        out = problem.output(0, problem.h) * problem.output(1, problem.w)
        macs = out * layer.oc * layer.c * layer.kernel**2
        work += layer.times * macs
        for name, seconds in best.items():
            totals[name] += layer.times * seconds
        rates = "".join(f"{macs / seconds / 1e9:12.1f}" for seconds in best.values())
        print(f"{layer.name:34}{rates}", flush=True)
    print(f"{'all':34}" + "".join(f"{work / s / 1e9:12.1f}" for s in totals.values()))
    print(f"{'milliseconds':34}" + "".join(f"{s * 1e3:12.2f}" for s in totals.values()))


if __name__ == "__main__":
    main(*sys.argv[1:2])
