"""Kernels of ops that write where data says, or that order elements: one unit for each independent slice.

Within a slice everything happens in program order, so results do not depend on the number of threads. An index
outside the tensor writes nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from xcompile.compiler.codegen.cpu.builder import Buffer, Builder, Index, Signature, Value
from xcompile.compiler.codegen.cpu.casts import convert
from xcompile.compiler.codegen.cpu.coordinates import Coordinate
from xcompile.compiler.codegen.cpu.elementwise import Scalars
from xcompile.compiler.codegen.cpu.family import Kernel, Packing, Preparation, emitted
from xcompile.compiler.codegen.cpu.layout import Layout
from xcompile.compiler.codegen.cpu.movement import data_index
from xcompile.compiler.codegen.cpu.nests import wide
from xcompile.compiler.codegen.cpu.pull import Pull, Source
from xcompile.compiler.codegen.job import EmittedKernel
from xcompile.compiler.ir.op import Op
from xcompile.compiler.ir.op import Value as Tensor
from xcompile.compiler.ir.rewrite import no_match
from xcompile.compiler.schedule.schedule import from_json
from xcompile.compiler.support.dims import Dim, product
from xcompile.dialects.nn.base import Shape, Sizes, dtype_of


@dataclass(frozen=True)
class WholeSchedule:
    """How such a kernel is cut: there is nothing to choose."""


@dataclass(frozen=True)
class Slices:
    """What the emitters of one slice work with: scalars only.

    Attributes:
        b: where the code goes.
        pull: gives elements of the operands.
        results: where the results lie.
        scratch: memory for the slice, if the op asks for some.
    """

    b: Builder
    pull: Pull
    results: Sequence[Source]
    scratch: Buffer | None

    def loops(
        self,
        extents: Sequence[Index],
        body: Callable[[list[Index]], None],
        at: Sequence[Index] = (),
    ) -> None:
        """A nest of loops around `body`."""
        if len(at) == len(extents):
            with self.pull.scope():
                body(list(at))
            return
        with self.b.loop(0, extents[len(at)]) as index:
            self.loops(extents, body, [*at, index])

    def place(
        self, tensor: Tensor, at: Sequence[Coordinate], size: Index
    ) -> tuple[Index, Value | bool]:
        """An index that is data, counted from the front, and whether it is in [0, size)."""
        index = data_index(self.pull, tensor, at)
        assert isinstance(index, int | str)
        b = self.b
        index = b.select(b.compare("slt", index, 0), b.add(index, size), index)
        return index, self.both(b.compare("sge", index, 0), b.compare("slt", index, size))

    def both(self, a: Value | bool, b: Value | bool) -> Value | bool:
        """The conjunction of two conditions that are one for all lanes."""
        if isinstance(a, bool):
            return b if a else False
        if isinstance(b, bool):
            return a if b else False
        return self.b.binary("arith.andi", a, b, 0, "i1")


@dataclass(frozen=True)
class Whole:
    """How one op is computed.

    Attributes:
        slices: the sizes over which slices are numbered.
        emit: writes one slice, given its multi-index.
        scratch: bytes of scratch memory a slice needs.
    """

    slices: Callable[[Sizes, Any], Shape]
    emit: Callable[[Slices, Any, list[Index]], None]
    scratch: Callable[[Any], int] = lambda op: 0


WHOLE: dict[str, Whole] = {}
"""By op name."""


class WholePlan:
    """See `family.Plan`."""

    packings: dict[int, Packing] = {}
    preparations: dict[int, Preparation] = {}

    def __init__(self, kernel: Kernel, schedule: str | None, family: str) -> None:
        self.family = family
        self._kernel = kernel
        found = [op for op in kernel.ops if op.NAME in WHOLE]
        if len(found) != 1:
            no_match("the kernel has several ops that write where data says")
        self._op: Any = found[0]
        if list(kernel.results) != list(self._op.results):
            no_match("something follows in the kernel")
        if any(Layout.of(v.type).block for v in kernel.results):
            no_match("results are in a blocked layout")
        self.schedule = from_json(WholeSchedule, schedule) if schedule else WholeSchedule()
        self._whole = WHOLE[self._op.NAME]
        self._sizes = self._whole.slices(kernel.sizes, self._op)
        self.scratch = self._whole.scratch(self._op)

    @property
    def extent(self) -> Dim:
        return product(self._sizes)

    @property
    def unit_cost(self) -> float:
        elements, units = product(self._kernel.shape(self._op.operands[0])), self.extent
        if not isinstance(elements, int) or not isinstance(units, int):
            return 40.0 * 256
        return 40.0 * elements / max(1, units)

    def emit(self, symbol: str) -> EmittedKernel:
        signature = self._kernel.signature(scratch=self.scratch > 0)
        b = Builder()
        pull = self._kernel.pull(b, signature, 0)
        scratch = signature.buffer(len(signature.buffers) - 1) if signature.scratch else None
        with b.loop(signature.begin, signature.end) as unit, pull.scope():
            self._slice(b, pull, signature, scratch, unit)
        return emitted(b, symbol, signature)

    def _slice(
        self, b: Builder, pull: Pull, signature: Signature, scratch: Buffer | None, unit: Index
    ) -> None:
        """The slice that is parallel unit `unit`."""
        results = [self._kernel.destination(signature, i) for i in range(len(self._kernel.results))]
        sizes = [pull.dim(d) for d in self._sizes]
        at = b.unflatten(unit, sizes) if sizes else []
        self._whole.emit(Slices(b, pull, results, scratch), self._op, at)


def is_whole(op: Op) -> bool:
    """Whether the op needs a kernel of this kind."""
    return op.NAME in WHOLE


# -- scatters -------------------------------------------------------------------------------------


def _combine(slices: Slices, op: Any, old: Value, new: Value) -> Value:
    """The old and the new value joined; 16-bit floats are rounded each time, the sum of bools is their disjunction."""
    if op.reduction == "none":
        return new
    dtype, lanes = dtype_of(op.x), slices.pull.lanes
    if dtype == "i1" and op.reduction == "add":
        return slices.b.binary("arith.ori", old, new, lanes, "i1")
    s = Scalars(slices.b, lanes, wide(dtype))
    a, c = (convert(slices.b, v, dtype, s.dtype, lanes) for v in (old, new))
    function = {"add": s.add, "mul": s.mul, "max": s.maximum, "min": s.minimum}[op.reduction]
    return convert(slices.b, function(a, c), s.dtype, dtype, lanes)


def write_joined(slices: Slices, op: Any, at: Sequence[Coordinate], new: Value) -> None:
    """Write updates of a scatter, joined with what is there."""
    result, pull = slices.results[0], slices.pull
    old = new if op.reduction == "none" else pull.load(result, at)
    pull.store(result, _combine(slices, op, old, new), at)


def without_axis(sizes: Sizes, op: Any) -> Shape:
    """The sizes of an op's operand but for the one of its axis: a slice is a row along the axis."""
    shape = sizes.shape(op.x)
    axis = op.axis % len(shape)
    return (*shape[:axis], *shape[axis + 1 :])


