"""nn-rows-to-images: convolutions and pools over one axis are those of images of one row.

Kernels and blocked layouts are made for images. What lies between two such ops is raised with them, so that the views
meet and vanish.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from xcompile.compiler.ir.op import Op, Value
from xcompile.compiler.ir.passes import PatternPass
from xcompile.compiler.ir.rewrite import Pattern, Rewriter, no_match, producer
from xcompile.dialects.nn.base import rank_of
from xcompile.dialects.nn.conv import Conv, ConvTranspose
from xcompile.dialects.nn.elementwise import Elementwise
from xcompile.dialects.nn.integer import ConvInteger
from xcompile.dialects.nn.pool import Pool
from xcompile.dialects.nn.quantize import Quantization
from xcompile.dialects.nn.reduce import ReduceMean
from xcompile.dialects.nn.reshape import Squeeze, Unsqueeze
from xcompile.dialects.nn.resize import Resize
from xcompile.dialects.nn.slicing import Concat
from xcompile.dialects.nn.unary import Cast
from xcompile.passes.nn.quantized import fields_of

_ROW = 2
"""The axis of an image along which rows follow each other."""

_AXES = (0, 1, 3)
"""Where the axes of a row [N, C, W] are in an image [N, C, 1, W]."""

_ALONG: Mapping[str, int] = {"kernel": 1, "strides": 1, "dilations": 1, "output_pads": 0}
"""Attributes with one number an axis, and the number for the axis of rows."""


def _row_of(value: Value) -> Value | None:
    """The image of one row that `value` is a view of."""
    view = producer(value, Squeeze)
    if view is None or view.axes not in ((_ROW,), (_ROW - 4,)) or rank_of(view.x) != 4:
        return None
    return view.x


def _image(rewriter: Rewriter, value: Value) -> Value:
    """A row as an image; of what broadcasts to rows, that which broadcasts to images."""
    rank = rank_of(value)
    if rank < 2:
        return value
    found = _row_of(value) if rank == 3 else None
    return rewriter.create(Unsqueeze, x=value, axes=(rank - 1,)).y if found is None else found


def _replace(rewriter: Rewriter, op: Op, made: Op) -> None:
    rewriter.replace(op, rewriter.create(Squeeze, x=made.results[0], axes=(_ROW,)))


def _raise_window(rewriter: Rewriter, op: Op, **operands: Value | None) -> None:
    """Replace an op with windows along a row by that with windows of one row."""
    fields = op.attributes()
    fields.update({name: (n, *fields[name]) for name, n in _ALONG.items() if name in fields})
    begin, end = fields["pads"]
    made = rewriter.create(type(op), **operands, **{**fields, "pads": (0, begin, 0, end)})
    _replace(rewriter, op, made)


class ConvOfRow(Pattern[Conv]):
    """A convolution over one axis.

        %0 = "nn.conv"(%x, %w) : (tensor<1x8x100xf32>, tensor<8x8x3xf32>) -> tensor<1x8x98xf32>
    ->
        %1 = "nn.unsqueeze"(%x) {axes = [2]}
        %2 = "nn.unsqueeze"(%w) {axes = [2]}
        %3 = "nn.conv"(%1, %2) : … -> tensor<1x8x1x98xf32>
        %0 = "nn.squeeze"(%3) {axes = [2]}
    """

    def rewrite(self, op: Conv, rewriter: Rewriter) -> None:
        if rank_of(op.x) != 3:
            no_match("it is not over one axis")
        x, w = (_image(rewriter, v) for v in (op.x, op.w))
        _raise_window(rewriter, op, x=x, w=w, bias=op.bias)


class IntegerConvOfRow(Pattern[ConvInteger]):
    """A convolution of 8-bit integers over one axis.

        %0 = "nn.conv_integer"(%x, %w) : (tensor<1x8x100xui8>, tensor<8x8x3xi8>) -> tensor<1x8x98xi32>
    ->
        %1 = "nn.unsqueeze"(%x) {axes = [2]}
        %2 = "nn.unsqueeze"(%w) {axes = [2]}
        %3 = "nn.conv_integer"(%1, %2) : … -> tensor<1x8x1x98xi32>
        %0 = "nn.squeeze"(%3) {axes = [2]}
    """

    def rewrite(self, op: ConvInteger, rewriter: Rewriter) -> None:
        if rank_of(op.x) != 3:
            no_match("it is not over one axis")
        images = {name: _image(rewriter, v) for name, v in (("x", op.x), ("w", op.w))}
        _raise_window(rewriter, op, **{**op.operand_fields(), **images})


class ConvTransposeOfRow(Pattern[ConvTranspose]):
    """A transposed convolution over one axis.

        %0 = "nn.conv_transpose"(%x, %w) : (tensor<1x8x100xf32>, tensor<8x8x2xf32>) -> tensor<1x8x200xf32>
    ->
        %1 = "nn.unsqueeze"(%x) {axes = [2]}
        %2 = "nn.unsqueeze"(%w) {axes = [2]}
        %3 = "nn.conv_transpose"(%1, %2) : … -> tensor<1x8x1x200xf32>
        %0 = "nn.squeeze"(%3) {axes = [2]}
    """

    def rewrite(self, op: ConvTranspose, rewriter: Rewriter) -> None:
        if rank_of(op.x) != 3:
            no_match("it is not over one axis")
        x, w = (_image(rewriter, v) for v in (op.x, op.w))
        _raise_window(rewriter, op, x=x, w=w, bias=op.bias)


class PoolOfRow(Pattern[Pool]):
    """A pool over one axis.

        %0 = "nn.max_pool"(%x) {kernel = [2]} : (tensor<1x8x100xf32>) -> tensor<1x8x50xf32>
    ->
        %1 = "nn.unsqueeze"(%x) {axes = [2]}
        %2 = "nn.max_pool"(%1) {kernel = [1, 2]} : … -> tensor<1x8x1x50xf32>
        %0 = "nn.squeeze"(%2) {axes = [2]}
    """

    def rewrite(self, op: Pool, rewriter: Rewriter) -> None:
        if rank_of(op.x) != 3:
            no_match("it is not over one axis")
        if len(op.results) != 1:
            no_match("it has several results")
        _raise_window(rewriter, op, x=_image(rewriter, op.x))


class ElementwiseOfRow(Pattern[Elementwise]):
    """An elementwise op on a view of an image.

        %1 = "nn.relu"(%0) where %0 = "nn.squeeze"(%image) {axes = [2]}
    ->
        %0 = "nn.relu"(%image)
        %1 = "nn.squeeze"(%0) {axes = [2]}
    """

    def rewrite(self, op: Elementwise, rewriter: Rewriter) -> None:
        values = [v for v in op.operands if rank_of(v) == 3]
        if rank_of(op.results[0]) != 3 or all(_row_of(v) is None for v in values):
            no_match("no operand is a view of an image of one row")
        fields: dict[str, Any] = op.operand_fields()
        for name, value in fields.items():
            if isinstance(value, list):
                listed: list[Value] = value
                fields[name] = [_image(rewriter, v) for v in listed]
            elif value is not None:
                fields[name] = _image(rewriter, value)
        _replace(rewriter, op, rewriter.create(type(op), **fields, **op.attributes()))


class CastOfRow(Pattern[Cast]):
    """A conversion of a view of an image.

        %1 = "nn.cast"(%0) {to = "f32"} where %0 = "nn.squeeze"(%image) {axes = [2]}
    ->
        %0 = "nn.cast"(%image) {to = "f32"}
        %1 = "nn.squeeze"(%0) {axes = [2]}
    """

    def rewrite(self, op: Cast, rewriter: Rewriter) -> None:
        image = _row_of(op.x) if rank_of(op.x) == 3 else None
        if image is None:
            no_match("the operand is not a view of an image of one row")
        _replace(rewriter, op, rewriter.create(Cast, x=image, **op.attributes()))


class QuantizationOfRow(Pattern[Quantization]):
    """A quantization or dequantization of a view of an image, with one scale.

        %1 = "nn.quantize"(%0, %scale) where %0 = "nn.squeeze"(%image) {axes = [2]}
    ->
        %0 = "nn.quantize"(%image, %scale)
        %1 = "nn.squeeze"(%0) {axes = [2]}
    """

    def rewrite(self, op: Quantization, rewriter: Rewriter) -> None:
        image = _row_of(op.x) if rank_of(op.x) == 3 else None
        if image is None:
            no_match("the operand is not a view of an image of one row")
        if not op.per_tensor(op.scale):
            no_match("it has more than one scale")
        _replace(rewriter, op, rewriter.create(type(op), **{**fields_of(op), "x": image}))


class ConcatOfRow(Pattern[Concat]):
    """A concatenation of views of images.

        %2 = "nn.concat"(%0, %1) {axis = 1} where %0 = "nn.squeeze"(%image) {axes = [2]}
    ->
        %3 = "nn.concat"(%image, %other) {axis = 1}
        %2 = "nn.squeeze"(%3) {axes = [2]}
    """

    def rewrite(self, op: Concat, rewriter: Rewriter) -> None:
        if rank_of(op.y) != 3 or all(_row_of(v) is None for v in op.xs):
            no_match("no operand is a view of an image of one row")
        images = [_image(rewriter, v) for v in op.xs]
        _replace(rewriter, op, rewriter.create(Concat, xs=images, axis=_AXES[op.axis]))


class ResizeOfRow(Pattern[Resize]):
    """A resize of a view of an image.

        %1 = "nn.resize"(%0) {axes = [2]} where %0 = "nn.squeeze"(%image) {axes = [2]}
    ->
        %2 = "nn.resize"(%image) {axes = [3]}
        %1 = "nn.squeeze"(%2) {axes = [2]}
    """

    def rewrite(self, op: Resize, rewriter: Rewriter) -> None:
        image = _row_of(op.x) if rank_of(op.x) == 3 else None
        if image is None:
            no_match("the operand is not a view of an image of one row")
        fields = {**op.attributes(), "axes": tuple(_AXES[axis] for axis in op.axes)}
        operands: dict[str, Any] = {**op.operand_fields(), "x": image}
        _replace(rewriter, op, rewriter.create(Resize, **operands, **fields))


class MeanOfRow(Pattern[ReduceMean]):
    """A mean over the axis of a view of an image is one over its height and width.

        %1 = "nn.reduce_mean"(%0) {axes = [2]} where %0 = "nn.squeeze"(%image) {axes = [2]}
    ->
        %2 = "nn.reduce_mean"(%image) {axes = [2, 3]}
        %1 = "nn.squeeze"(%2) {axes = [2]}
    """

    def rewrite(self, op: ReduceMean, rewriter: Rewriter) -> None:
        image = _row_of(op.x) if rank_of(op.x) == 3 else None
        if image is None:
            no_match("the operand is not a view of an image of one row")
        if op.dynamic_axes is not None or list(op.axes) != [2]:
            no_match("it is not over the last axis")
        mean = rewriter.create(ReduceMean, x=image, axes=(2, 3))
        gone = (_ROW,) if op.keepdims else (_ROW, _ROW + 1)
        rewriter.replace(op, rewriter.create(Squeeze, x=mean.y, axes=gone))


@dataclass(frozen=True)
class RowsToImages(PatternPass):
    """Turn convolutions and pools over one axis into those of images, with what lies between them."""

    NAME: ClassVar[str] = "nn-rows-to-images"
    PATTERNS: ClassVar = (
        ConvOfRow,
        IntegerConvOfRow,
        ConvTransposeOfRow,
        PoolOfRow,
        ElementwiseOfRow,
        CastOfRow,
        QuantizationOfRow,
        ConcatOfRow,
        ResizeOfRow,
        MeanOfRow,
    )
