"""Element functions of matmul, matmul_integer, matmul_blocked and einsum."""

from typing import Any

from xcompile.compiler.codegen.cpu.builder import Index, Value
from xcompile.compiler.codegen.cpu.casts import convert
from xcompile.compiler.codegen.cpu.coordinates import Coordinate
from xcompile.compiler.codegen.cpu.elementwise import Scalars
from xcompile.compiler.codegen.cpu.nests import nest, read, wide
from xcompile.compiler.codegen.cpu.pull import At, Pull, pulls
from xcompile.compiler.ir.op import Value as Tensor
from xcompile.compiler.support.dims import Dim, broadcast_dims
from xcompile.dialects.nn.base import dtype_of


@pulls("nn.matmul", "nn.matmul_integer", loops=True)
def _matmul(pull: Pull, op: Any, at: At) -> Value:
    """A loop over k in the type of the sums."""
    dtype = dtype_of(op.y)
    s = Scalars(pull.b, pull.lanes, wide(dtype))
    a_shape, b_shape, y_shape = (pull.sizes.shape(v) for v in (op.a, op.b, op.y))
    a_vector, b_vector = len(a_shape) == 1, len(b_shape) == 1
    rest = list(at)
    n = None if b_vector else rest.pop()
    m = None if a_vector else rest.pop()
    batch = y_shape[: len(rest)]

    def operand(
        tensor: Tensor, outer: Coordinate | None, k: Index, *, swap: bool, k_first: bool
    ) -> Value:
        shape = pull.sizes.shape(tensor)
        inner = [k] if outer is None else [k, outer] if k_first != swap else [outer, k]
        lead = shape[: len(shape) - len(inner)]
        skip = len(rest) - len(lead)
        places = [
            pull.still(d, c, r) for d, c, r in zip(lead, rest[skip:], batch[skip:], strict=True)
        ]
        return summed(tensor, [*places, *inner])

    def summed(tensor: Tensor, places: list[Coordinate]) -> Value:
        found, source = pull.value(tensor, places), dtype_of(tensor)
        return convert(pull.b, found, source, wide(dtype), pull.lanes)

    def shifted(x: Value, zero: Tensor | None, outer: Coordinate | None, axis: int) -> Value:
        """`x` less a zero point, one for all or one for each row or column."""
        if zero is None:
            return x
        shape = pull.sizes.shape(zero)
        where = [pull.still(d, 0 if outer is None else outer, y_shape[axis]) for d in shape]
        return s.sub(x, summed(zero, where))

    def body(ks: list[Index], sums: list[Value]) -> list[Value]:
        x = operand(op.a, m, ks[0], swap=op.transpose_a, k_first=False)
        y = operand(op.b, n, ks[0], swap=op.transpose_b, k_first=True)
        if op.NAME == "nn.matmul_integer":
            x = shifted(x, op.a_zero_point, m, -1 if b_vector else -2)
            y = shifted(y, op.b_zero_point, n, -1)
        return [s.add(sums[0], s.mul(x, y))]

    depth = a_shape[-1] if a_vector or not op.transpose_a else a_shape[-2]
    total = nest(pull, [pull.dim(depth)], [s.const(0)], [s.type], body)[0]
    return convert(pull.b, total, wide(dtype), dtype, pull.lanes)


@pulls("nn.matmul_blocked", loops=True)
def _matmul_blocked(pull: Pull, op: Any, at: At) -> Value:
    """A loop over k; each weight is made when it is met."""
    s = Scalars(pull.b, pull.lanes, "f32")
    *lead, n = at
    k_axis = 1 if op.transpose_b else 0

    def read_float(tensor: Tensor, k: Index) -> Value:
        places = [n, k] if k_axis else [k, n]
        return convert(pull.b, pull.value(tensor, places), dtype_of(tensor), "f32", pull.lanes)

    def body(ks: list[Index], sums: list[Value]) -> list[Value]:
        k, block = ks[0], pull.b.div(ks[0], op.block)
        weight = read_float(op.b, k)
        if op.zero_point is not None:
            weight = s.sub(weight, read_float(op.zero_point, block))
        weight = s.mul(weight, read_float(op.scale, block))
        return [s.add(sums[0], s.mul(pull.value(op.a, [*lead, k]), weight))]

    depth = pull.dim(pull.sizes.shape(op.b)[k_axis])
    return nest(pull, [depth], [s.const(0)], [s.type], body)[0]


@pulls("nn.einsum", loops=True)
def _einsum(pull: Pull, op: Any, at: At) -> Value:
    """A nest over the labels that the result does not have; an axis of size 1 stands still."""
    dtype = dtype_of(op.y)
    s = Scalars(pull.b, pull.lanes, wide(dtype))
    terms, output = op.terms()
    size_of: dict[str, Dim] = {}
    for term, x in zip(terms, op.xs, strict=True):
        for label, size in zip(term, pull.sizes.shape(x), strict=True):
            size_of[label] = broadcast_dims(size_of.get(label, 1), size)
    summed = [label for label in size_of if label not in output]

    def body(ks: list[Index], sums: list[Value]) -> list[Value]:
        places: dict[str, Coordinate] = dict(zip(output, at, strict=True))
        places.update(zip(summed, ks, strict=True))
        product: Value | None = None
        for term, x in zip(terms, op.xs, strict=True):
            shape = pull.sizes.shape(x)
            here = [pull.still(d, places[n], size_of[n]) for n, d in zip(term, shape, strict=True)]
            factor = read(pull, x, here)
            product = factor if product is None else s.mul(product, factor)
        assert product is not None
        return [s.add(sums[0], product)]

    extents = [pull.dim(size_of[label]) for label in summed]
    total = nest(pull, extents, [s.const(0)], [s.type], body)[0]
    return convert(pull.b, total, wide(dtype), dtype, pull.lanes)
