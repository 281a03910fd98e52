"""Local memory: bytes of each thread for itself, which other threads cannot reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from xcompile.compiler.ptx.memory import Array, Region, demand
from xcompile.compiler.ptx.syntax import Variable

_ALIGNMENT = 16
_UNSET = 0xFF


class LocalMemory:
    """The local variables of the threads that run at once, one thread's behind the other's.

    Args:
        variables: those of the kernel.
        threads: as many as run at once.

    Attributes:
        offsets: where a variable lies among a thread's bytes, by name.
    """

    def __init__(self, variables: Sequence[Variable], threads: int) -> None:
        offsets: dict[str, int] = {}
        at = 0
        for variable in variables:
            at = -(-at // max(variable.align, 1)) * max(variable.align, 1)
            offsets[variable.name] = at
            at += variable.size
        self.offsets: Mapping[str, int] = offsets
        self._size = -(-at // _ALIGNMENT) * _ALIGNMENT
        block = np.full(self._size * threads + _ALIGNMENT, _UNSET, np.uint8)
        start = -block.ctypes.data % _ALIGNMENT
        self._bytes = block[start : start + self._size * threads]

    @property
    def region(self) -> Region:
        """All of it, for generic addresses."""
        return self._bytes.ctypes.data, self._bytes

    def clear(self) -> None:
        """Forget what threads wrote that are done."""
        self._bytes[:] = _UNSET

    def address(self, name: str, threads: Array) -> Array:
        """The address of a variable for each of some threads."""
        first = self._bytes.ctypes.data + self.offsets[name]
        return (first + threads * self._size).astype(np.uint64)

    def holds(self, address: Array) -> Array:
        """Whether addresses are of local memory."""
        first = np.uint64(self._bytes.ctypes.data)
        return (address >= first) & (address < first + np.uint64(self._bytes.size))

    def check(self, address: Array, width: int, threads: Array) -> None:
        """Trap where a thread reaches beyond its own bytes."""
        first = (self._bytes.ctypes.data + threads * self._size).astype(np.uint64)
        ends = address + np.uint64(width) <= first + np.uint64(self._size)
        demand((first <= address) & ends, "local access out of bounds")
