"""Dot products: several contiguous rows times one vector."""

from collections.abc import Sequence
from functools import partial

from xcompile.compiler.codegen.cpu.builder import Buffer, Builder, Index, Value, vector_type
from xcompile.compiler.codegen.cpu.shuffles import reduce_lanes
from xcompile.compiler.schedule.contraction import DOT_SUMS


def dot_products(
    b: Builder,
    rows: Buffer,
    starts: Sequence[Index],
    x: Buffer,
    x_start: Index,
    k: Index,
    lanes: int,
) -> list[Value]:
    """The products of rows that begin at `starts` with the vector at `x_start`, all of k elements, as scalars.

    Sums are `DOT_SUMS` interleaved ones, whatever the number of lanes, combined half with half.
    """
    dtype, vectors = x.dtype, max(1, DOT_SUMS // lanes)
    span = vectors * lanes

    def step(masks: Sequence[Value | None], at: Index, sums: list[Value]) -> list[Value]:
        factors = [
            b.load(x, b.add(x_start, at, v * lanes), lanes, mask) for v, mask in enumerate(masks)
        ]
        out: list[Value] = []
        for r, start in enumerate(starts):
            for v, mask in enumerate(masks):
                a = b.load(rows, b.add(start, at, v * lanes), lanes, mask)
                out.append(b.fma(a, factors[v], sums[r * vectors + v], lanes, dtype))
        return out

    sums = [b.float_constant(0.0, dtype, lanes)] * (len(starts) * vectors)
    types = [vector_type(lanes, dtype)] * len(sums)
    whole = b.mul(b.div(k, span), span)
    if whole != 0:
        sums = b.reduce(0, whole, span, sums, types, partial(step, [None] * vectors))
    if whole != k:
        rest = b.sub(k, whole)
        masks = [b.tail_mask(b.max(b.sub(rest, v * lanes), 0), lanes) for v in range(vectors)]
        sums = step(masks, whole, sums)
    add = partial(b.binary, "arith.addf")
    return [
        reduce_lanes(b, add, sums[r * vectors : (r + 1) * vectors], lanes, dtype)
        for r in range(len(starts))
    ]
