"""Products of dequantized integers: what quantization after training puts in the place of a float product."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

import numpy as np

from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Value, view
from xcompile.compiler.ir.rewrite import users
from xcompile.compiler.quantize.plan import Product
from xcompile.compiler.quantize.rounding import other_side, unpacked_flips
from xcompile.compiler.quantize.table import Observed
from xcompile.compiler.quantize.weights import integer_bias, mean_error, quantize_weights
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.binary import Add
from xcompile.dialects.nn.const import Const, const_of
from xcompile.dialects.nn.conv import Conv, ConvTranspose
from xcompile.dialects.nn.matmul import MatMul
from xcompile.dialects.nn.quantize import Dequantize, Quantize


def correctable_addend(
    matmul: MatMul, product: Product, seen: Observed
) -> tuple[Add, int, Const] | None:
    """What can make up for the mean error of a matrix product's weights: the constant that is added behind it.

    Returns:
        The addition, which of its operands the constant is, and the constant; None where there is none.
    """
    readers = users(matmul.y)
    add = view(readers[0]) if len(readers) == 1 else None
    if not isinstance(add, Add) or len(seen.means) != product.weights.shape[1]:
        return None
    place = 1 if add.a == matmul.y else 0
    given = const_of(add.operands[place])
    if given is None or given.dims != (product.weights.shape[0],):
        return None
    return add, place, given


@dataclass
class QuantizedWeights:
    """Writes quantized tensors and products, at the insertion point and location of the context.

    Attributes:
        module: that gets them.
        refine: fit the scales of weights by least squares.
        correct: let biases make up for the mean error of the weights.
        rounded: of the calibration table; for refined scales.
        made: the operations that were written.
    """

    module: Module
    refine: bool = True
    correct: bool = True
    rounded: Mapping[str, str] = field(default_factory=dict[str, str])
    made: list[ir.Operation] = field(default_factory=list[ir.Operation])

    def constant(self, array: np.ndarray) -> Value:
        """A constant."""
        made = Const.from_array(array, self.module.weights)
        self.made.append(made.operation)
        return made.y

    def tensor(self, value: Value, seen: Observed) -> tuple[Quantize, Dequantize]:
        """A float tensor in 8 bits, and what it is dequantized to."""
        scale, zero = seen.range.parameters()
        scale_value = self.constant(np.array(scale))
        zero_value = self.constant(np.array(zero, np.uint8))
        quantized = Quantize.create(x=value, scale=scale_value, zero_point=zero_value, to="ui8")
        back = Dequantize.create(x=quantized.y, scale=scale_value, zero_point=zero_value, to="f32")
        self.made += [quantized.operation, back.operation]
        return quantized, back

    def product(
        self,
        product: Product,
        seen: Observed,
        integers: np.ndarray,
        scales: np.ndarray,
        x: Value | None = None,
    ) -> Conv | MatMul | ConvTranspose:
        """The product of its operands as they are now, but of integer weights.

        Args:
            product: a float one.
            seen: of its input.
            integers: int8, rows of output channels.
            scales: float32, one of each row.
            x: another input.
        """
        op = product.op
        fields = {**op.operand_fields(), **op.attributes()}
        if x is not None:
            fields["a" if isinstance(op, MatMul) else "x"] = x
        if isinstance(op, Conv):
            fields["bias"] = self._bias(op, product, seen, integers, scales)
            fields["w"] = self._dequantized(integers, scales, 0)
        elif isinstance(op, ConvTranspose):
            fields["bias"] = self._bias(op, product, seen, integers, scales)
            fields["w"] = self._dequantized(integers.swapaxes(0, 1), scales, 1)
        elif op.transpose_b:
            fields["b"] = self._dequantized(integers, scales, 0)
        else:
            fields["b"] = self._dequantized(integers.T, scales, 1)
        made = type(op).create(**fields)
        self.made.append(made.operation)
        return made

    def weights(self, product: Product) -> tuple[np.ndarray, np.ndarray]:
        """The integers and scales of a product's weights.

        Raises:
            CompileError: XC6009, the table rounds weights of another number.
        """
        integers, scales = quantize_weights(product.weights, refine=self.refine)
        packed = self.rounded.get(product.name) if self.refine else None
        if packed is None:
            return integers, scales
        try:
            flips = unpacked_flips(packed, integers.size).reshape(len(integers), -1)
        except ValueError as error:
            raise CompileError(
                "XC6009", f"the table cannot round the weights of '{product.name}': {error}"
            ) from error
        rows, nearest = (array.reshape(len(integers), -1) for array in (product.weights, integers))
        chosen = np.where(flips, other_side(rows, nearest, scales), nearest)
        return chosen.reshape(integers.shape), scales

    def _dequantized(self, integers: np.ndarray, scales: np.ndarray, axis: int) -> Value:
        made = Dequantize.create(
            x=self.constant(np.ascontiguousarray(integers)),
            scale=self.constant(scales),
            zero_point=None,
            axis=axis,
            to="f32",
        )
        self.made.append(made.operation)
        return made.y

    def _bias(
        self,
        conv: Conv | ConvTranspose,
        product: Product,
        seen: Observed,
        integers: np.ndarray,
        scales: np.ndarray,
    ) -> Value | None:
        """The bias of a convolution, corrected, and of int32 where it fits; one that is no constant stays as it is."""
        given = None if conv.bias is None else const_of(conv.bias)
        if conv.bias is not None and given is None:
            return conv.bias
        channels = product.weights.shape[0]
        bias = np.zeros(channels)
        if given is not None:
            bias = given.array(self.module.weights).astype(np.float64)
        if self.correct and len(seen.means) == product.weights.shape[1] * conv.groups:
            means = np.array(seen.means)
            error = mean_error(product.weights, integers, scales, means, conv.groups)
            # an output of a transposed convolution has the taps of one phase
            phases = prod(conv.strides) if isinstance(conv, ConvTranspose) else 1
            bias = bias - error / phases
        if not np.isfinite(bias).all() or (given is None and not bias.any()):
            return conv.bias
        sums = seen.range.parameters()[0] * scales
        units = integer_bias(bias, sums, product.weights.size // channels)
        if units is None:
            return self.constant(bias.astype(np.float32))
        return self._dequantized(units, sums, 0)
