"""TensorProto to numpy, with every claim of the message checked before it is used."""

import math

import numpy as np
import onnx

from xcompile.compiler.ir.dtypes import DTYPES, bits_of, is_float, is_unsigned
from xcompile.compiler.support.errors import CompileError
from xcompile.frontends.onnx.external import ExternalData

MAX_TENSOR_BYTES = 2**46
"""No address space holds more; larger shapes are hostile or broken."""

_DENSE_FLOOR = 2**20
_DENSE_FACTOR = 256

_T = onnx.TensorProto
_NAMES: dict[int, str] = {
    _T.FLOAT: "f32",
    _T.DOUBLE: "f64",
    _T.FLOAT16: "f16",
    _T.BFLOAT16: "bf16",
    _T.INT8: "i8",
    _T.INT16: "i16",
    _T.INT32: "i32",
    _T.INT64: "i64",
    _T.UINT8: "ui8",
    _T.UINT16: "ui16",
    _T.UINT32: "ui32",
    _T.UINT64: "ui64",
    _T.BOOL: "i1",
    _T.INT2: "i2",
    _T.UINT2: "ui2",
    _T.INT4: "i4",
    _T.UINT4: "ui4",
    _T.FLOAT8E4M3FN: "f8E4M3FN",
    _T.FLOAT8E4M3FNUZ: "f8E4M3FNUZ",
    _T.FLOAT8E5M2: "f8E5M2",
    _T.FLOAT8E5M2FNUZ: "f8E5M2FNUZ",
    _T.FLOAT8E8M0: "f8E8M0FNU",
    _T.FLOAT4E2M1: "f4E2M1FN",
    _T.COMPLEX64: "complex<f32>",
    _T.COMPLEX128: "complex<f64>",
}

_CODES = {name: code for code, name in _NAMES.items()}

_FIELDS = {
    "f32": "float_data",
    "complex<f32>": "float_data",
    "f64": "double_data",
    "complex<f64>": "double_data",
    "i64": "int64_data",
    "ui32": "uint64_data",
    "ui64": "uint64_data",
}
_TYPED_FIELDS = (
    "float_data",
    "int32_data",
    "int64_data",
    "uint64_data",
    "double_data",
    "string_data",
)


def dtype_name(code: int, what: str) -> str:
    """The element type of an ONNX data type code.

    Raises:
        CompileError: XC1012 for types the compiler does not have, `what` naming the value.
    """
    if code in _NAMES:
        return _NAMES[code]
    names = {v: k for k, v in _T.DataType.items()}
    raise CompileError(
        "XC1012", f"{what} has the data type {names.get(code, code)}, which is not supported"
    )


def onnx_dtype(name: str) -> int:
    """The ONNX data type code of an element type."""
    return _CODES[name]


def element_count(dims: "list[int]", dtype: str, what: str) -> int:
    """The number of elements of a shape.

    Raises:
        CompileError: XC2008 when a size is negative or the bytes exceed `MAX_TENSOR_BYTES`.
    """
    if any(d < 0 for d in dims):
        raise CompileError("XC2008", f"{what} has a negative size: {list(dims)[:16]}")
    count = math.prod(dims)
    largest = math.prod(d for d in dims if d)  # a zero does not excuse absurd neighbours
    if largest * bits_of(dtype) // 8 > MAX_TENSOR_BYTES:
        raise CompileError(
            "XC2008", f"{what} has the shape {list(dims)[:16]}, which no memory holds"
        )
    return count


def to_array(tensor: onnx.TensorProto, external: ExternalData, what: str) -> np.ndarray:
    """The tensor's elements, read only where they are mapped.

    Raises:
        CompileError: XC1004 external data, XC1005 bytes that do not fit, XC1012 type, XC2008 shape.
    """
    dtype = dtype_name(tensor.data_type, what)
    dims = list(tensor.dims)
    count = element_count(dims, dtype, what)
    if len(dims) > 32:
        raise CompileError("XC1013", f"{what} has {len(dims)} dimensions; 32 are supported")
    if tensor.HasField("segment"):
        raise CompileError("XC1005", f"{what} is stored in segments, which is not supported")
    typed = [name for name in _TYPED_FIELDS if len(getattr(tensor, name))]
    is_external = tensor.data_location == _T.EXTERNAL
    if (is_external or tensor.HasField("raw_data")) + len(typed) > 1:
        raise CompileError("XC1005", f"{what} holds its elements in more than one field")
    if is_external:
        array = _from_bytes(external.read(tensor, _stored_bytes(dtype, count)), dtype, count, what)
    elif tensor.HasField("raw_data"):
        array = _from_bytes(memoryview(tensor.raw_data), dtype, count, what)
    else:
        array = _from_field(tensor, dtype, count, typed, what)
    return array.reshape(dims)


