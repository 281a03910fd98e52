"""Element functions of the ops that move elements: each asks its operand at another place."""

from collections.abc import Sequence
from typing import Any

from xcompile.compiler.codegen.cpu.builder import Index, Value
from xcompile.compiler.codegen.cpu.coordinates import Coordinate, Fixed, varies
from xcompile.compiler.codegen.cpu.nests import both
from xcompile.compiler.codegen.cpu.pull import At, Pull, pulls, pulls_parts, register_dtype
from xcompile.compiler.ir.op import Value as Tensor
from xcompile.dialects.nn.base import dtype_of


@pulls("nn.relayout")
def _relayout(pull: Pull, op: Any, at: At) -> Value:
    return pull.value(op.x, at)


@pulls("nn.transpose")
def _transpose(pull: Pull, op: Any, at: At) -> Value:
    source: list[Coordinate] = [0] * len(at)
    for position, axis in enumerate(op.perm):
        source[axis] = at[position]
    return pull.value(op.x, source)


@pulls("nn.reshape", "nn.flatten", "nn.squeeze", "nn.unsqueeze")
def _reshape(pull: Pull, op: Any, at: At) -> Value:
    """Axes that are the same at the end keep their coordinates; the rest goes through the flat index."""
    before, after = pull.sizes.shape(op.x), pull.sizes.shape(op.y)
    same = 0
    while same < min(len(before), len(after)) and before[-1 - same] == after[-1 - same]:
        same += 1
    head_before, head_after = before[: len(before) - same], after[: len(after) - same]
    head, tail = list(at[: len(head_after)]), list(at[len(head_after) :])
    flat = _flat(pull, head, [pull.dim(d) for d in head_after])
    places = pull.coordinates.unflatten(flat, [pull.dim(d) for d in head_before])
    return pull.value(op.x, [*places, *tail])


def _flat(pull: Pull, at: Sequence[Coordinate], sizes: Sequence[Index]) -> Coordinate:
    strides: list[Index] = []
    step: Index = 1
    for size in reversed(sizes):
        strides.append(step)
        step = pull.b.mul(step, size)
    return pull.coordinates.flatten(at, strides[::-1])


@pulls("nn.expand")
def _expand(pull: Pull, op: Any, at: At) -> Value:
    return pull.broadcast(op.x, at, pull.sizes.shape(op.y))


@pulls("nn.tile")
def _tile(pull: Pull, op: Any, at: At) -> Value:
    sizes, repeats = pull.shape(op.x), pull.content(op.repeats)
    return pull.value(
        op.x,
        [
            c if r == 1 else pull.coordinates.rem(c, n)
            for c, n, r in zip(at, sizes, repeats, strict=True)
        ],
    )


@pulls("nn.slice")
def _slice(pull: Pull, op: Any, at: At) -> Value:
    b = pull.b
    sizes = pull.shape(op.x)
    starts = pull.content(op.starts)
    axes = pull.content(op.axes) if op.axes is not None else list(range(len(starts)))
    steps = pull.content(op.steps) if op.steps is not None else [1] * len(starts)
    source = list(at)
    for start, axis, step in zip(starts, axes, steps, strict=True):
        assert isinstance(axis, int) and isinstance(step, int)
        size = sizes[axis]
        counted = b.select(b.compare("slt", start, 0), b.add(size, start), start)
        first = b.min(b.max(counted, 0), size if step > 0 else b.sub(size, 1))
        moved = at[axis] if step == 1 else _scaled(pull, at[axis], step)
        source[axis] = pull.coordinates.add(moved, first)
    return pull.value(op.x, source)


def _scaled(pull: Pull, c: Coordinate, step: int) -> Coordinate:
    """`c * step`; a step beyond 2^31 only ever multiplies 0."""
    return pull.coordinates.mul(c, max(-(2**31), min(step, 2**31)))


@pulls_parts("nn.split")
def _split(pull: Pull, op: Any, at: At, number: int) -> Value:
    axis = op.axis % len(at)
    source = list(at)
    for part in list(op.results)[:number]:
        source[axis] = pull.coordinates.add(source[axis], pull.shape(part)[axis])
    return pull.value(op.x, source)


