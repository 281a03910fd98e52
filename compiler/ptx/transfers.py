"""Accesses of memory, and what those of global and shared memory move: sectors, and turns of the banks."""

from __future__ import annotations

import numpy as np

from xcompile.compiler.ptx.machine import Machine
from xcompile.compiler.ptx.memory import Array, demand

_SECTOR = 32
"""Bytes that memory moves at least."""
_TURN = 128
"""Bytes that all banks give at once."""


def global_transfer(machine: Machine, address: Array, width: int, data: Array | None) -> Array:
    """Read `width` bytes at each active thread's address of global memory, or write `data` there."""
    threads = machine.threads
    address = np.ascontiguousarray(np.broadcast_to(address, threads.size))
    count_sectors(machine, threads, address, width)
    blocks = machine.block_number[threads]
    if data is None:
        return machine.memory.read(address, width, blocks)
    machine.memory.write(address, data, blocks)
    return data


def shared_transfer(machine: Machine, address: Array, width: int, data: Array | None) -> Array:
    """Read `width` bytes at each active thread's address of shared memory, or write `data` there."""
    threads = machine.threads
    offset = np.ascontiguousarray(np.broadcast_to(address, threads.size)).astype(np.int64)
    count_turns(machine, threads, offset, width)
    block = machine.block[threads]
    if data is None:
        return machine.shared.read(offset, width, threads, block)
    machine.shared.write(offset, data, threads, block)
    return data


def local_transfer(machine: Machine, address: Array, width: int, data: Array | None) -> Array:
    """Read `width` bytes at each active thread's address of its local memory, or write `data` there."""
    threads = machine.threads
    address = np.ascontiguousarray(np.broadcast_to(address, threads.size))
    machine.local.check(address, width, threads)
    blocks = machine.block_number[threads]
    if data is None:
        return machine.memory.read(address, width, blocks)
    machine.memory.write(address, data, blocks)
    return data


def generic_transfer(machine: Machine, address: Array, width: int, data: Array | None) -> Array:
    """Read or write global or local memory, as the address says."""
    inside = machine.local.holds(np.broadcast_to(address, machine.threads.size))
    if inside.all():
        return local_transfer(machine, address, width, data)
    demand(~inside, "some threads access local memory where others access global memory")
    return global_transfer(machine, address, width, data)


def count_sectors(machine: Machine, threads: Array, address: Array, width: int) -> None:
    """Count what some threads' accesses move of global memory; each lies within one sector."""
    counters = machine.counters[machine.pc]
    sectors = address // np.uint64(_SECTOR)
    order = np.lexsort((sectors, machine.warp[threads]))
    warp, sector = machine.warp[threads][order], sectors[order]
    new = (np.diff(warp) != 0) | (np.diff(sector) != 0)
    counters.sectors += 1 + int(np.count_nonzero(new))
    counters.used_bytes += width * len(
        np.unique(np.stack([machine.warp[threads], address]), axis=1).T
    )


def count_turns(machine: Machine, threads: Array, offset: Array, width: int) -> None:
    """Count the turns of the banks of shared memory that some threads' accesses take, and the least possible."""
    lanes = max(1, _TURN // max(width, 4))
    phase = machine.warp[threads] * 32 + machine.lane[threads] // lanes
    total, least = machine.shared.transactions(offset, width, phase)
    counters = machine.counters[machine.pc]
    counters.transactions += total
    counters.least_transactions += least