def _stored_bytes(dtype: str, count: int) -> int:
    return -(-count * bits_of(dtype) // 8) if _is_packed(dtype) else count * DTYPES[dtype].itemsize


def _is_packed(dtype: str) -> bool:
    """Whether a byte of the file holds several elements."""
    return bits_of(dtype) in (2, 4)


def _from_bytes(data: memoryview, dtype: str, count: int, what: str) -> np.ndarray:
    expected = _stored_bytes(dtype, count)
    if len(data) != expected:
        raise CompileError(
            "XC1005", f"{what} has {len(data)} bytes, its type and shape need {expected}"
        )
    if _is_packed(dtype):
        return _unpack(np.frombuffer(data, np.uint8), dtype, count)
    if dtype == "i1":
        return np.frombuffer(data, np.uint8) != 0
    little = DTYPES[dtype]
    if little.byteorder not in "|" and little.kind != "V":
        little = little.newbyteorder("<")
    array = np.frombuffer(data, little)
    return array if array.flags.aligned else array.copy()


def _unpack(packed: np.ndarray, dtype: str, count: int) -> np.ndarray:
    """Elements of 4 or 2 bits, the first in the lowest bits of a byte."""
    bits = bits_of(dtype)
    parts = [packed >> shift & (1 << bits) - 1 for shift in range(0, 8, bits)]
    elements = np.stack(parts, axis=-1).reshape(-1)[:count]
    if is_float(dtype):
        return elements.view(DTYPES[dtype])
    if is_unsigned(dtype):
        return elements.astype(DTYPES[dtype])
    sign = 1 << bits - 1
    return ((elements ^ sign).astype(np.int8) - sign).astype(DTYPES[dtype])


def _from_field(
    tensor: onnx.TensorProto, dtype: str, count: int, typed: list[str], what: str
) -> np.ndarray:
    field = _FIELDS.get(dtype, "int32_data")
    if typed and typed != [field]:
        raise CompileError(
            "XC1005", f"{what} has elements in {typed[0]}; its type is kept in {field}"
        )
    values = getattr(tensor, field)
    per_element = 2 if dtype.startswith("complex") else 1
    expected = _stored_bytes(dtype, count) if _is_packed(dtype) else count * per_element
    if len(values) != expected:
        raise CompileError(
            "XC1005", f"{what} has {len(values)} elements stored, its shape needs {expected}"
        )
    target = DTYPES[dtype]
    if field in ("float_data", "double_data"):
        return np.array(values, target.type(0).real.dtype).view(target)
    if field == "int64_data":
        return np.array(values, np.int64)
    wide = np.array(values, np.uint64 if field == "uint64_data" else np.int64)
    return _narrow(wide, dtype, count, what)


def _narrow(wide: np.ndarray, dtype: str, count: int, what: str) -> np.ndarray:
    """Small types from the integers that a typed field holds: values, or bits for the float types."""
    if dtype == "ui64":
        return wide
    if dtype == "i1":
        return wide != 0
    target = DTYPES[dtype]
    integer = dtype.startswith(("i", "ui"))
    storage = (
        np.dtype(np.uint8)
        if _is_packed(dtype)
        else target
        if integer
        else np.dtype(f"u{target.itemsize}")
    )
    limits = np.iinfo(storage)
    if wide.size and (int(wide.min()) < limits.min or int(wide.max()) > limits.max):
        raise CompileError("XC1005", f"{what} has elements outside the range of {dtype}")
    narrow = wide.astype(storage)
    if _is_packed(dtype):
        return _unpack(narrow, dtype, count)
    return narrow if integer else narrow.view(target)


def densify(sparse: onnx.SparseTensorProto, external: ExternalData, what: str) -> np.ndarray:
    """The dense form of a sparse tensor, when that is not out of proportion to what is stored.

    Raises:
        CompileError: as `to_array`; XC1013 when the dense form is over 256 times the stored bytes
            and over 1 MiB.
    """
    values = to_array(sparse.values, external, what)
    indices = to_array(sparse.indices, external, f"the indices of {what}")
    dims = list(sparse.dims)
    count = element_count(dims, _NAMES[sparse.values.data_type], what)
    if count * values.itemsize > max(_DENSE_FLOOR, _DENSE_FACTOR * values.nbytes):
        raise CompileError(
            "XC1013", f"{what} is sparse and its dense form {dims} is out of proportion"
        )
    if values.ndim != 1 or indices.dtype != np.int64:
        raise CompileError("XC1005", f"{what} is not a well-formed sparse tensor")
    if indices.ndim == 2 and indices.shape == (len(values), len(dims)):
        if np.any(indices < 0) or np.any(indices >= np.array(dims, np.int64)):
            raise CompileError("XC1005", f"{what} has an index outside its shape")
        flat = np.zeros(len(values), np.int64)
        for axis, size in enumerate(dims):
            flat = flat * size + indices[:, axis]
    elif indices.shape == (len(values),):
        flat = indices
    else:
        raise CompileError("XC1005", f"{what} has indices of shape {list(indices.shape)}")
    if flat.size and (flat.min() < 0 or flat.max() >= count):
        raise CompileError("XC1005", f"{what} has an index outside its shape")
    dense = np.zeros(count, values.dtype)
    dense[flat] = values
    return dense.reshape(dims)
