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


@pytest.mark.parametrize("lengths", [[20, 30], None], ids=["lengths", "halves"])
@pytest.mark.parametrize("precision", NARROW)
def test_parts_of_a_split_are_narrow(lengths: list[int] | None, precision: str) -> None:
    graph = Graph(5)
    whole = graph("MatMul", "x", graph.constant(graph.whole(37, 50)))
    graph._nodes.append(
        onnx.helper.make_node(
            "Split",
            [whole, graph.constant(np.int64(lengths))] if lengths else [whole],
            ["left", "right"],
            axis=1,
        )
    )
    width = lengths[0] if lengths else 25
    left = graph("MatMul", "left", graph.constant(graph.whole(width, 3)))
    right = graph("MatMul", "right", graph.constant(graph.whole(50 - width, 3)))
    model = graph.model({"x": (5, 37)}, left, right)
    inputs = {"x": graph.whole(5, 37)}
    wanted = emulated(model, inputs, f"cpu-{precision}")
    compiled = xcompile.compile(model, f"cpu-{precision}")
    for got, want in zip(compiled.run(inputs).values(), wanted, strict=True):
        np.testing.assert_array_equal(got, want)


def test_what_float16_makes_zero_or_infinite_is_divided_by_in_float32() -> None:
    """Rows of zeros, guarded by a constant; a tiny constant; a sum of exponentials that float16 does not hold."""
    graph = Graph(6)
    x = graph("MatMul", "x", graph.constant(np.eye(8, dtype=np.float32)))
    norm = graph("ReduceL2", x, axes=[1])
    guarded = graph("Div", x, graph("Max", norm, graph.constant(np.float32([1e-12]))))
    small = graph("Div", x, graph.constant(np.float32([1e-6])))
    sums = graph("ReduceSum", graph("Exp", x), graph.constant(np.int64([1])))
    shares = graph("Div", x, sums)
    model = graph.model({"x": (2, 8)}, guarded, small, shares)
    x_value = np.stack([np.zeros(8, np.float32), np.full(8, 11, np.float32)])
    got = list(xcompile.compile(model, "cpu-fp16").run([x_value]).values())
    np.testing.assert_array_equal(got[0][0], np.zeros(8))
    np.testing.assert_allclose(got[0][1], 1 / np.sqrt(8), rtol=1e-3)
    np.testing.assert_allclose(got[1], x_value / np.float32(1e-6), rtol=1e-3)
    np.testing.assert_allclose(got[2][1], 11 / (8 * np.exp(11)), rtol=1e-3)


def test_an_infinity_at_the_end_of_an_odd_transposed_row_stays_one() -> None:
    graph = Graph(8)
    transposed = graph("Transpose", "x", perm=[1, 0])
    model = graph.model(
        {"x": (7, 64)},
        graph("MatMul", transposed, graph.constant(np.ones((7, 16), np.float32))),
    )
    x = np.ones((7, 64), np.float32)
    x[6, 3] = np.inf
    (got,) = xcompile.compile(model, "cpu-bf16").run([x]).values()
    want = np.full((64, 16), 7, np.float32)
    want[3] = np.inf
    np.testing.assert_array_equal(got, want)


def test_a_part_in_another_narrow_precision_says_who_asked_for_it() -> None:
    graph = Graph(9)
    a = graph("MatMul", "x", graph.constant(graph.whole(4, 4)))
    model = graph.model({"x": (3, 4)}, graph("MatMul", a, graph.constant(graph.whole(4, 4))))
    compiled = xcompile.compile(model, "cpu-bf16", precisions={"MatMul1*": "fp16"})
    assert [(row.arithmetic, row.why) for row in compiled.precisions()] == [
        ("bfloat16", ""),
        ("float16", "'MatMul1*' asks for fp16"),
    ]
