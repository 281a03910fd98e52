"""Pools: maximum (with indices), average and Lp over windows, and the way back from a maximum's indices."""

from collections.abc import Sequence

import numpy as np

from xcompile.compiler.ir.op import Operand, Result
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.base import NnOp, Shape, Sizes, dtype_of, nn, rank_of
from xcompile.dialects.nn.numeric import rounded
from xcompile.dialects.nn.precision import lowest, widened
from xcompile.dialects.nn.reshape import known_elements
from xcompile.dialects.nn.spatial import (
    check_window,
    output_size,
    pad_or_crop,
    resolve_pads,
    windows,
)


class Pool(NnOp):
    """What all pools share: x [N, C, spatial…] and its windows, declared as for nn.conv.

    In ceil mode a last window may reach over the end padding; those phantom cells count nowhere.
    """

    x: Operand
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    auto_pad: str = "notset"
    ceil_mode: bool = False

    def verify(self) -> None:
        rank = rank_of(self.x) - 2
        if rank < 1:
            raise self.error("XC2003", f"a pool over an input of rank {rank + 2}")
        check_window(
            rank,
            kernel=self.kernel,
            strides=self.strides,
            pads=self.pads,
            dilations=self.dilations,
            auto_pad=self.auto_pad,
        )

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        x, rank = sizes.shape(self.x), len(self.kernel)
        spatial = [
            output_size(
                x[2 + i],
                self.kernel[i],
                stride=self.strides[i],
                dilation=self.dilations[i],
                pads=(self.pads[i], self.pads[rank + i]),
                auto_pad=self.auto_pad,
                ceil=self.ceil_mode,
            )
            for i in range(rank)
        ]
        return [(*x[:2], *spatial)] * len(self.results)

    def windows(self, x: np.ndarray, outside: object, phantom: object | None = None) -> np.ndarray:
        """The windows [N, C, windows…, kernel…], `outside` in the padding, `phantom` beyond the end
        padding.
        """
        spatial = x.shape[2:]
        window = {"strides": self.strides, "dilations": self.dilations}
        pads = resolve_pads(spatial, self.kernel, pads=self.pads, auto_pad=self.auto_pad, **window)
        counts, beyond = [], []
        for n, k, s, d, p in zip(
            spatial, self.kernel, self.strides, self.dilations, pads, strict=True
        ):
            count = output_size(n, k, stride=s, dilation=d, pads=p, ceil=self.ceil_mode)
            reach = (count - 1) * s + (k - 1) * d + 1 - (n + sum(p))
            counts.append(count)
            beyond.append((0, max(reach, 0)))
        padded = pad_or_crop(x, pads, outside)
        padded = pad_or_crop(padded, beyond, outside if phantom is None else phantom)
        return windows(padded, self.kernel, counts=counts, **window)

    def _cells(self) -> tuple[int, ...]:
        """The window's axes in the view that `windows` gives."""
        return tuple(range(-len(self.kernel), 0))


@nn.op("max_pool")
class MaxPool(Pool):
    """The maximum of each window; padding never wins, NaN does. ONNX MaxPool without indices."""

    y: Result

    def reference(self, x: np.ndarray) -> np.ndarray:
        return self.windows(x, lowest(x.dtype)).max(axis=self._cells()).astype(x.dtype)


