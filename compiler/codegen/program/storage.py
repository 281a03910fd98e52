"""The arena: which bytes each intermediate tensor gets.

A tensor lives from the step that writes it to the last that reads it; two that live at the same
time don't overlap. With known sizes, tensors are placed largest first at the lowest free offset.
With sizes known only at run time, tensors share *slots* (chosen on sample sizes): a slot is as
large as its largest tensor, and offsets are sums of slots.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xcompile.compiler.support.dims import Dim, ceildiv, evaluate, maximum, symbols_of

ALIGNMENT = 64


@dataclass(frozen=True)
class Life:
    """One tensor in the arena: its bytes, and the first and last step that touch it."""

    size: Dim
    first: int
    last: int

    def meets(self, other: "Life") -> bool:
        return self.first <= other.last and other.first <= self.last


def aligned(size: Dim) -> Dim:
    """The size rounded up to whole cache lines."""
    return ceildiv(size, ALIGNMENT) * ALIGNMENT


def place(lives: Sequence[Life]) -> tuple[list[Dim], Dim]:
    """Offsets for all tensors, and the bytes of the arena."""
    if all(isinstance(life.size, int) for life in lives):
        return _pack(lives)
    return _slots(lives)


def _pack(lives: Sequence[Life]) -> tuple[list[Dim], Dim]:
    order = sorted(range(len(lives)), key=lambda i: (-_number(lives[i].size), lives[i].first))
    offsets: dict[int, int] = {}
    for i in order:
        size = _number(aligned(lives[i].size))
        taken = sorted(
            (offsets[j], offsets[j] + _number(aligned(lives[j].size)))
            for j in offsets
            if lives[j].meets(lives[i])
        )
        at = 0
        for low, high in taken:
            if at + size <= low:
                break
            at = max(at, high)
        offsets[i] = at
    total = max((offsets[i] + _number(aligned(lives[i].size)) for i in offsets), default=0)
    return [offsets[i] for i in range(len(lives))], total


def _slots(lives: Sequence[Life]) -> tuple[list[Dim], Dim]:
    sample = _sample(lives)
    sizes = [evaluate(life.size, sample) for life in lives]
    slots: list[list[int]] = []
    for i in sorted(range(len(lives)), key=lambda i: (-sizes[i], lives[i].first)):
        free = next((s for s in slots if not any(lives[j].meets(lives[i]) for j in s)), None)
        if free is None:
            slots.append([i])
        else:
            free.append(i)
    offsets: list[Dim] = [0] * len(lives)
    at: Dim = 0
    for slot in slots:
        for i in slot:
            offsets[i] = at
        at = at + aligned(maximum(*dict.fromkeys(lives[i].size for i in slot)))
    return offsets, at


def _sample(lives: Sequence[Life]) -> Mapping[str, int]:
    names = {name for life in lives for name in symbols_of(life.size)}
    return dict.fromkeys(names, 64)


def _number(size: Dim) -> int:
    assert isinstance(size, int)
    return size
