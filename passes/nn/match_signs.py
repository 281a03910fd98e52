"""nn-match-signs: the operands of integer products have the signs that the target's instructions multiply.

    %q = "nn.quantize"(%x, %scale, %zero) {to = "i8"}
    %0 = "nn.conv_integer"(%q, %w, %zero)
->
    %q = "nn.quantize"(%x, %scale, %moved) {to = "ui8"}
    %0 = "nn.conv_integer"(%q, %w, %moved)

On x86 the left operand (the input of a convolution) is unsigned and the right one (the weight) signed, on ARM both are
signed. Integers of the other sign are moved by 128, and so is their zero point: the products are the same. Where they
are made by quantization, or are constants, that costs nothing. Values that only move from one place to
another have one sign, which most products that read them want.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from xcompile.compiler.ir.dtypes import DTYPES, element_type
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Op, Value, view
from xcompile.compiler.ir.passes import Pass, PassContext
from xcompile.compiler.ir.regions import blocks_of, nested
from xcompile.compiler.ir.rewrite import Rewriter
from xcompile.dialects.nn.base import NnOp, dtype_of, numpy_dtype
from xcompile.dialects.nn.binary import BitwiseXor
from xcompile.dialects.nn.const import Const, const_of
from xcompile.dialects.nn.integer import ConvInteger, MatMulInteger
from xcompile.dialects.nn.quantize import Dequantize, Quantize
from xcompile.dialects.nn.slicing import Pad, Split
from xcompile.dialects.nn.unary import Cast
from xcompile.passes.common.constants import array_of, constant
from xcompile.passes.nn.move_quantize import MOVES
from xcompile.passes.nn.quantized import fields_of

OTHER = {"i8": "ui8", "ui8": "i8"}
"""The type with the other sign."""

_ANY_OPERAND = frozenset({"nn.concat", "nn.maximum", "nn.minimum"})
"""Ops whose result has the sign of all operands."""


@dataclass(frozen=True)
class MatchSigns(Pass):
    """Give operands of integer products the signs that the target multiplies: unsigned by signed on x86, signed on ARM.

    Integers of the other sign are moved by 128, where they are made if that can be, and so are zero points.
    """

    NAME: ClassVar[str] = "nn-match-signs"

    def run(self, module: Module, context: PassContext) -> None:
        left = "i8" if context.target.has("neon") else "ui8"
        with module.context, ir.Location.unknown():
            _Matching(module, left).run()


def moved_by_128(array: np.ndarray) -> np.ndarray:
    """8-bit integers in the type of the other sign, all of them 128 more or less."""
    other = np.int8 if array.dtype == np.uint8 else np.uint8
    return (
        (np.ascontiguousarray(array).view(np.uint8) ^ np.uint8(128))
        .view(other)
        .reshape(array.shape)
    )


def _of_one_sign(op: Op) -> list[Value]:
    """The operands and results of an op that have one sign, as they are elements of each other."""
    if op.NAME in _ANY_OPERAND:
        values = [*op.operands, *op.results]
    else:
        values = [op.operands[0], *op.results] if op.NAME in MOVES else []
    return [v for v in values if dtype_of(v) in OTHER]


class _Matching:
    """One run of the pass.

    Values that are elements of each other form a set, named by one of them. Where most products that read values of a
    set want the other sign, each is made anew with it (`_moved`), and what else reads them gets them moved back.
    """

    def __init__(self, module: Module, left: str) -> None:
        self._module = module
        self._left = left
        self._rewriter = Rewriter(module)
        self._names: dict[Value, Value] = {}
        self._moved: dict[Value, Value] = {}
        self._moved_back: dict[Value, Value] = {}

    def run(self) -> None:
        operations = nested(self._module.main.operation)
        ops = [op for o in operations if (op := view(o)) is not None]
        changed = self._to_change(ops)
        made = [op for op in ops if any(self._name(r) in changed for r in op.results)]
        for operation in (self._module.main.operation, *operations):
            for argument in (a for block in blocks_of(operation) for a in block.arguments):
                if self._name(argument) in changed:
                    self._keep(argument)
        for op in made:
            self._make_moved(op)
        old = set(made)
        for operation in operations:
            op = view(operation)
            if op not in old:
                self._read(operation, op)
        for op in reversed(made):
            if not any(True for r in op.results for _ in r.uses):
                self._rewriter.begin(op.operation, MatchSigns.NAME)
                self._rewriter.erase(op)

    # -- which values -----------------------------------------------------------------------------

    def _name(self, value: Value) -> Value:
        while value in self._names:
            value = self._names[value]
        return value

    def _roles(self, op: ConvInteger | MatMulInteger) -> list[tuple[str, str, str]]:
        """For each operand of a product its field, that of its zero point, and the type that it should have."""
        if isinstance(op, ConvInteger):
            return [("x", "x_zero_point", self._left), ("w", "w_zero_point", "i8")]
        return [("a", "a_zero_point", self._left), ("b", "b_zero_point", "i8")]

    def _to_change(self, ops: Sequence[Op]) -> set[Value]:
        """The names of sets from which most products want the other sign."""
        for op in ops:
            values = _of_one_sign(op)
            for value in values[1:]:
                a, b = self._name(values[0]), self._name(value)
                if a != b:
                    self._names[b] = a
        votes = Counter[Value]()
        for op in ops:
            if isinstance(op, ConvInteger | MatMulInteger):
                for field, _, wanted in self._roles(op):
                    value: Value = getattr(op, field)
                    votes[self._name(value)] += 1 if dtype_of(value) != wanted else -1
        return {name for name, balance in votes.items() if balance > 0}

    # -- values of the other sign -------------------------------------------------------------------

    def _make_moved(self, op: Op) -> None:
        """Make what `op` makes with the other sign beside it."""
        rewriter = self._rewriter
        rewriter.begin(op.operation, MatchSigns.NAME)
        if isinstance(op, Const):
            self._moved[op.y] = constant(rewriter, moved_by_128(op.array(rewriter.weights)))
        elif isinstance(op, Quantize) and not op.block:
            zero = self._zero_point(op.zero_point, op.to, op.scale)
            fields = {**fields_of(op), "to": OTHER[op.to], "zero_point": zero}
            self._put(op, rewriter.create(Quantize, x=op.x, **fields))
        elif isinstance(op, NnOp) and _of_one_sign(op):
            fields = {name: self._replaced(v) for name, v in op.operand_fields().items()}
            if isinstance(op, Pad) and op.mode == "constant":
                fields["value"] = self._zero_point(op.value, dtype_of(op.x))
            count = {"results": len(op.results)} if isinstance(op, Split) else {}
            self._put(op, rewriter.create(type(op), **fields, **op.attributes(), **count))
        else:
            for result in op.results:
                if dtype_of(result) in OTHER:
                    self._keep(result)

    def _put(self, op: Op, made: Op) -> None:
        """Let the results of an op stand for those of another, of which more sizes may be known."""
        for old, new in zip(op.results, made.results, strict=True):
            shape = ir.RankedTensorType(old.type).shape
            new.set_type(ir.RankedTensorType.get(shape, element_type(dtype_of(new))))
            self._moved[old] = new

    def _keep(self, value: Value) -> None:
        """Move a value that is made elsewhere; what reads it as it is may go on."""
        self._moved[value], self._moved_back[value] = self._move_behind(value), value

    def _replaced(self, given: Any) -> Any:
        if isinstance(given, list):
            values: list[Value] = given
            return [self._replaced(value) for value in values]
        return self._moved.get(given, given)

    def _zero_point(self, value: Value | None, dtype: str, scale: Value | None = None) -> Value:
        """The zero point of integers that are moved. A missing one is 0, in the shape of the scale."""
        if value is not None and const_of(value) is None:
            return self._move_here(value)
        if value is not None:
            array = array_of(self._rewriter, value, "the zero point")
        else:
            shape = [] if scale is None else list(ir.RankedTensorType(scale.type).shape)
            array = np.zeros(shape if min(shape, default=0) >= 0 else [1], DTYPES[dtype])
        return constant(self._rewriter, moved_by_128(array))

    def _move_here(self, value: Value) -> Value:
        """The value moved by 128, before the op that is being rewritten."""
        if const_of(value) is not None:
            return constant(self._rewriter, moved_by_128(array_of(self._rewriter, value, "it")))
        half = constant(self._rewriter, moved_by_128(np.zeros((), numpy_dtype(value))))
        turned = self._rewriter.create(Cast, x=value, to=OTHER[dtype_of(value)])
        return self._rewriter.create(BitwiseXor, a=turned.y, b=half).y

    def _move_behind(self, value: Value) -> Value:
        """The value moved by 128, just behind where it is made."""
        half = moved_by_128(np.zeros((), numpy_dtype(value)))
        if isinstance(value.owner, ir.Block):
            point, loc = ir.InsertionPoint.at_block_begin(value.owner), ir.Location.unknown()
        else:
            point, loc = ir.InsertionPoint.after(value.owner), value.owner.location
        with point:
            turned = Cast.create(loc=loc, x=value, to=OTHER[dtype_of(value)])
            added = Const.from_array(half, self._module.weights, loc=loc)
            return BitwiseXor.create(loc=loc, a=turned.y, b=added.y).y

    # -- readers --------------------------------------------------------------------------------------

    def _read(self, operation: ir.Operation, op: Op | None) -> None:
        """Let an op that stays read what was made anew."""
        self._rewriter.begin(operation, MatchSigns.NAME)
        if isinstance(op, ConvInteger | MatMulInteger):
            self._read_product(op)
        elif isinstance(op, Dequantize) and not op.block and op.x in self._moved:
            zero = self._zero_point(op.zero_point, dtype_of(op.x), op.scale)
            fields = {**fields_of(op), "zero_point": zero}
            made = self._rewriter.create(Dequantize, x=self._moved[op.x], **fields)
            self._rewriter.replace(op, made)
        else:
            for position, value in enumerate(operation.operands):
                if value in self._moved:
                    if value not in self._moved_back:
                        self._moved_back[value] = self._move_behind(self._moved[value])
                    operation.operands[position] = self._moved_back[value]

    def _read_product(self, op: ConvInteger | MatMulInteger) -> None:
        fields: dict[str, Any] = op.operand_fields()
        for name, zero_point, wanted in self._roles(op):
            value: Value = fields[name]
            fields[name] = moved = self._moved.get(value, value)
            if dtype_of(moved) != wanted:
                fields[name] = self._move_here(moved)
            if dtype_of(value) != wanted:
                fields[zero_point] = self._zero_point(fields[zero_point], dtype_of(value))
                if fields.get("fill") is not None and name == "x":
                    fields["fill"] = self._zero_point(fields["fill"], dtype_of(value))
        if fields != op.operand_fields():
            self._rewriter.replace(op, self._rewriter.create(type(op), **fields, **op.attributes()))
