"""Quantized ops of com.microsoft mean what onnxruntime computes: imported, and again after the passes of a target."""

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from xcompile import passes as _passes
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.passes import PassContext
from xcompile.compiler.ir.pipeline import parse_pipeline
from xcompile.compiler.ir.runner import run_pipeline
from xcompile.compiler.pipelines import PIPELINES
from xcompile.compiler.target.registry import targets
from xcompile.dialects.nn.interpreter import interpret
from xcompile.frontends.onnx.importer import import_onnx

assert _passes.PASSES  # importing them registers them

OPSETS = [helper.make_opsetid("", 19), helper.make_opsetid("com.microsoft", 1)]
RANDOM = np.random.default_rng(20261130)


def u8(*shape):
    return RANDOM.integers(0, 256, shape).astype(np.uint8)


def s8(*shape):
    return RANDOM.integers(-128, 128, shape).astype(np.int8)


def f32(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def check(op, inputs, given=1, outputs=("uint8",), steps=1, tolerance=1e-5, **attributes):
    """Compare a node with onnxruntime: the first `given` inputs are data, the others constants, None is omitted."""
    names = [f"x{i}" if v is not None else "" for i, v in enumerate(inputs)]
    arrays = {n: np.asarray(v) for n, v in zip(names, inputs, strict=True) if n}
    results = {f"y{i}": np.dtype(d) for i, d in enumerate(outputs)}
    node = helper.make_node(op, names, list(results), domain="com.microsoft", **attributes)
    data = list(arrays)[:given]
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info(
                n, helper.np_dtype_to_tensor_dtype(arrays[n].dtype), arrays[n].shape
            )
            for n in data
        ],
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(d), None)
            for n, d in results.items()
        ],
        [numpy_helper.from_array(a, n) for n, a in arrays.items() if n not in data],
    )
    model = helper.make_model(graph, opset_imports=OPSETS, ir_version=10)
    agree(model, {n: arrays[n] for n in data}, steps, tolerance)