def _scatter_elements(slices: Slices, op: Any, at: list[Index]) -> None:
    pull, b = slices.pull, slices.b
    sizes, counts = pull.shape(op.x), pull.shape(op.indices)
    axis = op.axis % len(sizes)

    def here(k: Index) -> list[Index]:
        return [*at[:axis], k, *at[axis:]]

    def copy(ks: list[Index]) -> None:
        pull.store(slices.results[0], pull.value(op.x, here(ks[0])), here(ks[0]))

    def update(ks: list[Index]) -> None:
        place, inside = slices.place(op.indices, here(ks[0]), sizes[axis])
        with b.when(inside), pull.scope():
            write_joined(slices, op, here(place), pull.value(op.updates, here(ks[0])))

    slices.loops([sizes[axis]], copy)
    others = [*counts[:axis], *counts[axis + 1 :]]
    touched: Value | bool = True
    for position, count in zip(at, others, strict=True):
        touched = slices.both(touched, b.compare("slt", position, count))
    with b.when(touched):
        slices.loops([counts[axis]], update)


WHOLE["nn.scatter_elements"] = Whole(without_axis, _scatter_elements)


def _max_unpool(slices: Slices, op: Any, at: list[Index]) -> None:
    """Indices count in the shape that the pool had without `shape`, which lies in the begin corner."""
    pull, b, result = slices.pull, slices.b, slices.results[0]
    sizes, whole = pull.shape(op.x), pull.shape(op.y)
    natural = [pull.dim(d) for d in op.natural(pull.sizes.shape(op.x))]
    cells: Index = 1
    for size in natural:
        cells = b.mul(cells, size)

    def clear(ks: list[Index]) -> None:
        pull.store(result, pull.zero(dtype_of(op.y)), ks)

    def put(ks: list[Index]) -> None:
        flat, inside = slices.place(op.indices, ks, cells)
        with b.when(inside), pull.scope():
            there = b.unflatten(flat, natural)
            fits: Value | bool = True
            for place, size in zip(there, whole, strict=True):
                fits = slices.both(fits, b.compare("slt", place, size))
            with b.when(fits):
                pull.store(result, pull.value(op.x, ks), there)

    slices.loops(whole, clear)
    slices.loops(sizes, put)


