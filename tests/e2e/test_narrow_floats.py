"""Models in 16 bits: each op rounds once, as numpy says; what is computed how; casts; what stays in float32."""

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

import xcompile
from tests.property.random_narrow import Graph
from xcompile.compiler.api import make_request
from xcompile.compiler.driver import resolved_pipeline
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.passes import PassContext
from xcompile.compiler.ir.pipeline import Pipeline
from xcompile.compiler.ir.runner import run_pipeline
from xcompile.compiler.target.host import host_target
from xcompile.compiler.target.registry import targets
from xcompile.dialects.nn.interpreter import interpret
from xcompile.dialects.nn.shapes import refine_types
from xcompile.frontends.onnx.importer import import_onnx

NARROW = {"bf16": ml_dtypes.bfloat16, "fp16": np.float16}
TARGETS = [
    pytest.param(name, marks=[pytest.mark.full] if name == "x86-avx512" else [])
    for name in ("cpu", "x86-avx2", "x86-avx512")
    if targets()[name].runs_on(host_target())
]


def emulated(
    model: onnx.ModelProto, inputs: Mapping[str, np.ndarray], target: str, **arguments: Any
) -> list[np.ndarray]:
    """What the model gives when every op is computed by numpy on what the precision passes have made of it."""
    request, _ = make_request(target, **arguments)
    module = import_onnx(model)
    passes = resolved_pipeline(request).passes
    last = [each.NAME for each in passes].index("nn-narrow-floats")
    with module.context, ir.Location.unknown():
        refine_types(module, module.input_shapes())
        context = PassContext(request.target, precisions=request.precisions)
        run_pipeline(module, Pipeline(passes[: last + 1]), context)
        return interpret(module, [inputs[name] for name in module.input_names()])


def residual(graph: Graph) -> onnx.ModelProto:
    """Convolutions: first, padded, strided, grouped, depthwise, pointwise; a residual; pools; a matrix product."""
    w = lambda *shape: graph.constant(graph.whole(*shape))  # noqa: E731
    x = graph("Conv", "x", w(24, 3, 3, 3), w(24), pads=[1, 1, 1, 1], strides=[2, 2])
    x = y = graph("Relu", x)
    x = graph("Conv", x, w(24, 24, 1, 1))
    x = graph("Relu", graph("Add", x, y))
    x = graph("MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    x = graph("Mul", x, graph.constant(np.float32([0.0625])))
    x = graph("Conv", x, w(24, 1, 3, 3), w(24), group=24, pads=[1, 1, 1, 1])
    x = graph("Mul", x, graph.constant(np.float32([0.0625])))
    x = graph("Conv", x, w(36, 12, 3, 3), group=2, pads=[0, 1, 1, 0])
    x = graph("Mul", x, graph.constant(np.float32([0.0625])))
    x = graph("ConvTranspose", x, w(36, 5, 2, 2), strides=[2, 2])
    x = graph("Mul", x, graph.constant(np.float32([0.0625])))
    x = graph("Flatten", graph("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2]))
    return graph.model({"x": (2, 3, 13, 11)}, graph("MatMul", x, w(5 * 6 * 5, 33)))


def matrices(graph: Graph) -> onnx.ModelProto:
    """Products of all shapes: constant and computed, transposed, batched, one row, odd depths."""
    w = lambda *shape: graph.constant(graph.whole(*shape))  # noqa: E731
    a = graph("MatMul", "x", w(37, 50))
    a = graph("Add", a, w(50))
    a = graph("Mul", a, graph.constant(np.float32([0.125])))
    b = graph("Transpose", graph("MatMul", "x", w(37, 50)), perm=[0, 2, 1])
    scores = graph("MatMul", a, graph("Mul", b, graph.constant(np.float32([0.125]))))
    mixed = graph("MatMul", scores, "x")
    row = graph("MatMul", graph("ReduceMax", "x", axes=[0, 1]), w(37, 70))
    column = graph("MatMul", "x", graph("Unsqueeze", "v", graph.constant(np.int64([1]))))
    return graph.model({"x": (3, 19, 37), "v": (37,)}, mixed, row, column)


@pytest.mark.parametrize("build", [residual, matrices])
@pytest.mark.parametrize("precision", NARROW)
@pytest.mark.parametrize("target", TARGETS)
def test_a_narrow_model_gives_what_each_op_gives_in_numpy_to_the_bit(
    build: Callable[[Graph], onnx.ModelProto], precision: str, target: str
) -> None:
    graph = Graph(7)
    model = build(graph)
    module = import_onnx(model)
    inputs = {
        name: graph.whole(*map(int, shape))
        for name, shape in zip(module.input_names(), module.input_shapes(), strict=True)
    }
    wanted = emulated(model, inputs, f"{target}-{precision}")
    compiled = xcompile.compile(model, f"{target}-{precision}")
    families = {facts.family for facts in compiled.artifact.kernels.values()}
    assert "fallback" not in families
    assert {row.arithmetic for row in compiled.precisions()} == {np.dtype(NARROW[precision]).name}
    for got, want in zip(compiled.run(inputs).values(), wanted, strict=True):
        np.testing.assert_array_equal(got, want)


def test_parts_in_other_precisions_give_what_each_op_gives_in_numpy() -> None:
    graph = Graph(3)
    model = residual(graph)
    inputs = {"x": graph.whole(2, 3, 13, 11)}
    chosen = {"*": "bf16", "Conv2*": "fp16", "MatMul*": "fp32"}
    wanted = emulated(model, inputs, "cpu", precisions=chosen)
    compiled = xcompile.compile(model, "cpu", precisions=chosen)
    np.testing.assert_array_equal(next(iter(compiled.run(inputs).values())), wanted[0])
    rows = {row.nodes.split(" + ")[0]: row for row in compiled.precisions()}
    assert rows["Conv0"].arithmetic == "bfloat16"
    assert rows["Conv2"].arithmetic == "float16"
    matmul = next(row for nodes, row in rows.items() if nodes.startswith("MatMul"))
    assert matmul.arithmetic == "float32"
