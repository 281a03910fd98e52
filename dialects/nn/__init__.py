"""The nn dialect: importing this package declares every op of it."""

from xcompile.dialects.nn import (
    binary,
    const,
    gather,
    generate,
    reshape,
    scatter,
    sizes,
    slicing,
    ternary,
    unary,
)

__all__ = [
    "binary",
    "const",
    "gather",
    "generate",
    "reshape",
    "scatter",
    "sizes",
    "slicing",
    "ternary",
    "unary",
]
