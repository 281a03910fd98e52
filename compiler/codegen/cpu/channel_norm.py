"""Element functions of `nn.lrn`: the squares of neighbouring channels, as few loads as the layout allows."""

from collections.abc import Sequence
from typing import Any

from xcompile.compiler.codegen.cpu import math, power
from xcompile.compiler.codegen.cpu.builder import Index, Value
from xcompile.compiler.codegen.cpu.casts import convert
from xcompile.compiler.codegen.cpu.coordinates import Coordinate, Lane, Lanes
from xcompile.compiler.codegen.cpu.elementwise import Scalars
from xcompile.compiler.codegen.cpu.nests import both, nest, read, wide
from xcompile.compiler.codegen.cpu.pull import At, Pull, pulls
from xcompile.compiler.codegen.cpu.shuffles import shuffle
from xcompile.dialects.nn.base import dtype_of
from xcompile.dialects.nn.norm import Lrn


def _window(op: Any) -> range:
    """Distances of the channels that count."""
    return range(-((op.size - 1) // 2), op.size // 2 + 1)


@pulls("nn.lrn", loops=lambda op: not Lrn(op.operation).is_narrow)
def _lrn(pull: Pull, op: Any, at: At) -> Value:
    s = Scalars(pull.b, pull.lanes, wide(dtype_of(op.y)))
    source = pull.sources.get(op.x)
    if isinstance(at[1], Lanes | Lane):
        block = source.layout.block if source else 0
        whole = isinstance(at[1], Lane) and at[1].multiple % pull.lanes == 0
        blocked = whole and block == pull.lanes and _window(op).stop <= block
        total = _of_lanes(pull, s, op, at) if blocked else _of_loop(pull, s, op, at)
    elif op.is_narrow:
        total = _of_channels(pull, s, op, at)
    else:
        total = _of_loop(pull, s, op, at)
    base = s.add(s.const(op.k), s.mul(s.const(op.alpha / op.size), total))
    y = s.div(read(pull, op.x, at), _power(s, op, base))
    return convert(pull.b, y, s.dtype, dtype_of(op.y), pull.lanes)


def _power(s: Scalars, op: Any, base: Value) -> Value:
    """base^beta, by square roots for the usual beta; a base below 0 has none then either."""
    if op.beta == 0.5:
        return s.call(math.sqrt, base)
    if op.beta == 0.75:
        root = s.call(math.sqrt, base)
        return s.mul(root, s.call(math.sqrt, root))
    return s.call(power.pow, base, s.const(op.beta))


def _squared(s: Scalars, x: Value) -> Value:
    return s.mul(x, x)


def _of_channels(pull: Pull, s: Scalars, op: Any, at: At) -> Value:
    """Lanes along another axis: one load a channel."""
    c, b = pull.coordinates, pull.b
    channels = pull.shape(op.x)[1]
    total = s.const(0)
    for distance in _window(op):
        channel = c.add(at[1], distance)
        low, high = c.compare("sge", channel, 0), c.compare("slt", channel, channels)
        place = c.clamp(channel, 0, b.max(b.sub(channels, 1), 0)) if distance else channel
        square = _squared(s, read(pull, op.x, [at[0], place, *at[2:]]))
        exists: Value | bool = True
        if distance:
            exists = both(pull, *(pull.lanewise(x, [channel]) for x in (low, high)))
        total = s.add(total, pull.select(exists, square, s.const(0), s.dtype))
    return total


def _of_lanes(pull: Pull, s: Scalars, op: Any, at: At) -> Value:
    """A lane a channel of a block: its neighbours come from this vector and those of the blocks beside it."""
    c, b, lanes = pull.coordinates, pull.b, pull.lanes
    channel = at[1]
    assert isinstance(channel, Lane)
    last = b.mul(b.div(b.sub(pull.shape(op.x)[1], 1), lanes), lanes)

    def block(first: Index, exists: Value | bool) -> Value:
        # Blocks are whole in memory, with zeros behind the last channel.
        place = b.max(b.min(first, last), 0)
        with pull.masked(None):
            x = read(pull, op.x, [at[0], Lane(place, channel.multiple), *at[2:]])
        return pull.select(pull.lanewise(exists, []), _squared(s, x), s.const(0), s.dtype)

    before, after = b.sub(channel.base, lanes), b.add(channel.base, lanes)
    here = block(channel.base, True)
    left = block(before, c.compare("sge", before, 0))
    right = block(after, c.compare("sle", after, last))
    total = s.const(0)
    for distance in _window(op):
        pair = (left, here) if distance < 0 else (here, right)
        start = distance % lanes
        picks = range(start, start + lanes)
        moved = shuffle(b, *pair, lanes, picks, s.dtype) if distance else here
        total = s.add(total, moved)
    return total


def _of_loop(pull: Pull, s: Scalars, op: Any, at: At) -> Value:
    """Any window, and lanes along channels that lie anywhere."""
    c, b = pull.coordinates, pull.b
    channels = pull.shape(op.x)[1]

    def body(ks: list[Index], found: list[Value]) -> Sequence[Value]:
        channel: Coordinate = c.add(c.sub(at[1], (op.size - 1) // 2), ks[0])
        low = pull.lanewise(c.compare("sge", channel, 0), [channel])
        high = pull.lanewise(c.compare("slt", channel, channels), [channel])
        place = c.clamp(channel, 0, b.max(b.sub(channels, 1), 0))
        square = _squared(s, read(pull, op.x, [at[0], place, *at[2:]]))
        kept = pull.select(both(pull, low, high), square, s.const(0), s.dtype)
        return [s.add(found[0], kept)]

    return nest(pull, [op.size], [s.const(0)], [s.type], body)[0]
