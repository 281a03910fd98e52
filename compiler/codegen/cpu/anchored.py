"""Kernels with an anchor: an op whose accumulators flow through elementwise ops into the result.

A family computes accumulators and hands each to a sink; here the sink is made from the kernel's
other ops, whose element functions take the accumulators for the anchor's result, and from where the
result is stored.
"""

import re
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

from xcompile.compiler.codegen.cpu.builder import Builder, Index, Signature, Value
from xcompile.compiler.codegen.cpu.coordinates import Coordinate, Lane
from xcompile.compiler.codegen.cpu.family import Kernel
from xcompile.compiler.codegen.cpu.layout import Layout
from xcompile.compiler.codegen.cpu.pull import PULLS, Pull, loops
from xcompile.compiler.codegen.cpu.sink import Sink
from xcompile.compiler.ir.op import Op
from xcompile.compiler.ir.op import Value as Tensor
from xcompile.compiler.ir.rewrite import no_match, producer
from xcompile.compiler.schedule.window import Size
from xcompile.compiler.support.dims import Dim, product, symbol, symbols_of
from xcompile.dialects.nn.base import Shape
from xcompile.dialects.nn.reshape import Transpose

_MONOMIAL = re.compile(r"\w+(\*\w+)*")

Finish = Callable[[Pull, Value, Sequence[Coordinate]], Value]
"""What an anchor itself still does to an accumulator, such as adding its bias."""


def anchor(kernel: Kernel, *names: str) -> Op:
    """The kernel's anchor, which must be one of the named ops; else leaves by `no_match`."""
    if len(kernel.results) != 1:
        no_match("the kernel has several results")
    found = [op for op in kernel.ops if op.NAME in names]
    if len(found) != 1:
        no_match(f"the kernel has not exactly one of {', '.join(names)}")
    return found[0]


def plain(kernel: Kernel) -> None:
    """Leaves by `no_match` when an operand or a result is in a blocked layout."""
    if any(Layout.of(v.type).block for v in [*kernel.parameters, *kernel.results]):
        no_match("operands are in a blocked layout")


def ending(kernel: Kernel, name: str, what: str) -> tuple[Op, list[Op]]:
    """The named op, which a plain kernel ends in, and the elementwise ops before it; else leaves by `no_match`."""
    found = [op for op in kernel.ops if name == op.NAME]
    if len(found) != 1 or list(kernel.results) != list(found[0].results):
        no_match(f"the kernel is not {what} and what comes before it")
    others = [op for op in kernel.ops if op != found[0]]
    if any(loops(op) or op.NAME not in PULLS for op in others):
        no_match("an operand is computed by more than element functions")
    plain(kernel)
    return found[0], others


def make_sink(
    kernel: Kernel,
    b: Builder,
    signature: Signature,
    op: Op,
    lane_axis: int,
    finish: Finish | None = None,
    leading: int = 0,
) -> Sink:
    """The sink of a kernel whose anchor is `op`.

    Args:
        kernel: the kernel.
        b: where the code goes.
        signature: the kernel function's parameters.
        op: the anchor.
        lane_axis: the logical axis of the anchor's result along which lanes run.
        finish: what is done to accumulators first.
        leading: how many axes in front the family has flattened into the first one it names.
    """
    pulls: dict[int, Pull] = {}
    destination = kernel.destination(signature, 0)
    root, result = kernel.results[0], op.results[0]
    flattened = kernel.shape(result)[: leading + 1]

    def sink(_: Builder, value: Value, at: Sequence[Index], lanes: int, mask: Value | None) -> None:
        if lanes not in pulls:
            pulls[lanes] = kernel.pull(b, signature, lanes)
        pull = pulls[lanes]
        places = [*stored_places(pull, at[0], flattened, kernel.seams), *at[1:]]
        if lanes:
            places[lane_axis] = Lane(at[-1] if leading else at[lane_axis], lanes)

        def give(_: Sequence[Coordinate]) -> Value:
            return finish(pull, value, places) if finish else value

        with (
            pull.masked(mask, zero_padding=bool(destination.layout.block)),
            pull.bound(result, give),
        ):
            there = _through_transpositions(root, places)
            pull.store(destination, pull.value(root, there), there)

    return sink


