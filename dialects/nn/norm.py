"""Normalizations. Statistics are computed in float32 or wider whatever the element type, and
rounded
once, at the end.
"""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from xcompile.compiler.ir.op import Operand, Result
from xcompile.dialects.nn.base import NnOp, Shape, Sizes, nn, rank_of
from xcompile.dialects.nn.numeric import rounded
from xcompile.dialects.nn.precision import widened
from xcompile.dialects.nn.softmax import AxisOp


class Norm(NnOp):
    """A normalization that keeps the shape of x."""

    x: Operand
    y: Result

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        return [sizes.shape(self.x)]

    def check_channels(self, sizes: Sizes, *names: str) -> None:
        """Check that each named operand is a vector of as many elements as x has channels (axis 1)."""
        channels = sizes.shape(self.x)[1]
        for name in names:
            shape = sizes.shape(getattr(self, name))
            if len(shape) != 1:
                raise self.error(
                    "XC2003", f"the {name} of {self.NAME} has rank {len(shape)}, not 1"
                )
            sizes.equal(shape[0], channels, f"the size of {self.NAME}'s {name} and the channels")

    def check_rank(self, least: int) -> None:
        if rank_of(self.x) < least:
            raise self.error(
                "XC2003", f"{self.NAME} of an input of rank {rank_of(self.x)}; it needs {least}"
            )


def _per_channel(values: np.ndarray, rank: int) -> np.ndarray:
    return widened(values).reshape(-1, *[1] * (rank - 2))


def _normalized(x: np.ndarray, axes: Sequence[int], epsilon: float) -> np.ndarray:
    """`(x - mean) / √(variance + epsilon)` over `axes`."""
    axes = tuple(axes)
    centered = x - x.mean(axis=axes, keepdims=True)
    return centered / np.sqrt((centered * centered).mean(axis=axes, keepdims=True) + epsilon)


@nn.op("batch_norm")
class BatchNorm(Norm):
    """`scale·(x - mean) / √(variance + epsilon) + bias` for each channel (axis 1). ONNX
    BatchNormalization in inference.
    """

    scale: Operand
    bias: Operand
    mean: Operand
    variance: Operand
    epsilon: float = 1e-5

    def verify(self) -> None:
        self.check_rank(2)

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        self.check_channels(sizes, "scale", "bias", "mean", "variance")
        return super().infer(sizes)

    def reference(
        self,
        x: np.ndarray,
        scale: np.ndarray,
        bias: np.ndarray,
        mean: np.ndarray,
        variance: np.ndarray,
    ) -> np.ndarray:
        scale, bias, mean, variance = (
            _per_channel(v, x.ndim) for v in (scale, bias, mean, variance)
        )
        with np.errstate(all="ignore"):
            y = scale * (widened(x) - mean) / np.sqrt(variance + self.epsilon) + bias
        return rounded(y, x.dtype)


