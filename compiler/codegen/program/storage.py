"""The arena: which bytes each intermediate tensor gets.

A tensor lives from the step that writes it to the last that reads it; two that live at the same
time don't overlap. With known sizes, tensors are placed largest first at the lowest free offset.
With sizes known only at run time, tensors share *slots* (chosen on sample sizes): a slot is as
large as its largest tensor, and offsets are sums of slots.
"""

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xcompile.compiler.support.dims import Dim, ceildiv, evaluate, maximum, symbol, symbols_of

ALIGNMENT = 64


@dataclass(frozen=True)
class Life:
    """One tensor in the arena: its bytes, and the first and last step that touch it."""

    size: Dim
    first: int
    last: int

    @property
    def steps(self) -> range:
        """The steps during which it lives."""
        return range(self.first, self.last + 1)


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


def _pack(lives: Sequence[Life]) -> Layout:
    sizes = [_number(aligned(life.size)) for life in lives]
    alive: dict[int, list[int]] = defaultdict(list)  # by step: the placed tensors that live then
    born: dict[int, list[int]] = defaultdict(list)  # by step: those of them that begin to live then
    offsets: dict[int, int] = {}
    for i in sorted(range(len(lives)), key=lambda i: (-_number(lives[i].size), lives[i].first)):
        steps = lives[i].steps
        met = itertools.chain(alive[steps[0]], *(born[step] for step in steps[1:]))
        taken = sorted((offsets[j], offsets[j] + sizes[j]) for j in met)
        at = 0
        for low, high in taken:
            if at + sizes[i] <= low:
                break
            at = max(at, high)
        offsets[i] = at
        born[steps[0]].append(i)
        for step in steps:
            alive[step].append(i)
    total = max((offset + sizes[i] for i, offset in offsets.items()), default=0)
    return Layout([offsets[i] for i in range(len(lives))], total)


def _slots(lives: Sequence[Life]) -> Layout:
    sample = _sample(lives)
    sizes = [evaluate(life.size, sample) for life in lives]
    slots: list[list[int]] = []
    busy: list[set[int]] = []  # the steps at which each slot is taken
    for i in sorted(range(len(lives)), key=lambda i: (-sizes[i], lives[i].first)):
        steps = lives[i].steps
        free = next((s for s, taken in enumerate(busy) if taken.isdisjoint(steps)), len(slots))
        if free == len(slots):
            slots.append([])
            busy.append(set())
        slots[free].append(i)
        busy[free].update(steps)
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


def _sample(lives: Sequence[Life]) -> Mapping[str, int]:
    names = {name for life in lives for name in symbols_of(life.size)}
    return dict.fromkeys(names, 64)


def _number(size: Dim) -> int:
    assert isinstance(size, int)
    return size
