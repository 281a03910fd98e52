"""The patterns of nn-canonicalize on ops that move or convert elements."""

from xcompile.compiler.ir.dtypes import bits_of, is_float, is_integer, is_unsigned
from xcompile.compiler.ir.op import Op, Value
from xcompile.compiler.ir.rewrite import Pattern, Rewriter, has_one_use, maker, no_match, producer
from xcompile.compiler.support.dims import Dim
from xcompile.dialects.nn.base import dtype_of, rank_of
from xcompile.dialects.nn.kinds import VIEWS
from xcompile.dialects.nn.reshape import DataMovement, Expand, Reshape, Transpose
from xcompile.dialects.nn.slicing import MOST_PARTS, Concat, Pad, Slice, Split, Tile
from xcompile.dialects.nn.unary import Cast
from xcompile.passes.common.shapes import replace_by_operand, same_shape, shapes


def _content(rewriter: Rewriter, value: Value | None) -> tuple[Dim, ...] | None:
    return None if value is None else rewriter.analysis(shapes).content(value)


class TransposeToSame(Pattern[Transpose]):
    """A transpose that keeps the order of the axes.

        %0 = "nn.transpose"(%x) {perm = [0, 1, 2]}
    ->
        %x
    """

    def rewrite(self, op: Transpose, rewriter: Rewriter) -> None:
        if list(op.perm) != sorted(op.perm):
            no_match("it changes the order of the axes")
        replace_by_operand(rewriter, op, op.x)


class TransposeOfTranspose(Pattern[Transpose]):
    """Two transposes are one.

        %1 = "nn.transpose"(%0) where %0 = "nn.transpose"(%x)
    ->
        %1 = "nn.transpose"(%x)
    """

    def rewrite(self, op: Transpose, rewriter: Rewriter) -> None:
        inner = producer(op.x, Transpose) or no_match("the operand is not a transpose")
        perm = tuple(inner.perm[axis] for axis in op.perm)
        if not has_one_use(op.x) and list(perm) != sorted(perm):
            no_match("the inner transpose has other users")
        rewriter.replace(op, rewriter.create(Transpose, x=inner.x, perm=perm))


def _view_source(op: Op) -> list[Value]:
    """What a chain of views is a view of, nearest first."""
    found: list[Value] = []
    while op.NAME in VIEWS:
        found.append(op.operands[0])
        inner = maker(found[-1])
        if inner is None:
            break
        op = inner
    return found


class ViewToSame(Pattern[DataMovement]):
    """Reshapes, squeezes and the like that end at the shape they started from.

        %1 = "nn.squeeze"(%0) where %0 = "nn.unsqueeze"(%x)
    ->
        %x
    """

    def rewrite(self, op: DataMovement, rewriter: Rewriter) -> None:
        if op.NAME not in VIEWS:
            no_match("the op moves elements")
        for source in reversed(_view_source(op)):
            if same_shape(rewriter, op.results[0], source):
                replace_by_operand(rewriter, op, source)
                return
        no_match("the shape changes")


class ReshapeOfView(Pattern[Reshape]):
    """A reshape to known sizes does not care what shape its operand had before.

        %1 = "nn.reshape"(%0, %shape) where %0 = "nn.flatten"(%x)
    ->
        %1 = "nn.reshape"(%x, %shape)
    """

    def rewrite(self, op: Reshape, rewriter: Rewriter) -> None:
        inner = maker(op.x)
        if inner is None or inner.NAME not in VIEWS:
            no_match("the operand is not a view")
        wanted = _content(rewriter, op.shape)
        if wanted is None or not all(isinstance(d, int) and d != 0 for d in wanted):
            no_match("the shape is not known, or copies a size of the operand")
        made = rewriter.create(
            Reshape, x=inner.operands[0], shape=op.shape, allow_zero=op.allow_zero
        )
        rewriter.replace(op, made)


class ExpandToSame(Pattern[Expand]):
    """An expand to the shape that the operand has.

        %0 = "nn.expand"(%x, %shape)
    ->
        %x
    """

    def rewrite(self, op: Expand, rewriter: Rewriter) -> None:
        replace_by_operand(rewriter, op, op.x)


class TileOnce(Pattern[Tile]):
    """A tile that repeats no axis.

        %0 = "nn.tile"(%x, %ones)
    ->
        %x
    """

    def rewrite(self, op: Tile, rewriter: Rewriter) -> None:
        repeats = _content(rewriter, op.repeats)
        if repeats is None or any(count != 1 for count in repeats):
            no_match("an axis is repeated, or may be")
        replace_by_operand(rewriter, op, op.x)


