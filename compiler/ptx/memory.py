"""Device memory of the interpreter: regions at 64-bit addresses, checked accesses, races between blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Region: TypeAlias = tuple[int, npt.NDArray[np.uint8]]
"""The address of the first byte, and the bytes."""

UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_MANY = -1  # more than one block has read


class Trap(Exception):
    """A fault of an instruction.

    Attributes:
        lane: the position of the guilty thread among those that execute the instruction.
    """

    def __init__(self, message: str, lane: int = 0) -> None:
        super().__init__(message)
        self.lane = lane


def demand(good: Array, message: str) -> None:
    """Trap at the first thread for which `good` does not hold."""
    if not good.all():
        raise Trap(message, int(np.argmin(good)))


class _Shadow:
    """Who has written and read each granule of a region: block number + 1, 0 for nobody."""

    def __init__(self, size: int, granule: int) -> None:
        self.writer = np.zeros(-(-size // granule), np.int32)
        self.reader = np.zeros(-(-size // granule), np.int32)


class GlobalMemory:
    """Regions of device memory, in which every access must lie within one region.

    Args:
        regions: disjoint; a caller may use real host addresses as bases.
        granule: bytes told apart by the check for races, a power of two.
        races: whether plain accesses of different blocks to one granule are checked.
        private: the address of a region whose parts belong to single threads: no race is possible there.
    """

    def __init__(
        self, regions: Sequence[Region], granule: int, races: bool, private: int = -1
    ) -> None:
        self.regions = sorted((r for r in regions if r[1].size), key=lambda r: r[0])
        self.bases = np.array([base for base, _ in self.regions], np.uint64)
        self.granule = granule
        self.races = races
        self.private = private
        self.shadows: dict[int, _Shadow] = {}

    def read(self, address: Array, width: int, blocks: Array) -> Array:
        """The `(threads, width)` bytes at each address; `blocks` are the numbers of the readers' blocks."""
        out = np.empty((address.size, width), np.uint8)
        for which, rows, offset in self._located(address, width):
            out[rows] = _windows(self.regions[which], offset, width)
            if self._may_race(which):
                self._note_read(which, offset, width, blocks[rows])
        return out

    def write(self, address: Array, data: Array, blocks: Array) -> None:
        """Write `(threads, width)` bytes; where threads meet, the last one wins."""
        width = data.shape[1]
        for which, rows, offset in self._located(address, width):
            memory = self.regions[which][1]
            if not memory.flags.writeable:
                raise Trap("write to memory that is read only")
            if self._may_race(which):
                before = _windows(self.regions[which], offset, width)
                self._note_write(which, offset, width, blocks[rows], before, data[rows])
            memory[offset[:, None] + np.arange(width)] = data[rows]
            if self._may_race(which):
                kept = _windows(self.regions[which], offset, width) == data[rows]
                demand(kept.all(1), "race: threads write different values to one element")

    def locate(self, address: int, width: int, lane: int) -> tuple[Array, int]:
        """The bytes of the region and the offset in it of one access, for atomics."""
        which, _, offset = next(iter(self._located(np.array([address], np.uint64), width, lane)))
        return self.regions[which][1], int(offset[0])

    def _located(
        self, address: Array, width: int, lane: int = 0
    ) -> list[tuple[int, slice | Array, Array]]:
        """Region, rows and offsets of the accesses, grouped by region.

        Raises:
            Trap: an access is misaligned or outside every region.
        """
        if address.size == 0:
            return []
        aligned = address & np.uint64(width - 1) == 0
        if not aligned.all():
            lane = max(lane, int(np.argmin(aligned)))
            raise Trap(
                f"misaligned {width}-byte access at {int(address[np.argmin(aligned)]):#x}", lane
            )
        which = np.searchsorted(self.bases, address, side="right") - 1
        found: list[tuple[int, slice | Array, Array]] = []
        same = bool((which == which[0]).all())
        for each in [int(which[0])] if same else np.unique(which).tolist():
            rows = slice(None) if same else np.flatnonzero(which == each)
            part = address[rows]
            first = 0 if same else int(rows[0])  # type: ignore[index]
            if each < 0:
                raise Trap(f"global access out of bounds at {int(part[0]):#x}", max(lane, first))
            base, memory = self.regions[each]
            offset = (part - np.uint64(base)).astype(np.int64)
            outside = (offset < 0) | (offset + width > memory.size)
            if outside.any():
                at = int(np.argmax(outside))
                guilty = at if same else int(rows[at])  # type: ignore[index]
                raise Trap(
                    f"global access out of bounds at {int(part[at]):#x}, "
                    f"{int(offset[at]) + width - memory.size} bytes behind a buffer of {memory.size}",
                    max(lane, guilty),
                )
            found.append((each, rows, offset))
        return found

    def _may_race(self, which: int) -> bool:
        return self.races and self.regions[which][0] != self.private

    def _granules(self, offset: Array, width: int) -> Array:
        count = max(1, width // self.granule)
        return (offset // self.granule)[:, None] + np.arange(count)

    def _shadow(self, which: int) -> _Shadow:
        if which not in self.shadows:
            self.shadows[which] = _Shadow(self.regions[which][1].size, self.granule)
        return self.shadows[which]

    def _note_read(self, which: int, offset: Array, width: int, blocks: Array) -> None:
        shadow, cells, me = self._shadow(which), self._granules(offset, width), blocks[:, None] + 1
        writer = shadow.writer[cells]
        demand(
            ((writer == 0) | (writer == me)).all(1),
            "race between blocks: reads what another block has written",
        )
        reader = shadow.reader[cells]
        shadow.reader[cells] = np.where((reader == 0) | (reader == me), me, _MANY)
        if (shadow.reader[cells] != me).any():
            shadow.reader[cells[shadow.reader[cells] != me]] = _MANY

    def _note_write(
        self, which: int, offset: Array, width: int, blocks: Array, before: Array, data: Array
    ) -> None:
        shadow, cells, me = self._shadow(which), self._granules(offset, width), blocks[:, None] + 1
        writer, reader = shadow.writer[cells], shadow.reader[cells]
        same = (before == data).all(1)
        demand(
            ((writer == 0) | (writer == me)).all(1) | same,
            "race between blocks: writes what another block has written differently",
        )
        demand(
            ((reader == 0) | (reader == me)).all(1) | same,
            "race between blocks: writes what another block has read",
        )
        shadow.writer[cells] = me
        demand(
            (shadow.writer[cells] == me).all(1) | same,
            "race between blocks: one element is written by two blocks",
        )


def _windows(region: Region, offset: Array, width: int) -> Array:
    """The bytes `[offset, offset + width)`, a row for each offset; typed loads where alignment allows them."""
    base, memory = region
    if width in UNSIGNED and base % width == 0 and memory.flags.c_contiguous:
        whole = memory[: memory.size // width * width].view(UNSIGNED[width])
        return whole[offset // width].view(np.uint8).reshape(-1, width)
    return memory[offset[:, None] + np.arange(width)]
