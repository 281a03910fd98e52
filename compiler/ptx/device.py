"""A device whose kernels are interpreted: what `--device=emulate` means.

Its memory is the host's, at the same addresses, and every access of a kernel must lie within one allocation. Fresh
memory is filled with a pattern that is NaN as float32, so that what was never written shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from xcompile.compiler.ptx.interpreter import Report, launch
from xcompile.compiler.ptx.parser import parse
from xcompile.runtime.device import PTX, Bytes, DeviceKernel
from xcompile.runtime.errors import RuntimeModelError

_ALIGNMENT = 256
_UNSET = 0xFF


class EmulatedDevice:
    """A GPU without a GPU; see `runtime.device.Device`.

    Attributes:
        name: what it is, for people.
        reports: what the interpreter found in the last launch of each kernel, by symbol.
    """

    name = "an emulated GPU"

    def __init__(self) -> None:
        self.reports: dict[str, Report] = {}
        self._blocks: dict[int, Bytes] = {}

    def allocate(self, size: int) -> int:
        """See `Device`."""
        try:
            block = np.full(size + _ALIGNMENT, _UNSET, np.uint8)
        except (MemoryError, ValueError):
            raise RuntimeModelError(
                "XC5009", f"there is no memory for {size} bytes of an emulated GPU"
            ) from None
        start = -block.ctypes.data % _ALIGNMENT
        address: int = block.ctypes.data + start
        self._blocks[address] = block[start : start + size]
        return address

    def free(self, address: int) -> None:
        """See `Device`."""
        del self._blocks[address]

    def copy_in(self, target: int, source: Bytes) -> None:
        """See `Device`."""
        self._bytes(target, source.nbytes)[:] = source

    def copy_out(self, target: Bytes, source: int) -> None:
        """See `Device`."""
        target[:] = self._bytes(source, target.nbytes)

    def copy(self, target: int, source: int, size: int) -> None:
        """See `Device`."""
        self._bytes(target, size)[:] = self._bytes(source, size).copy()

    def load(self, kernel: DeviceKernel) -> Any:
        """See `Device`: the module of the kernel's PTX."""
        return parse(kernel.code[PTX].decode())

    def launch(
        self, function: Any, kernel: DeviceKernel, blocks: int, values: Sequence[int]
    ) -> None:
        """See `Device`.

        Raises:
            RuntimeModelError: XC5009, the kernel did what a GPU does not allow or what has no meaning.
        """
        report = launch(
            function,
            kernel.symbol,
            (blocks, 1, 1),
            (kernel.threads, 1, 1),
            list(values),
            list(self._blocks.items()),
            shared_bytes=kernel.shared,
        )
        self.reports[kernel.symbol] = report

    def synchronize(self) -> None:
        """See `Device`; every launch is over when it returns."""

    def _bytes(self, address: int, size: int) -> Bytes:
        """Some bytes of one allocation.

        Raises:
            RuntimeModelError: XC5009, they are not.
        """
        for base, block in self._blocks.items():
            if base <= address and address + size <= base + block.nbytes:
                return block[address - base : address - base + size]
        raise RuntimeModelError(
            "XC5009", f"{size} bytes at {address:#x} are not within one allocation of the device"
        )
