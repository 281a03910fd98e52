"""Convolutions: nn.conv and nn.conv_transpose, of one to three spatial axes."""

import itertools
from collections.abc import Sequence
from typing import cast

import numpy as np

from xcompile.compiler.ir.op import Operand, Result
from xcompile.compiler.support.dims import Dim
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.base import NnOp, Shape, Sizes, nn, rank_of
from xcompile.dialects.nn.numeric import rounded
from xcompile.dialects.nn.precision import widened
from xcompile.dialects.nn.spatial import (
    check_window,
    output_size,
    pad_or_crop,
    resolve_pads,
    windows,
)


class Convolution(NnOp):
    """Base of convolutions: x [N, C, spatial…] with w [M, C / groups, kernel…].

    `pads` holds all begins, then all ends; a negative pad crops. With `auto_pad` "same_upper" or
    "same_lower" `pads` is not used: there are ceil(size / stride) windows, and the padding that
    takes is split evenly, the odd one at the end or the begin.
    """

    x: Operand
    w: Operand
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    groups: int = 1
    auto_pad: str = "notset"
    y: Result

    def verify(self) -> None:
        rank = rank_of(self.x) - 2
        if rank < 1 or rank_of(self.w) != rank + 2:
            raise self.error(
                "XC2003", f"a convolution of rank {rank + 2} with weights of rank {rank_of(self.w)}"
            )
        if self.groups < 1:
            raise self.error("XC2007", f"a convolution with {self.groups} groups")
        check_window(
            rank,
            strides=self.strides,
            pads=self.pads,
            dilations=self.dilations,
            auto_pad=self.auto_pad,
        )

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        x, w = sizes.shape(self.x), sizes.shape(self.w)
        sizes.equal(x[1], w[1] * self.groups, "the channels of a convolution's input and weights")
        if isinstance(w[0], int) and w[0] % self.groups:
            raise self.error("XC2007", f"{self.groups} groups do not divide {w[0]} output channels")
        _check_kernel(w[2:])
        rank = len(x) - 2
        spatial = [
            output_size(
                x[2 + i],
                w[2 + i],
                stride=self.strides[i],
                dilation=self.dilations[i],
                pads=(self.pads[i], self.pads[rank + i]),
                auto_pad=self.auto_pad,
            )
            for i in range(rank)
        ]
        return [(x[0], w[0], *spatial)]

    def sums(self, x: np.ndarray, w: np.ndarray, fill: int = 0) -> np.ndarray:
        """The sums of products in the operands' type; cells that pads add hold `fill`."""
        kernel = w.shape[2:]
        window = {"strides": self.strides, "dilations": self.dilations}
        pads = resolve_pads(x.shape[2:], kernel, pads=self.pads, auto_pad=self.auto_pad, **window)
        counts = [
            output_size(n, k, stride=s, dilation=d, pads=p)
            for n, k, s, d, p in zip(
                x.shape[2:], kernel, self.strides, self.dilations, pads, strict=True
            )
        ]
        padded = pad_or_crop(x, pads, fill)
        view = windows(padded, kernel, counts=cast("list[int]", counts), **window)
        return _contract(view, w, self.groups)


