"""How fast a machine moves bytes, where its description does not say: data of common server cores."""

from dataclasses import dataclass

from xcompile.compiler.target.target import Target


@dataclass(frozen=True)
class Speeds:
    """Bytes that a core reads in a cycle.

    Attributes:
        l2: from its second-level cache.
        l3: from the last-level cache.
        memory: from memory.
    """

    l2: float
    l3: float
    memory: float


def speeds_of(target: Target) -> Speeds:
    """The speeds of a target: half a vector a cycle from the second level, at most 32 bytes; half of that behind it."""
    l2 = min(target.vector_bits / 8, 64) / 2
    return Speeds(l2, l2 / 2, 4.0)