@nn.op("instance_norm")
class InstanceNorm(Norm):
    """Normalization over the spatial axes of each channel of each sample, then scale and bias a
    channel. ONNX InstanceNormalization.
    """

    scale: Operand
    bias: Operand
    epsilon: float = 1e-5

    def verify(self) -> None:
        self.check_rank(3)

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        self.check_channels(sizes, "scale", "bias")
        return super().infer(sizes)

    def reference(self, x: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            y = _normalized(widened(x), range(2, x.ndim), self.epsilon)
            return rounded(y * _per_channel(scale, x.ndim) + _per_channel(bias, x.ndim), x.dtype)


@nn.op("group_norm")
class GroupNorm(Norm):
    """Normalization over each of `groups` groups of channels of a sample, then scale and bias a
    channel. ONNX GroupNormalization 21.
    """

    scale: Operand
    bias: Operand
    groups: int
    epsilon: float = 1e-5

    def verify(self) -> None:
        self.check_rank(2)
        if self.groups < 1:
            raise self.error("XC2007", f"a group normalization with {self.groups} groups")

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        self.check_channels(sizes, "scale", "bias")
        channels = sizes.shape(self.x)[1]
        if isinstance(channels, int) and channels % self.groups:
            raise self.error("XC2007", f"{self.groups} groups do not divide {channels} channels")
        return super().infer(sizes)

    def reference(self, x: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            grouped = widened(x).reshape(
                x.shape[0], self.groups, x.shape[1] // self.groups, *x.shape[2:]
            )
            y = _normalized(grouped, range(2, grouped.ndim), self.epsilon).reshape(x.shape)
            return rounded(y * _per_channel(scale, x.ndim) + _per_channel(bias, x.ndim), x.dtype)


class TrailingNorm(Norm):
    """A normalization over axes [axis, rank); its scale and bias broadcast to these."""

    scale: Operand
    axis: int
    epsilon: float = 1e-5

    def verify(self) -> None:
        if not 0 <= self.axis < rank_of(self.x):
            raise self.error(
                "XC2006", f"axis {self.axis} is out of range for rank {rank_of(self.x)}"
            )

    def check_broadcasts(self, sizes: Sizes, name: str) -> None:
        """Check that an operand broadcasts to x without making it larger."""
        x, shape = sizes.shape(self.x), sizes.shape(getattr(self, name))
        if len(shape) > len(x):
            raise self.error(
                "XC2003", f"the {name} of {self.NAME} has rank {len(shape)}, the input {len(x)}"
            )
        for have, want in zip(shape, x[len(x) - len(shape) :], strict=True):
            if have != 1:
                sizes.equal(have, want, f"the sizes of {self.NAME}'s {name} and input")

    def trailing(self, x: np.ndarray) -> tuple[int, ...]:
        """The normalized axes."""
        return tuple(range(self.axis, x.ndim))


@nn.op("layer_norm")
class LayerNorm(TrailingNorm):
    """`scale·(x - mean) / √(variance + epsilon) + bias` over the axes from `axis` on. ONNX
    LayerNormalization's first result.
    """

    bias: Operand | None

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        self.check_broadcasts(sizes, "scale")
        if self.bias is not None:
            self.check_broadcasts(sizes, "bias")
        return super().infer(sizes)

    def reference(self, x: np.ndarray, scale: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
        with np.errstate(all="ignore"):
            y = _normalized(widened(x), self.trailing(x), self.epsilon) * widened(scale)
            return rounded(y if bias is None else y + widened(bias), x.dtype)


@nn.op("rms_norm")
class RmsNorm(TrailingNorm):
    """`scale·x / √(mean of x² + epsilon)` over the axes from `axis` on. ONNX RMSNormalization."""

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        self.check_broadcasts(sizes, "scale")
        return super().infer(sizes)

    def reference(self, x: np.ndarray, scale: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            wide = widened(x)
            mean = (wide * wide).mean(axis=self.trailing(x), keepdims=True)
            return rounded(wide / np.sqrt(mean + self.epsilon) * widened(scale), x.dtype)


@nn.op("lrn")
class Lrn(Norm):
    """`x / (k + alpha/size · Σ x²)^beta`, the sum over `size` neighbouring channels. ONNX LRN.

    The window has ⌊(size-1)/2⌋ channels before and ⌈(size-1)/2⌉ after.
    """

    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    k: float = 1.0

    NARROW: ClassVar[int] = 9
    """Windows up to here are added up channel by channel, where the op stands."""

    @property
    def is_narrow(self) -> bool:
        """Whether a kernel computes the window in place."""
        return self.size <= self.NARROW

    def verify(self) -> None:
        self.check_rank(2)
        if not 1 <= self.size < 2**31:
            raise self.error("XC2007", f"a local response normalization over {self.size} channels")

    def reference(self, x: np.ndarray) -> np.ndarray:
        wide = widened(x)
        before, after = (self.size - 1) // 2, self.size // 2
        total = np.concatenate([np.zeros_like(wide[:, :1]), np.cumsum(wide * wide, axis=1)], axis=1)
        channel = np.arange(x.shape[1])
        ends = np.minimum(channel + after + 1, x.shape[1])
        sums = total[:, ends] - total[:, np.maximum(channel - before, 0)]
        with np.errstate(all="ignore"):
            return rounded(wide / (self.k + self.alpha / self.size * sums) ** self.beta, x.dtype)


@nn.op("lp_norm")
class LpNorm(AxisOp):
    """`x / (Σ |x|^p)^(1/p)` along an axis, p 1 or 2; 0 where the norm is 0. ONNX LpNormalization."""

    p: int = 2

    def verify(self) -> None:
        super().verify()
        if self.p not in (1, 2):
            raise self.error("XC2007", f"an Lp normalization with p = {self.p}; p is 1 or 2")

    def reference(self, x: np.ndarray) -> np.ndarray:
        wide = widened(x)
        norm = (np.abs(wide) ** self.p).sum(axis=self.axis, keepdims=True) ** (1 / self.p)
        return rounded(np.divide(wide, norm, out=np.zeros_like(wide), where=norm != 0), x.dtype)


@nn.op("mean_variance_norm")
class MeanVarianceNorm(Norm):
    """`(x - mean) / (√variance + 1e-9)` over `axes`. ONNX MeanVarianceNormalization."""

    axes: tuple[int, ...]

    def verify(self) -> None:
        if any(not 0 <= a < rank_of(self.x) for a in self.axes) or len(set(self.axes)) != len(
            self.axes
        ):
            raise self.error(
                "XC2006", f"axes {self.axes} are not distinct axes of rank {rank_of(self.x)}"
            )

    def reference(self, x: np.ndarray) -> np.ndarray:
        wide, axes = widened(x), tuple(self.axes)
        with np.errstate(all="ignore"):
            centered = wide - wide.mean(axis=axes, keepdims=True)
            deviation = np.sqrt((centered * centered).mean(axis=axes, keepdims=True))
            return rounded(centered / (deviation + 1e-9), x.dtype)
