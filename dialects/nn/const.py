"""Constants: small ones and splats in the IR, all others by digest in the module's weight store."""

import re
from collections.abc import Sequence
from typing import Self

import numpy as np

from xcompile.compiler.ir.dtypes import name_of
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.op import Result, Value
from xcompile.compiler.ir.weights import WeightStore, weight_attribute, weight_key
from xcompile.dialects.nn.base import NnOp, Shape, Sizes, dtype_of, nn, numpy_dtype, tensor_type

INLINE_LIMIT = 64
"""Up to so many elements stand in the IR itself."""


@nn.op("const")
class Const(NnOp):
    """A constant tensor. ONNX Constant and initializers.

    `value` is a builtin dense attribute, or `#nn.weight<"digest">`, whose shape and dtype are the result type's.
    """

    value: ir.Attribute
    y: Result

    @classmethod
    def from_array(
        cls, array: np.ndarray, weights: WeightStore, *, loc: ir.Location | None = None
    ) -> Self:
        """The constant `array` at the current insertion point; arrays that do not go inline enter `weights`."""
        array = np.asarray(array)
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
        result = tensor_type(array.shape, name_of(array.dtype))
        value = _inline(array, result) or weight_attribute(weights.add(array))
        return cls.build({"value": value}, [result], loc=loc)

    def array(self, weights: WeightStore) -> np.ndarray:
        """The constant as a read-only array; a splat has strides of 0.

        Raises:
            KeyError: `weights` does not hold the constant.
        """
        key = weight_key(self.value)
        return dense_array(self.value, numpy_dtype(self.y)) if key is None else weights.get(key)

    @property
    def splat(self) -> bool:
        """Whether all elements are known to be the same bytes, without a look at the weights."""
        return isinstance(self.value, ir.DenseElementsAttr) and self.value.is_splat

    def scalar(self) -> np.generic:
        """The one value of all elements of a splat."""
        return dense_array(self.value, numpy_dtype(self.y)).reshape(-1)[0]

    @property
    def dims(self) -> tuple[int, ...]:
        """The static shape."""
        return tuple(ir.RankedTensorType(self.y.type).shape)

    def verify(self) -> None:
        if weight_key(self.value) is not None:
            return
        if not isinstance(self.value, ir.DenseElementsAttr) or self.value.type != self.y.type:
            raise self.error(
                "XC2001", "a constant's value must be dense elements of the result type or a weight"
            )

    def dtypes(self) -> Sequence[str]:
        return [dtype_of(self.y)]

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        return [self.dims]

    def content(self, sizes: Sizes) -> Shape | None:
        if 0 in self.dims:
            return ()  # it is a weight whatever its size: MLIR has no text for it
        if weight_key(self.value) is not None or numpy_dtype(self.y).kind == "c":
            return None
        values = dense_array(self.value, numpy_dtype(self.y)).reshape(-1).astype(object)
        if not all(float(v).is_integer() for v in values):
            return None
        return tuple(int(v) for v in values)


def dense_array(value: ir.Attribute, dtype: np.dtype) -> np.ndarray:
    """The elements of a dense attribute as a read-only array; a splat has strides of 0."""
    assert isinstance(value, ir.DenseElementsAttr)
    array = np.asarray(value) if dtype.isbuiltin == 1 else _read_text(str(value), dtype)
    shape = tuple(ir.RankedTensorType(value.type).shape)
    array = (
        np.broadcast_to(array.reshape(-1)[:1].reshape(()), shape)
        if value.is_splat
        else array.reshape(shape)
    )
    array.flags.writeable = False
    return array


def dense_attribute(array: np.ndarray) -> ir.Attribute:
    """A dense attribute of the elements; of one element when all are the same."""
    inline = _inline(array, tensor_type(array.shape, name_of(array.dtype)), limit=array.size)
    if inline is None:
        raise ValueError(f"no dense attribute holds {array.dtype}")
    return inline


def _read_text(text: str, dtype: np.dtype) -> np.ndarray:
    """The elements of a dense attribute's text: for types whose elements the bindings do not give."""
    words = re.findall(r"[^\[\],<>\s]+", text[len("dense") : text.rindex(" : ")])
    bits = np.dtype(f"u{dtype.itemsize}")
    elements = [
        np.array(int(word, 16), bits).view(dtype)
        if word.startswith("0x")
        else np.array(float(word)).astype(dtype)
        for word in words
    ]
    return np.array(elements, dtype)


def _inline(array: np.ndarray, result: ir.Type, limit: int = INLINE_LIMIT) -> ir.Attribute | None:
    """The dense attribute of a splat or of few elements; None when the array is a weight."""
    if array.dtype.kind == "c":  # the bindings cannot read complex elements back
        return None
    data = np.ascontiguousarray(array).reshape(-1)
    if array.size > 1 and _is_uniform(data.view(np.uint8).reshape(array.size, -1)):
        data = data[:1]
    if data.size > limit:
        return None
    text = f'"0x{data.tobytes().hex()}"' if data.size else ""
    return ir.Attribute.parse(f"dense<{text}> : {result}")


def _is_uniform(rows: np.ndarray) -> bool:
    """Whether all rows are equal; most arrays are told by their first few."""
    return bool((rows[:16] == rows[0]).all() and (rows == rows[0]).all())


def const_of(value: Value) -> Const | None:
    """The constant that `value` is, or None."""
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.operation.name != Const.NAME:
        return None
    return Const(owner.operation)
