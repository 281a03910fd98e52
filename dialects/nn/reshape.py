"""Ops that give the same elements another shape or order."""

from collections.abc import Sequence

import numpy as np

from xcompile.compiler.ir.op import Operand, Result, Value
from xcompile.compiler.support.dims import Dim, has_signed, maximum, minimum, product
from xcompile.dialects.nn.base import NnOp, Shape, Sizes, axis_of, check_integers, nn, rank_of
from xcompile.dialects.nn.elementwise import broadcast_shapes


class DataMovement(NnOp):
    """Base of ops that only move elements; a rank-1 `x` keeps its content through those that keep its order."""

    def flat_content(self, sizes: Sizes) -> Shape | None:
        """The content of the first operand, for ops that keep the order of the elements."""
        return sizes.content(self.operands[0])


def known_elements(op: NnOp, sizes: Sizes, value: Value, count: int | None = None) -> Shape:
    """The elements of an operand that says sizes, of which there are `count` where that follows from the op.

    Raises:
        CompileError: XC2010, their number is not known.
    """
    found = sizes.elements(value, count)
    if found is None:
        raise op.error(
            "XC2010",
            f"an operand of {op.NAME} that says sizes must be a short vector of a fixed length",
            help="the rank of a value must be known when the model is compiled",
        )
    return found


@nn.op("reshape")
class Reshape(DataMovement):
    """The elements of `x` in order, in the shape that is given as int64. ONNX Reshape.

    At most one size is -1 and follows from the others. A size of 0 takes that of `x` at its axis, or is 0 with
    `allow_zero`.
    """

    x: Operand
    shape: Operand
    y: Result
    allow_zero: bool = False

    def verify(self) -> None:
        check_integers(self, self.shape, "shape")

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        before, wanted = sizes.shape(self.x), known_elements(self, sizes, self.shape)
        if any(map(has_signed, wanted)):
            return [self._of_data(sizes, before, wanted)]
        after: list[Dim] = list(wanted)
        for axis, size in enumerate(after):
            if size == 0 and not self.allow_zero:
                if axis >= len(before):
                    raise self.error(
                        "XC2007",
                        f"size 0 at axis {axis} copies an axis that the operand does not have",
                    )
                after[axis] = before[axis]
            elif isinstance(size, int) and size < -1:
                raise self.error("XC2008", f"a size is {size}")
        total = product(before)
        if -1 in after:
            rest = product(d for d in after if d != -1)
            if after.count(-1) > 1 or rest == 0:
                raise self.error(
                    "XC2007", f"the size -1 does not follow from the others in {_text(after)}"
                )
            after[after.index(-1)] = total // rest
        sizes.equal(
            product(after),
            total,
            f"elements of the shape {_text(after)} and of the operand {_text(before)}",
        )
        return [tuple(after)]

    def _of_data(self, sizes: Sizes, before: Shape, wanted: Shape) -> Shape:
        """The shape when the run says which sizes are -1 or 0: `free` is 1 where a size is -1, else 0."""
        free: list[Dim] = []
        fixed: list[Dim] = []
        for axis, size in enumerate(wanted):
            sizes.equal(minimum(size, -1), -1, f"size {axis} of a shape is less than -1")
            copied = before[axis] if axis < len(before) and not self.allow_zero else 0
            is_zero = 1 - minimum(maximum(size, -size), 1)
            if axis >= len(before) and not self.allow_zero:
                sizes.equal(is_zero, 0, f"size 0 at axis {axis} copies an axis that is not there")
            free.append(minimum(maximum(-size, 0), 1))
            fixed.append(sizes.define(maximum(size, 0) + is_zero * copied, "reshape"))
        several = maximum(sum(free, start=0), 1)
        sizes.equal(several, 1, "several sizes of a shape are -1")
        total = product(before)
        named = [sizes.define(f, "reshape") for f in free]
        rest: Dim = 1
        for a, b in zip(fixed, named, strict=True):
            rest = sizes.define(rest * sizes.define(a + b, "reshape"), "reshape")
        left = sizes.define(total // maximum(rest, 1), "reshape")
        after = [sizes.define(a + b * left, "reshape") for a, b in zip(fixed, named, strict=True)]
        what = f"elements of the shape {_text(wanted)} and of the operand {_text(before)}"
        sizes.equal(product(after), total, what)
        return tuple(after)

    def content(self, sizes: Sizes) -> Shape | None:
        return self.flat_content(sizes)

    def reference(self, x: np.ndarray, shape: np.ndarray) -> np.ndarray:
        after = [int(d) for d in shape]
        if not self.allow_zero:
            after = [x.shape[i] if d == 0 else d for i, d in enumerate(after)]
        return x.reshape(after)


def _text(shape: Sequence[Dim]) -> str:
    return f"[{', '.join(map(str, shape))}]"


@nn.op("flatten")
class Flatten(DataMovement):
    """Two axes: the product of those before `axis`, and of the others. ONNX Flatten."""

    x: Operand
    y: Result
    axis: int = 1

    def verify(self) -> None:
        rank = rank_of(self.x)
        if not -rank <= self.axis <= rank:
            raise self.error("XC2006", f"axis {self.axis} is out of range for {rank} axes")

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        shape = sizes.shape(self.x)
        axis = self.axis + len(shape) if self.axis < 0 else self.axis
        return [(product(shape[:axis]), product(shape[axis:]))]

    def reference(self, x: np.ndarray) -> np.ndarray:
        axis = self.axis + x.ndim if self.axis < 0 else self.axis
        return x.reshape(int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis:])))