@nn.op("max_pool_with_indices")
class MaxPoolWithIndices(Pool):
    """The maximum of each window and where it stands: its place in x laid out flat (int64). ONNX
    MaxPool.

    Of equal maxima the first in row-major order counts. With `column_major` the spatial axes of a
    channel are numbered with the first axis the fastest (ONNX storage_order 1).
    """

    column_major: bool = False
    y: Result
    indices: Result

    def dtypes(self) -> Sequence[str]:
        return [dtype_of(self.x), "i64"]

    def reference(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        cells = len(self.kernel)
        view = self.windows(x, lowest(x.dtype))
        place = self.windows(self._places(x.shape), -1)
        flat = (*view.shape[:-cells], int(np.prod(self.kernel)))
        view, place = view.reshape(flat), place.reshape(flat)
        y = view.max(axis=-1)
        same = (view == y[..., None]) | ((view != view) & (y != y)[..., None])
        first = np.argmax(same & (place >= 0), axis=-1)
        indices = np.take_along_axis(place, first[..., None], axis=-1)[..., 0]
        return y.astype(x.dtype), indices

    def _places(self, shape: Sequence[int]) -> np.ndarray:
        count = int(np.prod(shape))
        if not self.column_major:
            return np.arange(count).reshape(shape)
        spatial = shape[2:]
        channel = np.arange(int(np.prod(spatial))).reshape(spatial[::-1]).T
        starts = np.arange(shape[0] * shape[1]).reshape(*shape[:2], *[1] * len(spatial))
        return starts * channel.size + channel


@nn.op("average_pool")
class AveragePool(Pool):
    """The mean of each window over the cells inside the input, or inside input and padding with
    `count_include_pad`. ONNX AveragePool.
    """

    count_include_pad: bool = False
    y: Result

    def reference(self, x: np.ndarray) -> np.ndarray:
        cells = self._cells()
        total = self.windows(widened(x), 0).sum(axis=cells)
        ones = np.ones((1, 1, *x.shape[2:]))
        count = self.windows(ones, 1 if self.count_include_pad else 0, phantom=0).sum(axis=cells)
        with np.errstate(invalid="ignore", divide="ignore"):
            return rounded(total / count, x.dtype)


@nn.op("lp_pool")
class LpPool(Pool):
    """`(Σ |x|^p)^(1/p)` over each window. ONNX LpPool."""

    p: int = 2
    y: Result

    def verify(self) -> None:
        super().verify()
        if self.p < 1:
            raise self.error("XC2007", f"a pool with p = {self.p}; p is at least 1")

    def reference(self, x: np.ndarray) -> np.ndarray:
        powers = np.abs(widened(x)) ** self.p
        return rounded(self.windows(powers, 0).sum(axis=self._cells()) ** (1 / self.p), x.dtype)


@nn.op("max_unpool")
class MaxUnpool(NnOp):
    """Zeros of the shape that a maximum pool had as input, with x where `indices` says. ONNX
    MaxUnpool.

    Without `shape` (int64, the whole shape) the result's spatial sizes are stride·(n-1) + kernel -
    pads, and indices count in that shape. With it they count in the shape computed without it,
    which lies in the begin corner.
    """

    x: Operand
    indices: Operand
    shape: Operand | None
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    y: Result

    def verify(self) -> None:
        rank = rank_of(self.x) - 2
        if rank < 1 or rank_of(self.indices) != rank + 2:
            raise self.error(
                "XC2003",
                f"max_unpool of rank {rank + 2} with indices of rank {rank_of(self.indices)}",
            )
        check_window(
            rank,
            kernel=self.kernel,
            strides=self.strides,
            pads=self.pads,
            dilations=(1,) * rank,
            auto_pad="notset",
        )

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        x = sizes.shape(self.x)
        for a, b in zip(x, sizes.shape(self.indices), strict=True):
            sizes.equal(a, b, "the sizes of max_unpool's input and indices")
        if self.shape is None:
            return [self.natural(x)]
        content = known_elements(self, sizes, self.shape, len(x))
        if len(content) != len(x):
            raise self.error(
                "XC2004", f"max_unpool's shape has {len(content)} elements for rank {len(x)}"
            )
        return [tuple(sizes.define(d, "max_unpool") for d in content)]

    def natural(self, x: Shape) -> Shape:
        """The shape of the result without `shape`."""
        rank = len(self.kernel)
        spatial = [
            (x[2 + i] - 1) * self.strides[i] + self.kernel[i] - self.pads[i] - self.pads[rank + i]
            for i in range(rank)
        ]
        return (*x[:2], *spatial)

    def reference(self, x: np.ndarray, indices: np.ndarray, shape: np.ndarray | None) -> np.ndarray:
        natural = tuple(int(d) for d in self.natural(x.shape))  # type: ignore[arg-type]
        whole = tuple(int(d) for d in shape) if shape is not None else natural
        y = np.zeros(int(np.prod(natural)), x.dtype)
        if indices.size and not 0 <= indices.min() <= indices.max() < y.size:
            raise CompileError(
                "XC2011", f"an index of max_unpool is outside the {y.size} elements of the result"
            )
        y[indices.reshape(-1)] = x.reshape(-1)
        if whole == natural:
            return y.reshape(natural)
        result = np.zeros(whole, x.dtype)
        corner = tuple(slice(0, min(a, b)) for a, b in zip(whole, natural, strict=True))
        result[corner] = y.reshape(natural)[corner]
        return result
