"""Choosing among boxes that overlap: one op chooses, the next, which knows how many, lists them."""

from collections.abc import Sequence

import numpy as np

from xcompile.compiler.ir.op import Operand, Result
from xcompile.dialects.nn.base import NnOp, Shape, Sizes, check_integers, dtype_of, nn, rank_of
from xcompile.dialects.nn.counted import Counted, checked_count


@nn.op("find_boxes")
class FindBoxes(NnOp):
    """The boxes of each batch and class that no better box overlaps too much. ONNX NonMaxSuppression, before its
    result is cut to its size.

    Boxes `[batch, n, 4]` are two opposite corners `y, x, y, x` in any order, or with `centered` the centre and the
    extents `x, y, width, height`. By falling `scores` `[batch, class, n]` (of equal ones the lower index first) a box
    is chosen unless its intersection over union with one that is chosen is greater than `overlap`, until there are
    `limit` (int64). Boxes without an area overlap nothing. Only scores greater than `least` count, all without it; NaN
    never does.

    Results, int64: `found` `[batch, class]`, how many are chosen; `chosen` `[batch, class, n]`, their indices in that
    order, -1 behind them.
    """

    boxes: Operand
    scores: Operand
    limit: Operand
    overlap: Operand
    least: Operand | None
    found: Result
    chosen: Result
    centered: bool = False

    def verify(self) -> None:
        check_integers(self, self.limit, "limit", rank=0)
        floats = {
            "boxes": (self.boxes, 3),
            "scores": (self.scores, 3),
            "overlap": (self.overlap, 0),
        }
        if self.least is not None:
            floats["least score"] = self.least, 0
        for what, (value, rank) in floats.items():
            if dtype_of(value) != "f32" or rank_of(value) != rank:
                raise self.error("XC2002", f"the {what} must be float32 of rank {rank}")

    def dtypes(self) -> Sequence[str]:
        return ["i64", "i64"]

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        batch, count, corners = sizes.shape(self.boxes)
        others, classes, scored = sizes.shape(self.scores)
        batch = sizes.equal(batch, others, "the batches of boxes and scores")
        count = sizes.equal(count, scored, "boxes and scores")
        sizes.equal(corners, 4, "the numbers of a box")
        return [(batch, classes), (batch, classes, count)]

    def reference(
        self,
        boxes: np.ndarray,
        scores: np.ndarray,
        limit: np.ndarray,
        overlap: np.ndarray,
        least: np.ndarray | None,
    ) -> tuple[np.ndarray, np.ndarray]:
        found = np.zeros(scores.shape[:2], np.int64)
        chosen = np.full(scores.shape, -1, np.int64)
        with np.errstate(all="ignore"):
            low, high = _corners(boxes, self.centered)
            for at in np.ndindex(*found.shape):
                kept: list[int] = []
                corners = low[at[0]], high[at[0]]
                for candidate in _candidates(scores[at], least):
                    if len(kept) >= int(limit):
                        break
                    if not _overlaps(*corners, int(candidate), kept, overlap).any():
                        kept.append(int(candidate))
                found[at], chosen[at][: len(kept)] = len(kept), kept
        return found, chosen


def _corners(boxes: np.ndarray, centered: bool) -> tuple[np.ndarray, np.ndarray]:
    """The lower and the upper ends of boxes on both axes."""
    first, second = boxes[..., :2], boxes[..., 2:]
    if centered:
        half = second / np.float32(2)
        return first - half, first + half
    return np.minimum(first, second), np.maximum(first, second)


def _candidates(scores: np.ndarray, least: np.ndarray | None) -> np.ndarray:
    """The indices of scores that count, by falling score."""
    places = np.flatnonzero(scores == scores if least is None else scores > least)
    return places[np.argsort(-scores[places], kind="stable")]


def _overlaps(
    low: np.ndarray, high: np.ndarray, box: int, others: list[int], limit: np.ndarray
) -> np.ndarray:
    """With which of the others the intersection over union of a box is greater than the limit."""
    shared = np.minimum(high[box], high[others]) - np.maximum(low[box], low[others])
    common = shared[:, 0] * shared[:, 1]
    area, areas = (np.prod(high[k] - low[k], axis=-1) for k in (box, others))
    union = area + areas - common
    counts = (shared > 0).all(-1) & (area > 0) & (areas > 0) & (union > 0)
    return counts & (common / union > limit)


@nn.op("list_boxes")
class ListBoxes(Counted):
    """Batch, class and index of the chosen boxes, batch by batch and class by class: int64 `[count, 3]`.

    `found` and `chosen` are those of `find_boxes`.
    """

    found: Operand
    chosen: Operand
    y: Result

    def dtypes(self) -> Sequence[str]:
        return ["i64"]

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        return [(self.size(sizes, "boxes"), 3)]

    def reference(self, count: np.ndarray, found: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        places = np.argwhere(np.arange(chosen.shape[2]) < found[..., None])
        checked_count(len(places), count)
        places[:, 2] = chosen[tuple(places.T)]
        return places.astype(np.int64)
