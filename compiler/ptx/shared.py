"""Shared memory of the blocks that run at once: poison, initialization, bounds, races and bank conflicts.

A race is found by the last writer and reader of each granule (the narrowest access of the kernel) and the time
of the last barrier in which both threads took part: `bar.sync` and its like for threads of different warps,
`bar.warp.sync` for threads of one warp. Two accesses race if one of them writes something new and no such
barrier lies between.
"""

from __future__ import annotations

import numpy as np

from xcompile.compiler.ptx.memory import UNSIGNED, Array, Trap, demand

BANKS = 32
_POISON = 0xAB
_ATOMIC = -2


class SharedMemory:
    """Shared memory of several blocks, one row a block.

    Args:
        blocks: how many run at once.
        size: bytes a block.
        granule: bytes of the narrowest access of the kernel.
        warps: warps a block.
        warp_of: for each thread of the chunk the number of its warp within its block.
    """

    def __init__(self, blocks: int, size: int, granule: int, warps: int, warp_of: Array) -> None:
        self.size = size
        self.row = -(-size // 16) * 16 + 16
        self.granule = granule
        self.warps = warps
        self.warp_of = warp_of
        self.bytes = np.full(blocks * self.row, _POISON, np.uint8)
        cells = blocks * self.row // granule
        self.writer = np.full(cells, -1, np.int32)
        self.written_at = np.full(cells, -1, np.int64)
        self.reader = np.full(cells, -1, np.int32)
        self.read_at = np.full(cells, -1, np.int64)
        self.readers_met = np.zeros(
            cells, np.bool_
        )  # threads of two warps have read since the time
        self.in_flight = np.zeros(cells, np.int32)
        self.pending = 0
        self.clock = 1
        self.met = np.zeros(
            (blocks, warps, warps), np.int64
        )  # when two warps last met at a barrier

    def synchronize(self, block: int, warps: Array) -> None:
        """The warps of a block have met at a barrier."""
        self.clock += 1
        self.met[block][np.ix_(warps, warps)] = self.clock

    def synchronize_all(self) -> None:
        """Every warp of every block has met at a barrier."""
        self.clock += 1
        self.met[:] = self.clock

    def synchronize_warps(self, block: Array, warps: Array) -> None:
        """The threads of each of these warps have met."""
        self.clock += 1
        self.met[block, warps, warps] = self.clock

    def read(self, offset: Array, width: int, thread: Array, block: Array) -> Array:
        """The `(threads, width)` bytes at each offset."""
        at = self._place(offset, width, block)
        cells = self._cells(at, width)
        if self.pending and self.in_flight[cells].any():
            demand(
                (self.in_flight[cells] == 0).all(1),
                "reads bytes of a cp.async that is not waited for",
            )
        writer = self.writer[cells]
        demand((writer != -1).all(1), "reads shared memory that nobody has written")
        me = thread[:, None]
        self._check(writer, self.written_at[cells], me, block, "reads what another thread wrote")
        reader = self.reader[cells]
        other = (reader >= 0) & (reader != me)
        if other.any():
            since = self._since(reader, thread, block)
            self.readers_met[cells] |= other & (self.read_at[cells] >= since)
        self.reader[cells] = me
        self.read_at[cells] = self.clock
        if (self.reader[cells] != me).any():
            self.readers_met[cells] |= self.reader[cells] != me
        return self._bytes(at, width)

    def write(self, offset: Array, data: Array, thread: Array, block: Array) -> None:
        """Write `(threads, width)` bytes at each offset."""
        width = data.shape[1]
        at = self._place(offset, width, block)
        self._check_write(at, data, width, thread, block)
        self.bytes[at[:, None] + np.arange(width)] = data
        demand(
            (self._bytes(at, width) == data).all(1),
            "race in shared memory: two threads write different values in one instruction",
        )
        self._stamp(at, width, thread)

    def begin_copy(self, offset: Array, width: int, thread: Array, block: Array) -> None:
        """A cp.async of `width` bytes is on its way: checked as a write, not yet readable."""
        at = self._place(offset, width, block)
        self._check_write(at, None, width, thread, block)
        self._stamp(at, width, thread)
        np.add.at(self.in_flight, self._cells(at, width), 1)
        self.pending += 1

    def land_copy(self, offset: Array, data: Array, thread: Array, block: Array) -> None:
        """A cp.async arrives."""
        width = data.shape[1]
        at = self._place(offset, width, block)
        self.bytes[at[:, None] + np.arange(width)] = data
        np.add.at(self.in_flight, self._cells(at, width), -1)
        self._stamp(at, width, thread)

    def locate(self, offset: int, width: int, block: int, lane: int) -> tuple[Array, int]:
        """The bytes and the place in them of one access, for atomics."""
        try:
            at = self._place(np.array([offset]), width, np.array([block]))
        except Trap as trap:
            raise Trap(str(trap), lane) from trap
        cells = self._cells(at, width)
        if (self.writer[cells] == -1).any():
            raise Trap("reads shared memory that nobody has written", lane)
        self.writer[cells] = _ATOMIC
        self.written_at[cells] = self.clock
        return self.bytes, int(at[0])

    def transactions(self, offset: Array, width: int, phase: Array) -> tuple[int, int]:
        """How many accesses of all banks the hardware makes, and the least that it could.

        Args:
            offset: of each thread's access.
            width: bytes; threads of one phase are served at once (32, 16, 8 for 4, 8, 16 bytes).
            phase: a number for each thread.
        """
        words = max(1, width // 4)
        word = (offset // 4)[:, None] + np.arange(words)
        bank = word % BANKS
        key = (np.broadcast_to(phase[:, None], word.shape) * BANKS + bank).ravel()
        word = word.ravel()
        table = np.full(int(phase.max()) * BANKS + BANKS, -1, np.int64)
        least, total = np.unique(phase).size, 0
        while word.size:
            table[key] = word
            total += np.unique(key // BANKS).size
            left = table[key] != word
            key, word = key[left], word[left]
        return total, least

    def _place(self, offset: Array, width: int, block: Array) -> Array:
        offset = offset.astype(np.int64)
        demand(offset & (width - 1) == 0, f"misaligned {width}-byte access of shared memory")
        inside = (offset >= 0) & (offset + width <= self.size)
        if not inside.all():
            at = int(np.argmin(inside))
            raise Trap(
                f"shared memory out of bounds: bytes {int(offset[at])} to "
                f"{int(offset[at]) + width} of {self.size}",
                at,
            )
        return offset + block * self.row

    def _cells(self, at: Array, width: int) -> Array:
        return (at // self.granule)[:, None] + np.arange(max(1, width // self.granule))

    def _bytes(self, at: Array, width: int) -> Array:
        if width in UNSIGNED:
            return self.bytes.view(UNSIGNED[width])[at // width].view(np.uint8).reshape(-1, width)
        return self.bytes.reshape(-1, width)[at // width]

    def _stamp(self, at: Array, width: int, thread: Array) -> None:
        cells = self._cells(at, width)
        self.writer[cells] = thread[:, None]
        self.written_at[cells] = self.clock
        self.readers_met[cells] = False
        self.reader[cells] = -1

    def _since(self, other: Array, thread: Array, block: Array) -> Array:
        """When each thread's warp last met the warp of each `other` thread at a barrier."""
        mine = self.warp_of[thread][:, None]
        return self.met[block[:, None], mine, self.warp_of[np.maximum(other, 0)]]

    def _check(self, other: Array, when: Array, me: Array, block: Array, what: str) -> None:
        foreign = (other != me) & (other != -1)
        if not foreign.any():
            return
        since = self._since(other, me[:, 0], block)
        if (other == _ATOMIC).any():
            lowest = self.met[block[:, None], self.warp_of[me[:, 0]][:, None]].min(-1)
            since = np.where(other == _ATOMIC, lowest, since)
        demand(
            ~(foreign & (when >= since)).any(1),
            f"race in shared memory: {what} without a barrier between",
        )

    def _check_write(
        self, at: Array, data: Array | None, width: int, thread: Array, block: Array
    ) -> None:
        cells, me = self._cells(at, width), thread[:, None]
        if self.pending:
            demand(
                (self.in_flight[cells] == 0).all(1),
                "writes bytes of a cp.async that is not waited for",
            )
        same = np.zeros(at.size, np.bool_)
        if data is not None:
            same = (self._bytes(at, width) == data).all(1)
        writer, reader = self.writer[cells], self.reader[cells]
        writer = np.where(same[:, None], -1, writer)
        reader = np.where(same[:, None], -1, reader)
        self._check(writer, self.written_at[cells], me, block, "writes what another thread wrote")
        self._check(reader, self.read_at[cells], me, block, "writes what another thread reads")
        met = self.readers_met[cells] & (reader != -1)
        if met.any():
            lowest = self.met[block, self.warp_of[thread]].min(-1)[:, None]
            demand(
                ~(met & (self.read_at[cells] >= lowest)).any(1),
                "race in shared memory: writes what other threads read without a barrier between",
            )
