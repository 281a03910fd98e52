"""An NVIDIA GPU, through the driver's own library: nothing else need be installed.

`libcuda.so.1` comes with the driver. It is opened when a model for a GPU is; every call that fails becomes one error
with the driver's name for it.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from xcompile.runtime.device import PTX, Bytes, DeviceKernel
from xcompile.runtime.errors import RuntimeModelError, shorten

LIBRARY: Final = "libcuda.so.1"
LEAST_DRIVER: Final = 12000
"""The version of CUDA that a driver must have: 12000 is 12.0."""

_NO_DEVICE: Final = 100
_OUT_OF_MEMORY: Final = 2
_MAJOR: Final = 75
_MINOR: Final = 76
_SHARED_ATTRIBUTE: Final = 8
_DEFAULT_SHARED: Final = 48 * 1024
_HELP: Final = "run it where there is one, or emulate it: xcompile run --device=emulate, device='emulate' in Python"


@cache
def open_gpu(number: int = 0, library: str = LIBRARY) -> Gpu:
    """A GPU of this machine.

    Args:
        number: which one, from 0.
        library: the driver's library.

    Raises:
        RuntimeModelError: XC5008, there is no driver, an old one, or no such GPU.
    """
    return Gpu(Driver(library), number)


class Driver:
    """The functions of the driver's library.

    Args:
        library: its name or path.

    Raises:
        RuntimeModelError: XC5008, it cannot be opened, is too old, or finds no GPU.
    """

    def __init__(self, library: str = LIBRARY) -> None:
        try:
            self._library = ctypes.CDLL(library)
        except OSError as error:
            raise RuntimeModelError(
                "XC5008",
                f"the model runs on an NVIDIA GPU, and no driver for one is installed ({shorten(str(error), 200)})",
                help=_HELP,
            ) from None
        status = self._library.cuInit(0)
        if status:
            what = self.describe(status)
            problem = "there is none" if status == _NO_DEVICE else f"its driver says: {what}"
            raise RuntimeModelError(
                "XC5008", f"the model runs on an NVIDIA GPU, and {problem}", help=_HELP
            )
        version = ctypes.c_int()
        self.call("cuDriverGetVersion", ctypes.byref(version))
        if version.value < LEAST_DRIVER:
            raise RuntimeModelError(
                "XC5008",
                f"the driver of the GPU is of CUDA {_version(version.value)}, and at least"
                f" {_version(LEAST_DRIVER)} is needed",
                help="install a newer driver",
            )

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver.

        Raises:
            RuntimeModelError: XC5009, with what it answered.
        """
        status = getattr(self._library, name)(*arguments)
        if status == _OUT_OF_MEMORY:
            raise RuntimeModelError(
                "XC5009", "the GPU has not enough memory for the model and its inputs",
                help="run smaller batches, or end other programs that use the GPU",
            )  # fmt: skip
        if status:
            raise RuntimeModelError("XC5009", f"the GPU failed: {name}: {self.describe(status)}")

    def describe(self, status: int) -> str:
        """The driver's own name of an error."""
        text = ctypes.c_char_p()
        if self._library.cuGetErrorString(status, ctypes.byref(text)) or text.value is None:
            return f"error {status}"
        return text.value.decode(errors="replace")


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


class Gpu:
    """One GPU; see `device.Device`. Everything happens in the default stream of its primary context."""

    def __init__(self, driver: Driver, number: int) -> None:
        self._driver = driver
        count = ctypes.c_int()
        driver.call("cuDeviceGetCount", ctypes.byref(count))
        if not 0 <= number < count.value:
            raise RuntimeModelError(
                "XC5008", f"there is no GPU {number}: the driver finds {count.value}", help=_HELP
            )
        handle = ctypes.c_int()
        driver.call("cuDeviceGet", ctypes.byref(handle), number)
        text = ctypes.create_string_buffer(256)
        driver.call("cuDeviceGetName", text, len(text), handle)
        self._name = text.value.decode(errors="replace")
        major, minor = (self._attribute(handle, a) for a in (_MAJOR, _MINOR))
        self.architecture = f"sm_{major}{minor}"
        self._context = ctypes.c_void_p()
        driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), handle)

    def _attribute(self, handle: ctypes.c_int, attribute: int) -> int:
        value = ctypes.c_int()
        self._driver.call("cuDeviceGetAttribute", ctypes.byref(value), attribute, handle)
        return value.value

    @property
    def name(self) -> str:
        """The product's name, and its architecture."""
        return f"{self._name} ({self.architecture})"

    def _call(self, name: str, *arguments: Any) -> None:
        self._driver.call("cuCtxSetCurrent", self._context)
        self._driver.call(name, *arguments)

    def allocate(self, size: int) -> int:
        """See `device.Device`."""
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def free(self, address: int) -> None:
        """See `device.Device`. A GPU that failed before has nothing to give back, which is no failure of its own."""
        with contextlib.suppress(RuntimeModelError):
            self._call("cuMemFree_v2", ctypes.c_uint64(address))

    def copy_in(self, target: int, source: Bytes) -> None:
        """See `device.Device`."""
        place, size = ctypes.c_void_p(source.ctypes.data), ctypes.c_size_t(source.nbytes)
        self._call("cuMemcpyHtoD_v2", ctypes.c_uint64(target), place, size)

    def copy_out(self, target: Bytes, source: int) -> None:
        """See `device.Device`."""
        place, size = ctypes.c_void_p(target.ctypes.data), ctypes.c_size_t(target.nbytes)
        self._call("cuMemcpyDtoH_v2", place, ctypes.c_uint64(source), size)

    def copy(self, target: int, source: int, size: int) -> None:
        """See `device.Device`."""
        places = ctypes.c_uint64(target), ctypes.c_uint64(source)
        self._call("cuMemcpyDtoD_v2", *places, ctypes.c_size_t(size))

    def load(self, kernel: DeviceKernel) -> Any:
        """See `device.Device`: the machine code of this architecture, or else PTX, which the driver compiles.

        Raises:
            RuntimeModelError: XC5009, the GPU is older than the model, or the driver refuses it.
        """
        code = kernel.code.get(self.architecture) or kernel.code[PTX] + b"\0"
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        try:
            self._call("cuModuleLoadData", ctypes.byref(module), code)
        except RuntimeModelError as error:
            raise RuntimeModelError(
                error.code, f"{error.message} (kernel '{kernel.symbol}' on {self.name})",
                help="compile the model for this architecture: --arch",
            ) from None  # fmt: skip
        self._call("cuModuleGetFunction", ctypes.byref(function), module, kernel.symbol.encode())
        if kernel.shared > _DEFAULT_SHARED:
            self._call("cuFuncSetAttribute", function, _SHARED_ATTRIBUTE, kernel.shared)
        return function

    def launch(
        self, function: Any, kernel: DeviceKernel, blocks: int, values: Sequence[int]
    ) -> None:
        """See `device.Device`."""
        cells = [ctypes.c_uint64(value) for value in values]
        addresses = (ctypes.c_void_p * len(cells))(*(ctypes.addressof(cell) for cell in cells))
        try:
            self._call(
                "cuLaunchKernel", function, blocks, 1, 1, kernel.threads, 1, 1, kernel.shared, None, addresses, None
            )  # fmt: skip
        except RuntimeModelError as error:
            raise RuntimeModelError(
                error.code, f"{error.message} (kernel '{kernel.symbol}')", error.help
            ) from None

    def synchronize(self) -> None:
        """See `device.Device`."""
        self._call("cuCtxSynchronize")
