"""Weights with a scale for each block: imported, and compiled, against values by hand, numpy and onnxruntime."""

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.e2e.test_quantized_digits import compiled
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.interpreter import interpret
from xcompile.frontends.onnx.importer import import_onnx

RANDOM = np.random.default_rng(4)


def model(op: str, given: dict[str, np.ndarray | None], domain: str, **attributes: Any):
    """A model of one node, whose first input is data."""
    name, x = next(iter(given.items()))
    assert x is not None
    names = [n if v is not None else "" for n, v in given.items()]
    kind = helper.np_dtype_to_tensor_dtype
    floats = TensorProto.FLOAT16 if x.dtype == np.float16 else TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], domain=domain, name="node", **attributes)],
        "g",
        [helper.make_tensor_value_info(name, kind(x.dtype), ["rows", *x.shape[1:]])],
        [helper.make_tensor_value_info("y", floats, None)],
        [numpy_helper.from_array(v, n) for n, v in list(given.items())[1:] if v is not None],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def nbits(x: np.ndarray, bits: int, block: int, n: int, zeros: str = "", bias: bool = False):
    """A MatMulNBits of random weights."""
    k = x.shape[-1]
    blocks = -(-k // block)
    scales = RANDOM.uniform(0.1, 1, (n, blocks)).astype(x.dtype)
    given: dict[str, np.ndarray | None] = {
        "x": x,
        "b": RANDOM.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8),
        "scales": scales,
        "zeros": None,
        "groups": None,
        "bias": RANDOM.standard_normal(n).astype(x.dtype) if bias else None,
    }
    if zeros == "packed":
        given["zeros"] = RANDOM.integers(0, 256, (n, -(-blocks * bits // 8))).astype(np.uint8)
    if zeros == "floats":
        given["zeros"] = RANDOM.uniform(0, 2**bits - 1, (n, blocks)).astype(x.dtype)
    return model(
        "MatMulNBits", given, "com.microsoft", K=k, N=n, bits=bits, block_size=block
    )  # fmt: skip


def run(proto: onnx.ModelProto, x: np.ndarray, target: str = "cpu") -> np.ndarray:
    return np.asarray(compiled(proto, target).run([x])["y"])


def test_codes_begin_in_the_low_bits_and_8_is_zero() -> None:
    """The bytes 0x98 0xF0 … are the codes 8 9 0 15, hence 0 1 -8 7."""
    packed = np.full((1, 1, 8), 0x88, np.uint8)
    packed[0, 0, :2] = 0x98, 0xF0
    x = np.zeros((4, 16), np.float32)
    x[[0, 1, 2, 3], [0, 1, 2, 3]] = 1
    given = {"x": x, "b": packed, "scales": np.full((1, 1), 0.5, np.float32)}
    proto = model("MatMulNBits", given, "com.microsoft", K=16, N=1, bits=4, block_size=16)
    np.testing.assert_array_equal(run(proto, x), [[0], [0.5], [-4], [3.5]])


def test_zero_points_are_packed_as_the_codes_are() -> None:
    """Two blocks whose zero points 3 and 5 are the byte 0x53; all codes are 4: 1·2 and -1·10."""
    packed = np.full((1, 2, 8), 0x44, np.uint8)
    x = np.repeat(np.eye(2, dtype=np.float32), 16, axis=1)
    scales = np.array([[2, 10]], np.float32)
    given = {"x": x, "b": packed, "scales": scales, "zeros": np.array([[0x53]], np.uint8)}
    proto = model("MatMulNBits", given, "com.microsoft", K=32, N=1, bits=4, block_size=16)
    np.testing.assert_array_equal(run(proto, x), [[32], [-160]])


@pytest.mark.parametrize(
    ("bits", "block", "k", "zeros", "rows"),
    [
        (4, 32, 96, "", 1),
        (4, 16, 50, "packed", 3),
        (4, 128, 200, "packed", 9),
        (8, 32, 70, "", 2),
        (8, 64, 64, "packed", 30),
        (4, 32, 64, "floats", 2),
    ],
)
def test_matmul_nbits_is_what_onnxruntime_computes(
    bits: int, block: int, k: int, zeros: str, rows: int
) -> None:
    x = RANDOM.standard_normal((rows, k)).astype(np.float32)
    proto = nbits(x, bits, block, 20, zeros, bias=rows > 1)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    want = session.run(None, {"x": x})[0]
    got = run(proto, x)
    assert np.abs(got - want).max() <= 2e-6 * k * np.abs(want).max()
    meaning = interpret(import_onnx(proto), [x])[0]
    assert np.abs(got - meaning).max() <= 1e-6 * k**0.5 * np.abs(meaning).max()


def test_two_bits_and_rows_of_half_precision() -> None:
    x = RANDOM.standard_normal((2, 3, 40)).astype(np.float16)
    proto = nbits(x, 2, 16, 7)
    meaning = interpret(import_onnx(proto), [x])[0]
    got = run(proto, x)
    assert got.dtype == np.float16
    np.testing.assert_allclose(got.astype(float), meaning.astype(float), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"block_size": 24}, "a block size of 24"),
        ({"bits": 3}, "MatMulNBits with 3 bits"),
        ({"weight_prepacked": 1}, "the layout of one device"),
        ({"K": 40}, "8 bytes of weights for K=40 and N=1"),
    ],
)
def test_what_has_no_meaning_here_is_refused(attributes: dict[str, int], message: str) -> None:
    given: dict[str, np.ndarray | None] = {
        "x": np.zeros((1, 16), np.float32),
        "b": np.zeros((1, 1, 8), np.uint8),
        "scales": np.ones((1, 1), np.float32),
    }
    fields = {"K": 16, "N": 1, "bits": 4, "block_size": 16, **attributes}
    with pytest.raises(CompileError, match=message):
        import_onnx(model("MatMulNBits", given, "com.microsoft", **fields))
    floats = {**given, "b": np.zeros((1, 1, 8), np.float32)}
    with pytest.raises(CompileError, match="packed in uint8, not float32"):
        import_onnx(model("MatMulNBits", floats, "com.microsoft", K=16, N=1, bits=4, block_size=16))
    zeros = {**given, "zeros": np.zeros((3, 1), np.uint8)}
    with pytest.raises(CompileError, match="3 zero points for 1·1 blocks"):
        import_onnx(model("MatMulNBits", zeros, "com.microsoft", K=16, N=1, bits=4, block_size=16))
    given |= {"zeros": None, "groups": np.zeros(16, np.int32)}
    with pytest.raises(CompileError, match="with g_idx"):
        import_onnx(model("MatMulNBits", given, "com.microsoft", **fields))