@pulls("nn.reverse_sequence")
def _reverse_sequence(pull: Pull, op: Any, at: At) -> Value:
    """Step t of a batch reads step length - 1 - t while t is below the length."""
    c = pull.coordinates
    time = at[op.time_axis]
    length = data_index(pull, op.lengths, [at[op.batch_axis]])
    back = c.add(c.reflected(time, -1), length)
    last = pull.b.max(pull.b.sub(pull.shape(op.x)[op.time_axis], 1), 0)
    source = list(at)
    source[op.time_axis] = c.clamp(c.where("slt", time, length, back, time), 0, last)
    return pull.value(op.x, source)


@pulls("nn.concat")
def _concat(pull: Pull, op: Any, at: At) -> Value:
    """Where a concatenation is not the kernel's result: choose the operand by the coordinate."""
    c, dtype = pull.coordinates, dtype_of(op.y)
    axis = op.axis % len(at)
    parts: list[tuple[Index, Value]] = []
    low: Index = 0
    for value in op.xs:
        size = pull.shape(value)[axis]
        if not _reaches(at[axis], low, size):
            low = pull.b.add(low, size)
            continue
        source = list(at)
        source[axis] = c.clamp(c.sub(at[axis], low), 0, pull.b.max(pull.b.sub(size, 1), 0))
        parts.append((low, pull.value(value, source)))
        low = pull.b.add(low, size)
    result = parts[0][1]
    for start, value in parts[1:]:
        behind = pull.lanewise(c.compare("sge", at[axis], start), [at[axis]])
        result = pull.select(behind, value, result, dtype)
    return result


def _reaches(c: Coordinate, low: Index, size: Index) -> bool:
    """Whether a coordinate may lie in [low, low + size)."""
    if not isinstance(c, Fixed) or isinstance(low, str) or isinstance(size, str):
        return True
    return any(low <= place < low + size for place in c.places)


@pulls("nn.channel_shuffle")
def _channel_shuffle(pull: Pull, op: Any, at: At) -> Value:
    c, source = pull.coordinates, list(at)
    size = pull.b.div(pull.shape(op.x)[1], op.groups)
    source[1] = c.add(c.mul(c.rem(at[1], op.groups), size), c.div(at[1], op.groups))
    return pull.value(op.x, source)


@pulls("nn.gather")
def _gather(pull: Pull, op: Any, at: At) -> Value:
    rank = len(pull.sizes.shape(op.x))
    axis = op.axis % rank
    count = len(pull.sizes.shape(op.indices))
    place = _wrapped(pull, op.indices, pull.shape(op.x)[axis], at[axis : axis + count])
    return pull.value(op.x, [*at[:axis], place, *at[axis + count :]])


@pulls("nn.gather_elements")
def _gather_elements(pull: Pull, op: Any, at: At) -> Value:
    axis = op.axis % len(at)
    source = list(at)
    source[axis] = _wrapped(pull, op.indices, pull.shape(op.x)[axis], at)
    return pull.value(op.x, source)


@pulls("nn.gather_nd")
def _gather_nd(pull: Pull, op: Any, at: At) -> Value:
    index_shape, sizes = pull.sizes.shape(op.indices), pull.shape(op.x)
    outer = list(at[: len(index_shape) - 1])
    width = index_shape[-1]
    assert isinstance(width, int)
    places: list[Coordinate] = []
    for position in range(width):
        size = sizes[op.batch_dims + position]
        places.append(_wrapped(pull, op.indices, size, [*outer, position]))
    return pull.value(op.x, [*outer[: op.batch_dims], *places, *at[len(index_shape) - 1 :]])


def data_index(pull: Pull, tensor: Tensor, at: At) -> Coordinate:
    """An index that is data, as a coordinate; the same for all lanes when no coordinate in `at` varies over them."""
    dtype, value = dtype_of(tensor), pull.value(tensor, at)
    if pull.lanes and not any(varies(c) for c in at):
        register = register_dtype(dtype)
        first = pull.b.op(f"vector.extract {value}[0] : {register} from {pull.type(dtype)}")
        return pull.b.op(f"arith.index_cast {first} : {register} to index")
    return pull.index_value(value, dtype)


