"""Ops that read between the elements of an image, at places that are data."""

from collections.abc import Sequence
from itertools import product

import numpy as np

from xcompile.compiler.ir.op import Operand, Result
from xcompile.compiler.support.dims import Dim
from xcompile.dialects.nn.base import NnOp, Shape, Sizes, dtype_of, nn, rank_of
from xcompile.dialects.nn.interpolation import weighted_places
from xcompile.dialects.nn.numeric import convert, widen
from xcompile.dialects.nn.spatial import check_window, output_size

PADDINGS = ("zeros", "border", "reflection")
CUBIC = -0.75
"""The coefficient of cubic convolution in grid_sample."""


def folded(x: np.ndarray, low: float, high: float) -> np.ndarray:
    """Places reflected at `low` and `high` until they lie between."""
    span = high - low
    if span <= 0:
        return np.full_like(x, low)
    turn = np.mod(np.abs(x - low), 2 * span)
    return low + np.minimum(turn, 2 * span - turn)


@nn.op("grid_sample")
class GridSample(NnOp):
    """`x` [N, C, spatial…] read at the places `grid` [N, wanted…, rank]. ONNX GridSample.

    A place of -1 is the begin and 1 the end of an axis: the centers of its outer elements with `align_corners`, else
    their outer edges; the last axis comes first. Between elements `mode` interpolates (nearest, linear, cubic). Outside
    are zeros, the nearest element (border) or the reflected one.
    """

    x: Operand
    grid: Operand
    y: Result
    mode: str = "linear"
    padding: str = "zeros"
    align_corners: bool = False

    def verify(self) -> None:
        if rank_of(self.x) < 3 or rank_of(self.grid) != rank_of(self.x):
            raise self.error("XC2003", "an image of 3 axes or more needs a grid of as many")
        if self.mode not in ("nearest", "linear", "cubic"):
            raise self.error("XC2007", f"there is no mode '{self.mode}'")
        if self.padding not in PADDINGS:
            raise self.error("XC2007", f"there is no padding '{self.padding}'")

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        x, grid = sizes.shape(self.x), sizes.shape(self.grid)
        sizes.equal(x[0], grid[0], "the batches of image and grid")
        sizes.equal(grid[-1], len(x) - 2, "the last axis of a grid and the axes of the image")
        return [(x[0], x[1], *grid[1:-1])]

    def edges(self, size: float) -> tuple[float, float]:
        """The least and the greatest place that lies in an axis."""
        return (0.0, size - 1.0) if self.align_corners else (-0.5, size - 0.5)

    def _places(self, grid: np.ndarray, size: int) -> np.ndarray:
        """Places in elements, brought to the border or reflected as the padding says."""
        span = size - 1.0 if self.align_corners else float(size)
        place = (grid + 1) / 2 * span - (0.0 if self.align_corners else 0.5)
        if self.mode == "nearest":
            place = np.rint(place)
        low, high = self.edges(size)
        outside = (place < low) | (place > high)
        if self.padding == "border":
            return np.where(outside, np.clip(place, 0, size - 1), place)
        if self.padding == "reflection":
            return np.where(outside, folded(place, low, high), place)
        return place

    def _taps(self, place: np.ndarray, size: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Elements and weights along one axis; an element outside has the weight 0 where zeros are there."""
        if self.mode == "nearest":
            taps = [(np.rint(place), np.ones_like(place))]
        else:
            cubic = self.mode == "cubic"
            reach = 2 if cubic else 1
            base = np.floor(place)
            taps = []
            for k in range(1 - reach, reach + 1):
                flat = (place - base).reshape(-1)
                weight = weighted_places(flat, 8, cubic=cubic, a=CUBIC)[1][:, k + reach - 1]
                taps.append((base + k, weight.reshape(place.shape)))
        made: list[tuple[np.ndarray, np.ndarray]] = []
        for index, weight in taps:
            outside = ~((index >= 0) & (index <= size - 1))
            if self.padding == "zeros":
                weight = np.where(outside, 0, weight)
            elif self.padding == "reflection":
                index = np.where(outside, folded(index, *self.edges(size)), index)
            inside = np.clip(np.nan_to_num(index, posinf=0, neginf=0), 0, size - 1)
            made.append((inside.astype(np.int64), weight))
        return made

    def reference(self, x: np.ndarray, grid: np.ndarray) -> np.ndarray:
        rank = x.ndim - 2
        places = [
            self._taps(self._places(widen(grid)[..., rank - 1 - i], x.shape[2 + i]), x.shape[2 + i])
            for i in range(rank)
        ]
        batch = np.arange(x.shape[0]).reshape(-1, *[1] * rank)
        total = np.zeros((x.shape[0], *grid.shape[1:-1], x.shape[1]))
        moved = np.moveaxis(widen(x), 1, -1).astype(np.float64)
        for taps in product(*places):
            weight = np.prod([w for _, w in taps], axis=0)
            total += moved[(batch, *[i for i, _ in taps])] * weight[..., None]
        return convert(np.moveaxis(total, -1, 1), x.dtype)


def _interpolated(image: np.ndarray, places: Sequence[np.ndarray]) -> np.ndarray:
    """An image [C, spatial…] between its elements at places [K…], with zeros around it: [C, K…]."""
    total = np.zeros((image.shape[0], *places[0].shape))
    for corner in product((0, 1), repeat=len(places)):
        weight = np.ones_like(places[0])
        index: list[np.ndarray] = []
        for place, step, size in zip(places, corner, image.shape[1:], strict=True):
            at = np.floor(place) + step
            weight = weight * np.clip(1 - np.abs(at - place), 0, None) * ((at >= 0) & (at < size))
            index.append(np.clip(np.nan_to_num(at), 0, size - 1).astype(np.int64))
        total += image[(slice(None), *index)] * weight
    return total


@nn.op("deform_conv")
class DeformConv(NnOp):
    """A convolution whose taps are moved by `offset`, between elements, and weighted by `mask`. ONNX DeformConv.

    `offset` is [N, offset_groups·taps·rank, windows…], `mask` [N, offset_groups·taps, windows…]; outside the image are
    zeros.
    """

    x: Operand
    w: Operand
    offset: Operand
    bias: Operand | None
    mask: Operand | None
    y: Result
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    groups: int = 1
    offset_groups: int = 1

    def verify(self) -> None:
        rank = rank_of(self.x) - 2
        others = [self.w, self.offset, *([self.mask] if self.mask is not None else [])]
        if rank < 1 or any(rank_of(v) != rank + 2 for v in others):
            raise self.error("XC2003", "operands of a deformable convolution differ in rank")
        if self.groups < 1 or self.offset_groups < 1:
            raise self.error("XC2007", f"{self.groups} groups, {self.offset_groups} of offsets")
        window = {"strides": self.strides, "pads": self.pads, "dilations": self.dilations}
        check_window(rank, auto_pad="notset", **window)

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        x, w, offset = (sizes.shape(v) for v in (self.x, self.w, self.offset))
        sizes.equal(x[1], w[1] * self.groups, "the channels of a convolution's input and weights")
        rank = len(x) - 2
        spatial = [
            output_size(
                x[2 + i], w[2 + i], stride=self.strides[i], dilation=self.dilations[i],
                pads=(self.pads[i], self.pads[rank + i]), auto_pad="notset",
            )
            for i in range(rank)
        ]  # fmt: skip
        taps: Dim = self.offset_groups
        for size in w[2:]:
            taps = taps * size
        sizes.equal(offset[1], taps * rank, "the channels of the offsets and the taps")
        if self.mask is not None:
            sizes.equal(sizes.shape(self.mask)[1], taps, "the channels of the mask and the taps")
        for given in (offset, *([sizes.shape(self.mask)] if self.mask is not None else [])):
            for a, b in zip(given, (x[0], given[1], *spatial), strict=True):
                sizes.equal(a, b, "the sizes of offsets or mask and of the result")
        if self.bias is not None:
            sizes.equal(sizes.shape(self.bias)[0], w[0], "the sizes of bias and output channels")
        return [(x[0], w[0], *spatial)]

    def reference(
        self,
        x: np.ndarray,
        w: np.ndarray,
        offset: np.ndarray,
        bias: np.ndarray | None,
        mask: np.ndarray | None,
    ) -> np.ndarray:
        rank, counts, kernel = x.ndim - 2, offset.shape[2:], w.shape[2:]
        taps = list(np.ndindex(*kernel))
        shape = (x.shape[0], self.offset_groups, len(taps))
        moves = widen(offset).reshape(*shape, rank, *counts)
        factors = None if mask is None else widen(mask).reshape(*shape, *counts)
        y = np.zeros((x.shape[0], w.shape[0], *counts))
        start = np.indices(counts)
        each, per_group = x.shape[1] // self.offset_groups, w.shape[0] // self.groups
        for n, t in np.ndindex(x.shape[0], len(taps)):
            columns = np.zeros((x.shape[1], *counts))
            for g in range(self.offset_groups):
                places = [
                    start[i] * self.strides[i] - self.pads[i] + taps[t][i] * self.dilations[i]
                    + moves[n, g, t, i]
                    for i in range(rank)
                ]  # fmt: skip
                part = slice(g * each, (g + 1) * each)
                columns[part] = _interpolated(widen(x)[n, part], places)
                if factors is not None:
                    columns[part] *= factors[n, g, t]
            for g in range(self.groups):
                rows = slice(g * per_group, (g + 1) * per_group)
                inner = columns[g * w.shape[1] : (g + 1) * w.shape[1]]
                weights = widen(w)[(rows, slice(None), *taps[t])]
                y[n, rows] += np.tensordot(weights, inner, 1)
        if bias is not None:
            y += widen(bias).reshape(-1, *[1] * rank)
        return convert(y, x.dtype)


class RoiPooling(NnOp):
    """Base of ops that give each region of an image [N, C, H, W] as [C, height, width]."""

    x: Operand
    rois: Operand
    y: Result
    height: int
    width: int
    scale: float = 1.0

    def verify(self) -> None:
        if rank_of(self.x) != 4 or rank_of(self.rois) != 2:
            raise self.error("XC2003", "an image of 4 axes needs regions of 2")
        if self.height < 1 or self.width < 1:
            raise self.error("XC2007", f"regions of {self.height} by {self.width} elements")

    def pooled(self, sizes: Sizes, columns: int) -> Shape:
        """The result's shape; each region has so many numbers."""
        rois = sizes.shape(self.rois)
        sizes.equal(rois[1], columns, "the numbers of a region")
        return (rois[0], sizes.shape(self.x)[1], self.height, self.width)


@nn.op("roi_align")
class RoiAlign(RoiPooling):
    """Each cell of a region [x1, y1, x2, y2] is the mean or maximum of samples between elements. ONNX RoiAlign.

    A cell has `ratio` samples a side, or the size of the cell rounded up where that is 0. `half_pixel` shifts regions
    by half an element; without it they have a side of 1 at least. The maximum is that of the weighted neighbours.
    """

    batches: Operand
    mode: str = "avg"
    ratio: int = 0
    half_pixel: bool = True

    def verify(self) -> None:
        super().verify()
        if self.mode not in ("avg", "max"):
            raise self.error("XC2007", f"there is no mode '{self.mode}'")
        if dtype_of(self.batches) not in ("i32", "i64") or rank_of(self.batches) != 1:
            raise self.error("XC2002", "the batches of regions are a vector of integers")

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        shape = self.pooled(sizes, 4)
        sizes.equal(sizes.shape(self.batches)[0], shape[0], "the numbers of regions and batches")
        return [shape]

    def _samples(self, start: float, extent: float, cells: int, size: int) -> list[np.ndarray]:
        """Lower and upper element, weight of the upper one and whether it counts: [cells, samples] each."""
        extent = extent if self.half_pixel else max(extent, 1.0)
        cell = extent / cells
        count = self.ratio or max(int(np.ceil(cell)), 0)
        steps = (np.arange(count) + 0.5) / max(count, 1)
        place = start + (np.arange(cells)[:, None] + steps) * cell
        inside = (place >= -1) & (place <= size)
        place = np.clip(place, 0, size - 1)
        low = np.minimum(np.floor(place), size - 1).astype(np.int64)
        return [low, np.minimum(low + 1, size - 1), place - low, inside]

    def reference(self, x: np.ndarray, rois: np.ndarray, batches: np.ndarray) -> np.ndarray:
        wide = widen(x)
        y = np.zeros((len(rois), x.shape[1], self.height, self.width))
        for r, region in enumerate(widen(rois) * self.scale - (0.5 if self.half_pixel else 0.0)):
            x1, y1, x2, y2 = region
            rows = self._samples(y1, y2 - y1, self.height, x.shape[2])
            columns = self._samples(x1, x2 - x1, self.width, x.shape[3])
            image = wide[batches[r]]
            for i, j in np.ndindex(self.height, self.width):
                y[r, :, i, j] = self._cell(image, [v[i] for v in rows], [v[j] for v in columns])
        return convert(y, x.dtype)

    def _cell(
        self, image: np.ndarray, rows: list[np.ndarray], columns: list[np.ndarray]
    ) -> np.ndarray:
        low, high, upper, counts = rows
        left, right, later, also = columns
        parts = [
            image[:, a[:, None], b[None]] * (u[:, None] * v[None] * (counts[:, None] & also[None]))
            for a, u in ((low, 1 - upper), (high, upper))
            for b, v in ((left, 1 - later), (right, later))
        ]
        samples = len(low) * len(left)
        if self.mode == "avg":
            return np.sum([p.sum((1, 2)) for p in parts], axis=0) / max(samples, 1)
        if not samples:
            return np.zeros(image.shape[0])
        return np.max([p.max((1, 2)) for p in parts], axis=0)


@nn.op("max_roi_pool")
class MaxRoiPool(RoiPooling):
    """The maximum over each cell of a region [batch, x1, y1, x2, y2] of whole elements. ONNX MaxRoiPool.

    Corners are scaled and rounded (halves away from 0) and belong to the region; a cell without elements is 0.
    """

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        return [self.pooled(sizes, 5)]

    def reference(self, x: np.ndarray, rois: np.ndarray) -> np.ndarray:
        y = np.zeros((len(rois), x.shape[1], self.height, self.width))
        for r, region in enumerate(widen(rois)):
            scaled = region[1:] * self.scale
            x1, y1, x2, y2 = np.copysign(np.floor(np.abs(scaled) + 0.5), scaled)
            image = widen(x)[int(region[0])]
            for i, j in np.ndindex(self.height, self.width):
                rows = _cell_range(i, y1, y2, self.height, x.shape[2])
                columns = _cell_range(j, x1, x2, self.width, x.shape[3])
                part = image[:, rows, columns].reshape(image.shape[0], -1)
                y[r, :, i, j] = part.max(1) if part.size else 0
        return convert(y, x.dtype)


def _cell_range(cell: int, first: float, last: float, cells: int, size: int) -> slice:
    """The elements of a cell along one axis."""
    step = max(last - first + 1, 1.0) / cells
    low = np.clip(np.floor(cell * step) + first, 0, size)
    high = np.clip(np.ceil((cell + 1) * step) + first, 0, size)
    return slice(int(low), int(high))
