"""Networks over the frames themselves: a residual network, and what joins it over time."""

from collections.abc import Sequence

import onnx

from xcompile.frontends.onnx.zoo.network import Network

RESNET50 = (3, 4, 6, 3)
"""Bottleneck blocks in each stage of ResNet-50."""


def tsn(
    segments: int = 7, classes: int = 400, width: int = 64, blocks: Sequence[int] = RESNET50, seed: int = 0
) -> onnx.ModelProto:  # fmt: skip
    """Temporal segment network (Wang et al., "Temporal Segment Networks", ECCV 2016): frames vote.

    Args:
        segments: frames of a clip.
        classes: of the softmax.
        width: channels of the first stage; ResNet-50 has 64.
        blocks: bottleneck blocks in each stage.
        seed: of the weights.

    Returns:
        A model of `video` float32 [batch, segments, 3, height, width], and `scores` [batch, classes].
    """
    n = Network("tsn", seed)
    images = n("Reshape", "video", _merge(n, segments, 3))
    x, channels = _residual(n, *_stem(n, images, 3, width), width, blocks)
    pooled = n("Flatten", n("GlobalAveragePool", x))
    votes = n(
        "Reshape", n.dense(pooled, channels, classes, gain=0.2), n.sizes(-1, segments, classes)
    )
    scores = n("Softmax", n("ReduceMean", votes, axes=[1], keepdims=0), axis=-1)
    sizes = ("N", segments, 3, "H", "W")
    return n.model({"video": ("FLOAT", sizes)}, scores, ("N", classes))


def stnet(
    segments: int = 7, frames: int = 5, classes: int = 400, width: int = 64, blocks: Sequence[int] = RESNET50,
    seed: int = 0,
) -> onnx.ModelProto:  # fmt: skip
    """StNet (He et al., "StNet", AAAI 2019): super-images of neighbouring frames, then convolutions over time.

    Args:
        segments: super-images of a clip.
        frames: neighbouring frames that make one super-image.
        classes: of the softmax.
        width: channels of the first stage; ResNet-50 has 64.
        blocks: bottleneck blocks in each of four stages; a temporal block follows the second and the third.
        seed: of the weights.

    Returns:
        A model of `video` float32 [batch, segments, 3 * frames, height, width], and `scores` [batch, classes].
    """
    n = Network("stnet", seed)
    images = n("Reshape", "video", _merge(n, segments, 3 * frames))
    x, channels = _stem(n, images, 3 * frames, width)
    for stage, count in enumerate(blocks):
        x, channels = _stage(n, x, channels, width << stage, count, 1 if stage == 0 else 2)
        if stage in (1, 2):
            x = _temporal_block(n, x, channels, segments)
    pooled = n("Reshape", n("GlobalAveragePool", x), n.sizes(-1, segments, channels))
    timed = _temporal_xception(n, n("Transpose", pooled, perm=[0, 2, 1]), channels)
    features = n("Flatten", n("GlobalMaxPool", timed))
    scores = n("Softmax", n.dense(features, channels, classes, gain=0.2), axis=-1)
    sizes = ("N", segments, 3 * frames, "H", "W")
    return n.model({"video": ("FLOAT", sizes)}, scores, ("N", classes))


def _merge(n: Network, segments: int, channels: int) -> str:
    """The sizes of a clip whose segments are images of one batch."""
    image = n("Slice", n("Shape", "video"), n.sizes(3), n.sizes(5))
    return n("Concat", n.sizes(-1, channels), image, axis=0)


def _stem(n: Network, x: str, inputs: int, width: int) -> tuple[str, int]:
    stem = n.conv_norm_relu(x, inputs, width, (7, 7), stride=2)
    return n("MaxPool", stem, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]), width


def _residual(
    n: Network, x: str, channels: int, width: int, blocks: Sequence[int]
) -> tuple[str, int]:
    for stage, count in enumerate(blocks):
        x, channels = _stage(n, x, channels, width << stage, count, 1 if stage == 0 else 2)
    return x, channels


def _stage(
    n: Network, x: str, channels: int, width: int, count: int, stride: int
) -> tuple[str, int]:
    """Bottleneck blocks; the first one strides."""
    for block in range(count):
        step = stride if block == 0 else 1
        inner = n.conv_norm_relu(x, channels, width, (1, 1))
        inner = n.conv_norm_relu(inner, width, width, (3, 3), step)
        inner = n.batch_norm(n.conv(inner, width, 4 * width, (1, 1)), 4 * width, scale=0.3)
        if block == 0:
            x = n.batch_norm(n.conv(x, channels, 4 * width, (1, 1), step), 4 * width)
        x, channels = n("Relu", n("Add", inner, x)), 4 * width
    return x, channels


def _temporal_block(n: Network, x: str, channels: int, segments: int) -> str:
    """A 3-D convolution over time only, added to its input."""
    size = n("Slice", n("Shape", x), n.sizes(2), n.sizes(4))
    clip = n("Reshape", x, n("Concat", n.sizes(-1, segments, channels), size, axis=0))
    timed = n.conv(n("Transpose", clip, perm=[0, 2, 1, 3, 4]), channels, channels, (3, 1, 1))
    images = n("Transpose", n.batch_norm(timed, channels, scale=0.3), perm=[0, 2, 1, 3, 4])
    merged = n("Reshape", images, n("Concat", n.sizes(-1, channels), size, axis=0))
    return n("Relu", n("Add", merged, x))


def _temporal_xception(n: Network, x: str, channels: int) -> str:
    """Depthwise and pointwise convolutions along time, twice, with a pointwise shortcut.

    x: [batch, channels, time].
    """
    inner = n.batch_norm(x, channels)
    for _ in range(2):
        inner = n.conv(inner, channels, channels, (3,), group=channels)
        inner = n("Relu", n.batch_norm(n.conv(inner, channels, channels, (1,)), channels))
    return n("Relu", n("Add", inner, n.conv(x, channels, channels, (1,))))
