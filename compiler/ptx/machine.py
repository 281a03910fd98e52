"""The state of the threads that run at once, and the loop that runs them.

Every thread of a chunk of blocks executes an instruction in one numpy operation. Handlers see only the active
threads: `read` gathers their values and `write` scatters, so a handler never meets the values of a thread that is
elsewhere. Threads that diverge meet again by the rule of the least program counter: the threads that stand at the
smallest one go on until they reach where others wait. At a barrier a thread waits until all of its block (or as many as
the barrier says) have come.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from xcompile.compiler.ptx.local import LocalMemory
from xcompile.compiler.ptx.memory import Array, GlobalMemory, Trap
from xcompile.compiler.ptx.shared import SharedMemory

WARP = 32
DONE = np.iinfo(np.int64).max
WAITING = DONE - 1
Action: TypeAlias = "Callable[[Machine], None]"


@dataclass
class Counters:
    """What one instruction did: warps that executed it, sectors and bytes, bank transactions."""

    warps: int = 0
    sectors: int = 0
    used_bytes: int = 0
    transactions: int = 0
    least_transactions: int = 0


@dataclass
class Barrier:
    """Who has come to one barrier of one block: threads of the chunk, and how many are awaited (0: all)."""

    threads: list[Array] = field(default_factory=list[Array])
    awaited: int = 0


@dataclass(frozen=True)
class Copy:
    """Copies to shared memory that are on their way, one for each of some threads.

    Attributes:
        threads: that began them.
        group: the number of each thread's group of copies.
        offset: in shared memory.
        data: `(threads, bytes)`.
    """

    threads: Array
    group: Array
    offset: Array
    data: Array

    def part(self, chosen: Array) -> Copy:
        """Those of some of the threads."""
        return Copy(
            self.threads[chosen], self.group[chosen], self.offset[chosen], self.data[chosen]
        )


@dataclass(frozen=True)
class Step:
    """A decoded instruction: what it does, and under which predicate (-1: always)."""

    action: Action
    guard: int
    negated: bool


class Machine:
    """The threads of a chunk of blocks.

    Attributes:
        active: indices of the active threads, or None while all threads are active.
        target: where the active threads jump, set by a branch; a thread may set its `pcs` too.
    """

    def __init__(
        self,
        steps: list[Step],
        registers: list[str],
        first_block: int,
        blocks: int,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        memory: GlobalMemory,
        shared_size: int,
        local: LocalMemory,
        granule: int,
        counters: list[Counters],
        limit: int,
    ) -> None:
        self.steps = steps
        self.names = registers
        self.grid, self.block_shape = grid, block
        size = block[0] * block[1] * block[2]
        self.block_threads, self.blocks, self.count = size, blocks, size * blocks
        self.every = np.arange(self.count)
        self.linear = np.tile(np.arange(size), blocks)  # thread within its block
        self.block = np.repeat(np.arange(blocks), size)  # block within the chunk
        self.block_number = self.block + first_block
        self.warps = -(-size // WARP)
        self.warp = self.block * self.warps + self.linear // WARP
        self.lane = self.linear % WARP
        self.values: list[Array | None] = [None] * len(registers)
        self.written: list[Array | bool] = [False] * len(registers)
        self.memory = memory
        self.shared = SharedMemory(blocks, shared_size, granule, self.warps, self.linear // WARP)
        self.local = local
        self.active: Array | None = None
        self.pc = 0
        self.pcs = np.zeros(self.count, np.int64)
        self.resume = np.zeros(self.count, np.int64)
        self.barriers: dict[tuple[int, int], Barrier] = {}
        self.copies: list[Copy] = []
        self.copy_group = np.zeros(self.count, np.int64)
        self.counters = counters
        self.executed, self.limit = 0, limit
        self.jumped = False

    # What handlers use

    @property
    def threads(self) -> Array:
        """The indices of the active threads, ascending."""
        return self.every if self.active is None else self.active

    def of(self, values: Array) -> Array:
        """The active threads' part of an array over all threads."""
        return values if self.active is None else values[self.active]

    def read(self, register: int) -> Array:
        """A register's bits for the active threads."""
        value, written = self.values[register], self.written[register]
        if written is not True and (value is None or not self.of(written).all()):  # type: ignore[arg-type]
            lane = 0 if value is None else int(np.argmin(self.of(written)))  # type: ignore[arg-type]
            raise Trap(f"register {self.names[register]} is read before it is written", lane)
        assert value is not None
        return value if self.active is None else value[self.active]

    def write(self, register: int, value: Array) -> None:
        """Set a register's bits for the active threads; `value` may be one number for all."""
        if self.active is None:
            if value.ndim == 0:
                value = np.full(self.count, value)
            self.values[register], self.written[register] = value, True
            return
        old = self.values[register]
        new = np.zeros(self.count, value.dtype) if old is None else old.copy()
        new[self.active] = value
        self.values[register] = new
        written = self.written[register]
        if written is not True:
            mask = np.zeros(self.count, np.bool_) if written is False else written
            mask[self.active] = True
            self.written[register] = mask

    def jump(self, target: int) -> None:
        """All active threads go on at `target`."""
        self.pcs[self.threads] = target
        self.jumped = True

    def whole_warps(self, what: str) -> None:
        """Trap unless every warp that executes this instruction does so with all of its threads."""
        if self.active is None:
            if self.block_threads % WARP:
                raise Trap(f"{what} in a warp of fewer than {WARP} threads")
            return
        count = np.bincount(self.warp[self.active], minlength=self.warps * self.blocks)
        part = (count != 0) & (count != WARP)
        if part.any():
            guilty = int(np.argmax(part[self.warp[self.active]]))
            raise Trap(f"{what} is executed by a part of a warp", guilty)

    # The loop

    def run(self) -> None:
        """Run all threads to their ends.

        Raises:
            Trap: `pc` and `active` then say where, and of which threads `lane` is one.
        """
        while True:
            start = int(self.pcs.min())
            if start >= WAITING:
                if start == DONE:
                    return
                self.deadlock()
            at = self.pcs == start
            if at.all():
                active, stop = None, DONE
            else:
                active, stop = np.flatnonzero(at), int(self.pcs[~at].min())
            self.segment(active, start, stop)

    def segment(self, active: Array | None, pc: int, stop: int) -> None:
        """Run the threads `active` from `pc` until they part, jump or come to `stop`."""
        warps = self.warps * self.blocks if active is None else _count(self.warp[active])
        self.jumped = False
        while pc != stop:
            step = self.steps[pc]
            self.pc, self.active = pc, active
            self.executed += 1
            if self.executed > self.limit:
                raise Trap(f"no end after {self.limit} instructions")
            if step.guard >= 0:
                on = self.read(step.guard) != step.negated
                if not on.all():
                    self.active = self.threads[on]
                    self.counters[pc].warps += _count(self.warp[self.active])
                    self.partly(step, active, pc)
                    if self.jumped:
                        return
                    pc += 1
                    continue
            self.counters[pc].warps += warps
            step.action(self)
            if self.jumped:
                return
            pc += 1
        self.active = active
        self.pcs[self.threads] = pc

    def partly(self, step: Step, active: Array | None, pc: int) -> None:
        """Execute an instruction for the threads whose guard holds; the others fall through."""
        chosen = self.active
        assert chosen is not None
        if not chosen.size:
            return
        step.action(self)
        if self.jumped:
            others = np.zeros(self.count, np.bool_)
            others[self.every if active is None else active] = True
            others[chosen] = False
            self.pcs[others] = pc + 1

    # Barriers

    def arrive(self, number: Array, awaited: int, wait: bool, aligned: bool) -> None:
        """The active threads come to a barrier of their block.

        Args:
            number: of the barrier, one for each thread or one for all.
            awaited: how many threads make the barrier complete; 0 means all that have not ended.
            wait: whether they stay until it is complete.
            aligned: whether all threads of a warp must come together.
        """
        threads = self.threads
        if aligned:
            self._aligned(threads)
        numbers = np.broadcast_to(number, threads.shape)
        if wait:
            self.resume[threads] = self.pc + 1
            self.pcs[threads] = WAITING
        else:
            self.pcs[threads] = self.pc + 1
        self.jumped = True
        if (
            self.active is None
            and not awaited
            and wait
            and not self.barriers
            and (numbers == numbers[0]).all()
        ):
            self.pcs[:] = self.pc + 1
            self.shared.synchronize_all()
            return
        for key in np.unique(self.block[threads] * 16 + numbers).tolist():
            mine = threads[self.block[threads] * 16 + numbers == key]
            barrier = self.barriers.setdefault((key // 16, key % 16), Barrier())
            barrier.threads.append(mine)
            barrier.awaited = awaited
        self.complete()

    def complete(self) -> None:
        """Release every barrier to which all that it awaits have come."""
        for (block, number), barrier in list(self.barriers.items()):
            members = self.block == block
            live = int((self.pcs[members] != DONE).sum())
            come = np.concatenate(barrier.threads)
            if come.size < (barrier.awaited or live):
                continue
            del self.barriers[block, number]
            waiting = come[self.pcs[come] == WAITING]
            self.pcs[waiting] = self.resume[waiting]
            self.shared.synchronize(block, np.unique(self.linear[come] // WARP))

    def _aligned(self, threads: Array) -> None:
        """Trap unless the whole rest of each warp has come."""
        live = np.bincount(self.warp[self.pcs != DONE], minlength=self.warps * self.blocks)
        here = np.bincount(self.warp[threads], minlength=self.warps * self.blocks)
        bad = (here != 0) & (here != live)
        if bad.any():
            guilty = int(np.argmax(bad[self.warp[threads]]))
            raise Trap("divergent barrier: a part of a warp comes to it", guilty)

    def deadlock(self) -> None:
        waiting = np.flatnonzero(self.pcs == WAITING)
        self.pc, self.active = int(self.resume[waiting[0]]) - 1, waiting
        raise Trap("divergent barrier: other threads of the block never come to it")


def _count(sorted_numbers: Array) -> int:
    """How many different numbers an ascending array has."""
    if not sorted_numbers.size:
        return 0
    return 1 + int(np.count_nonzero(np.diff(sorted_numbers)))