@nn.op("squeeze")
class Squeeze(DataMovement):
    """Without the axes `axes`, each of size 1; without all axes of size 1 when None. ONNX Squeeze.

    When `axes` is None, an axis whose size is not known must not turn out to be 1: the rank would depend on it.
    """

    x: Operand
    y: Result
    axes: tuple[int, ...] | None = None

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        shape = sizes.shape(self.x)
        if self.axes is None:
            for size in shape:
                if not isinstance(size, int):
                    what = (
                        f"squeeze without axes keeps an axis of {size} elements, which must not be 1: "
                        "the rank would be another; compile the model with that size stated"
                    )
                    sizes.equal(minimum(maximum(size - 1, 1 - size), 1), 1, what)
            return [tuple(d for d in shape if d != 1)]
        axes = {axis_of(self, axis, len(shape)) for axis in self.axes}
        for axis in axes:
            sizes.equal(shape[axis], 1, f"axis {axis} is removed, which must have size 1")
        return [tuple(d for i, d in enumerate(shape) if i not in axes)]

    def content(self, sizes: Sizes) -> Shape | None:
        return self.flat_content(sizes)

    def reference(self, x: np.ndarray) -> np.ndarray:
        squeezed = np.squeeze(x, self.axes)
        if squeezed.ndim != rank_of(self.y):
            raise ValueError("an axis whose size was not known has size 1 and would be removed")
        return squeezed


@nn.op("unsqueeze")
class Unsqueeze(DataMovement):
    """With new axes of size 1 at the places `axes` of the result. ONNX Unsqueeze."""

    x: Operand
    y: Result
    axes: tuple[int, ...]

    def verify(self) -> None:
        rank = rank_of(self.x) + len(self.axes)
        if len({axis_of(self, axis, rank) for axis in self.axes}) < len(self.axes):
            raise self.error("XC2007", f"the axes {self.axes} name one place twice")

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        shape = list(sizes.shape(self.x))
        rank = len(shape) + len(self.axes)
        for axis in sorted(axis_of(self, axis, rank) for axis in self.axes):
            shape.insert(axis, 1)
        return [tuple(shape)]

    def content(self, sizes: Sizes) -> Shape | None:
        return self.flat_content(sizes)

    def reference(self, x: np.ndarray) -> np.ndarray:
        return np.expand_dims(x, self.axes)


@nn.op("transpose")
class Transpose(DataMovement):
    """Axis i of the result is axis `perm[i]` of `x`. ONNX Transpose."""

    x: Operand
    y: Result
    perm: tuple[int, ...]

    def verify(self) -> None:
        if sorted(self.perm) != list(range(rank_of(self.x))):
            raise self.error("XC2007", f"{self.perm} is no permutation of {rank_of(self.x)} axes")

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        shape = sizes.shape(self.x)
        return [tuple(shape[axis] for axis in self.perm)]

    def content(self, sizes: Sizes) -> Shape | None:
        return self.flat_content(sizes)  # rank 0 or 1

    def reference(self, x: np.ndarray) -> np.ndarray:
        return np.transpose(x, self.perm)


