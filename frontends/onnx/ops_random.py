"""Random numbers, and what is drawn with them.

Every node draws from a generator of its own. Its seed is the attribute `seed` (the bits of the float), or, where there
is none, a digest of the node's name: a model gives the same numbers in every run.
"""

import hashlib
import math
import struct
from typing import Any

import numpy as np

from xcompile.compiler.ir.op import Value
from xcompile.dialects.nn.base import dtype_of, rank_of
from xcompile.dialects.nn.generate import CumSum
from xcompile.dialects.nn.random import RandomUniform
from xcompile.dialects.nn.reduce import ReduceSum
from xcompile.dialects.nn.softmax import Softmax
from xcompile.dialects.nn.unary import Cos, Log
from xcompile.frontends.onnx.composition import Composition
from xcompile.frontends.onnx.context import NodeContext
from xcompile.frontends.onnx.registry import onnx_op
from xcompile.frontends.onnx.tensors import dtype_name


def seed_of(node: NodeContext, stream: int = 0) -> int:
    """The state at which a node's generator starts; `stream` tells the draws of one node apart."""
    seed: Any = node.attr("seed", None)
    if seed is None:
        text = node.name.encode()
    else:
        text = (
            seed.to_bytes(8, "little", signed=True)
            if isinstance(seed, int)
            else struct.pack("<d", seed)
        )
    digest = hashlib.sha256(text + stream.to_bytes(1, "little")).digest()
    return int.from_bytes(digest[:8], "little", signed=True)


def uniform(node: NodeContext, shape: Value, dtype: str, stream: int = 0) -> Value:
    """Numbers in [0, 1): float64 for float64, else float32."""
    wide = "f64" if dtype == "f64" else "f32"
    return node.make(RandomUniform, shape=shape, seed=seed_of(node, stream), dtype=wide).y


def _shape(node: NodeContext, c: Composition) -> Value:
    if node.op_type.endswith("Like"):
        return c.shape(node.input(0))
    return c.ints(*node.attr("shape"))


def _dtype(node: NodeContext) -> str:
    code = node.attr("dtype", 0)
    if code:
        return dtype_name(code, f"the result of {node.op_type}")
    return node.dtype(0) if node.op_type.endswith("Like") else "f32"


@onnx_op("RandomUniform")
@onnx_op("RandomUniformLike")
def random_uniform(node: NodeContext) -> list[Value]:
    c, dtype = Composition(node), _dtype(node)
    low, high = node.attr("low", 0.0), node.attr("high", 1.0)
    drawn = uniform(node, _shape(node, c), dtype)
    return [c.cast(c.add(c.mul(drawn, high - low), low), dtype)]


@onnx_op("RandomNormal")
@onnx_op("RandomNormalLike")
def random_normal(node: NodeContext) -> list[Value]:
    """By the transformation of Box and Muller (1958)."""
    c, dtype = Composition(node), _dtype(node)
    shape = _shape(node, c)
    radius, angle = (uniform(node, shape, dtype, stream) for stream in (0, 1))
    length = c.sqrt(c.mul(c.unary(Log, c.sub(1.0, radius)), -2.0))
    drawn = c.mul(length, c.unary(Cos, c.mul(angle, 2 * math.pi)))
    scaled = c.add(c.mul(drawn, node.attr("scale", 1.0)), node.attr("mean", 0.0))
    return [c.cast(scaled, dtype)]


@onnx_op("Multinomial")
def multinomial(node: NodeContext) -> list[Value]:
    """Each sample is the number of classes whose summed probability is not above a uniform number."""
    c = Composition(node)
    logits = c.widened(node.input(0))
    chances = c.make(Softmax, x=logits, axis=1)
    summed = c.make(CumSum, x=chances, axis=c.constant(np.array(1, np.int64)))
    count = node.attr("sample_size", 1)
    drawn = uniform(node, c.concat([c.shape(logits, 0, 1), c.ints(count)], 0), dtype_of(logits))
    passed = c.less_equal(c.unsqueeze(summed, 1), c.unsqueeze(drawn, 2))
    classes = c.reduce(ReduceSum, c.cast(passed, "i64"), [2], keepdims=False)
    last = c.sub(c.size(logits, 1), 1)
    code = node.attr("dtype", 0)
    to = dtype_name(code, "the result of Multinomial") if code else "i32"
    return [c.cast(c.minimum(classes, last), to)]


@onnx_op("Dropout", since=7)
def dropout(node: NodeContext) -> list[Value]:
    """Inference: the input and, when asked for, a mask that keeps everything."""
    return _undropped(node)


def _undropped(node: NodeContext) -> list[Value]:
    c, x = Composition(node), node.input(0)
    if not node.has_output(1):
        return [x]
    return [x, c.expand(c.constant(np.array(True)), c.shape(x))]


@onnx_op("Dropout", since=12)
def dropout_in_training(node: NodeContext) -> list[Value]:
    """In training an element is kept where a uniform number is not below the ratio, and divided by 1 - ratio."""
    training = node.const(2)
    if not node.has_input(2) or (training is not None and not training.any()):
        return _undropped(node)
    c, x = Composition(node), node.input(0)
    wide = "f64" if dtype_of(x) == "f64" else "f32"
    given = node.optional(1)
    ratio = c.constant(np.array(0.5, np.float32)) if given is None else given
    ratio = c.cast(c.reshape(ratio, ()) if rank_of(ratio) else ratio, wide)
    kept = c.greater_equal(uniform(node, c.shape(x), wide), ratio)
    scaled = c.div(c.cast(x, wide), c.sub(1.0, ratio))
    y = c.cast(c.where(kept, scaled, 0.0), dtype_of(x))
    if training is None:
        flag = node.input(2)
        flag = c.reshape(flag, ()) if rank_of(flag) else flag
        y = c.where(flag, y, x)
        kept = c.where(flag, kept, c.constant(np.array(True)))
    return [y, kept]
