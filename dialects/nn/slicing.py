"""Ops that take parts and put parts together: slice, split, concat, pad, tile."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from xcompile.compiler.ir.op import Operand, Operands, Result, Results, Value
from xcompile.compiler.support.dims import (
    Dim,
    ceildiv,
    has_signed,
    known_nonnegative,
    known_positive,
    maximum,
    minimum,
)
from xcompile.dialects.nn.base import (
    NnOp,
    Shape,
    Sizes,
    axis_of,
    check_integers,
    dtype_of,
    nn,
    rank_of,
)
from xcompile.dialects.nn.reshape import known_elements

_UNLIMITED = 2**31 - 1
"""Ends from here on mean "to the last": exporters write the greatest int32 or int64."""

MOST_PARTS = 32
"""Operands that a concatenation should have at most; more are joined in groups, since code is made for each."""


LONGEST = 1 << 48
"""Starts, ends and steps from here on leave any axis at once; sums with smaller ones stay in 64 bits."""


@nn.op("concat")
class Concat(NnOp):
    """The operands after one another along `axis`; their other sizes are equal. ONNX Concat."""

    xs: Operands
    y: Result
    axis: int

    def verify(self) -> None:
        if not self.xs:
            raise self.error("XC1011", "concat needs an operand")
        kinds = {(dtype_of(v), rank_of(v)) for v in self.xs}
        if len(kinds) > 1:
            raise self.error("XC2002", f"operands differ in dtype or rank: {sorted(kinds)}")

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        shapes = [sizes.shape(v) for v in self.xs]
        axis = axis_of(self, self.axis, len(shapes[0]))
        result = list(shapes[0])
        for shape in shapes[1:]:
            for i, size in enumerate(shape):
                if i == axis:
                    result[i] = result[i] + size
                else:
                    result[i] = sizes.equal(result[i], size, f"axis {i} of concatenated operands")
        return [tuple(result)]

    def content(self, sizes: Sizes) -> Shape | None:
        parts = [sizes.content(v) for v in self.xs]
        known = [part for part in parts if part is not None]
        return tuple(d for part in known for d in part) if len(known) == len(parts) else None

    def reference(self, xs: list[np.ndarray]) -> np.ndarray:
        return np.concatenate(xs, self.axis)


@nn.op("split")
class Split(NnOp):
    """Parts of `x` along `axis`: as long as `lengths` (int64) says, or all of one length but the last. ONNX Split.

    Without `lengths` each part has `ceil(size / parts)` elements, and the last what is left.
    """

    x: Operand
    lengths: Operand | None
    parts: Results
    axis: int = 0

    def verify(self) -> None:
        check_integers(self, self.lengths, "lengths")

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        shape, count = sizes.shape(self.x), len(self.operation.results)
        axis = axis_of(self, self.axis, len(shape))
        lengths = self._lengths(sizes, shape[axis], count)
        return [(*shape[:axis], length, *shape[axis + 1 :]) for length in lengths]

    def _lengths(self, sizes: Sizes, size: Dim, count: int) -> list[Dim]:
        if self.lengths is None:
            each = ceildiv(size, count)
            last = size - each * (count - 1)
            if isinstance(last, int) and last < 0:
                raise self.error(
                    "XC2004", f"an axis of {size} elements does not have {count} parts of {each}"
                )
            return [each] * (count - 1) + [last]
        content = [
            sizes.define(d, "split") for d in known_elements(self, sizes, self.lengths, count)
        ]
        if len(content) != count:
            raise self.error("XC2004", f"{len(content)} lengths for {count} parts")
        if any(isinstance(d, int) and d < 0 for d in content):
            raise self.error("XC2008", "a length is negative")
        total: Dim = 0
        for length in content:
            total = total + length
        sizes.equal(total, size, "the lengths of the parts and the size of the axis")
        return content

    def reference(self, x: np.ndarray, lengths: np.ndarray | None) -> tuple[np.ndarray, ...]:
        count = len(self.operation.results)
        if lengths is None:
            each = -(-x.shape[self.axis] // count)
            ends = [each * i for i in range(1, count)]
        else:
            ends = np.cumsum(lengths)[:-1].tolist()
            if lengths.sum() != x.shape[self.axis] or (lengths < 0).any():
                raise ValueError(f"the lengths {lengths} do not make up {x.shape[self.axis]}")
        return tuple(np.split(x, ends, self.axis))


@nn.op("slice")
class Slice(NnOp):
    """On each of `axes` the elements from `start` up to, without, `end`, every `step`-th. ONNX Slice.

    All four are one-dimensional integer tensors; `axes` are the first ones and `steps` 1 when absent.
    Negative starts and ends count from the back once, then starts are clamped to [0, n] and ends to
    [0, n], or with a negative step to [0, n-1] and [-1, n-1].
    """

    x: Operand
    starts: Operand
    ends: Operand
    axes: Operand | None
    steps: Operand | None
    y: Result

    def verify(self) -> None:
        for name in ("starts", "ends", "axes", "steps"):
            check_integers(self, getattr(self, name), name)

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        shape = list(sizes.shape(self.x))
        for axis, start, end, step in self._bounds(sizes):
            shape[axis] = self._length(sizes, shape[axis], start, end, step)
        return [tuple(shape)]

    def _bounds(self, sizes: Sizes) -> list[tuple[int, Dim, Dim, int]]:
        given = [v for v in (self.starts, self.ends, self.axes, self.steps) if v is not None]
        lengths = [d for v in given if isinstance(d := sizes.shape(v)[0], int)]
        count = lengths[0] if lengths else None
        starts, ends = (known_elements(self, sizes, v, count) for v in (self.starts, self.ends))
        axes: Sequence[int] = range(len(starts))
        steps: Sequence[int] = (1,) * len(starts)
        if self.axes is not None:
            axes = known_axes(self, sizes, self.axes)
        if self.steps is not None:
            steps = known_axes(self, sizes, self.steps, "steps")
        if not len(starts) == len(ends) == len(axes) == len(steps):
            raise self.error("XC2004", "starts, ends, axes and steps differ in length")
        found: list[tuple[int, Dim, Dim, int]] = []
        for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
            if step == 0:
                raise self.error("XC2007", "the step of a slice must not be 0")
            bounded = (_bounded(start), _bounded(end), max(-LONGEST, min(step, LONGEST)))
            found.append((axis_of(self, axis, rank_of(self.x)), *bounded))
        if len({axis for axis, *_ in found}) < len(found):
            raise self.error("XC2007", "a slice names an axis twice")
        return found

    def _length(self, sizes: Sizes, n: Dim, start: Dim, end: Dim, step: int) -> Dim:
        start, end = (0 if known_nonnegative(-d) and n + d == 0 else d for d in (start, end))
        if any(has_signed(d) or _may_be_minus_zero(d) for d in (start, end)):
            return _length_of_data(n, start, end, step)
        start_back, end_back = (_counts_from_back(sizes, d) for d in (start, end))
        if step > 0:
            stop = n + end if end_back else n if _unlimited(end) else minimum(end, n)
            # stop - max(0, n + start), where the latter is the clamped start
            room = minimum(stop, stop - n - start) if start_back else stop - start
            return maximum(ceildiv(room, step), 0)
        last = n - 1
        if start_back:
            first = last if start == -1 else minimum(maximum(n + start, 0), last)
        else:
            first = last if _unlimited(start) else minimum(start, last)
        stop = end if not end_back else -1 if _unlimited(-end) else maximum(n + end, -1)
        return maximum(ceildiv(first - stop, -step), 0)

    def content(self, sizes: Sizes) -> Shape | None:
        content = sizes.content(self.x)
        if content is None or not all(
            v is None or is_known(sizes, v) for v in (self.axes, self.steps)
        ):
            return None
        for _, start, end, step in self._bounds(sizes):
            if not isinstance(start, int) or not isinstance(end, int):
                return None
            content = content[_python_slice(len(content), start, end, step)]
        return content

    def reference(
        self,
        x: np.ndarray,
        starts: np.ndarray,
        ends: np.ndarray,
        axes: np.ndarray | None,
        steps: np.ndarray | None,
    ) -> np.ndarray:
        index = [slice(None)] * x.ndim
        for i, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            axis = i if axes is None else int(axes[i])
            if not -x.ndim <= axis < x.ndim:
                raise IndexError(f"axis {axis} is out of range for {x.ndim} axes")
            step = 1 if steps is None else int(steps[i])
            index[axis] = _python_slice(x.shape[axis], start, end, step)
        return x[tuple(index)]


def _counts_from_back(sizes: Sizes, bound: Dim) -> bool:
    """Whether a start or end is negative; a check where only the run will tell (it must not be, then)."""
    if known_positive(-bound):
        return True
    if not known_nonnegative(bound):
        what = f"the start or end {bound} of a slice must not be negative"
        sizes.equal(minimum(bound, 0), 0, what)
    return False


def _may_be_minus_zero(bound: Dim) -> bool:
    """Whether a bound counts from the back by a size that may be 0, which counts from the front."""
    return not isinstance(bound, int) and known_nonnegative(-bound) and not known_positive(-bound)


def _length_of_data(n: Dim, start: Dim, end: Dim, step: int) -> Dim:
    """The elements of a slice when a run says which of start and end count from the back."""
    low, high = (0, n) if step > 0 else (-1, n - 1)
    first, stop = _counted(n, start, low if step > 0 else 0, high), _counted(n, end, low, high)
    room = stop - first if step > 0 else first - stop
    return maximum(ceildiv(room, abs(step)), 0)


def _counted(n: Dim, bound: Dim, low: Dim, high: Dim) -> Dim:
    """A start or end in [low, high]; a negative one counts from the back."""
    nearest = minimum(maximum(bound, -LONGEST), LONGEST)
    back = minimum(maximum(-nearest, 0), 1)
    return (1 - back) * minimum(maximum(nearest, 0), high) + back * minimum(
        maximum(n + nearest, low), high
    )


def is_known(sizes: Sizes, value: Value) -> bool:
    """Whether all elements of an operand are known when the model is compiled."""
    content = sizes.content(value)
    return content is not None and all(isinstance(d, int) for d in content)


def known_axes(op: NnOp, sizes: Sizes, value: Value, what: str = "axes") -> tuple[int, ...]:
    """The elements of an operand that must be known when the model is compiled.

    Raises:
        CompileError: XC2010, they depend on data or on the sizes of inputs.
    """
    content = sizes.content(value)
    if content is None or not all(isinstance(d, int) for d in content):
        raise op.error(
            "XC2010",
            f"the {what} of {op.NAME} must be known when the model is compiled",
            help="make them a constant",
        )
    return tuple(d for d in content if isinstance(d, int))


def _bounded(bound: Dim) -> Dim:
    """The start or end, no farther away than any tensor is long, so that arithmetic on it does not overflow."""
    return max(-LONGEST, min(bound, LONGEST)) if isinstance(bound, int) else bound


def _unlimited(bound: Dim) -> bool:
    return isinstance(bound, int) and bound >= _UNLIMITED


def _python_slice(n: int, start: int, end: int, step: int) -> slice:
    """ONNX's slice of n elements as Python's."""
    if step == 0:
        raise ValueError("the step of a slice must not be 0")
    start, end = (bound + n if bound < 0 else bound for bound in (start, end))
    if step > 0:
        return slice(min(max(start, 0), n), min(max(end, 0), n), step)
    start, end = min(max(start, 0), n - 1), min(max(end, -1), n - 1)
    return slice(0, 0, 1) if start <= end else slice(start, None if end < 0 else end, step)


@nn.op("pad")
class Pad(NnOp):
    """`x` with elements added before and after each axis; negative counts crop. ONNX Pad.

    `pads` (int64) holds the counts before each of `axes` (all when absent), then those after. Crops come first.
    `mode`: "constant" (`value`, a scalar, 0 when absent), "reflect", "edge", "wrap".
    """

    x: Operand
    pads: Operand
    value: Operand | None
    axes: Operand | None
    y: Result
    mode: str = "constant"

    def verify(self) -> None:
        if self.mode not in ("constant", "reflect", "edge", "wrap"):
            raise self.error("XC2007", f"there is no mode '{self.mode}'")
        check_integers(self, self.pads, "pads")
        check_integers(self, self.axes, "axes")

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        shape = list(sizes.shape(self.x))
        axes = tuple(range(len(shape))) if self.axes is None else known_axes(self, sizes, self.axes)
        pads = known_elements(self, sizes, self.pads, 2 * len(axes))
        if len(pads) != 2 * len(axes):
            raise self.error("XC2004", f"{len(pads)} pads for {len(axes)} axes")
        for i, axis in enumerate(axes):
            at = axis_of(self, axis, len(shape))
            before, after = pads[i], pads[i + len(axes)]
            kept = shape[at] + minimum(before, 0) + minimum(after, 0)
            if self.mode != "constant" and (before, after) != (0, 0) and not known_positive(kept):
                what = (
                    f"axis {at}, of which {kept} elements are left, is padded with its own elements"
                )
                sizes.equal(minimum(kept, 1), 1, what)
            shape[at] = shape[at] + before + after
            if known_positive(-shape[at]):
                raise self.error("XC2008", f"axis {at} is cropped to {shape[at]} elements")
        return [tuple(shape)]

    def reference(
        self, x: np.ndarray, pads: np.ndarray, value: np.ndarray | None, axes: np.ndarray | None
    ) -> np.ndarray:
        widths = [(0, 0)] * x.ndim
        chosen = range(x.ndim) if axes is None else [int(a) for a in axes]
        for i, axis in enumerate(chosen):
            widths[axis] = (int(pads[i]), int(pads[i + len(chosen)]))
        index: list[slice] = []
        for n, (before, after) in zip(x.shape, widths, strict=True):
            index.append(slice(max(-before, 0), max(n + min(after, 0), 0)))
        added = [(max(before, 0), max(after, 0)) for before, after in widths]
        options: dict[str, Any] = {"mode": self.mode}
        if self.mode == "constant":
            options["constant_values"] = (
                np.zeros((), x.dtype) if value is None else value.reshape(())
            )
        return np.pad(x[tuple(index)], added, **options)


@nn.op("tile")
class Tile(NnOp):
    """Axis i repeated `repeats[i]` times (int64). ONNX Tile."""

    x: Operand
    repeats: Operand
    y: Result

    def verify(self) -> None:
        check_integers(self, self.repeats, "repeats")

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        shape = sizes.shape(self.x)
        repeats = known_elements(self, sizes, self.repeats, len(shape))
        if len(repeats) != len(shape):
            raise self.error("XC2004", f"{len(repeats)} repeats for {len(shape)} axes")
        if any(isinstance(d, int) and d < 0 for d in repeats):
            raise self.error("XC2008", "a count of repeats is negative")
        counts = [sizes.define(d, "tile") for d in repeats]
        return [tuple(size * count for size, count in zip(shape, counts, strict=True))]

    def content(self, sizes: Sizes) -> Shape | None:
        content, repeats = sizes.content(self.x), sizes.content(self.repeats)
        if content is None or not repeats:
            return content
        return content * repeats[0] if isinstance(repeats[0], int) else None

    def reference(self, x: np.ndarray, repeats: np.ndarray) -> np.ndarray:
        return np.tile(x, [int(r) for r in repeats])
