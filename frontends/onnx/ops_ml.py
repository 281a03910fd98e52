"""Numeric ops of ai.onnx.ml; those on strings and maps are not supported."""

from typing import Any

import numpy as np

from xcompile.compiler.ir.op import Value
from xcompile.dialects.nn.base import dtype_of, numpy_dtype, rank_of
from xcompile.dialects.nn.reduce import ArgMax, ReduceL1, ReduceL2, ReduceMax
from xcompile.dialects.nn.softmax import Softmax
from xcompile.dialects.nn.unary import IsNan, Sigmoid
from xcompile.frontends.onnx.composition import Composition
from xcompile.frontends.onnx.context import NodeContext
from xcompile.frontends.onnx.ops_conv import static_sizes
from xcompile.frontends.onnx.registry import onnx_op

_DOMAIN = "ai.onnx.ml"


def _floats(c: Composition, values: Any) -> Value:
    return c.constant(np.array(values, np.float32))


@onnx_op("ArrayFeatureExtractor", domain=_DOMAIN)
def array_feature_extractor(node: NodeContext) -> list[Value]:
    """Elements of the last axis; a vector counts as one row."""
    c, x = Composition(node), node.input(0)
    x = c.unsqueeze(x, 0) if rank_of(x) == 1 else x
    places = c.reshape(node.input(1), (-1,))
    return [c.gather(x, places, rank_of(x) - 1)]


@onnx_op("Binarizer", domain=_DOMAIN)
def binarizer(node: NodeContext) -> list[Value]:
    c, x = Composition(node), node.input(0)
    above = c.greater(c.cast(x, _wide(x)), node.attr("threshold", 0.0))
    return [c.cast(above, dtype_of(x))]


def _wide(x: Value) -> str:
    """The float type in which elements are compared with an attribute."""
    return "f32" if dtype_of(x) == "f32" else "f64"


@onnx_op("Scaler", domain=_DOMAIN)
def scaler(node: NodeContext) -> list[Value]:
    c, x = Composition(node), _as_float(node)
    moved = c.sub(x, _floats(c, node.attr("offset", (0.0,))))
    return [c.mul(moved, _floats(c, node.attr("scale", (1.0,))))]


def _as_float(node: NodeContext) -> Value:
    """The first input as float32."""
    return Composition(node).cast(node.input(0), "f32")


@onnx_op("Normalizer", domain=_DOMAIN)
def normalizer(node: NodeContext) -> list[Value]:
    """Rows divided by their greatest element, the sum of their magnitudes or their length, unless that is 0."""
    c, x, kind = Composition(node), _as_float(node), node.attr("norm", "MAX")
    reductions = {"MAX": ReduceMax, "L1": ReduceL1, "L2": ReduceL2}
    if kind not in reductions:
        raise node.error("XC2007", f"the norm of Normalizer is '{kind}'")
    divisor = c.reduce(reductions[kind], x, [rank_of(x) - 1])
    return [c.where(c.equal(divisor, 0.0), x, c.div(x, divisor))]


@onnx_op("Imputer", domain=_DOMAIN)
def imputer(node: NodeContext) -> list[Value]:
    c, x = Composition(node), node.input(0)
    floats = numpy_dtype(x).kind == "f"
    kind = "float" if floats else "int64"
    missing = node.attr(f"replaced_value_{kind}", 0)
    values = c.constant(np.array(node.attr(f"imputed_value_{kind}s")).astype(numpy_dtype(x)))
    nan = floats and np.isnan(missing)
    gone = c.unary(IsNan, x) if nan else c.equal(x, missing)
    return [c.where(gone, values, x)]


@onnx_op("FeatureVectorizer", domain=_DOMAIN)
def feature_vectorizer(node: NodeContext) -> list[Value]:
    c = Composition(node)
    parts = [c.cast(x, "f32") for x in node.inputs()]
    return [c.concat([c.unsqueeze(x, 0) if rank_of(x) == 1 else x for x in parts], 1)]


@onnx_op("OneHotEncoder", domain=_DOMAIN)
def one_hot_encoder(node: NodeContext) -> list[Value]:
    """A last axis of categories, with a 1 at the one that is the element (as an integer)."""
    categories = node.attr("cats_int64s", None)
    if categories is None or not node.attr("zeros", 1):
        raise node.error("XC1006", "OneHotEncoder of strings, or that fails, is not supported")
    c = Composition(node)
    x = c.unsqueeze(c.cast(node.input(0), "i64"), node.rank(0))
    return [c.cast(c.equal(x, c.ints(*categories)), "f32")]


