"""nn-quantize-dynamically: products of what a run quantizes over its own range, and of weights of 8 bits."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from xcompile.compiler.ir.location import describe
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Op, Value
from xcompile.compiler.ir.passes import Pass, PassContext
from xcompile.compiler.ir.rewrite import RewriteStats
from xcompile.compiler.quantize.names import op_names, tensor_names
from xcompile.compiler.quantize.plan import INT8, KEPT_IN_FLOAT, plan_quantization
from xcompile.compiler.quantize.weights import quantize_weights
from xcompile.compiler.support.precision_map import FLOAT, PrecisionMap
from xcompile.dialects.nn.base import NnOp, rank_of
from xcompile.dialects.nn.composer import Composer
from xcompile.dialects.nn.const import Const
from xcompile.dialects.nn.conv import Conv, ConvTranspose
from xcompile.dialects.nn.dynamic import dynamically_quantized
from xcompile.dialects.nn.integer import ConvInteger, MatMulInteger
from xcompile.dialects.nn.matmul import MatMul
from xcompile.dialects.nn.recurrent import Recurrent
from xcompile.passes.nn.recurrent_codes import with_codes

DYNAMIC = "dynamic"
"""The precision."""

_QUANTIZED = "QuantizedDynamically"


@dataclass(frozen=True)
class QuantizeDynamically(Pass):
    """Make products whose precision is "dynamic" integer: inputs as uint8 over their range in this run, int8 weights.

    A weight has a signed scale for each output channel. An input that several products read is quantized once. The
    products with the inputs of recurrent layers are matrix products by now; states are quantized in each step, a
    sequence by itself. Transposed convolutions stay in float32. Options: `refine` fits scales of weights by least
    squares.
    """

    NAME: ClassVar[str] = "nn-quantize-dynamically"
    CHANGES_VALUES: ClassVar[bool] = True

    refine: bool = True

    def run(self, module: Module, context: PassContext) -> None:
        with module.context, ir.Location.unknown():
            asked = context.precisions.asking(DYNAMIC)
            stats = _Run(module, asked, refine=self.refine).run()
        context.record(self.NAME, stats)


def _as_int8(precisions: PrecisionMap) -> PrecisionMap:
    """A map that has int8 where the other has "dynamic", for the plan that is the same for both."""

    def same(precision: str) -> str:
        return INT8.default if precision == DYNAMIC else FLOAT

    rules = tuple((glob, same(precision)) for glob, precision in precisions.rules)
    return PrecisionMap(same(precisions.default), rules)


class _Here(Composer):
    """Makes ops at the current insertion point."""

    def __init__(self, module: Module, stats: RewriteStats) -> None:
        self._module, self._stats = module, stats

    def make(self, cls: type[NnOp], **fields: Any) -> Value:
        made = cls.create(**fields)
        self._stats.changed.append(made.operation)
        return made.results[0]

    def constant(self, array: np.ndarray) -> Value:
        made = Const.from_array(np.asarray(array, order="C"), self._module.weights)
        self._stats.changed.append(made.operation)
        return made.y


class _Run:
    """One run of the pass."""

    def __init__(self, module: Module, precisions: PrecisionMap, *, refine: bool) -> None:
        self._module, self._precisions, self._refine = module, precisions, refine
        self._names = tensor_names(module)
        self._plan = plan_quantization(module, _as_int8(precisions))
        self._stats = RewriteStats()
        self._compose = _Here(module, self._stats)
        self._inputs: dict[Value, tuple[Value, Value, Value]] = {}

    def run(self) -> RewriteStats:
        for op, reason in self._plan.floats.items():
            if (
                isinstance(op, Recurrent)
                and self._precisions.of(op_names(op, self._names)) == DYNAMIC
            ):
                reason = self._quantize_layer(op)
            self._keep(op, self._reason(op, reason))
        for product in self._plan.products:
            op = product.op
            if isinstance(op, ConvTranspose):
                self._keep(op, "transposed convolutions are not quantized dynamically")
                continue
            with ir.InsertionPoint(op.operation), op.location:
                made = self._quantized(op, product.weights)
            op.y.replace_all_uses_with(made)
            self._module.graveyard.bury(op.operation, QuantizeDynamically.NAME)
        gone = self._module.graveyard.why
        self._stats.changed = [o for o in self._stats.changed if gone(o) is None]
        return self._stats

    def _reason(self, op: Op, planned: str) -> str:
        """Why an op that the plan leaves out is in float; empty where it has the model's other precision."""
        names = op_names(op, self._names)
        precision = self._precisions.of(names)
        if precision == DYNAMIC or precision == FLOAT == self._precisions.default:
            return planned
        return self._precisions.reason(names)

    def _keep(self, op: Op, reason: str) -> None:
        if reason:
            self._stats.missed.append((KEPT_IN_FLOAT, describe(op.location) or "?", reason))

    def _quantized(self, op: Conv | MatMul, weights: np.ndarray) -> Value:
        """The product in float32, from integer sums and the product of the scales.

        Its input is the op's own, and not that of the plan, which may be a product that has been replaced.
        """
        c, given = self._compose, op.a if isinstance(op, MatMul) else op.x
        if given not in self._inputs:
            self._inputs[given] = dynamically_quantized(c, given)
        x, scale, zero = self._inputs[given]
        codes, steps = quantize_weights(weights, refine=self._refine)
        if isinstance(op, Conv):
            sums = c.make(
                ConvInteger, x=x, w=c.constant(codes), x_zero_point=zero, **op.attributes()
            )
            behind = rank_of(op.w) - 2
            y = self._scaled(op, sums, scale, steps.reshape(-1, *[1] * behind))
            return y if op.bias is None else c.add(y, c.per_channel(op.bias, behind + 2))
        codes = codes if op.transpose_b else codes.T
        fields = {"a": x, "b": c.constant(codes), "a_zero_point": zero}
        return self._scaled(op, c.make(MatMulInteger, **fields, **op.attributes()), scale, steps)

    def _quantize_layer(self, op: Recurrent) -> str:
        """Make products with the states of a recurrent layer integer, or say why not."""
        with ir.InsertionPoint(op.operation), op.location:
            made = with_codes(op, self._module, refine=self._refine, quantize_state=True)
        if isinstance(made, str):
            return made
        self._stats.changed += [each.operation for each in made]
        for old, new in zip(op.results, made[-1].results, strict=True):
            old.replace_all_uses_with(new)
        self._tell(op)
        self._module.graveyard.bury(op.operation, QuantizeDynamically.NAME)
        return ""

    def _tell(self, op: Op) -> None:
        self._stats.fired[_QUANTIZED] += 1
        self._stats.fired_at.append((_QUANTIZED, describe(op.location) or "?"))

    def _scaled(self, op: Op, sums: Value, scale: Value, steps: np.ndarray) -> Value:
        c = self._compose
        self._tell(op)
        return c.mul(c.cast(sums, "f32"), c.mul(scale, c.constant(steps)))
