"""The precision "dynamic": what onnxruntime's quantize_dynamic makes of a model, made by us."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

import xcompile
from tests.e2e.test_quantized_digits import MODEL, accuracy, compiled, digits

assert digits  # a fixture

RANDOM = np.random.default_rng(7)
UNREFINED = "@clean,nn-quantize-dynamically{refine=false},@finish,@kernels"


def f32(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def layers() -> onnx.ModelProto:
    """Two matrix products with a relu between them, and one more of the same input."""
    constants = {"w1": f32(40, 32), "b1": f32(32), "w2": f32(32, 10), "w3": f32(40, 10)}
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"], name="first"),
        helper.make_node("Add", ["h", "b1"], ["hb"]),
        helper.make_node("Relu", ["hb"], ["r"]),
        helper.make_node("MatMul", ["r", "w2"], ["y1"], name="second"),
        helper.make_node("MatMul", ["x", "w3"], ["y2"], name="third"),
        helper.make_node("Add", ["y1", "y2"], ["y"]),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g",
        [value("x", TensorProto.FLOAT, ["rows", 40])],
        [value("y", TensorProto.FLOAT, ["rows", 10])],
        [numpy_helper.from_array(v, n) for n, v in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def quantized(tmp_path_factory: pytest.TempPathFactory) -> tuple[onnx.ModelProto, Path]:
    """A float model, and what onnxruntime quantizes it to: int8 weights with a scale a column."""
    model, path = layers(), tmp_path_factory.mktemp("dynamic") / "quantized.onnx"
    extra = {"WeightSymmetric": True}
    quantize_dynamic(
        model, path, per_channel=True, weight_type=QuantType.QInt8, extra_options=extra
    )
    return model, path


@pytest.mark.parametrize("rows", [1, 7])
def test_with_plain_scales_it_is_what_onnxruntime_computes(
    quantized: tuple[onnx.ModelProto, Path], rows: int
) -> None:
    model, path = quantized
    x = f32(rows, 40)
    want = onnxruntime.InferenceSession(str(path)).run(None, {"x": x})[0]
    ours = compiled(model, "cpu", pipeline=UNREFINED).run([x])["y"]
    theirs = compiled(path, "cpu").run([x])["y"]
    np.testing.assert_allclose(theirs, want, rtol=0, atol=2e-6 * np.abs(want).max())
    np.testing.assert_allclose(ours, want, rtol=0, atol=2e-3 * np.abs(want).max())


def test_digits_are_as_accurate_as_in_float(digits: tuple[Any, Any]) -> None:
    model = compiled(MODEL, "cpu-dynamic")
    assert [row.arithmetic for row in model.precisions()] == ["int8"] * 3
    assert accuracy(model, digits) >= 98.3
    assert len(model.artifact.weights) < len(compiled(MODEL, "cpu").artifact.weights) / 3


def test_parts_may_stay_in_float_or_in_few_bits() -> None:
    model = layers()
    mixed = compiled(model, "cpu-dynamic", precisions={"second": "fp32", "third": "w4"})
    kinds = {row.nodes.split(" ")[0]: row.arithmetic for row in mixed.precisions()}
    assert (kinds["first"], kinds["second"]) == ("int8", "float32")
    assert "w4" in kinds.values()


def chain(*nodes: onnx.NodeProto, **constants: np.ndarray) -> onnx.ModelProto:
    """From x to y: of rows of 8 numbers, or where the first node is a convolution of images of 3 channels."""
    shape = ["n", 8] if nodes[0].op_type == "MatMul" else ["n", 3, 6, 6]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(v, n) for n, v in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def of_products(kind: str, *weights: np.ndarray) -> onnx.ModelProto:
    """Products one behind the other."""
    tensors = ["x", "h", "y"]
    nodes = [
        helper.make_node(kind, [tensors[i], f"w{i}"], [tensors[i + 1]], name=f"node{i}")
        for i in range(2)
    ]
    return chain(*nodes, **{f"w{i}": w for i, w in enumerate(weights)})


@pytest.mark.parametrize(
    "model",
    [
        of_products("MatMul", f32(8, 8), f32(8, 8)),
        of_products("Conv", f32(4, 3, 3, 3), f32(5, 4, 3, 3)),
    ],
    ids=["MatMul", "Conv"],
)
def test_a_product_of_a_product_is_quantized_too(model: onnx.ModelProto) -> None:
    made = compiled(model, "cpu-dynamic")
    assert [row.arithmetic for row in made.precisions()] == ["int8", "int8"]
    x = f32(3, 8) if model.graph.node[0].op_type == "MatMul" else f32(3, 3, 6, 6)
    want = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]
    error = made.run([x])["y"] - want
    assert np.linalg.norm(error) < 0.03 * np.linalg.norm(want)


@pytest.mark.parametrize("most", [3e38, 1e30])
def test_a_range_longer_than_the_greatest_float_is_quantized(most: float) -> None:
    """Both ends of it are floats, and so is their difference by 255 steps, but not their difference."""
    weight = np.eye(8, dtype=np.float32) / 2
    model = chain(helper.make_node("MatMul", ["x", "w"], ["y"]), w=weight)
    x = np.float32(np.linspace(-most, most, 16)).reshape(2, 8)
    found = compiled(model, "cpu-dynamic").run([x])["y"]
    np.testing.assert_allclose(found, x / 2, rtol=0, atol=most / 255)


def test_transposed_convolutions_stay_in_float() -> None:
    weights = {"w1": f32(4, 3, 3, 3), "w2": f32(4, 2, 3, 3)}
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["h"], name="plain"),
        helper.make_node("ConvTranspose", ["h", "w2"], ["y"], name="transposed"),
    ]
    rows = {r.nodes: r for r in compiled(chain(*nodes, **weights), "cpu-dynamic").precisions()}
    assert rows["plain"].arithmetic == "int8"
    row = rows["transposed"]
    assert row.arithmetic == "float32"
    assert row.why == "transposed convolutions are not quantized dynamically"


def test_a_model_of_few_bits_may_have_a_dynamic_product() -> None:
    model = of_products("MatMul", f32(8, 8), f32(8, 8))
    rows = compiled(model, "cpu-w4", precisions={"y": "dynamic"}).precisions()
    assert [(row.arithmetic, row.why) for row in rows] == [("w4", ""), ("int8", "")]


@pytest.mark.full
def test_minilm_is_close_to_its_float_model() -> None:
    from bench import corpus
    from bench.entries import ENTRIES

    path, feeds = corpus.model("minilm"), ENTRIES["minilm"](1)
    plain, small = xcompile.compile(path, "cpu"), xcompile.compile(path, "cpu-dynamic")
    want, got = (np.asarray(list(m.run(feeds).values())[2], np.float64) for m in (plain, small))
    lengths = np.linalg.norm(want, axis=-1) * np.linalg.norm(got, axis=-1)
    assert ((want * got).sum(axis=-1) / lengths).mean() > 0.97
    assert len(small.artifact.weights) < 19e6
