"""nn-fold-constants: compute what only depends on constants, as long as the model does not grow by it."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from xcompile.compiler.ir.dtypes import bits_of
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.op import Value
from xcompile.compiler.ir.passes import PassContext, PatternPass
from xcompile.compiler.ir.rewrite import Pattern, Rewriter, has_one_use, no_match
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.base import NnOp, dtype_of, numpy_dtype
from xcompile.dialects.nn.const import Const, const_of
from xcompile.dialects.nn.quantize import Dequantize
from xcompile.dialects.nn.shapes import LocalSizes
from xcompile.passes.common.constants import constant

ALWAYS_BYTES = 64 * 1024
"""Results up to this size are always worth it."""

MOST_WORK = 1 << 28
"""Multiplications, or elements read and written, that folding one op may take."""


class KnownContent(Pattern[NnOp]):
    """Write shape arithmetic whose result is known as a constant.

        %0 = "nn.shape"(%x) : (tensor<2x3xf32>) -> tensor<2xi64>
    ->
        %0 = "nn.const"() {value = dense<[2, 3]>}
    """

    def rewrite(self, op: NnOp, rewriter: Rewriter) -> None:
        if isinstance(op, Const):
            no_match("")
        if len(op.results) != 1 or not op.operands:
            no_match("it is no arithmetic on sizes")
        result = op.results[0]
        if not ir.ShapedType(result.type).has_static_shape or numpy_dtype(result).kind not in "iub":
            no_match("it is no arithmetic on sizes")
        content = LocalSizes().content(result)
        if content is None or not all(isinstance(d, int) for d in content):
            no_match("its elements are not known")
        array = np.array(content, numpy_dtype(result)).reshape(
            ir.RankedTensorType(result.type).shape
        )
        rewriter.replace(op, constant(rewriter, array))


class ConstantOperands(Pattern[NnOp]):
    """Evaluate an op whose operands are constants by its reference.

        %2 = "nn.add"(%c0, %c1)
    ->
        %2 = "nn.const"() {value = …}
    """

    def __init__(self, growth: float) -> None:
        self._growth = growth

    def rewrite(self, op: NnOp, rewriter: Rewriter) -> None:
        if isinstance(op, Const):
            no_match("")
        if not op.PURE or op.operation.regions or not op.operands:
            no_match("there is nothing to evaluate")
        if isinstance(op, Dequantize):
            no_match("it says what is quantized")
        if any(const_of(v) is None for v in op.operands):
            no_match("an operand is not a constant")
        _check_budget(op, self._growth)
        if _work(op) > MOST_WORK:
            no_match("evaluating it would take too long")
        arrays = _evaluate(op, rewriter)
        rewriter.replace(op, [constant(rewriter, array) for array in arrays])


def _evaluate(op: NnOp, rewriter: Rewriter) -> list[np.ndarray]:
    def read(given: Any) -> Any:
        if given is None:
            return None
        if isinstance(given, list):
            return [read(value) for value in given]  # pyright: ignore[reportUnknownVariableType]
        made = const_of(given)
        assert made is not None
        return made.array(rewriter.weights)

    try:
        with np.errstate(all="ignore"):
            answer = op.reference(*[read(given) for given in op.operand_fields().values()])
    except (ValueError, IndexError, ArithmeticError, MemoryError, CompileError) as error:
        no_match(f"it can't be evaluated: {error}")
    arrays = [np.asarray(a) for a in (answer if isinstance(answer, tuple | list) else [answer])]
    for array, result in zip(arrays, op.results, strict=True):
        assert array.dtype == numpy_dtype(result), (
            f"{op.NAME} gives {array.dtype}, not {result.type}"
        )
    return arrays


def _bytes(value: Value) -> int:
    """The size of a value of static shape; exact integers, so that hostile sizes don't overflow."""
    return math.prod(ir.RankedTensorType(value.type).shape) * bits_of(dtype_of(value)) // 8


def _check_budget(op: NnOp, growth: float) -> None:
    """Fold only while the constants do not grow by more than a factor, or stay small."""
    if not all(ir.ShapedType(result.type).has_static_shape for result in op.results):
        no_match("the size of its result depends on elements")
    made = sum(_bytes(result) for result in op.results)
    removed = sum(_bytes(v) for v in set(op.operands) if has_one_use(v))
    if made > max(ALWAYS_BYTES, growth * removed):
        no_match(f"the result has {made} bytes, more than the {removed} of the constants it saves")


def _work(op: NnOp) -> int:
    """A bound on what evaluating the op takes, for ops that read elements many times."""
    sizes = [math.prod(ir.RankedTensorType(v.type).shape) for v in (*op.operands, *op.results)]
    if op.NAME in ("nn.matmul", "nn.conv", "nn.conv_transpose", "nn.einsum"):
        return max(math.isqrt(sizes[0] * sizes[min(1, len(sizes) - 2)] * sizes[-1]), *sizes)
    if "kernel" in {f.name for f in op.FIELDS}:
        return sizes[-1] * math.prod(getattr(op, "kernel"))  # noqa: B009
    return sum(sizes)


@dataclass(frozen=True)
class FoldConstants(PatternPass):
    """Compute what depends on constants only, and write known shape arithmetic as constants.

    Attributes:
        growth: results over 64 KiB may have so many times the bytes of the constants they replace.
    """

    NAME: ClassVar[str] = "nn-fold-constants"

    growth: float = 1.0

    def patterns(self, context: PassContext) -> list[Pattern[Any]]:
        return [KnownContent(), ConstantOperands(self.growth)]
