"""Working memory of a run."""

from __future__ import annotations

import threading

import numpy as np

from xcompile.runtime.abi import ALIGNMENT
from xcompile.runtime.errors import RuntimeModelError, shorten


def round_up(size: int) -> int:
    """The size in bytes rounded up to a multiple of the runtime's alignment."""
    return -(-size // ALIGNMENT) * ALIGNMENT


class AlignedMemory:
    """Bytes whose address is a multiple of 64. They are not initialized.

    Attributes:
        address: of the first byte.
        capacity: the length in bytes.
        array: the bytes, as uint8.

    Raises:
        RuntimeModelError: XC5007 when the system has no such memory.
    """

    def __init__(self, capacity: int) -> None:
        try:
            block = np.empty(capacity + ALIGNMENT, np.uint8)
        except (MemoryError, ValueError):
            raise RuntimeModelError("XC5007", f"there is no memory for {capacity} bytes") from None
        start = -block.ctypes.data % ALIGNMENT
        self.array = block[start : start + capacity]
        self.address: int = block.ctypes.data + start
        self.capacity = capacity


class Arena(AlignedMemory):
    """Memory for the intermediate values of a run, which a caller may own and several models may share.

    One run uses it at a time: a second one while it is in use is an error, not a wait.

    Args:
        capacity: bytes, at least `required_bytes` of every model and shapes that will run in it.

    Raises:
        RuntimeModelError: XC5007 when it is no such number, or the system has no such memory.
    """

    def __init__(self, capacity: int) -> None:
        if not isinstance(capacity, int | np.integer) or capacity < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise RuntimeModelError(
                "XC5007", f"an arena has a number of bytes, not {shorten(repr(capacity))}"
            )
        super().__init__(int(capacity))
        self._lock = threading.Lock()

    def acquire(self, needed: int) -> None:
        """Takes the arena for one run that needs `needed` bytes.

        Raises:
            RuntimeModelError: XC5007 when it is too small or in use.
        """
        if self.capacity < needed:
            raise RuntimeModelError(
                "XC5007",
                f"the arena has {self.capacity} bytes, this run needs {needed}",
                help="make it as large as required_bytes(shapes) says",
            )
        if not self._lock.acquire(blocking=False):
            raise RuntimeModelError(
                "XC5007",
                "the arena is busy with another run",
                help="give each thread an arena of its own, or none",
            )

    def release(self) -> None:
        """Gives the arena back after `acquire`."""
        self._lock.release()