class SliceOfAll(Pattern[Slice]):
    """A slice that takes every element, in order.

        %0 = "nn.slice"(%x, %starts, %ends)
    ->
        %x
    """

    def rewrite(self, op: Slice, rewriter: Rewriter) -> None:
        if op.steps is not None:
            steps = _content(rewriter, op.steps)
            if steps is None or not all(isinstance(d, int) and d > 0 for d in steps):
                no_match("a step is negative, or may be")
        replace_by_operand(rewriter, op, op.x)


class PadOfNothing(Pattern[Pad]):
    """A pad that adds and crops nothing.

        %0 = "nn.pad"(%x, %zeros)
    ->
        %x
    """

    def rewrite(self, op: Pad, rewriter: Rewriter) -> None:
        pads = _content(rewriter, op.pads)
        if pads is None or any(count != 0 for count in pads):
            no_match("an axis is padded, or may be")
        replace_by_operand(rewriter, op, op.x)


class ConcatOfOne(Pattern[Concat]):
    """A concatenation of one operand.

        %0 = "nn.concat"(%x)
    ->
        %x
    """

    def rewrite(self, op: Concat, rewriter: Rewriter) -> None:
        if len(op.xs) != 1:
            no_match("it has several operands")
        replace_by_operand(rewriter, op, op.xs[0])


class ConcatOfConcat(Pattern[Concat]):
    """A concatenation inside another along the same axis.

        %1 = "nn.concat"(%0, %c) where %0 = "nn.concat"(%a, %b)
    ->
        %1 = "nn.concat"(%a, %b, %c)
    """

    def rewrite(self, op: Concat, rewriter: Rewriter) -> None:
        rank = rank_of(op.y)
        flat: list[Value] = []
        for value in op.xs:
            inner = producer(value, Concat)
            if inner is not None and inner.axis % rank == op.axis % rank and has_one_use(value):
                flat += inner.xs
            else:
                flat.append(value)
        if len(flat) == len(op.xs):
            no_match("no operand is a concatenation for this one only")
        if len(flat) > MOST_PARTS:
            no_match(f"there would be {len(flat)} operands")
        rewriter.replace(op, rewriter.create(Concat, xs=flat, axis=op.axis))


class SplitIntoOne(Pattern[Split]):
    """A split into one part.

        %0 = "nn.split"(%x)
    ->
        %x
    """

    def rewrite(self, op: Split, rewriter: Rewriter) -> None:
        if len(op.results) != 1:
            no_match("it has several parts")
        replace_by_operand(rewriter, op, op.x)


class CastToSame(Pattern[Cast]):
    """A cast to the dtype that the operand has.

        %0 = "nn.cast"(%x) {to = "f32"}
    ->
        %x
    """

    def rewrite(self, op: Cast, rewriter: Rewriter) -> None:
        if dtype_of(op.x) != op.to:
            no_match("it changes the dtype")
        replace_by_operand(rewriter, op, op.x)


class CastOfCast(Pattern[Cast]):
    """A cast by way of a dtype that holds every value of the first.

        %1 = "nn.cast"(%0) {to = "f16"} where %0 = "nn.cast"(%x) {to = "f32"}
    ->
        %1 = "nn.cast"(%x) {to = "f16"}
    """

    def rewrite(self, op: Cast, rewriter: Rewriter) -> None:
        inner = producer(op.x, Cast) or no_match("the operand is not a cast")
        source = dtype_of(inner.x)
        if not holds(inner.to, source):
            no_match(f"{inner.to} does not hold every value of {source}")
        made = rewriter.create(
            Cast, x=inner.x, to=op.to, saturate=op.saturate, rounding=op.rounding
        )
        replace_by_operand(rewriter, op, made.y)


_EXACT_BITS = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}


def holds(wide: str, narrow: str) -> bool:
    """Whether every value of the dtype `narrow` is one of `wide`."""
    if narrow == wide or narrow == "i1":
        return True
    if is_float(narrow):
        return (narrow, wide) in (
            ("f16", "f32"), ("f16", "f64"), ("bf16", "f32"), ("bf16", "f64"), ("f32", "f64"),
        )  # fmt: skip
    if not is_integer(narrow) or wide == "i1":
        return False
    if is_float(wide):
        return bits_of(narrow) <= _EXACT_BITS.get(wide, 0)
    if not is_integer(wide):
        return False
    if is_unsigned(narrow) == is_unsigned(wide):
        return bits_of(narrow) <= bits_of(wide)
    return is_unsigned(narrow) and bits_of(narrow) < bits_of(wide)