def _wrapped(pull: Pull, tensor: Tensor, size: Index, at: At) -> Coordinate:
    """The index `tensor` has at `at`, in [0, size): negative ones count from the back, others are clamped."""
    c, index = pull.coordinates, data_index(pull, tensor, at)
    counted = c.where("slt", index, 0, c.add(index, size), index)
    return c.clamp(counted, 0, pull.b.max(pull.b.sub(size, 1), 0))


@pulls("nn.pad")
def _pad(pull: Pull, op: Any, at: At) -> Value:
    c, b, dtype = pull.coordinates, pull.b, dtype_of(op.y)
    sizes = pull.shape(op.x)
    pads = pull.content(op.pads)
    axes = (
        [int(a) % len(at) for a in pull.content(op.axes)]
        if op.axes is not None
        else list(range(len(at)))
    )
    source = list(at)
    inside: Value | bool = True
    for position, axis in enumerate(axes):
        before, after = pads[position], pads[position + len(axes)]
        if before == 0 and after == 0:
            continue
        place = c.sub(at[axis], before)
        size = sizes[axis]
        if op.mode == "constant":
            low = pull.lanewise(c.compare("sge", place, 0), [place])
            high = pull.lanewise(c.compare("slt", place, size), [place])
            inside = both(pull, inside, both(pull, low, high))
            source[axis] = c.clamp(place, 0, b.max(b.sub(size, 1), 0))
        else:
            # crops come first: what is reflected, repeated or wrapped is the cropped axis
            cropped_low = b.max(b.sub(0, before), 0)
            kept = b.sub(b.add(size, b.min(after, 0)), cropped_low)
            source[axis] = c.add(
                _folded(pull, op.mode, c.sub(place, cropped_low), kept), cropped_low
            )
    value = pull.value(op.x, source)
    if op.mode != "constant" or inside is True:
        return value
    if op.value is not None:
        fill = pull.value(op.value, [0] * len(pull.sizes.shape(op.value)))
    else:
        fill = pull.zero(dtype)
    return pull.select(inside, value, fill, dtype)


def _folded(pull: Pull, mode: str, c: Coordinate, size: Index) -> Coordinate:
    """A coordinate that may lie outside [0, size), brought inside as the mode says."""
    k = pull.coordinates
    if mode == "edge":
        return k.clamp(c, 0, pull.b.sub(size, 1))
    if mode == "wrap":
        return k.modulo(c, size)
    period = pull.b.max(pull.b.mul(2, pull.b.sub(size, 1)), 1)
    place = k.modulo(c, period)
    return k.minimum(place, k.reflected(place, period))


@pulls("nn.depth_to_space")
def _depth_to_space(pull: Pull, op: Any, at: At) -> Value:
    k, block = pull.coordinates, op.block
    n, channel, h, w = at
    channels = pull.shape(op.y)[1]
    dh, dw = k.rem(h, block), k.rem(w, block)
    if op.mode == "DCR":
        offset = k.add(k.mul(dh, block), dw)
        source = k.add(k.mul(offset, channels), channel)
    else:
        source = k.add(k.mul(k.add(k.mul(channel, block), dh), block), dw)
    return pull.value(op.x, [n, source, k.div(h, block), k.div(w, block)])


@pulls("nn.space_to_depth")
def _space_to_depth(pull: Pull, op: Any, at: At) -> Value:
    k, block = pull.coordinates, op.block
    n, channel, h, w = at
    if op.mode == "DCR":
        channels = pull.shape(op.x)[1]
        offset, source = k.div(channel, channels), k.rem(channel, channels)
    else:
        source, offset = k.div(channel, block * block), k.rem(channel, block * block)
    dh, dw = k.div(offset, block), k.rem(offset, block)
    return pull.value(op.x, [n, source, k.add(k.mul(h, block), dh), k.add(k.mul(w, block), dw)])