@nn.op("conv")
class Conv(Convolution):
    """Convolution with a bias [M]. ONNX Conv."""

    bias: Operand | None

    def verify(self) -> None:
        super().verify()
        if self.bias is not None and rank_of(self.bias) != 1:
            raise self.error(
                "XC2003", f"the bias of a convolution has rank {rank_of(self.bias)}, not 1"
            )

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        shapes = super().infer(sizes)
        if self.bias is not None:
            sizes.equal(
                sizes.shape(self.bias)[0],
                sizes.shape(self.w)[0],
                "the sizes of a convolution's bias and output channels",
            )
        return shapes

    def reference(self, x: np.ndarray, w: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
        y = self.sums(widened(x), widened(w))
        if bias is not None:
            y += widened(bias).reshape(-1, *[1] * (w.ndim - 2))
        return rounded(y, x.dtype)


def _contract(view: np.ndarray, w: np.ndarray, groups: int) -> np.ndarray:
    """[N, C, windows…, kernel…] by [M, C / groups, kernel…]: one matrix product a group."""
    rank = w.ndim - 2
    n, counts = view.shape[0], view.shape[2 : 2 + rank]
    order = (0, *range(2, 2 + rank), 1, *range(2 + rank, 2 + 2 * rank))  # [N, windows…, C, kernel…]
    per_group, channels = w.shape[0] // groups, w.shape[1]
    parts: list[np.ndarray] = []
    for g in range(groups):
        rows = view[:, g * channels : (g + 1) * channels].transpose(order)
        rows = rows.reshape(int(np.prod((n, *counts))), int(np.prod(w.shape[1:])))
        parts.append(
            rows @ w[g * per_group : (g + 1) * per_group].reshape(per_group, rows.shape[1]).T
        )
    y = np.concatenate(parts, axis=1).reshape(n, *counts, w.shape[0])
    return np.ascontiguousarray(np.moveaxis(y, -1, 1))


@nn.op("conv_transpose")
class ConvTranspose(NnOp):
    """Transposed convolution of x [N, C, spatial…] with w [C, M / groups, kernel…] and a bias [M].
    ONNX ConvTranspose.

    An axis of size n gives stride·(n-1) + output_pad + dilation·(k-1) + 1 - begin pad - end pad.
    Negative pads extend the result (with the bias alone).
    """

    x: Operand
    w: Operand
    bias: Operand | None
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    output_pads: tuple[int, ...]
    groups: int = 1
    y: Result

    def verify(self) -> None:
        rank = rank_of(self.x) - 2
        if rank < 1 or rank_of(self.w) != rank + 2:
            raise self.error(
                "XC2003",
                f"a transposed convolution of rank {rank + 2} with weights of rank {rank_of(self.w)}",
            )
        if self.bias is not None and rank_of(self.bias) != 1:
            raise self.error(
                "XC2003",
                f"the bias of a transposed convolution has rank {rank_of(self.bias)}, not 1",
            )
        if (
            self.groups < 1
            or len(self.output_pads) != rank
            or any(not 0 <= p < 2**31 for p in self.output_pads)
        ):
            raise self.error(
                "XC2007", f"groups {self.groups} or output padding {self.output_pads} is not legal"
            )
        check_window(
            rank, strides=self.strides, pads=self.pads, dilations=self.dilations, auto_pad="notset"
        )

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        x, w = sizes.shape(self.x), sizes.shape(self.w)
        sizes.equal(x[1], w[0], "the channels of a transposed convolution's input and weights")
        if isinstance(w[0], int) and w[0] % self.groups:
            raise self.error("XC2007", f"{self.groups} groups do not divide {w[0]} input channels")
        channels = w[1] * self.groups
        if self.bias is not None:
            sizes.equal(
                sizes.shape(self.bias)[0],
                channels,
                "the sizes of a transposed convolution's bias and output channels",
            )
        _check_kernel(w[2:])
        rank = len(x) - 2
        spatial = [
            (x[2 + i] - 1) * self.strides[i]
            + (w[2 + i] - 1) * self.dilations[i]
            + (1 + self.output_pads[i] - self.pads[i] - self.pads[rank + i])
            for i in range(rank)
        ]
        if any(isinstance(size, int) and size < 0 for size in spatial):
            raise self.error(
                "XC2008", f"the transposed convolution's padding {self.pads} leaves nothing"
            )
        return [(x[0], channels, *spatial)]

    def reference(self, x: np.ndarray, w: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
        kernel, spatial, rank = w.shape[2:], x.shape[2:], w.ndim - 2
        full = [
            max(s * (n - 1) + d * (k - 1) + 1 + o, 0)
            for n, k, s, d, o in zip(
                spatial, kernel, self.strides, self.dilations, self.output_pads, strict=True
            )
        ]
        n, per_group = x.shape[0], w.shape[0] // self.groups
        y = np.zeros((n, w.shape[1] * self.groups, *full), np.float64)
        wide_x, wide_w = widened(x), widened(w)
        for g, at in itertools.product(range(self.groups), itertools.product(*map(range, kernel))):
            part = wide_x[:, g * per_group : (g + 1) * per_group]
            tap = wide_w[(slice(g * per_group, (g + 1) * per_group), slice(None), *at)]
            product = np.moveaxis(np.tensordot(part, tap, axes=(1, 0)), -1, 1)
            place = tuple(
                slice(d * a, d * a + s * m, s)
                for a, d, s, m in zip(at, self.dilations, self.strides, spatial, strict=True)
            )
            y[(slice(None), slice(g * w.shape[1], (g + 1) * w.shape[1]), *place)] += product
        y = pad_or_crop(y, [(-self.pads[i], -self.pads[rank + i]) for i in range(rank)], 0)
        if bias is not None:
            y += widened(bias).reshape(-1, *[1] * rank)
        return rounded(y, x.dtype)


def _check_kernel(kernel: Sequence[Dim]) -> None:
    if any(isinstance(k, int) and k < 1 for k in kernel):
        raise CompileError(
            "XC2007", f"the kernel has the shape {tuple(kernel)}; each size must be at least 1"
        )