def driven(flat: Coordinate, sizes: Sequence[Dim]) -> list[Coordinate]:
    """A flat index over neighbouring axes as the coordinate of the last one that is longer than 1.

    Those of length 1 stay at 0, where operands that broadcast have them; offsets are linear, so the place is the same.
    """
    if not sizes:
        return []
    longer = [axis for axis, size in enumerate(sizes) if size != 1]
    driver = longer[-1] if longer else len(sizes) - 1
    return [flat if axis == driver else 0 for axis in range(len(sizes))]


def stored_places(
    pull: Pull, flat: Coordinate, sizes: Sequence[Dim], seams: AbstractSet[int]
) -> list[Coordinate]:
    """Coordinates on the first axes of a result from their flat index, where rows of it may end before `seams`."""
    axis = next((s for s in sorted(seams) if s < len(sizes)), 0)
    if not axis:
        return driven(flat, sizes)
    row = pull.dim(product(sizes[axis:]))
    outer, inner = pull.coordinates.div(flat, row), pull.coordinates.rem(flat, row)
    return [*driven(outer, sizes[:axis]), *driven(inner, sizes[axis:])]


def read_places(
    kernel: Kernel, op: Op, pull: Pull, flat: Coordinate, sizes: Shape
) -> list[Coordinate]:
    """Coordinates on the neighbouring axes of an operand of the anchor, from the flat index over them.

    Operands that are arguments are contiguous, so that one axis can stand for all.
    """
    computed = any(o != op and o.NAME != "kernel.dims" for o in kernel.ops)
    if len(sizes) > 1 and computed:
        return pull.coordinates.unflatten(flat, [pull.dim(d) for d in sizes])
    return driven(flat, sizes)


def _through_transpositions(root: Tensor, places: list[Coordinate]) -> list[Coordinate]:
    """Coordinates in the result, from those in the value that transpositions at the kernel's end start from."""
    perms: list[tuple[int, ...]] = []
    value = root
    while (transpose := producer(value, Transpose)) is not None:
        perms.append(transpose.perm)
        value = transpose.x
    for perm in reversed(perms):
        places = [places[p] for p in perm]
    return places


def operand_position(kernel: Kernel, value: Tensor) -> int:
    """Which argument of the kernel `value` is; leaves by `no_match` when it is none."""
    parameters = kernel.parameters
    if value not in parameters:
        no_match("an operand of the anchor is computed in the kernel")
    return parameters.index(value)


def size(dim: Dim) -> int | str:
    """A Dim as schedules name sizes: an integer or a symbol; leaves by `no_match` for an expression."""
    if isinstance(dim, int):
        return dim
    if symbols_of(dim) != (str(dim),):
        no_match(f"the size {dim} is an expression")
    return str(dim)


def monomial(dim: Dim) -> Size:
    """A Dim as schedules name sizes: an integer or a product of symbols; leaves by `no_match` for others."""
    if isinstance(dim, int):
        return dim
    if not _MONOMIAL.fullmatch(str(dim)):
        no_match(f"the size {dim} is not a product")
    return str(dim)


def static(shape: Shape) -> list[int]:
    """The shape as integers; leaves by `no_match` when a size is known only at run time."""
    found = [d for d in shape if isinstance(d, int)]
    if len(found) != len(shape):
        no_match("a size is known only at run time")
    return found


def symbol_sizes(kernel: Kernel) -> dict[str, Dim]:
    """Each of the kernel's symbols as a Dim, for extents."""
    return {name: symbol(name) for name in kernel.symbols}
