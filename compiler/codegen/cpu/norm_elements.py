"""Element functions of the normalizations; statistics are computed for each element anew."""

from collections.abc import Callable, Sequence
from typing import Any

from xcompile.compiler.codegen.cpu import math
from xcompile.compiler.codegen.cpu.builder import Index, Value
from xcompile.compiler.codegen.cpu.casts import convert
from xcompile.compiler.codegen.cpu.coordinates import Coordinate
from xcompile.compiler.codegen.cpu.elementwise import Scalars
from xcompile.compiler.codegen.cpu.nests import nest, read, wide
from xcompile.compiler.codegen.cpu.pull import At, Pull, pulls
from xcompile.compiler.codegen.cpu.reduction_elements import mean_of, place_of_extreme
from xcompile.compiler.ir.op import Value as Tensor
from xcompile.dialects.nn.base import dtype_of

ElementAt = Callable[[Sequence[Index]], Value]


def _scalars(pull: Pull, op: Any) -> Scalars:
    return Scalars(pull.b, pull.lanes, wide(dtype_of(op.y)))


def _rounded(pull: Pull, op: Any, s: Scalars, y: Value) -> Value:
    return convert(pull.b, y, s.dtype, dtype_of(op.y), pull.lanes)


def _sum(pull: Pull, s: Scalars, extents: Sequence[Index], term: ElementAt) -> Value:
    def body(ks: list[Index], found: list[Value]) -> list[Value]:
        return [s.add(found[0], term(ks))]

    return nest(pull, extents, [s.const(0)], [s.type], body)[0]


def _moments(
    pull: Pull, s: Scalars, extents: Sequence[Index], x_at: ElementAt, *, centered: bool = True
) -> tuple[Value, Value]:
    """The mean (0 if not `centered`) and the mean square of what differs from it."""
    mean = mean_of(pull, s, _sum(pull, s, extents, x_at), extents) if centered else s.const(0)

    def square(ks: Sequence[Index]) -> Value:
        distance = s.sub(x_at(ks), mean)
        return s.mul(distance, distance)

    return mean, mean_of(pull, s, _sum(pull, s, extents, square), extents)


def _as(pull: Pull, s: Scalars, tensor: Tensor, value: Value) -> Value:
    return convert(pull.b, value, dtype_of(tensor), s.dtype, pull.lanes)


def _channel(pull: Pull, s: Scalars, tensor: Tensor, at: At) -> Value:
    return _as(pull, s, tensor, pull.value(tensor, [at[1]]))


def _finished(pull: Pull, op: Any, at: At, s: Scalars, mean: Value, variance: Value) -> Value:
    """`scale·(x - mean) / √(variance + epsilon) + bias` with scale and bias a channel."""
    root = s.call(math.sqrt, s.add(variance, s.const(op.epsilon)))
    y = s.div(s.mul(_channel(pull, s, op.scale, at), s.sub(read(pull, op.x, at), mean)), root)
    return _rounded(pull, op, s, s.add(y, _channel(pull, s, op.bias, at)))


@pulls("nn.batch_norm")
def _batch_norm(pull: Pull, op: Any, at: At) -> Value:
    s = _scalars(pull, op)
    mean, variance = (_channel(pull, s, v, at) for v in (op.mean, op.variance))
    return _finished(pull, op, at, s, mean, variance)


@pulls("nn.instance_norm", loops=True)
def _instance_norm(pull: Pull, op: Any, at: At) -> Value:
    s = _scalars(pull, op)
    extents = pull.shape(op.x)[2:]
    moments = _moments(pull, s, extents, lambda ks: read(pull, op.x, [*at[:2], *ks]))
    return _finished(pull, op, at, s, *moments)


@pulls("nn.group_norm", loops=True)
def _group_norm(pull: Pull, op: Any, at: At) -> Value:
    s, c = _scalars(pull, op), pull.coordinates
    sizes = pull.shape(op.x)
    each = pull.b.div(sizes[1], op.groups)
    first = c.mul(c.div(at[1], each), each)
    moments = _moments(
        pull, s, [each, *sizes[2:]],
        lambda ks: read(pull, op.x, [at[0], c.add(first, ks[0]), *ks[1:]]),
    )  # fmt: skip
    return _finished(pull, op, at, s, *moments)


@pulls("nn.layer_norm", "nn.rms_norm", loops=True)
def _trailing_norm(pull: Pull, op: Any, at: At) -> Value:
    s, centered = _scalars(pull, op), op.NAME == "nn.layer_norm"
    extents = pull.shape(op.x)[op.axis :]
    mean, variance = _moments(
        pull, s, extents, lambda ks: read(pull, op.x, [*at[: op.axis], *ks]), centered=centered
    )
    root = s.call(math.sqrt, s.add(variance, s.const(op.epsilon)))
    y = s.div(s.sub(read(pull, op.x, at), mean), root)
    shape = pull.sizes.shape(op.y)
    for value, combine in ((op.scale, s.mul), (getattr(op, "bias", None), s.add)):
        if value is not None:
            y = combine(y, _as(pull, s, value, pull.broadcast(value, at, shape)))
    return _rounded(pull, op, s, y)


def _along(at: At, axes: Sequence[int], ks: Sequence[Index]) -> list[Coordinate]:
    """`at`, but at `ks` along the axes."""
    here = list(at)
    for axis, k in zip(axes, ks, strict=True):
        here[axis] = k
    return here


@pulls("nn.mean_variance_norm", loops=True)
def _mean_variance_norm(pull: Pull, op: Any, at: At) -> Value:
    s, sizes = _scalars(pull, op), pull.shape(op.x)
    mean, variance = _moments(
        pull, s, [sizes[a] for a in op.axes], lambda ks: read(pull, op.x, _along(at, op.axes, ks))
    )
    deviation = s.add(s.call(math.sqrt, variance), s.const(1e-9))
    return _rounded(pull, op, s, s.div(s.sub(read(pull, op.x, at), mean), deviation))


@pulls("nn.lp_norm", loops=True)
def _lp_norm(pull: Pull, op: Any, at: At) -> Value:
    s = _scalars(pull, op)

    def term(ks: Sequence[Index]) -> Value:
        x = read(pull, op.x, _along(at, [op.axis], ks))
        return s.op("math.absf", x) if op.p == 1 else s.mul(x, x)

    norm = _sum(pull, s, [pull.shape(op.x)[op.axis]], term)
    norm = norm if op.p == 1 else s.call(math.sqrt, norm)
    zero = s.compare("eq", norm, s.const(0))
    return _rounded(pull, op, s, s.select(zero, s.const(0), s.div(read(pull, op.x, at), norm)))


@pulls("nn.hardmax", loops=True)
def _hardmax(pull: Pull, op: Any, at: At) -> Value:
    s = Scalars(pull.b, pull.lanes, dtype_of(op.y))
    rest = [*at[: op.axis], *at[op.axis + 1 :]]
    place = place_of_extreme(pull, op, op.axis, rest)
    index = Scalars(pull.b, pull.lanes, "i64")
    here = index.compare("eq", place, pull.as_integer(at[op.axis], "i64"))
    return pull.select(here, s.const(1), s.const(0), s.dtype)