def agree(model, feeds, steps=1, tolerance=1e-5):
    """Compare a model with onnxruntime as it stands: as it is imported, and after the passes of a target."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    wanted = session.run(None, feeds)
    module = import_onnx(model)
    with module.context, ir.Location.unknown():
        for pipeline in ("dce", "@graph"):
            run_pipeline(
                module, parse_pipeline(pipeline, PIPELINES), PassContext(targets()["x86-avx2"])
            )
            for y, w in zip(interpret(module, list(feeds.values())), wanted, strict=True):
                assert (y.dtype, y.shape) == (w.dtype, w.shape)
                bound = steps if w.dtype.kind in "iu" else tolerance * np.abs(w).max()
                assert np.abs(y.astype(np.float64) - w).max() <= bound


FLOAT = ("float32",)
X = (np.float32(0.05), np.uint8(120))
Y = (np.float32(0.03), np.uint8(131))
Z = (np.float32(0.07), np.uint8(100))


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_two_tensors(op):
    check(op, [u8(2, 3, 4), *X, u8(3, 1), *Y, *Z], given=1)
    one, two, three = (np.int8(v) for v in (3, 0, -4))
    given = [s8(2, 3), X[0], one, s8(2, 3), Y[0], two, Z[0], three]
    check(op, given, outputs=("int8",))


def test_a_concatenation():
    check("QLinearConcat", [*Z, u8(2, 3), *X, u8(2, 4), *Z], given=0, axis=-1)


def test_a_choice():
    condition = RANDOM.integers(0, 2, (2, 3)).astype(bool)
    check("QLinearWhere", [condition, u8(2, 3), *X, u8(2, 3), *Y, *Z])


def test_functions_of_one_tensor():
    check("QLinearLeakyRelu", [u8(2, 5), *X, *Y], alpha=0.2)
    check("QLinearSigmoid", [u8(2, 5), *X, np.float32(1 / 256), np.uint8(0)])


@pytest.mark.parametrize(("opset", "axis"), [(13, -1), (13, 1), (12, 1)])
def test_softmax(opset, axis):
    step = np.float32(1 / 256), np.uint8(0)
    check("QLinearSoftmax", [u8(2, 5, 3), *X, *step], axis=axis, opset=opset)


@pytest.mark.parametrize("last", [0, 1])
def test_pools(last):
    check("QLinearGlobalAveragePool", [u8(2, 6, 5, 4), *X, *Y], channels_last=last)
    window = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
    for include in (0, 1):
        check(
            "QLinearAveragePool",
            [u8(2, 6, 5, 4), *X, *Y],
            channels_last=last,
            count_include_pad=include,
            **window,
        )


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("groups", [1, 3])
def test_convolutions_in_both_layouts(last, groups):
    x = u8(2, 6, 5, 4) if not last else u8(2, 5, 4, 6)
    weights, bias = s8(9, 6 // groups, 3, 2), RANDOM.integers(-999, 999, 9).astype(np.int32)
    scales, zeros = np.linspace(0.001, 0.01, 9).astype(np.float32), np.zeros(9, np.int8)
    window = {"strides": [2, 1], "pads": [1, 0, 1, 1], "group": groups}
    given = [x, *X, weights, scales, zeros, *Y, bias]
    check("QLinearConv", given, channels_last=last, **window)


@pytest.mark.parametrize("quantized", [True, False])
@pytest.mark.parametrize("per_column", [True, False])
def test_a_matrix_product_with_bias(quantized, per_column):
    scale = np.abs(f32(3)) * np.float32(0.01) if per_column else np.float32(0.02)
    zero = np.zeros(3, np.int8) if per_column else np.int8(2)
    bias = RANDOM.integers(-999, 999, 3).astype(np.int32)
    result, outputs = (Y, ("uint8",)) if quantized else ((), ("float32",))
    check("QGemm", [u8(4, 8), *X, s8(8, 3), scale, zero, bias, *result], outputs=outputs)
    given = [u8(8, 4), *X, s8(3, 8), scale, zero, None, *result]
    check("QGemm", given, outputs=outputs, transA=1, transB=1, alpha=0.5)


def test_matrix_products_in_float():
    scale, zero = np.abs(f32(3)) * np.float32(0.01), s8(3) // np.int8(4)
    check(
        "MatMulIntegerToFloat",
        [u8(2, 4, 8), s8(8, 3), X[0], scale, X[1], zero, f32(3)],
        outputs=FLOAT,
    )
    check("MatMulIntegerToFloat", [u8(4, 8), s8(8, 3), X[0], X[0], None, None, None], outputs=FLOAT)
    check("DynamicQuantizeMatMul", [f32(2, 4, 8), s8(8, 3), scale, zero, f32(3)], outputs=FLOAT)
    check("DynamicQuantizeMatMul", [f32(4, 8), u8(8, 3), X[0], X[1], None], outputs=FLOAT)


def test_quantization():
    check("QuantizeLinear", [f32(2, 5), *X])
    check("DequantizeLinear", [u8(2, 5), *X], outputs=FLOAT)
    check(
        "DequantizeLinear", [s8(2, 5), np.abs(f32(5)), np.zeros(5, np.int8)], outputs=FLOAT, axis=-1
    )
    wide = RANDOM.integers(-9999, 9999, (2, 5)).astype(np.int16)
    check("DequantizeLinear", [wide, X[0], np.int16(3)], outputs=FLOAT)


@pytest.mark.parametrize("mask", [None, (2, 5), (2,)])
def test_attention(mask):
    given = None
    if mask is not None:
        given = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]] if len(mask) == 2 else [3, 5], np.int32)
    check(
        "QAttention",
        [u8(2, 5, 8), s8(8, 24), f32(24), X[0], np.float32(0.02), given, X[1], np.int8(0)],
        outputs=FLOAT,
        num_heads=2,
        unidirectional=int(mask is None),
        tolerance=1e-4,
    )


@pytest.mark.parametrize("before", [0, 3])
@pytest.mark.parametrize("mask", [None, (2, 8), (2,)])
@pytest.mark.parametrize("causal", [0, 1])
def test_attention_with_keys_and_values_of_before(mask, before, causal):
    """Five tokens see those of before too, and what they leave behind is all keys and all values."""
    given, total = None, before + 5
    if mask is not None:
        kept = np.arange(total) < np.array([[total - 1], [total]])
        given = (kept if len(mask) == 2 else kept.sum(1)).astype(np.int32)
    check(
        "QAttention",
        [
            u8(2, 5, 8), s8(8, 24), f32(24), X[0], np.float32(0.02), given, X[1], np.int8(0),
            f32(2, 2, 2, before, 4),
        ],
        outputs=FLOAT * 2,
        num_heads=2,
        unidirectional=causal,
        tolerance=1e-4,
    )  # fmt: skip


def test_attention_that_leaves_keys_and_values_behind_for_the_first_time():
    check(
        "QAttention",
        [u8(2, 5, 8), s8(8, 24), f32(24), X[0], np.float32(0.02), None, X[1], np.int8(0)],
        outputs=FLOAT * 2,
        num_heads=2,
        unidirectional=1,
        tolerance=1e-4,
    )


def test_embeddings():
    ids, segments = (RANDOM.integers(0, n, (2, 4)).astype(np.int32) for n in (9, 2))
    tables = [u8(9, 8), u8(6, 8), u8(2, 8), u8(8), u8(8)]
    mask = np.array([[1, 1, 0, 0], [1, 1, 1, 1]], np.int32)
    scales, zeros = [X[0]] * 5, [X[1]] * 5
    check(
        "QEmbedLayerNormalization",
        [ids, segments, *tables, mask, *scales, *zeros],
        given=2,
        outputs=("float32", "int32"),
        epsilon=1e-5,
        tolerance=1e-4,
        steps=0,
    )


@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize("hidden", [4, 33])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_hidden_states_of_lstm_are_rounded_as_onnxruntime_rounds_them(direction, hidden, unsigned):
    """One sequence; of several, onnxruntime takes one range for as many as a thread of it has."""
    count = 2 if direction == "bidirectional" else 1
    middle = np.full(count, 128 if unsigned else 0, np.uint8 if unsigned else np.int8)

    def weights(rows: int) -> np.ndarray:
        signed = s8(count, rows, 4 * hidden).astype(np.int16)
        return (signed + middle[0]).astype(middle.dtype)

    check(
        "DynamicQuantizeLSTM",
        [
            f32(6, 1, 5), weights(5), weights(hidden), f32(count, 8 * hidden), None, None, None, None,
            np.full(count, 0.01, np.float32), middle,
            np.full(count, 0.01, np.float32), middle,
        ],
        outputs=FLOAT * 3,
        hidden_size=hidden,
        direction=direction,
        tolerance=1e-5,
    )  # fmt: skip


def test_lstm_with_weights_around_another_zero_point_is_close():
    """Its r is dequantized: hidden states are not rounded."""
    check(
        "DynamicQuantizeLSTM",
        [
            f32(6, 1, 5), s8(1, 5, 16), s8(1, 4, 16), f32(1, 32), None, None, None, None,
            np.full(1, 0.01, np.float32), np.zeros(1, np.int8),
            np.full(1, 0.01, np.float32), np.full(1, 3, np.int8),
        ],
        outputs=FLOAT * 3,
        hidden_size=4,
        tolerance=0.02,
    )  # fmt: skip


# -- what exporters write ---------------------------------------------------------------------------


def small_weights(dtype):
    if dtype.itemsize == 1 and dtype.kind == "V":  # 4 bits, and floats of 8
        return RANDOM.integers(0, 8, (32, 16)).astype(dtype)
    return RANDOM.integers(-100, 100, (32, 16)).astype(dtype)


@pytest.mark.parametrize(
    ("activations", "weights"),
    [
        ("uint8", np.int8), ("uint16", np.int8), ("int16", np.int16), ("uint8", ml_dtypes.int4),
        ("int8", ml_dtypes.uint4), ("uint8", ml_dtypes.float8_e4m3fn),
    ],
)  # fmt: skip
def test_types_of_activations_and_weights(activations, weights):
    """Products of up to 8 bits become integer products; the others are computed in float."""
    scale = np.float32(0.02 if "8" in activations else 0.0002)
    constants = {
        "s": scale, "z": np.array(5, activations), "w": small_weights(np.dtype(weights)),
        "sw": np.abs(f32(16)) * np.float32(0.01), "sy": np.float32(0.05), "zy": np.uint8(128),
    }  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "sw"], ["dw"], axis=-1),
        helper.make_node("MatMul", ["d", "dw"], ["m"]),
        helper.make_node("QuantizeLinear", ["m", "sy", "zy"], ["y"]),
    ]
    agree(graph_of(nodes, {"x": (5, 32)}, {"y": "uint8"}, constants), {"x": f32(5, 32)})


def graph_of(nodes, inputs, outputs, constants):
    """A model of float inputs by shape and outputs by dtype."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(np.dtype(d)), None)
            for n, d in outputs.items()
        ],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()],
    )
    opsets = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def test_weights_that_two_products_share_and_integers_that_the_model_gives():
    constants = {"s": X[0], "z": X[1], "w": s8(8, 8), "sw": np.float32(0.01)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "sw"], ["dw"]),
        helper.make_node("MatMul", ["d", "dw"], ["m"]),
        helper.make_node("QuantizeLinear", ["m", "s", "z"], ["p"]),
        helper.make_node("DequantizeLinear", ["p", "s", "z"], ["e"]),
        helper.make_node("MatMul", ["e", "dw"], ["y"]),
    ]
    outputs = {"y": "float32", "p": "uint8", "e": "float32"}
    agree(graph_of(nodes, {"x": (4, 8)}, outputs, constants), {"x": f32(4, 8)})


def test_weights_that_the_model_quantizes_itself():
    constants = {"s": X[0], "z": X[1], "w": f32(6, 4, 3, 3), "sw": np.abs(f32(6)), "zw": s8(6) * 0}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("QuantizeLinear", ["w", "sw", "zw"], ["qw"], axis=0),
        helper.make_node("DequantizeLinear", ["qw", "sw", "zw"], ["dw"], axis=0),
        helper.make_node("Conv", ["d", "dw"], ["c"], auto_pad="SAME_UPPER"),
        helper.make_node("QuantizeLinear", ["c", "s", "z"], ["y"]),
    ]
    model = graph_of(nodes, {"x": (1, 4, 6, 6)}, {"y": "uint8"}, constants)
    agree(model, {"x": f32(1, 4, 6, 6)})