@pytest.mark.parametrize(("dtype", "zeros"), [("int4", False), ("uint8", False), ("uint8", True)])
def test_rows_of_a_table_of_blocks(dtype: str, zeros: bool) -> None:
    rows = np.array([[1, 4], [0, 1]], np.int64)
    scales = RANDOM.uniform(0.1, 1, (5, 3)).astype(np.float32)
    if dtype == "int4":
        table = RANDOM.integers(-8, 8, (5, 40)).astype(ml_dtypes.int4)
    else:
        table = RANDOM.integers(0, 256, (5, 20)).astype(np.uint8)
    given = {"i": rows, "t": table, "s": scales}
    order = ("t", "i", "s")
    points = RANDOM.integers(0, 256, (5, 2)).astype(np.uint8) if zeros else None
    proto = model("GatherBlockQuantized", given, "com.microsoft", block_size=16, bits=4)
    node = proto.graph.node[0]
    node.input[:] = [*order, *(["z"] if zeros else [])]
    if points is not None:
        proto.graph.initializer.append(numpy_helper.from_array(points, "z"))
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    want = session.run(None, {"i": rows})[0]
    np.testing.assert_allclose(run(proto, rows), want, rtol=1e-6)


def table_model(table: np.ndarray, scales: np.ndarray, zeros: np.ndarray | None = None):
    """Rows of a table of 4-bit elements, each block of 16 with a scale."""
    given = {"i": np.zeros((2, 2), np.int64), "t": table, "s": scales, "z": zeros}
    proto = model("GatherBlockQuantized", given, "com.microsoft", block_size=16, bits=4)
    proto.graph.node[0].input[:] = ["t", "i", "s", *(["z"] if zeros is not None else [])]
    return proto


@pytest.mark.parametrize("dtype", ["int4", "uint4", "uint8"])
def test_a_table_of_4_bits_has_two_elements_in_each_byte_of_the_artifact(dtype: str) -> None:
    """4,096 rows of 64 are 131,072 bytes, and their scales 65,536; the rest is a few constants."""
    if dtype == "uint8":
        table = RANDOM.integers(0, 256, (4096, 32)).astype(np.uint8)
    else:
        least = -8 if dtype == "int4" else 0
        table = RANDOM.integers(least, least + 16, (4096, 64)).astype(getattr(ml_dtypes, dtype))
    scales = RANDOM.uniform(0.1, 1, (4096, 4)).astype(np.float32)
    made = compiled(table_model(table, scales), "cpu")
    assert 196_608 <= len(made.artifact.weights) <= 196_608 + 1024


@pytest.mark.parametrize("width", [16, 37, 80])
@pytest.mark.parametrize("signed", [False, True])
def test_unpacked_rows_are_the_tables_whatever_their_length(width: int, signed: bool) -> None:
    kind, least = (ml_dtypes.int4, -8) if signed else (ml_dtypes.uint4, 0)
    blocks = -(-width // 16)
    table = RANDOM.integers(least, least + 16, (5, width))
    scales = RANDOM.uniform(0.1, 1, (5, blocks)).astype(np.float32)
    zeros = RANDOM.integers(least, least + 16, (5, blocks))
    proto = table_model(table.astype(kind), scales, zeros.astype(kind))
    rows = np.array([[4, -5], [-1, 2], [3, 0]])
    places = np.arange(width) // 16
    want = (table - zeros[:, places]).astype(np.float32) * scales[:, places]
    np.testing.assert_array_equal(run(proto, rows), want[rows])