@nn.op("expand")
class Expand(NnOp):
    """`x` broadcast with the shape that is given as int64; either may have the 1. ONNX Expand."""

    x: Operand
    shape: Operand
    y: Result

    def verify(self) -> None:
        check_integers(self, self.shape, "shape")

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        before, wanted = sizes.shape(self.x), known_elements(self, sizes, self.shape)
        for size in wanted:
            if isinstance(size, int) and size < 0:
                raise self.error("XC2008", f"a size is {size}")
        named = tuple(sizes.define(size, "expand") for size in wanted)
        return [broadcast_shapes(self, sizes, [before, named])]

    def content(self, sizes: Sizes) -> Shape | None:
        content, shape = sizes.content(self.x), sizes.shape(self.y)
        if content is None or not shape or len(content) == shape[0]:
            return content
        return content * shape[0] if len(content) == 1 and isinstance(shape[0], int) else None

    def reference(self, x: np.ndarray, shape: np.ndarray) -> np.ndarray:
        return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(int(d) for d in shape)))


class BlockMove(NnOp):
    """Base of the two ops that exchange channels and blocks of pixels in `[n, c, h, w]`."""

    def check_block(self, block: int, mode: str) -> None:
        """Raise unless the block is positive, the mode known and the operand has four axes."""
        if mode not in ("DCR", "CRD"):
            raise self.error("XC2007", f"mode is 'DCR' or 'CRD', not '{mode}'")
        if block < 1:
            raise self.error("XC2007", f"the block size is {block}")
        if rank_of(self.operands[0]) != 4:
            raise self.error(
                "XC2003", f"the operand must have 4 axes, not {rank_of(self.operands[0])}"
            )


@nn.op("depth_to_space")
class DepthToSpace(BlockMove):
    """Channels become blocks of pixels: `[n, c b b, h, w]` to `[n, c, h b, w b]`. ONNX DepthToSpace.

    `mode` says how a channel counts: "DCR" (row of the block, column, then c) or "CRD" (c, row, column).
    """

    x: Operand
    y: Result
    block: int
    mode: str = "DCR"

    def verify(self) -> None:
        self.check_block(self.block, self.mode)

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        n, c, h, w = sizes.shape(self.x)
        square = self.block**2
        sizes.equal(c // square * square, c, f"channels must be a multiple of {square}")
        return [(n, c // square, h * self.block, w * self.block)]

    def reference(self, x: np.ndarray) -> np.ndarray:
        (n, c, h, w), b = x.shape, self.block
        if self.mode == "DCR":
            blocks = x.reshape(n, b, b, c // b**2, h, w).transpose(0, 3, 4, 1, 5, 2)
        else:
            blocks = x.reshape(n, c // b**2, b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
        return blocks.reshape(n, c // b**2, h * b, w * b)


@nn.op("channel_shuffle")
class ChannelShuffle(DataMovement):
    """The channels of `groups` groups in turn: of `[n, c, …]`, channel i of group g becomes channel i · groups + g.

    Reshapes around a transposition in ONNX. `groups` divides c.
    """

    x: Operand
    y: Result
    groups: int

    def verify(self) -> None:
        if self.groups < 1 or rank_of(self.x) < 2:
            raise self.error("XC2007", f"a shuffle of {self.groups} groups")

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        shape = sizes.shape(self.x)
        whole = shape[1] // self.groups * self.groups
        sizes.equal(whole, shape[1], f"channels must be a multiple of {self.groups}")
        return [shape]

    def reference(self, x: np.ndarray) -> np.ndarray:
        n, c, *rest = x.shape
        parts = x.reshape(n, self.groups, c // self.groups, *rest)
        return np.ascontiguousarray(parts.swapaxes(1, 2)).reshape(x.shape)


@nn.op("space_to_depth")
class SpaceToDepth(BlockMove):
    """Blocks of pixels become channels: `[n, c, h b, w b]` to `[n, b b c, h, w]`. ONNX SpaceToDepth.

    `mode` says how a channel counts: "DCR" (row of the block, column, then c) or "CRD" (c, row, column).
    """

    x: Operand
    y: Result
    block: int
    mode: str = "DCR"

    def verify(self) -> None:
        self.check_block(self.block, self.mode)

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        (n, c, h, w), b = sizes.shape(self.x), self.block
        for size in (h, w):
            sizes.equal(size // b * b, size, f"height and width must be multiples of {b}")
        return [(n, c * b**2, h // b, w // b)]

    def reference(self, x: np.ndarray) -> np.ndarray:
        (n, c, h, w), b = x.shape, self.block
        order = (0, 3, 5, 1, 2, 4) if self.mode == "DCR" else (0, 1, 3, 5, 2, 4)
        blocks = x.reshape(n, c, h // b, b, w // b, b).transpose(order)
        return blocks.reshape(n, c * b**2, h // b, w // b)
