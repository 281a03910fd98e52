"""Each node of a model is told what it computes in, and why."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import xcompile
from tests.e2e.compiled_node import shared_pool
from tests.e2e.digits_qdq import quantized_digits
from tests.e2e.networks import Network, save
from xcompile.compiler.cli.main import execute


def transformer() -> onnx.ModelProto:
    """Embeddings, attention with its shape arithmetic, GELU, layer norms and a pooling, as MiniLM is exported."""
    n = Network(seed=6)
    ids = n("Gather", n.weight(50, 32), "ids")
    x = n("LayerNormalization", ids, n.weight(32), n.weight(32), axis=-1)
    shape = n("Shape", "ids")
    batch, length = (n("Gather", shape, n.constant(np.array(i))) for i in (0, 1))
    one = n.constant(np.array([0]))
    heads = n("Concat", n("Unsqueeze", batch, one), n("Unsqueeze", length, one),
              n.constant(np.array([4, 8])), axis=0)  # fmt: skip

    def projected(perm: list[int]) -> str:
        dense = n("Add", n("MatMul", x, n.weight(32, 32)), n.weight(32))
        return n("Transpose", n("Reshape", dense, heads), perm=perm)

    q, k, v = projected([0, 2, 1, 3]), projected([0, 2, 3, 1]), projected([0, 2, 1, 3])
    scores = n("Div", n("MatMul", q, k), n.constant(np.array(8**0.5, np.float32)))
    mixed = n("Transpose", n("MatMul", n("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    back = n("Reshape", mixed, n.constant(np.array([0, 0, 32])))
    x = n("Add", n("MatMul", back, n.weight(32, 32)), x)
    wide = n("MatMul", x, n.weight(32, 64))
    half = n("Mul", n("Erf", n("Div", wide, n.constant(np.array(2**0.5, np.float32)))), wide)
    x = n(
        "LayerNormalization",
        n("Add", n("MatMul", half, n.weight(64, 32)), x),
        n.weight(32),
        axis=-1,
    )
    y = n("Tanh", n("ReduceMean", x, axes=[1], keepdims=0))
    return n.model({"ids": ("INT64", ["N", "S"])}, {y: ("FLOAT", ["N", 32])})


def fire() -> onnx.ModelProto:
    """Squeezes, expansions that are joined, pools, a dropout and a softmax, as in SqueezeNet."""
    n = Network(seed=7)
    x = n("Relu", n("Conv", "x", n.weight(16, 3, 3, 3), n.weight(16), strides=[2, 2]))
    x = n("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2])
    for _ in range(2):
        squeezed = n("Relu", n("Conv", x, n.weight(8, 16, 1, 1), n.weight(8)))
        left = n("Conv", n("Sigmoid", squeezed), n.weight(8, 8, 1, 1), n.weight(8))
        right = n("Relu", n("Conv", squeezed, n.weight(8, 8, 3, 3), n.weight(8), pads=[1] * 4))
        x = n("Concat", left, right, axis=1)
    x = n(
        "GlobalAveragePool",
        n("Relu", n("Conv", n("Dropout", x), n.weight(10, 16, 1, 1), n.weight(10))),
    )
    y = n("Softmax", n("Flatten", x))
    return n.model({"x": ("FLOAT", [1, 3, 31, 31])}, {y: ("FLOAT", [1, 10])})


def chain() -> onnx.ModelProto:
    """Convolutions and a dense layer, to be quantized in the file."""
    n = Network(seed=8)
    x = n("Relu", n("Conv", "x", n.weight(8, 3, 3, 3), n.weight(8)))
    x = n("Relu", n("Conv", x, n.weight(8, 8, 3, 3), n.weight(8)))
    y = n("Gemm", n("Flatten", x), n.weight(5, 8 * 16), n.weight(5), transB=1)
    return n.model({"x": ("FLOAT", [1, 3, 8, 8])}, {y: ("FLOAT", [1, 5])})


def quantized_chain() -> onnx.ModelProto:
    x = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    return quantized_digits(chain(), x)


def compiled(model: onnx.ModelProto, target: str = "cpu-int8") -> xcompile.CompiledModel:
    random = np.random.default_rng(0)
    (given,) = model.graph.input
    if given.name == "ids":
        samples = [{"ids": random.integers(0, 50, (2, 7))}]
    else:
        shape = [d.dim_value for d in given.type.tensor_type.shape.dim]
        samples = [random.standard_normal(shape).astype(np.float32)]
    arguments = {"calibrate": samples} if target.endswith("int8") else {}
    return xcompile.compile(model, target, pool=shared_pool(), **arguments)


CASES = {
    "transformer int8": (transformer, "cpu-int8"),
    "transformer": (transformer, "cpu"),
    "fire int8": (fire, "cpu-int8"),
    "quantized in the file": (quantized_chain, "cpu"),
}


@pytest.mark.parametrize(("make", "target"), CASES.values(), ids=CASES)
def test_no_node_is_left_without_a_statement(
    make: Callable[[], onnx.ModelProto], target: str
) -> None:
    model = make()
    statements = {said.node: said for said in compiled(model, target).statements()}
    for place, node in enumerate(model.graph.node):
        said = statements[node.name or f"{node.op_type}_{place}"]
        assert said.kind == node.op_type
        assert said.arithmetic in ("int8", "float32", "int64", "none")
        assert said.why
        assert (said.arithmetic == "none") == (not said.ops)


def said_of(model: onnx.ModelProto, target: str = "cpu-int8") -> dict[str, set[tuple[str, str]]]:
    """What is said of the nodes of each op."""
    found: dict[str, set[tuple[str, str]]] = {}
    for said in compiled(model, target).statements():
        found.setdefault(said.kind, set()).add((said.arithmetic, said.why))
    return found


def test_what_is_said_of_an_image_network() -> None:
    said = said_of(fire())
    assert said["Conv"] == {("int8", "products of 8 bits, summed in int32")}
    assert said["Sigmoid"] == {("int8", "a table of bytes")}
    assert said["MaxPool"] == {("int8", "bytes are compared and moved")}
    assert said["Softmax"] == {("float32", "softmax is computed in floating point")}
    assert {arithmetic for arithmetic, _ in said["Relu"]} == {"int8"}
    assert {arithmetic for arithmetic, _ in said["Dropout"]} == {"none"}


def test_what_is_said_of_a_transformer() -> None:
    said = said_of(transformer())
    assert ("int8", "products of 8 bits, summed in int32") in said["MatMul"]
    assert ("float32", "attention is computed as a whole, in floating point") in said["MatMul"]
    assert said["LayerNormalization"] == {
        ("float32", "normalization is computed in floating point")
    }
    assert said["Shape"] == {("int64", "indices, sizes and conditions are whole numbers")}


def test_what_is_said_of_a_model_that_is_quantized_in_the_file() -> None:
    said = said_of(quantized_chain(), "cpu")
    assert said["Conv"] == said["Gemm"] == {("int8", "products of 8 bits, summed in int32")}
    assert {arithmetic for arithmetic, _ in said["Relu"]} == {"int8"}


def test_a_float_model_is_said_to_be_one() -> None:
    said = said_of(chain(), "cpu")
    assert said["Conv"] == said["Relu"] == {("float32", "the model is in floating point")}


def test_the_command_prints_nodes_and_writes_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = save(quantized_chain(), tmp_path / "m.onnx")
    page = tmp_path / "precisions.html"
    words = [str(model), "--precisions", f"--precision-report={page}", f"-o{tmp_path / 'm.so'}"]
    assert execute(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["node", "op", "becomes", "computes", "in", "stores", "why"]
    assert any(
        line.startswith("Relu_3 ") and "merged into the product 'Conv_2'" in line for line in lines
    )
    text = page.read_text()
    assert "Precisions of m" in text
    assert "int8: 3 of 3 products, 100.0% of their operations" in text
