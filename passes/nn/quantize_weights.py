"""nn-quantize-weights: constant matrices and embeddings get a few bits; what they meet stays in float32."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from xcompile.compiler.ir.dtypes import DTYPES
from xcompile.compiler.ir.location import describe
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Op, Value, view
from xcompile.compiler.ir.passes import Pass, PassContext
from xcompile.compiler.ir.rewrite import RewriteStats, walk
from xcompile.compiler.quantize.blocks import quantize_blocks
from xcompile.compiler.quantize.names import op_names, tensor_names
from xcompile.compiler.quantize.plan import KEPT_IN_FLOAT
from xcompile.compiler.quantize.weights import fit_float16, quantize_weights, round_weights
from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.support.precision_map import PrecisionMap
from xcompile.dialects.nn.base import dtype_of, rank_of
from xcompile.dialects.nn.binary import Add, Mul
from xcompile.dialects.nn.const import Const, const_of
from xcompile.dialects.nn.conv import Conv, ConvTranspose
from xcompile.dialects.nn.gather import Gather
from xcompile.dialects.nn.matmul import MatMul
from xcompile.dialects.nn.quantize import Dequantize
from xcompile.dialects.nn.recurrent import Recurrent
from xcompile.dialects.nn.reshape import Reshape
from xcompile.passes.nn.recurrent_codes import with_codes

BITS = {"w4": 4, "w8": 8}
"""The precisions of weights, and the bits of an element."""

LEAST_BLOCK, MOST_BLOCK = 16, 256

_SCALES: dict[str, type[np.float32] | type[np.float16]] = {"f32": np.float32, "f16": np.float16}
_LEAST_COLUMNS = 16
"""Rows of tables that are shorter would be half scales."""

_TABLES = ("dynamic",)
"""Precisions of products of other kinds, with embeddings of 8 bits."""

_QUANTIZED = "QuantizedWeights"


@dataclass(frozen=True)
class _Quantized:
    """A matrix of codes: what `nn.dequantize` takes."""

    codes: np.ndarray
    scales: np.ndarray
    zeros: np.ndarray | None
    axis: int
    block: int


@dataclass(frozen=True)
class QuantizeWeights(Pass):
    """Quantize constants of matrix products and embeddings whose precision is "w4" or "w8"; of "dynamic", embeddings.

    Of 8 bits, each output channel has a scale; of 4 bits, each block of neighbours along the sum. Codes are signed, or
    with zero points unsigned. Rows of embeddings and output channels of convolutions have 8 bits and a scale each, at
    either precision, and so have the recurrent weights of layers; there scales multiply the sums. Depthwise
    convolutions, whose weights are few, and transposed ones stay in float32. Options: `bits` makes all of them 4 or 8
    whatever the precisions say; `block` is 16 to 256; `zero_points` for 4 bits; `scale` is f32 or f16, and f32 all the
    same for a constant of which a scale would not be finite and normal in f16; `refine` fits scales by least squares.
    """

    NAME: ClassVar[str] = "nn-quantize-weights"
    CHANGES_VALUES: ClassVar[bool] = True

    bits: int = 0
    block: int = 32
    zero_points: bool = False
    scale: str = "f32"
    refine: bool = True

    def run(self, module: Module, context: PassContext) -> None:
        self._check()
        with module.context, ir.Location.unknown():
            others = _TABLES if not self.bits else ()
            meant = (p for p, b in BITS.items() if self.bits in (0, b))
            asked = context.precisions.asking(*meant, *others)
            stats = _Run(self, module, asked).run()
        context.record(self.NAME, stats)

    def _check(self) -> None:
        """Raise unless the options have a meaning."""
        if self.bits not in (0, *BITS.values()):
            raise CompileError("XC3003", f"weights have 4 or 8 bits, not {self.bits}")
        if not LEAST_BLOCK <= self.block <= MOST_BLOCK or self.block & (self.block - 1):
            raise CompileError(
                "XC3003", f"a block of {self.block} is no power of two from 16 to 256"
            )
        if self.scale not in _SCALES:
            raise CompileError("XC3003", f"scales are f32 or f16, not {self.scale}")


class _Run:
    """One run of the pass."""

    def __init__(self, options: QuantizeWeights, module: Module, precisions: PrecisionMap) -> None:
        self._options, self._module, self._precisions = options, module, precisions
        self._names = tensor_names(module)
        self._stats = RewriteStats()

    def run(self) -> RewriteStats:
        for operation in list(walk(self._module)):
            op = view(operation)
            if isinstance(op, MatMul | Gather | Conv | ConvTranspose | Recurrent):
                self._visit(op)
        return self._stats

    def _visit(self, op: Op) -> None:
        names = op_names(op, self._names)
        precision = self._precisions.of(names)
        bits = self._options.bits or BITS.get(precision, 0)
        if precision in _TABLES:
            if isinstance(op, Gather):
                self._quantize_table(op)
        elif precision not in BITS:
            self._keep(op, self._precisions.reason(names))
        elif isinstance(op, MatMul):
            self._quantize_matrix(op, bits)
        elif isinstance(op, Gather):
            self._quantize_table(op)
        elif isinstance(op, Conv):
            self._quantize_filters(op)
        elif isinstance(op, Recurrent):
            self._quantize_layer(op)
        else:
            self._keep(op, "transposed convolutions keep float32 weights")

    def _keep(self, op: Op, reason: str) -> None:
        if reason and not isinstance(op, Gather):
            self._stats.missed.append((KEPT_IN_FLOAT, describe(op.location) or "?", reason))

    def _quantize_matrix(self, op: MatMul, bits: int) -> None:
        weights = self._weights(op.b)
        if weights is None:
            self._keep(op, "its weights are no finite float32 matrix that is known")
            return
        if op.transpose_a or rank_of(op.a) < 2:
            self._keep(op, "its input is a vector or read transposed")
            return
        rows = weights if op.transpose_b else weights.T
        with ir.InsertionPoint(op.operation), op.location:
            made = self._channels(rows) if bits == 8 else self._blocks(rows)
            if not op.transpose_b:
                made = self._turned(made)
            op.operation.operands[1] = self._dequantized(made)
        self._tell(op)

    def _quantize_table(self, op: Gather) -> None:
        table = self._weights(op.x)
        if table is None or op.axis % 2 or table.shape[1] < _LEAST_COLUMNS:
            return
        with ir.InsertionPoint(op.operation), op.location:
            op.operation.operands[0] = self._dequantized(self._channels(table))
        self._tell(op)

    def _quantize_filters(self, op: Conv) -> None:
        """Codes of 8 bits in the place of a convolution's weights, and behind it scales and bias."""
        known = const_of(op.w)
        filters = None if known is None else known.array(self._module.weights)
        if (
            filters is None
            or dtype_of(op.w) != "f32"
            or not filters.size
            or not np.isfinite(filters).all()
        ):
            self._keep(op, "its weights are not finite float32 numbers that are known")
            return
        if filters.shape[1] == 1 and op.groups > 1:
            self._keep(op, "the weights of a depthwise convolution are few")
            return
        quantized = self._channels(filters.reshape(len(filters), -1))
        column = (-1, *[1] * (filters.ndim - 2))
        with ir.InsertionPoint(op.operation), op.location:
            fields: dict[str, Any] = {**op.operand_fields(), **op.attributes(), "bias": None}
            fields["w"] = self._constant(quantized.codes.reshape(filters.shape))
            scales = self._constant(quantized.scales.astype(np.float32).reshape(column))
            sums = Conv.create(**fields)
            made: list[Op] = [sums, Mul.create(a=sums.y, b=scales)]
            if op.bias is not None:
                shape = self._constant(np.array(column, np.int64))
                bias = Reshape.create(x=op.bias, shape=shape)
                made += [bias, Add.create(a=made[-1].results[0], b=bias.y)]
        op.y.replace_all_uses_with(made[-1].results[0])
        self._stats.changed += [each.operation for each in made]
        self._tell(made[-1])
        self._module.graveyard.bury(op.operation, QuantizeWeights.NAME)

    def _quantize_layer(self, op: Recurrent) -> None:
        """Codes of 8 bits in the place of a recurrent layer's r, and their scales."""
        with ir.InsertionPoint(op.operation), op.location:
            made = with_codes(op, self._module, refine=self._options.refine, quantize_state=False)
        if isinstance(made, str):
            self._keep(op, made)
            return
        self._stats.changed += [each.operation for each in made]
        for old, new in zip(op.results, made[-1].results, strict=True):
            old.replace_all_uses_with(new)
        self._tell(made[-1])
        self._module.graveyard.bury(op.operation, QuantizeWeights.NAME)

    def _weights(self, value: Value) -> np.ndarray | None:
        """The elements of a constant that can be quantized: a float32 matrix without NaN and infinities."""
        made = const_of(value)
        if made is None or dtype_of(value) != "f32" or rank_of(value) != 2 or 0 in made.dims:
            return None
        array = made.array(self._module.weights)
        return array if np.isfinite(array).all() else None

    def _channels(self, rows: np.ndarray) -> _Quantized:
        """Rows of 8 bits with a scale each."""
        codes, scales = quantize_weights(rows, refine=self._options.refine)
        if self._options.scale == "f16" and fit_float16(scales):
            scales = scales.astype(np.float16)
            codes = round_weights(rows, scales.astype(np.float32)).astype(np.int8)
        return _Quantized(codes, scales, None, 0, 0)

    def _blocks(self, rows: np.ndarray) -> _Quantized:
        """Rows of 4 bits with a scale for each block."""
        o = self._options
        made = quantize_blocks(
            rows,
            4,
            o.block,
            symmetric=not o.zero_points,
            refine=o.refine,
            scale=_SCALES[o.scale],
        )
        kind = DTYPES["ui4" if o.zero_points else "i4"]
        zeros = None if made.zeros is None else made.zeros.astype(np.int8).astype(kind)
        return _Quantized(made.codes.astype(np.int8).astype(kind), made.scales, zeros, 1, o.block)

    @staticmethod
    def _turned(made: _Quantized) -> _Quantized:
        """The transposed matrix."""
        zeros = None if made.zeros is None else made.zeros.T
        scales = made.scales.T
        return _Quantized(made.codes.T, scales, zeros, 1 - made.axis, made.block)

    def _dequantized(self, made: _Quantized) -> Value:
        op = Dequantize.create(
            x=self._constant(made.codes),
            scale=self._constant(made.scales),
            zero_point=None if made.zeros is None else self._constant(made.zeros),
            axis=made.axis,
            block=made.block,
            to="f32",
        )
        self._stats.changed.append(op.operation)
        return op.y

    def _constant(self, array: np.ndarray) -> Value:
        made = Const.from_array(np.asarray(array, order="C"), self._module.weights)
        self._stats.changed.append(made.operation)
        return made.y

    def _tell(self, op: Op) -> None:
        self._stats.fired[_QUANTIZED] += 1
        self._stats.fired_at.append((_QUANTIZED, describe(op.location) or "?"))
        self._stats.changed.append(op.operation)