@onnx_op("LabelEncoder", since=2, domain=_DOMAIN)
def label_encoder(node: NodeContext) -> list[Value]:
    """Each element is compared with all keys; the last of equal keys counts, and a NaN equals a NaN."""
    c, x = Composition(node), node.input(0)
    keys, values = _labels(node, "keys"), _labels(node, "values")
    if keys.shape != values.shape:
        raise node.error("XC2007", f"LabelEncoder has {keys.size} keys, {values.size} values")
    default = _default(node, values.dtype)
    rank = rank_of(x)
    column = c.unsqueeze(x, rank)
    known = c.constant(keys.astype(numpy_dtype(x)))
    found = c.equal(column, known)
    if numpy_dtype(x).kind == "f":
        found = c.either(found, c.both(c.unary(IsNan, column), c.unary(IsNan, known)))
    place = c.make(ArgMax, x=c.cast(found, "i32"), axis=rank, keepdims=False, select_last=True)
    mapped = c.gather(c.constant(values), place, 0)
    hit = c.reduce(ReduceMax, c.cast(found, "i32"), [rank], keepdims=False)
    return [c.where(c.equal(hit, 1), mapped, c.constant(default))]


def _labels(node: NodeContext, kind: str) -> np.ndarray:
    """The keys or values, numbers only."""
    for suffix, dtype in (("floats", np.float32), ("int64s", np.int64)):
        given = node.attr(f"{kind}_{suffix}", None)
        if given is not None:
            return np.array(given, dtype)
    tensor = node.attr(f"{kind}_tensor", None)
    if tensor is None:
        raise node.error("XC1012", "LabelEncoder with strings is not supported")
    return tensor.reshape(-1)


def _default(node: NodeContext, dtype: np.dtype) -> np.ndarray:
    tensor = node.attr("default_tensor", None)
    if tensor is not None:
        return tensor.reshape(()).astype(dtype)
    name, other = ("default_float", -0.0) if dtype.kind == "f" else ("default_int64", -1)
    return np.array(node.attr(name, other)).astype(dtype)


# -- linear models --------------------------------------------------------------------------------


def _scores(node: NodeContext, targets: int) -> Value:
    """[N, features] by the coefficients [targets, features], plus intercepts."""
    c, x = Composition(node), _as_float(node)
    x = c.unsqueeze(x, 0) if rank_of(x) == 1 else x
    coefficients = np.array(node.attr("coefficients"), np.float32)
    if targets < 1 or coefficients.size % targets:
        raise node.error("XC2007", f"{coefficients.size} coefficients for {targets} targets")
    scores = c.matmul(x, c.constant(coefficients.reshape(targets, -1)), transpose_b=True)
    intercepts = node.attr("intercepts", None)
    return scores if intercepts is None else c.add(scores, _floats(c, intercepts))


def _finished(node: NodeContext, scores: Value) -> Value:
    c, transform = Composition(node), node.attr("post_transform", "NONE")
    if transform == "NONE":
        return scores
    if transform == "LOGISTIC":
        return c.unary(Sigmoid, scores)
    if transform == "SOFTMAX":
        return c.make(Softmax, x=scores, axis=rank_of(scores) - 1)
    raise node.error("XC1006", f"{node.op_type} with the transform {transform} is not supported")


@onnx_op("LinearRegressor", domain=_DOMAIN)
def linear_regressor(node: NodeContext) -> list[Value]:
    return [_finished(node, _scores(node, node.attr("targets", 1)))]


@onnx_op("LinearClassifier", domain=_DOMAIN)
def linear_classifier(node: NodeContext) -> list[Value]:
    """The label of the greatest score, and the scores; two labels or more with a score each."""
    labels = node.attr("classlabels_ints", None)
    if labels is None:
        raise node.error("XC1012", "LinearClassifier with strings is not supported")
    if len(labels) * _features(node) != len(node.attr("coefficients")):
        raise node.error("XC1006", "LinearClassifier with one score for two labels")
    c = Composition(node)
    scores = _scores(node, len(labels))
    place = c.make(ArgMax, x=scores, axis=1, keepdims=False)
    return [c.gather(c.ints(*labels), place, 0), _finished(node, scores)]


def _features(node: NodeContext) -> int:
    if node.rank(0) not in (1, 2):
        raise node.error("XC2003", f"LinearClassifier of an input of rank {node.rank(0)}")
    count = static_sizes(node.input(0))[-1]
    if count is None:
        raise node.error("XC2010", "LinearClassifier needs a known number of features")
    return count
