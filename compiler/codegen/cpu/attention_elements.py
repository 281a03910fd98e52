"""Element functions of attention: for each element of the result, the scores of all keys, twice."""

from collections.abc import Callable
from typing import Any

from xcompile.compiler.codegen.cpu import math
from xcompile.compiler.codegen.cpu.builder import Index, Value
from xcompile.compiler.codegen.cpu.casts import convert
from xcompile.compiler.codegen.cpu.coordinates import Coordinate
from xcompile.compiler.codegen.cpu.elementwise import Scalars
from xcompile.compiler.codegen.cpu.movement import data_index
from xcompile.compiler.codegen.cpu.nests import both, lowest, nest, read, wide
from xcompile.compiler.codegen.cpu.pull import At, Pull, pulls
from xcompile.dialects.nn.base import dtype_of


def _dot(pull: Pull, s: Scalars, op: Any, query: At, key: At) -> Value:
    """A query times a key, given their coordinates without the last."""

    def body(ks: list[Index], sums: list[Value]) -> list[Value]:
        return [
            s.add(
                sums[0], s.mul(read(pull, op.q, [*query, ks[0]]), read(pull, op.k, [*key, ks[0]]))
            )
        ]

    depth = pull.shape(op.q)[-1]
    return s.mul(nest(pull, [depth], [s.const(0)], [s.type], body)[0], s.const(op.scale))


def _weighted(
    pull: Pull,
    s: Scalars,
    keys: Index,
    score: Callable[[Index], Value],
    value: Callable[[Index], Value],
    *,
    masked: bool,
) -> Value:
    """The sum of values weighted by the softmax of the scores; 0 instead of NaN for all -infinity when `masked`."""

    def largest(ks: list[Index], found: list[Value]) -> list[Value]:
        return [s.maximum(found[0], score(ks[0]))]

    least = s.const(lowest(s.dtype))
    top = nest(pull, [keys], [least], [s.type], largest)[0]
    if masked:
        top = s.select(s.compare("eq", top, least), s.const(0), top)

    def weigh(ks: list[Index], sums: list[Value]) -> list[Value]:
        power = s.call(math.exp, s.sub(score(ks[0]), top))
        return [s.add(sums[0], power), s.add(sums[1], s.mul(power, value(ks[0])))]

    total, weighted = nest(pull, [keys], [s.const(0)] * 2, [s.type] * 2, weigh)
    if masked:
        total = s.select(s.compare("eq", total, s.const(0)), s.const(1), total)
    return s.div(weighted, total)


@pulls("nn.fused_attention", loops=True)
def _fused_attention(pull: Pull, op: Any, at: At) -> Value:
    dtype = dtype_of(op.y)
    s, (*batch, query, column) = Scalars(pull.b, pull.lanes, wide(dtype)), at
    keys = pull.shape(op.k)[-2]
    scores = (*pull.sizes.shape(op.y)[:-1], pull.sizes.shape(op.k)[-2])

    def score(key: Index) -> Value:
        found = _dot(pull, s, op, [*batch, query], [*batch, key])
        if op.mask is None:
            return found
        mask = pull.broadcast(op.mask, [*batch, query, key], scores)
        return s.add(found, convert(pull.b, mask, dtype_of(op.mask), s.dtype, pull.lanes))

    def value(key: Index) -> Value:
        return read(pull, op.v, [*batch, key, column])

    result = _weighted(pull, s, keys, score, value, masked=False)
    return convert(pull.b, result, s.dtype, dtype, pull.lanes)


@pulls("nn.attention", loops=True)
def _attention(pull: Pull, op: Any, at: At) -> Value:
    dtype = dtype_of(op.y)
    s, (batch, head, query, column) = Scalars(pull.b, pull.lanes, wide(dtype)), at
    keys = pull.shape(op.k)[2]
    shared = pull.b.div(pull.shape(op.q)[1], pull.shape(op.k)[1])
    group = pull.coordinates.div(head, shared)
    bounds = _bounds(pull, op, batch, query)

    def score(key: Index) -> Value:
        found = _dot(pull, s, op, [batch, head, query], [batch, group, key])
        if op.softcap > 0:
            cap = s.const(op.softcap)
            found = s.mul(s.call(math.tanh, s.div(found, cap)), cap)
        seen: Value | bool = True
        for predicate, bound in bounds:
            seen = both(
                pull, seen, pull.lanewise(pull.coordinates.compare(predicate, key, bound), [bound])
            )
        if op.mask is not None:
            found, seen = _masked(pull, s, op, at, key, found, seen)
        return pull.select(seen, found, s.const(lowest(s.dtype)), s.dtype)

    def value(key: Index) -> Value:
        found = pull.value(op.v, [batch, group, key, column])
        return convert(pull.b, found, dtype_of(op.v), s.dtype, pull.lanes)

    result = _weighted(pull, s, keys, score, value, masked=True)
    return convert(pull.b, result, s.dtype, dtype, pull.lanes)


def _bounds(
    pull: Pull, op: Any, batch: Coordinate, query: Coordinate
) -> list[tuple[str, Coordinate]]:
    """What the place of a key must be for the key to take part."""
    c, found = pull.coordinates, list[tuple[str, Coordinate]]()
    place = query
    if op.offset is not None:
        place = c.add(place, pull.place(op.offset, 0))
    if op.lengths is not None:
        length = data_index(pull, op.lengths, [batch])
        place = c.sub(c.add(place, length), pull.shape(op.q)[2])
        found.append(("slt", length))
    if op.causal:
        found.append(("sle", place))
    if op.left >= 0:
        found.append(("sge", c.sub(place, op.left)))
    if op.right >= 0:
        found.append(("sle", c.add(place, op.right)))
    return found


def _masked(
    pull: Pull, s: Scalars, op: Any, at: At, key: Index, score: Value, seen: Value | bool
) -> tuple[Value, Value | bool]:
    """The score with the mask, and whether the key takes part; keys beyond the mask do not."""
    b, sizes = pull.b, pull.sizes.shape(op.mask)
    here = key
    if sizes[-1] != 1:
        last = pull.dim(sizes[-1])
        alone = b.compare("eq", last, 1)
        within = b.compare("slt", key, last)
        if isinstance(within, str) and isinstance(alone, str):
            within = b.op(f"arith.ori {within}, {alone} : i1")
        seen = both(pull, seen, pull.lanewise(within, [key]))
        here = b.min(key, b.max(b.sub(last, 1), 0))
    scores = (*pull.sizes.shape(op.y)[:3], sizes[-1])
    mask = pull.broadcast(op.mask, [*at[:3], here], scores)
    dtype = dtype_of(op.mask)
    if dtype == "i1":
        return score, both(pull, seen, mask)
    return s.add(score, convert(b, mask, dtype, s.dtype, pull.lanes)), seen
