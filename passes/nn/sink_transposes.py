"""nn-sink-transposes: images whose channels were moved to the end are computed on as they were before.

Exporters of frameworks with channels last write a transposition before each convolution and pool and one behind it.
Those behind move over the ops that work on any order of axes, until they meet the next one before an op and both go.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Op, Value
from xcompile.compiler.ir.passes import PassContext, PatternPass
from xcompile.compiler.ir.rewrite import (
    Pattern,
    Rewriter,
    apply_phases,
    maker,
    no_match,
    producer,
    users,
)
from xcompile.dialects.nn.base import rank_of
from xcompile.dialects.nn.const import const_of
from xcompile.dialects.nn.elementwise import Elementwise
from xcompile.dialects.nn.reduce import Reduce
from xcompile.dialects.nn.reshape import Squeeze, Transpose, Unsqueeze
from xcompile.dialects.nn.slicing import Concat, Pad, Slice, Split
from xcompile.dialects.nn.unary import Cast
from xcompile.passes.common.constants import constant
from xcompile.passes.common.shapes import shapes
from xcompile.passes.nn.canonical_movement import TransposeOfTranspose, TransposeToSame

_LEAST_AXES = 4
"""Axes of an image with its batch and channels."""


def _to_the_end(rank: int) -> tuple[int, ...]:
    """The transposition from channels at axis 1 to channels at the end."""
    return (0, *range(2, rank), 1)


def _image(value: Value) -> Value | None:
    """The image that `value` is with channels at the end."""
    made, rank = producer(value, Transpose), rank_of(value)
    if made is None or rank < _LEAST_AXES or made.perm != _to_the_end(rank):
        return None
    return made.x


def _image_of(value: Value) -> Value:
    """As `_image`; leaves the pattern where there is none, or where something needs the transposed image anyway."""
    found = _image(value) or no_match(
        "the operand is no image whose channels were moved to the end"
    )
    _check_users(value)
    return found


def _check_users(value: Value) -> None:
    for user in users(value):
        op = maker(user.results[0]) if user.results else None
        if not isinstance(
            op, Elementwise | Cast | Concat | Pad | Slice | Split | Reduce | Transpose
        ):
            no_match("another op reads the image with its channels at the end")


def _back(rewriter: Rewriter, value: Value) -> Value:
    """`value` with its channels moved to the end."""
    return rewriter.create(Transpose, x=value, perm=_to_the_end(rank_of(value))).y


class ElementwiseOfTransposed(Pattern[Elementwise]):
    """An elementwise op on images whose channels were moved to the end, and on what broadcasts to these.

        %2 = "nn.add"(%1, %bias) where %1 = "nn.transpose"(%0) {perm = [0, 2, 3, 1]}
    ->
        %1 = "nn.add"(%0, %moved)
        %2 = "nn.transpose"(%1) {perm = [0, 2, 3, 1]}
    """

    def rewrite(self, op: Elementwise, rewriter: Rewriter) -> None:
        rank = rank_of(op.results[0])
        if all(_image(v) is None for v in op.operands):
            no_match("no operand is an image whose channels were moved to the end")
        given: dict[str, Any] = op.operand_fields()
        fields = {
            name: [_first(rewriter, v, rank) for v in value]
            if isinstance(value, list)
            else value and _first(rewriter, value, rank)
            for name, value in given.items()
        }
        made = rewriter.create(type(op), **fields, **op.attributes())
        rewriter.replace(op, _back(rewriter, made.operation.results[0]))


class CastOfTransposed(Pattern[Cast]):
    """A conversion of an image whose channels were moved to the end.

        %2 = "nn.cast"(%1) {to = "f16"} where %1 = "nn.transpose"(%0) {perm = [0, 2, 3, 1]}
    ->
        %1 = "nn.cast"(%0) {to = "f16"}
        %2 = "nn.transpose"(%1) {perm = [0, 2, 3, 1]}
    """

    def rewrite(self, op: Cast, rewriter: Rewriter) -> None:
        made = rewriter.create(Cast, x=_image_of(op.x), **op.attributes())
        rewriter.replace(op, _back(rewriter, made.y))


def _first(rewriter: Rewriter, value: Value, rank: int) -> Value:
    """An operand of an elementwise op of `rank` axes, its channels moved from the end to axis 1."""
    image = _image(value) if rank_of(value) == rank else None
    if image is not None:
        _check_users(value)
        return image
    sizes = list(ir.ShapedType(value.type).shape)
    if all(size == 1 for size in sizes) and len(sizes) <= rank:
        return value
    made = const_of(value)
    if made is not None:
        array = made.array(rewriter.weights)
        array = array.reshape((1,) * (rank - array.ndim) + array.shape)
        return constant(rewriter, np.ascontiguousarray(np.moveaxis(array, -1, 1)))
    middle = tuple(range(1, rank - 1))
    if len(sizes) < rank or any(sizes[axis] != 1 for axis in middle):
        no_match("another operand has its channels at the end")
    column = rewriter.create(Squeeze, x=value, axes=middle)
    return rewriter.create(Unsqueeze, x=column.y, axes=tuple(range(2, rank))).y


class ConcatOfTransposed(Pattern[Concat]):
    """A concatenation of images whose channels were moved to the end.

        %4 = "nn.concat"(%2, %3) {axis = 3} where %2 = "nn.transpose"(%0) {perm = [0, 2, 3, 1]}
    ->
        %2 = "nn.concat"(%0, %1) {axis = 1}
        %4 = "nn.transpose"(%2) {perm = [0, 2, 3, 1]}
    """

    def rewrite(self, op: Concat, rewriter: Rewriter) -> None:
        rank = rank_of(op.y)
        images = [_image_of(v) for v in op.xs]
        made = rewriter.create(Concat, xs=images, axis=_to_the_end(rank)[op.axis])
        rewriter.replace(op, _back(rewriter, made.y))


def _axes(rewriter: Rewriter, axes: Value | None, count: int, rank: int) -> Value:
    """The places before the transposition of axes behind it; leaves the pattern if they are not known."""
    known: Sequence[object] | None = range(count)
    if axes is not None:
        known = rewriter.analysis(shapes).content(axes)
    places = [axis for axis in known or () if isinstance(axis, int)]
    if known is None or len(places) < len(known):
        no_match("the axes are not known")
    return constant(rewriter, np.array([_to_the_end(rank)[axis] for axis in places], np.int64))


class PadOfTransposed(Pattern[Pad]):
    """Padding of an image whose channels were moved to the end.

        %2 = "nn.pad"(%1, %pads) where %1 = "nn.transpose"(%0) {perm = [0, 2, 3, 1]}
    ->
        %1 = "nn.pad"(%0, %pads, %axes)
        %2 = "nn.transpose"(%1) {perm = [0, 2, 3, 1]}
    """

    def rewrite(self, op: Pad, rewriter: Rewriter) -> None:
        image, rank = _image_of(op.x), rank_of(op.x)
        axes = _axes(rewriter, op.axes, rank, rank)
        made = rewriter.create(Pad, x=image, pads=op.pads, value=op.value, axes=axes, mode=op.mode)
        rewriter.replace(op, _back(rewriter, made.y))


class SliceOfTransposed(Pattern[Slice]):
    """A slice of an image whose channels were moved to the end.

        %2 = "nn.slice"(%1, %starts, %ends) where %1 = "nn.transpose"(%0) {perm = [0, 2, 3, 1]}
    ->
        %1 = "nn.slice"(%0, %starts, %ends, %axes)
        %2 = "nn.transpose"(%1) {perm = [0, 2, 3, 1]}
    """

    def rewrite(self, op: Slice, rewriter: Rewriter) -> None:
        image, (count,) = _image_of(op.x), ir.ShapedType(op.starts.type).shape
        if op.axes is None and count < 0:
            no_match("the axes are not known")
        axes = _axes(rewriter, op.axes, count, rank_of(op.x))
        fields = {"starts": op.starts, "ends": op.ends, "axes": axes, "steps": op.steps}
        rewriter.replace(op, _back(rewriter, rewriter.create(Slice, x=image, **fields).y))


class SplitOfTransposed(Pattern[Split]):
    """A split of an image whose channels were moved to the end.

        %2, %3 = "nn.split"(%1) {axis = 3} where %1 = "nn.transpose"(%0) {perm = [0, 2, 3, 1]}
    ->
        %4, %5 = "nn.split"(%0) {axis = 1}
        %2 = "nn.transpose"(%4) {perm = [0, 2, 3, 1]}
    """

    def rewrite(self, op: Split, rewriter: Rewriter) -> None:
        image, axis = _image_of(op.x), _to_the_end(rank_of(op.x))[op.axis]
        fields = {"x": image, "lengths": op.lengths, "axis": axis}
        made = rewriter.create(Split, results=len(op.results), **fields)
        rewriter.replace(op, [_back(rewriter, part) for part in made.results])


class ReductionOfTransposed(Pattern[Reduce]):
    """A reduction of an image whose channels were moved to the end.

        %2 = "nn.reduce_mean"(%1) {axes = [1, 2]} where %1 = "nn.transpose"(%0) {perm = [0, 2, 3, 1]}
    ->
        %1 = "nn.reduce_mean"(%0) {axes = [2, 3]}
        %2 = "nn.transpose"(%1) {perm = [0, 2, 3, 1]}
    """

    def rewrite(self, op: Reduce, rewriter: Rewriter) -> None:
        if op.dynamic_axes is not None:
            no_match("the axes are not known")
        image, rank = _image_of(op.x), rank_of(op.x)
        perm = _to_the_end(rank)
        reduced = tuple(sorted(perm[axis] for axis in op.axes))
        made: Op = rewriter.create(type(op), x=image, **{**op.attributes(), "axes": reduced})
        result = made.operation.results[0]
        kept = [axis for axis in perm if op.keepdims or axis not in reduced]
        order = tuple(sorted(kept).index(axis) for axis in kept)
        rewriter.replace(op, rewriter.create(Transpose, x=result, perm=order))


class TransposeOfPixels(Pattern[Transpose]):
    """Moving the channels of single pixels moves no element.

        %0 = "nn.transpose"(%x) {perm = [0, 2, 3, 1]} : (tensor<1x8x1x1xf32>) -> tensor<1x1x1x8xf32>
    ->
        %1 = "nn.squeeze"(%x) {axes = [2, 3]}
        %0 = "nn.unsqueeze"(%1) {axes = [1, 2]}
    """

    def rewrite(self, op: Transpose, rewriter: Rewriter) -> None:
        rank, sizes = rank_of(op.x), list(ir.ShapedType(op.x.type).shape)
        first, last = tuple(range(2, rank)), tuple(range(1, rank - 1))
        back = (0, rank - 1, *last)
        if rank < _LEAST_AXES or op.perm not in (_to_the_end(rank), back):
            no_match("it does not move the channels of an image")
        before, after = (last, first) if op.perm == back else (first, last)
        if any(sizes[axis] != 1 for axis in before):
            no_match("there may be several pixels")
        pixel = rewriter.create(Squeeze, x=op.x, axes=before)
        rewriter.replace(op, rewriter.create(Unsqueeze, x=pixel.y, axes=after))


@dataclass(frozen=True)
class SinkTransposes(PatternPass):
    """Compute on images with their channels before their sizes; transpositions to channels last go down and vanish."""

    NAME: ClassVar[str] = "nn-sink-transposes"
    PATTERNS: ClassVar = (
        ElementwiseOfTransposed,
        CastOfTransposed,
        ConcatOfTransposed,
        PadOfTransposed,
        SliceOfTransposed,
        SplitOfTransposed,
        ReductionOfTransposed,
        TransposeOfTranspose,
        TransposeToSame,
        TransposeOfPixels,
    )

    def run(self, module: Module, context: PassContext) -> None:
        """First what moves transpositions, then what makes views of those that are left."""
        *sinking, last = self.patterns(context)
        reasons = context.wants_reasons(self.NAME)
        context.record(self.NAME, apply_phases(module, [sinking, [last]], explain=reasons))
