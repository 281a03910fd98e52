"""Fits the factors of the cost model, `compiler/costs.py`, on kernels of random networks.

    python -m bench.fit_costs [--networks 24] [--record FILE] [--fit FILE]

Random networks of convolutions, dense layers and what stands between them, none of them a model that predictions are
judged by, run in float32 and in int8 on every target that this machine runs, on one thread. Each launch is a row: what
it does, and the least processor time that it took. The factors minimize the relative error, none is negative.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

import xcompile
from xcompile.compiler.costs import features_of
from xcompile.compiler.driver import worker_pool
from xcompile.compiler.peak import measure_peak
from xcompile.compiler.profile import measure
from xcompile.compiler.support.options import Options
from xcompile.compiler.target.host import host_target
from xcompile.compiler.target.registry import parse_target

Row = dict[str, Any]

_ROUNDS = 4
_LEAST_ROWS = 6
_MARGIN = 0.05
"""How much of a row's time the fit may not explain for nothing: short launches count less."""


class _Graph:
    """A random network while it is made."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def pick(self, *choices: Any) -> Any:
        return choices[int(self.random.integers(len(choices)))]

    def weight(self, *shape: int) -> str:
        from onnx import numpy_helper

        name = f"w{len(self.weights)}"
        scale = 1 / np.sqrt(np.prod(shape[1:])) if len(shape) > 1 else 0.1
        array = (self.random.standard_normal(shape) * scale).astype(np.float32)
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        from onnx import helper

        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    def model(self, shape: Sequence[int], output: str) -> bytes:
        from onnx import TensorProto, helper

        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, list(shape))
        y = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "random", [x], [y], self.weights)
        opset = [helper.make_opsetid("", 17)]
        return helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()

    def activation(self, x: str) -> str:
        kind = self.pick("Relu", "Relu", "HardSwish", "Sigmoid", "")
        return self.add(kind, x) if kind else x


def images(seed: int) -> tuple[bytes, list[int]]:
    """A network of convolutions and its input's shape."""
    g = _Graph(seed)
    size = g.pick(14, 28, 56, 80)
    shape = [1, g.pick(3, 16, 64), size, size]
    x, channels = "x", shape[1]
    for _ in range(6):
        wide = g.pick(24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
        wide = min(wide, 65536 // (size * size) * 4)
        kind = g.pick("conv", "conv", "point", "point", "depthwise", "residual", "pool", "join")
        if kind == "conv":
            k, stride = g.pick(3, 3, 5), g.pick(1, 1, 2) if size > 7 else 1
            x = g.add("Conv", x, g.weight(wide, channels, k, k), g.weight(wide), pads=[k // 2] * 4,
                      strides=[stride, stride])  # fmt: skip
            x, channels, size = g.activation(x), wide, -(-size // stride)
        elif kind == "point":
            x = g.add("Conv", x, g.weight(wide, channels, 1, 1), g.weight(wide))
            x, channels = g.activation(x), wide
        elif kind == "depthwise":
            k = g.pick(3, 5)
            w = g.weight(channels, 1, k, k)
            x = g.add("Conv", x, w, g.weight(channels), pads=[k // 2] * 4, group=channels)
            x = g.activation(x)
        elif kind == "residual":
            y = g.add(
                "Conv", x, g.weight(channels, channels, 3, 3), g.weight(channels), pads=[1] * 4
            )
            x = g.add("Relu", g.add("Add", y, x))
        elif kind == "pool" and size > 7:
            x = g.add("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2])
            size = -(-size // 2)
        elif kind == "join":
            y = g.add("Conv", x, g.weight(32, channels, 1, 1), g.weight(32))
            x, channels = g.add("Concat", x, y, axis=1), channels + 32
    x = g.add("Flatten", g.add("GlobalAveragePool", x))
    y = g.add("Softmax", g.add("Gemm", x, g.weight(100, channels), g.weight(100), transB=1))
    return g.model(shape, y), shape


def rows(seed: int) -> tuple[bytes, list[int]]:
    """A network of dense layers and its input's shape."""
    g = _Graph(seed)
    shape = [g.pick(1, 16, 50, 128, 256), g.pick(128, 256, 384, 512, 768)]
    x, width = "x", shape[1]
    for _ in range(6):
        wide = g.pick(128, 256, 384, 768, 1024, 1536)
        kind = g.pick("dense", "dense", "dense", "gelu", "norm", "softmax", "residual")
        if kind in ("dense", "gelu"):
            x = g.add("Add", g.add("MatMul", x, g.weight(width, wide)), g.weight(wide))
            width = wide
            x = g.add("Tanh", x) if kind == "gelu" else x
        elif kind == "norm":
            x = g.add("LayerNormalization", x, g.weight(width), g.weight(width), axis=-1)
        elif kind == "softmax":
            x = g.add("Softmax", x, axis=-1)
        else:
            y = g.add("MatMul", x, g.weight(width, width))
            x = g.add("Relu", g.add("Add", y, x))
    return g.model(shape, g.add("MatMul", x, g.weight(width, 64))), shape


def variants() -> list[str]:
    """The targets that this machine runs, each in both precisions."""
    host = host_target()
    names = [n for n in ("cpu", "x86-avx2", "arm-neon") if parse_target(n)[0].runs_on(host)]
    return [f"{name}{precision}" for name in names for precision in ("", "-int8")]


def measured(count: int) -> Iterator[Row]:
    """The rows of so many networks."""
    host = host_target()
    with worker_pool(Options()) as pool:
        for seed in range(count):
            model, shape = (rows if seed % 3 == 2 else images)(seed)
            x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
            hertz = measure_peak(host, 1, pool).flops / (2 * host.lanes(32) * host.fma_ports)
            for name in variants():
                yield from _rows(seed, model, x, name, hertz, pool)


def _rows(
    seed: int, model: bytes, x: np.ndarray, name: str, hertz: float, pool: Any
) -> Iterator[Row]:
    arguments: dict[str, Any] = {"calibrate": [x]} if name.endswith("int8") else {}
    compiled = xcompile.compile(model, name, threads=1, pool=pool, **arguments)
    target = replace(parse_target(name)[0], cores=1)
    features = features_of(compiled.artifact, target, [x.shape])
    times = [measure(compiled.artifact, [x], threads=1, repeats=7) for _ in range(_ROUNDS)]
    for place, each in enumerate(features):
        seconds = min(profile.rows[place].seconds for profile in times)
        yield {"seed": seed, "target": name, "cycles": seconds * hertz, **asdict(each)}


def fitted(found: Sequence[Row]) -> dict[tuple[str, str], tuple[list[float], float, int]]:
    """The factors of each family and form, the median relative error of its rows, and how many they are."""
    from scipy.optimize import nnls

    groups: dict[tuple[str, str], list[Row]] = {}
    for row in found:
        groups.setdefault((row["family"], row["form"]), []).append(row)
    made: dict[tuple[str, str], tuple[list[float], float, int]] = {}
    for key, members in sorted(groups.items()):
        if len(members) < _LEAST_ROWS:
            continue
        a = np.array([[r["products"], r["steps"], r["traffic"], 1.0] for r in members])
        t = np.array([r["cycles"] for r in members])
        weight = 1 / (t + _MARGIN * np.median(t))
        factors = np.ones(4)
        for _ in range(10):  # what is far off counts less
            factors, _ = nnls(a * weight[:, None], t * weight)
            error = np.abs(a @ factors / t - 1)
            weight = 1 / (t + _MARGIN * np.median(t)) / np.maximum(error, 0.1)
        made[key] = ([float(f) for f in factors], float(np.median(error)), len(members))
    return made


def main() -> None:
    """Measure, or read what was measured, and print the factors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", type=int, default=24)
    parser.add_argument("--record", type=Path, help="write the rows here")
    parser.add_argument("--fit", type=Path, help="read rows from here instead of measuring")
    given = parser.parse_args()
    found: list[Row] = []
    if given.fit is not None:
        found = [json.loads(line) for line in given.fit.read_text().splitlines()]
    else:
        for row in measured(given.networks):
            found.append(row)
            if given.record is not None:
                with given.record.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
    for (family, form), (factors, error, count) in fitted(found).items():
        text = ", ".join(f"{factor:.3g}" for factor in factors)
        print(f'    ("{family}", "{form}"): Cost({text}),  # {count} rows, {error:.0%}')


if __name__ == "__main__":
    main()
