"""Networks over the features of frames, which another network has computed."""

from collections.abc import Mapping

import numpy as np
import onnx

from xcompile.frontends.onnx.zoo.network import Network


def attention_cluster(
    features: Mapping[str, int] | None = None, clusters: int = 32, classes: int = 400, seed: int = 0
) -> onnx.ModelProto:
    """Attention clusters with the shifting operation (Long et al., "Attention Clusters", CVPR 2018).

    Args:
        features: channels of each input, by name; `{"rgb": 1024, "audio": 128}` unless given.
        clusters: attention units an input.
        classes: scores, each a sigmoid.
        seed: of the weights.

    Returns:
        A model of one float32 input [batch, frames, channels] for each feature, and `scores` [batch, classes].
    """
    given = {"rgb": 1024, "audio": 128} if features is None else dict(features)
    n = Network("attention_cluster", seed)
    parts: list[str] = []
    for name, channels in given.items():
        attention = n("Softmax", n.dense(name, channels, clusters), axis=1)
        gathered = n("MatMul", n("Transpose", attention, perm=[0, 2, 1]), name)
        scaled = n("Mul", gathered, n.weight(clusters, 1, inputs=2))
        shifted = n("Add", scaled, n.weight(clusters, 1, inputs=2))
        unit = n("LpNormalization", shifted, axis=-1, p=2)
        parts.append(n("Flatten", n("Mul", unit, n.constant(1 / np.sqrt(clusters)))))
    width = clusters * sum(given.values())
    hidden = n("Relu", n.dense(n("Concat", *parts, axis=1), width, 4 * clusters))
    scores = n("Sigmoid", n.dense(hidden, 4 * clusters, classes))
    inputs = {name: ("FLOAT", ("N", "T", channels)) for name, channels in given.items()}
    return n.model(inputs, scores, ("N", classes))


def nextvlad(
    features: int = 1024, clusters: int = 64, groups: int = 8, hidden: int = 1024, classes: int = 3862, seed: int = 0
) -> onnx.ModelProto:  # fmt: skip
    """NeXtVLAD with context gating (Lin et al., "NeXtVLAD", ECCV 2018 workshops).

    Args:
        features: channels of a frame; twice that must be a multiple of `groups`.
        clusters: of the aggregation.
        groups: the parts that each frame is split into.
        hidden: width behind the aggregation, a multiple of 8.
        classes: scores, each a sigmoid.
        seed: of the weights.

    Returns:
        A model of `frames` float32 [batch, frames, features], and `scores` [batch, classes].

    Raises:
        ValueError: `groups` does not divide twice the features, or 8 the hidden width.
    """
    expanded = 2 * features
    if expanded % groups or hidden % 8:
        raise ValueError(f"{groups} groups must divide {expanded}, and 8 must divide {hidden}")
    n, width = Network("nextvlad", seed), expanded // groups
    x = n.dense("frames", features, expanded)
    attention = n("Reshape", n("Sigmoid", n.dense(x, expanded, groups)), n.sizes(0, -1, 1))
    assigned = n("Reshape", n.dense(x, expanded, groups * clusters), n.sizes(0, -1, clusters))
    weights = n("Mul", n("Softmax", assigned, axis=-1), attention)  # [N, T * groups, clusters]
    parts = n("Reshape", x, n.sizes(0, -1, width))
    gathered = n("MatMul", n("Transpose", parts, perm=[0, 2, 1]), weights)  # [N, width, clusters]
    mass = n("ReduceSum", weights, n.sizes(1), keepdims=1)
    centered = n("Sub", gathered, n("Mul", mass, n.weight(width, clusters, inputs=width)))
    vlad = n("Flatten", n("LpNormalization", centered, axis=1, p=2))
    y = n.batch_norm(
        n.dense(n.batch_norm(vlad, width * clusters), width * clusters, hidden), hidden
    )
    gate = n("Relu", n.batch_norm(n.dense(y, hidden, hidden // 8), hidden // 8))
    gated = n("Mul", y, n("Sigmoid", n.dense(gate, hidden // 8, hidden)))
    scores = n("Sigmoid", n.dense(gated, hidden, classes))
    return n.model({"frames": ("FLOAT", ("N", "T", features))}, scores, ("N", classes))


def lstm(
    features: int = 1024, hidden: int = 512, classes: int = 3862, seed: int = 0
) -> onnx.ModelProto:
    """A bidirectional LSTM over frames, pooled by attention.

    Args:
        features: channels of a frame.
        hidden: width of the recurrence in each direction.
        classes: scores, each a sigmoid.
        seed: of the weights.

    Returns:
        A model of `frames` float32 [batch, frames, features] and `lengths` int32 [batch] (the frames of each clip that
        count), and `scores` [batch, classes].
    """
    n = Network("lstm", seed)
    x = n("Relu", n.dense("frames", features, hidden))
    sequence = n("Transpose", x, perm=[1, 0, 2])
    weights = n.weight(2, 4 * hidden, hidden, inputs=4 * hidden)
    recurrent = n.weight(2, 4 * hidden, hidden, inputs=4 * hidden)
    bias = n.constant(np.zeros((2, 8 * hidden)))
    states = n.many(
        "LSTM", 1, sequence, weights, recurrent, bias, "lengths", hidden_size=hidden, direction="bidirectional"
    )[0]  # fmt: skip
    joined = n("Reshape", n("Transpose", states, perm=[2, 0, 1, 3]), n.sizes(0, 0, 2 * hidden))
    attention = n("Softmax", n.dense(n("Tanh", joined), 2 * hidden, 1), axis=1)
    pooled = n("ReduceSum", n("Mul", joined, attention), n.sizes(1), keepdims=0)
    scores = n("Sigmoid", n.dense(pooled, 2 * hidden, classes))
    inputs = {"frames": ("FLOAT", ("N", "T", features)), "lengths": ("INT32", ("N",))}
    return n.model(inputs, scores, ("N", classes))
