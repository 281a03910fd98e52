"""The arena: which bytes each intermediate tensor gets.

A tensor lives from the step that writes it to the last that reads it; two that live at the same
time don't overlap. With known sizes, tensors are placed largest first at the lowest free offset.
With sizes known only at run time, tensors share *slots* (chosen on sample sizes): a slot is as
large as its largest tensor, and offsets are sums of slots.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from xcompile.compiler.support.dims import Dim, ceildiv, estimate, maximum, symbol, symbols_of
from xcompile.compiler.support.errors import CompileError

ALIGNMENT = 64
_MOST_BYTES = 1 << 62


@dataclass(frozen=True)
class Life:
    """One tensor in the arena: its bytes, and the first and last step that touch it."""

    size: Dim
    first: int
    last: int


def aligned(size: Dim) -> Dim:
    """The size rounded up to whole cache lines."""
    return ceildiv(size, ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True)
class Layout:
    """Where the tensors of an arena lie.

    Attributes:
        offsets: of each tensor, in bytes.
        total: bytes of the arena.
        definitions: symbols that offsets and total use, each with its meaning over sizes and earlier ones, so
            that no expression grows with the number of tensors.
    """

    offsets: list[Dim]
    total: Dim
    definitions: tuple[tuple[str, Dim], ...] = ()


def place(lives: Sequence[Life]) -> Layout:
    """Offsets for all tensors, and the bytes of the arena."""
    if all(isinstance(life.size, int) for life in lives):
        return _pack(lives)
    return _slots(lives)


class _Placed:
    """The lives of the tensors placed so far, with further columns of numbers, ordered by the first of these."""

    def __init__(self, count: int, columns: int) -> None:
        self._count = 0
        self._first, self._last = np.empty(count, np.int64), np.empty(count, np.int64)
        self._columns = [np.empty(count, np.int64) for _ in range(columns)]

    def met(self, life: Life) -> list[np.ndarray]:
        """The columns of the tensors that live while `life` does."""
        n = self._count
        met = (self._first[:n] <= life.last) & (self._last[:n] >= life.first)
        return [column[:n][met] for column in self._columns]

    def add(self, life: Life, *numbers: int) -> None:
        n = self._count
        at = int(np.searchsorted(self._columns[0][:n], numbers[0], side="right"))
        columns = (self._first, self._last, *self._columns)
        for column, number in zip(columns, (life.first, life.last, *numbers), strict=True):
            column[at + 1 : n + 1] = column[at:n]
            column[at] = number
        self._count += 1


def _by_size(lives: Sequence[Life], sizes: Sequence[int]) -> list[int]:
    return sorted(range(len(lives)), key=lambda i: (-sizes[i], lives[i].first))


def _pack(lives: Sequence[Life]) -> Layout:
    sizes = [_number(aligned(life.size)) for life in lives]
    if sum(sizes) >= _MOST_BYTES:
        raise CompileError("XC2008", f"the tensors of the model have {sum(sizes)} bytes")
    placed = _Placed(len(lives), 2)
    offsets = [0] * len(lives)
    for i in _by_size(lives, [_number(life.size) for life in lives]):
        low, high = placed.met(lives[i])
        offsets[i] = _lowest_gap(low, high, sizes[i])
        placed.add(lives[i], offsets[i], offsets[i] + sizes[i])
    total = max((o + size for o, size in zip(offsets, sizes, strict=True)), default=0)
    return Layout(list(offsets), total)


def _lowest_gap(low: np.ndarray, high: np.ndarray, size: int) -> int:
    """The lowest offset with `size` free bytes, when the bytes from `low` (in rising order) to `high` are taken."""
    ends = np.concatenate([[0], np.maximum.accumulate(high)])
    starts = np.concatenate([low, [_MOST_BYTES]])
    return int(ends[np.argmax(starts - ends >= size)])


def _slots(lives: Sequence[Life]) -> Layout:
    sample = _sample(lives)
    sizes = [estimate(life.size, sample) for life in lives]
    placed = _Placed(len(lives), 1)
    slots: list[list[int]] = []
    for i in _by_size(lives, sizes):
        (taken,) = placed.met(lives[i])
        free = _lowest_missing(taken)
        slots += [[]] if free == len(slots) else []
        slots[free].append(i)
        placed.add(lives[i], free)
    offsets: dict[int, Dim] = {}
    definitions: list[tuple[str, Dim]] = []

    def define(name: str, dim: Dim) -> Dim:
        definitions.append((name, dim))
        return symbol(name)

    at: Dim = 0
    for number, slot in enumerate(slots):
        offsets.update(dict.fromkeys(slot, at))
        size, *others = dict.fromkeys(lives[i].size for i in slot)
        for step, other in enumerate(others):
            size = define(f"@{number}.{step}", maximum(size, other))
        at = define(f"@{number}", at + aligned(size))
    return Layout([offsets[i] for i in range(len(lives))], at, tuple(definitions))


def _lowest_missing(numbers: np.ndarray) -> int:
    """The lowest number from 0 on that is not among `numbers`."""
    present = np.zeros(len(numbers) + 1, bool)
    present[numbers[numbers < len(numbers)]] = True
    return int(np.argmin(present))


def _sample(lives: Sequence[Life]) -> Mapping[str, int]:
    names = {name for life in lives for name in symbols_of(life.size)}
    return dict.fromkeys(names, 64)


def _number(size: Dim) -> int:
    assert isinstance(size, int)
    return size
