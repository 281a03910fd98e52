"""Rearrangements and reductions across the lanes of vectors."""

from collections.abc import Callable, Sequence

from xcompile.compiler.codegen.cpu.builder import Builder, Value, in_memory, vector_type
from xcompile.compiler.ir.dtypes import bits_of


def shuffle(b: Builder, x: Value, y: Value, lanes: int, picks: Sequence[int], dtype: str) -> Value:
    """The lanes `picks` of x and y, one after the other, both of `lanes` lanes."""
    element = in_memory(dtype)
    x, y = (b.bitcast(v, dtype, element, lanes) for v in (x, y))
    kind = vector_type(lanes, element)
    made = b.op(f"vector.shuffle {x}, {y} {list(picks)} : {kind}, {kind}")
    return b.bitcast(made, element, dtype, len(picks))


def transpose(b: Builder, rows: Sequence[Value], dtype: str) -> list[Value]:
    """The columns of a square of vectors; their number is a power of two.

    Each of the log2(n) rounds interleaves the first half of the rows with the second.
    """
    n = len(rows)
    low = [i // 2 + (i % 2) * n for i in range(n)]
    high = [pick + n // 2 for pick in low]
    current = list(rows)
    width = n
    while width > 1:
        following: list[Value] = []
        for i in range(n // 2):
            x, y = current[i], current[i + n // 2]
            following.append(shuffle(b, x, y, n, low, dtype))
            following.append(shuffle(b, x, y, n, high, dtype))
        current = following
        width //= 2
    return current


def interleave(b: Builder, parts: Sequence[Value], lanes: int, dtype: str) -> Value:
    """A vector with the first elements of all parts, then the second ones, and so on; they are bytes or bfloat16."""
    bits = bits_of(dtype)
    count, raw = len(parts), vector_type(lanes, f"i{bits}")
    unit = vector_type(lanes, f"i{bits * count}")
    words: Value | None = None
    for number, part in enumerate(parts):
        if dtype != f"i{bits}":
            part = b.op(f"arith.bitcast {part} : {vector_type(lanes, dtype)} to {raw}")
        word = b.op(f"arith.extui {part} : {raw} to {unit}")
        if number:
            shift = b.int_constant(bits * number, f"i{bits * count}", lanes)
            word = b.op(f"arith.shli {word}, {shift} : {unit}")
        words = word if words is None else b.op(f"arith.ori {words}, {word} : {unit}")
    return b.op(f"vector.bitcast {words} : {unit} to {vector_type(lanes * count, dtype)}")


def reduce_lanes(
    b: Builder,
    combine: Callable[[Value, Value, int, str], Value],
    vectors: Sequence[Value],
    lanes: int,
    dtype: str,
) -> Value:
    """All lanes of all vectors combined to a scalar.

    The vectors hold a sequence of a power of two elements. Each round combines its first half with its second,
    element by element, so the order depends on the number of elements and not on how they are spread.
    """
    current = list(vectors)
    while len(current) > 1:
        half = len(current) // 2
        current = [combine(current[i], current[i + half], lanes, dtype) for i in range(half)]
    value = current[0]
    while lanes > 1:
        half = lanes // 2
        first = shuffle(b, value, value, lanes, range(half), dtype)
        second = shuffle(b, value, value, lanes, range(half, lanes), dtype)
        value, lanes = combine(first, second, half, dtype), half
    kind = vector_type(1, dtype)
    return b.op(f"vector.extract {value}[0] : {dtype} from {kind}")