def _one(sizes: Sizes, op: Any) -> Shape:
    return ()


WHOLE["nn.max_unpool"] = Whole(_one, _max_unpool)


# -- linear algebra -------------------------------------------------------------------------------


def _det(slices: Slices, op: Any, at: list[Index]) -> None:
    """Gaussian elimination with partial pivoting in scratch memory: the signed product of the pivots."""
    pull, b = slices.pull, slices.b
    assert slices.scratch is not None
    dtype = dtype_of(op.x)
    s = Scalars(b, 0, wide(dtype))
    size = pull.shape(op.x)[-1]
    assert isinstance(size, int)
    matrix = b.view(slices.scratch, 0, s.dtype)

    def place(row: Index, column: Index) -> Index:
        return b.add(b.mul(row, size), column)

    def copy(ks: list[Index]) -> None:
        x = convert(b, pull.value(op.x, [*at, *ks]), dtype, s.dtype, 0)
        b.store(x, matrix, place(*ks))

    def step(k: Index, found: list[Value]) -> list[Value]:
        chosen = _pivot(b, s, matrix, place, k, size)
        sign = s.select(
            b.op(f"arith.cmpi eq, {chosen}, {b.index(k)} : index"), s.const(1), s.const(-1)
        )
        with b.loop(k, size) as column:
            above, below = place(k, column), place(chosen, column)
            first, second = b.load(matrix, above), b.load(matrix, below)
            b.store(second, matrix, above)
            b.store(first, matrix, below)
        pivot = b.load(matrix, place(k, k))
        with b.when(s.compare("ne", pivot, s.const(0))), b.loop(b.add(k, 1), size) as row:
            factor = s.div(b.load(matrix, place(row, k)), pivot)
            with b.loop(k, size) as column:
                taken = s.mul(factor, b.load(matrix, place(k, column)))
                left = s.sub(b.load(matrix, place(row, column)), taken)
                b.store(left, matrix, place(row, column))
        return [s.mul(found[0], s.mul(sign, pivot))]

    slices.loops([size, size], copy)
    result = b.reduce(0, size, 1, [s.const(1)], [s.type], step)[0] if size else s.const(1)
    pull.store(slices.results[0], convert(b, result, s.dtype, dtype, 0), at)


def _pivot(
    b: Builder,
    s: Scalars,
    matrix: Buffer,
    place: Callable[[Index, Index], Index],
    k: Index,
    size: int,
) -> Value:
    """The row from `k` on whose element of column `k` has the greatest magnitude."""

    def better(row: Index, best: list[Value]) -> list[Value]:
        magnitude = s.op("math.absf", b.load(matrix, place(row, k)))
        larger = s.compare("gt", magnitude, best[1])
        index = b.op(f"arith.select {larger}, {b.index(row)}, {best[0]} : index")
        return [index, s.select(larger, magnitude, best[1])]

    start = [b.index(k), s.op("math.absf", b.load(matrix, place(k, k)))]
    return b.reduce(b.add(k, 1), size, 1, start, ["index", s.type], better)[0]


def _matrix_bytes(op: Any) -> int:
    size = op.x.type.shape[-1]
    return 8 * size * size


WHOLE["nn.det"] = Whole(lambda sizes, op: sizes.shape(op.y), _det, _matrix_bytes)
