"""One scale for tensors of the same numbers: what a movement, a pool or a concatenation makes of tensors in 8 bits.

Numbers that change from one scale to another are requantized, by a kernel of its own where they lie in memory already.
With one scale for all operands of a concatenation and its result nothing is left to compute, and each operand is
written where it belongs in the result.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from xcompile.compiler.quantize.observers import Range
from xcompile.compiler.quantize.table import Observed

MOST_COARSE: Final = 4.0
"""A shared step is at most so many times a tensor's own: 2 of its 8 bits."""


def shared_ranges(
    ties: Iterable[tuple[str, str]], tensors: Mapping[str, Observed]
) -> dict[str, Observed]:
    """The ranges of tensors, where those that are tied have one as far as accuracy allows.

    Ties are looked at in order: two groups become one unless a tensor's step would grow more than `MOST_COARSE` times.

    Args:
        ties: pairs of names of tensors; names that are not in `tensors` count for nothing.
        tensors: the range of each tensor.
    """
    groups = {name: [name] for name in tensors}
    ranges = {name: seen.range for name, seen in tensors.items()}
    for a, b in ties:
        if a not in groups or b not in groups or groups[a] is groups[b]:
            continue
        one, other = ranges[a], ranges[b]
        joined = Range(min(one.low, other.low), max(one.high, other.high))
        members = groups[a] + groups[b]
        least = min(_span(tensors[name].range) for name in members)
        if _span(joined) > MOST_COARSE * least:
            continue
        for name in members:
            groups[name], ranges[name] = members, joined
    return {name: replace(seen, range=ranges[name]) for name, seen in tensors.items()}


def _span(numbers: Range) -> float:
    return numbers.high - numbers.low
