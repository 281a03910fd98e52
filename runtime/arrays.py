"""Arrays of the caller as buffers of a model: what is taken as it is, what is copied, what is refused."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from xcompile.runtime.abi import DTYPE_CODES, TensorSpec
from xcompile.runtime.errors import RuntimeModelError, shorten

AnyArray = NDArray[Any]
Shape = tuple[int, ...]

READABLE: Final = 0x101
"""numpy's flags of an array that a model can read in place: C-contiguous and aligned."""
WRITABLE: Final = 0x501
"""The same, and writable."""

_addressof: Final = ctypes.addressof
_from_buffer: Final = cast("Callable[[Any], ctypes.c_char]", ctypes.c_char.from_buffer)
_MAX_TENSOR_BYTES = 1 << 46
_CPU_DEVICES = (1, 3)  # DLPack: kDLCPU, and kDLCUDAHost, which is pinned memory of the host
_RAW: Final = {2: "uint8", 4: "uint8", 8: "uint8", 16: "uint16"}


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy type of an element type of the manifest.

    Types that numpy lacks come from the package `ml_dtypes`. Where it is not installed, their arrays are the
    bits as unsigned integers: uint16 for bfloat16, uint8 for the types of 8, 4 and 2 bits.
    """
    code = DTYPE_CODES[name]
    if name == "bool" or (code >> 8 <= 2 and code & 0xFF >= 8):
        return np.dtype(name)
    try:
        return np.dtype(getattr(importlib.import_module("ml_dtypes"), name))
    except ImportError:
        return np.dtype(_RAW[code & 0xFF])


class Port:
    """One input or output of a model, with what is needed to check an array against it.

    Attributes:
        spec: what the signature says.
        dtype: its numpy type.
    """

    def __init__(self, kind: str, spec: TensorSpec) -> None:
        self.spec = spec
        self.dtype = numpy_dtype(spec.dtype)
        self._kind = kind
        self._static = spec.static_dims

    def readable(self, value: object) -> AnyArray:
        """The value as an array that a model can read: itself where possible, a copy where not.

        Taken as they are: C-contiguous, aligned arrays in the byte order of the machine, read-only ones too.
        Copied: any other strides (transposed, reversed, broadcast), unaligned data, the other byte order.
        Anything that speaks DLPack and lies in the memory of the CPU is taken as the array it describes.

        Raises:
            RuntimeModelError: XC5002 for another element type, XC5001 for something that is no array.
        """
        array = self._array(value)
        if array.dtype != self.dtype and array.dtype.newbyteorder("=") != self.dtype:
            raise self._mismatch("XC5002", array)
        if array.dtype != self.dtype or array.flags.num & READABLE != READABLE:
            array = np.array(array, dtype=self.dtype, order="C", copy=True)
        return array

    def check_dims(self, shape: Shape) -> None:
        """Checks sizes against the signature.

        Raises:
            RuntimeModelError: XC5003 when the rank or a size is not the signature's.
        """
        fits = len(shape) == len(self._static) and all(
            size == dim or (dim is None and 0 <= size < 1 << 62)
            for size, dim in zip(shape, self._static, strict=True)
        )
        if not fits:
            got = f"{self.spec.dtype}[{', '.join(map(str, shape))}]"
            raise RuntimeModelError(
                "XC5003", f"{self.title}: expected {self.spec}, got {shorten(got)}"
            )

    def byte_count(self, shape: Shape) -> int:
        """The bytes of an array of this shape.

        Raises:
            RuntimeModelError: XC5003 when they are more than any machine has.
        """
        size = self.dtype.itemsize
        for dim in shape:
            size *= dim
        if size > _MAX_TENSOR_BYTES:
            raise RuntimeModelError("XC5003", f"{self.title}: {shorten(str(shape))} is too large")
        return size

    def new(self, shape: Shape) -> AnyArray:
        """A new array for an output of this shape.

        Raises:
            RuntimeModelError: XC5007 when the system has no such memory.
        """
        try:
            return np.empty(shape, self.dtype)
        except MemoryError:
            size = self.byte_count(shape)
            what = f"{self.title}: there is no memory for {size} bytes"
            raise RuntimeModelError("XC5007", what) from None

    def writable(self, value: object, shape: Shape) -> AnyArray:
        """The value, when it is an array that a model can write its output of this shape into.

        Raises:
            RuntimeModelError: XC5005 when it is not.
        """
        if (
            type(value) is np.ndarray
            and value.dtype == self.dtype
            and value.shape == shape
            and value.flags.num & WRITABLE == WRITABLE
        ):
            return value
        if not isinstance(value, np.ndarray) or isinstance(value, np.ma.MaskedArray):
            raise RuntimeModelError(
                "XC5005", f"{self.title}: expected a numpy array, got {_type(value)}"
            )
        array = cast("AnyArray", value)
        if array.dtype != self.dtype or array.shape != shape:
            expected = f"{self.spec.dtype}[{', '.join(map(str, shape))}]"
            raise RuntimeModelError(
                "XC5005", f"{self.title}: expected {expected}, got {_describe(array)}"
            )
        if array.flags.num & WRITABLE != WRITABLE:
            raise RuntimeModelError(
                "XC5005", f"{self.title}: the array must be writable, aligned and C-contiguous"
            )
        return array

    @property
    def title(self) -> str:
        """Such as "input 'x'", for messages."""
        return f"{self._kind} '{shorten(self.spec.name)}'"

    def _array(self, value: object) -> AnyArray:
        if isinstance(value, np.ma.MaskedArray):
            raise RuntimeModelError(
                "XC5001", f"{self.title}: a masked array; fill the masked elements first"
            )
        if isinstance(value, Mapping):
            raise RuntimeModelError(
                "XC5001", f"{self.title}: a mapping is no array", help="run takes arrays by name"
            )
        try:
            if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack__"):
                return np.asarray(value)
            exporter = cast("Any", value)
            device: int = exporter.__dlpack_device__()[0]
            if device in _CPU_DEVICES:
                return np.from_dlpack(exporter)
        except Exception as error:
            what = f"{self.title}: {_type(cast('object', value))} cannot be read as an array"
            raise RuntimeModelError("XC5001", f"{what} ({shorten(str(error))})") from error
        raise RuntimeModelError(
            "XC5001",
            f"{self.title}: the array is on a device (DLPack type {device})",
            help="copy it to the CPU",
        )

    def _mismatch(self, code: str, array: AnyArray) -> RuntimeModelError:
        converts = np.can_cast(array.dtype, self.dtype, "same_kind")
        return RuntimeModelError(
            code,
            f"{self.title}: expected {self.spec}, got {_describe(array)}",
            help=f"convert it: array.astype('{self.dtype.name}')" if converts else None,
        )


def address_of(array: AnyArray) -> int:
    """The address of the first element of a C-contiguous array."""
    try:
        return _addressof(_from_buffer(array))  # a quarter of the time of what follows
    except (TypeError, ValueError, BufferError):  # read-only, empty, or of a type that buffers lack
        return array.__array_interface__["data"][0]


def check_overlap(
    ports: Sequence[Port], addresses: Sequence[int], sizes: Sequence[int], first: int
) -> None:
    """Checks that outputs overlap neither inputs nor each other.

    Args:
        ports: the inputs, then the outputs.
        addresses: of their arrays.
        sizes: of their arrays, in bytes.
        first: how many inputs there are.

    Raises:
        RuntimeModelError: XC5005 when one does.
    """
    for i in range(first, len(addresses)):
        begin, end = addresses[i], addresses[i] + sizes[i]
        for k in range(i):
            if begin < addresses[k] + sizes[k] and addresses[k] < end and sizes[k] and sizes[i]:
                raise RuntimeModelError(
                    "XC5005", f"{ports[i].title} overlaps {ports[k].title} in memory"
                )


def _describe(array: AnyArray) -> str:
    return shorten(f"{array.dtype}[{', '.join(map(str, array.shape))}]")


def _type(value: object) -> str:
    return shorten(type(value).__name__)
