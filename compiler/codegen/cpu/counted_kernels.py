"""Kernels of ops whose result has as many elements as data says; see `dialects/nn/counted.py`.

What they find goes to the result in order, so each is one unit, or one for each independent slice. None writes beyond
the size that it is told, whatever the data are.
"""

from collections.abc import Callable
from typing import Any

from xcompile.compiler.codegen.cpu.builder import Builder, Index, Value
from xcompile.compiler.codegen.cpu.casts import convert
from xcompile.compiler.codegen.cpu.coordinates import Coordinate
from xcompile.compiler.codegen.cpu.elementwise import Scalars
from xcompile.compiler.codegen.cpu.nests import both, nest, wide
from xcompile.compiler.codegen.cpu.pull import At, Pull, pulls
from xcompile.compiler.codegen.cpu.whole import WHOLE, Slices, Whole
from xcompile.compiler.ir.op import Value as Tensor
from xcompile.dialects.nn.base import Shape, Sizes, dtype_of
from xcompile.dialects.nn.counted import SCALE_ROUNDING

_MOST_DOUBLINGS = 48


def _one(sizes: Sizes, op: Any) -> Shape:
    return ()


def _fill(
    slices: Slices, accepted: Value, place: Value, limit: Index, put: Callable[[], None]
) -> list[Value]:
    """Put an element that is accepted where `place` says, while there is room; the next place."""
    b = slices.b
    with b.when(both(slices.pull, accepted, b.compare("slt", place, limit))), slices.pull.scope():
        put()
    return [b.index(b.add(place, b.select(accepted, 1, 0)))]


def _nonzero(slices: Slices, op: Any, at: list[Index]) -> None:
    pull, b, result = slices.pull, slices.b, slices.results[0]
    limit, dtype = pull.shape(op.y)[1], dtype_of(op.x)

    def visit(ks: list[Index], carried: list[Value]) -> list[Value]:
        (place,) = carried

        def put() -> None:
            for axis, k in enumerate(ks):
                pull.store(result, pull.as_integer(k, "i64"), [axis, place])

        accepted = convert(b, pull.value(op.x, ks), dtype, "i1", 0)
        return _fill(slices, accepted, place, limit, put)

    nest(pull, pull.shape(op.x), [b.index(0)], ["index"], visit)


WHOLE["nn.nonzero"] = Whole(_one, _nonzero)


def _compress_slices(sizes: Sizes, op: Any) -> Shape:
    if op.axis is None:
        return ()
    shape = sizes.shape(op.x)
    axis = op.axis % len(shape)
    return (*shape[:axis], *shape[axis + 1 :])


def _compress(slices: Slices, op: Any, at: list[Index]) -> None:
    pull, b, result = slices.pull, slices.b, slices.results[0]
    sizes = pull.shape(op.x)
    axis = 0 if op.axis is None else op.axis % len(sizes)
    limit = pull.shape(op.y)[axis]

    def here(k: Index) -> list[Index]:
        return [*at[:axis], k, *at[axis:]]

    def visit(ks: list[Index], carried: list[Value]) -> list[Value]:
        source = b.unflatten(ks[0], sizes) if op.axis is None else here(ks[0])

        def put() -> None:
            pull.store(result, pull.value(op.x, source), here(carried[0]))

        return _fill(slices, pull.value(op.condition, ks), carried[0], limit, put)

    nest(pull, pull.shape(op.condition), [b.index(0)], ["index"], visit)


WHOLE["nn.compress"] = Whole(_compress_slices, _compress)


class _Unique:
    """Writes the kernel of `find_unique`: a stable merge sort of indices, then three passes over them.

    The indices of all elements (or slices) are sorted between `scratch` and `inverse`; then equal neighbours get one
    number, which goes to `inverse`.
    """

    def __init__(self, slices: Slices, op: Any) -> None:
        self.slices, self.op, self.b, self.pull = slices, op, slices.b, slices.pull
        self.count, self.inverse, self.first, self.counts, self.scratch = slices.results
        self.sizes = self.pull.shape(op.x)
        self.axis = None if op.axis is None else op.axis % len(self.sizes)
        self.total = self.pull.shape(op.inverse)[0]

    def write(self) -> None:
        self._each(lambda i: self._put(self.scratch, i, i))
        self._sort()
        self._number()
        if not self.op.ascending:
            self._renumber()
        self._each(lambda i: self._put(self.counts, i, 0))
        self._each(self._note)

    # -- memory ---------------------------------------------------------------------------------

    def _get(self, source: Any, i: Index) -> Value:
        return self.b.op(f"arith.index_cast {self.pull.load(source, [i])} : i64 to index")

    def _put(self, source: Any, i: Index, value: Index) -> None:
        self.pull.store(source, self.pull.as_integer(value, "i64"), [i])

    def _each(self, visit: Callable[[Index], None]) -> None:
        with self.b.loop(0, self.total) as i, self.pull.scope():
            visit(i)

    # -- order ----------------------------------------------------------------------------------

    def _element(self, i: Index, rest: list[Index]) -> Value:
        if self.axis is None:
            at = self.b.unflatten(i, self.sizes) if self.sizes else []
        else:
            at = [*rest[: self.axis], i, *rest[self.axis :]]
        return self.pull.value(self.op.x, at)

    def _compared(self, i: Index, k: Index) -> Value:
        """-1, 0 or 1 (i64) as element i comes before, with or after element k; slices lexicographically."""
        b, dtype = self.b, dtype_of(self.op.x)
        s = Scalars(b, 0, wide(dtype))

        def one(rest: list[Index]) -> Value:
            x, y = (convert(b, self._element(n, rest), dtype, s.dtype, 0) for n in (i, k))
            less, greater = s.compare("lt", x, y), s.compare("gt", x, y)
            if s.float:
                x_nan, y_nan = s.compare("ne", x, x), s.compare("ne", y, y)
                more = b.op(f"arith.cmpi ugt, {x_nan}, {y_nan} : i1")
                fewer = b.op(f"arith.cmpi ult, {x_nan}, {y_nan} : i1")
                greater = b.binary("arith.ori", greater, more, 0, "i1")
                less = b.binary("arith.ori", less, fewer, 0, "i1")
            up, down = (b.op(f"arith.extui {v} : i1 to i64") for v in (greater, less))
            return b.op(f"arith.subi {up}, {down} : i64")

        if self.axis is None:
            return one([])
        zero = b.int_constant(0)

        def next_one(rest: list[Index], carried: list[Value]) -> list[Value]:
            decided = b.op(f"arith.cmpi ne, {carried[0]}, {zero} : i64")
            return b.choose(decided, ["i64"], lambda: carried, lambda: [one(rest)])

        others = [n for axis, n in enumerate(self.sizes) if axis != self.axis]
        return nest(self.pull, others, [zero], ["i64"], next_one)[0]

    def _sort(self) -> None:
        """Runs of 1, 2, 4, … indices are merged from `scratch` to `inverse`, and copied back."""
        b, total = self.b, self.total
        with b.loop(0, _MOST_DOUBLINGS) as level, self.pull.scope():
            run = b.op(f"arith.shli {b.index(1)}, {b.index(level)} : index")
            with b.when(b.compare("slt", run, total)):
                double = b.add(run, run)
                with b.loop(0, total, double) as low, self.pull.scope():
                    middle = b.min(b.add(low, run), total)
                    self._merge(low, middle, b.min(b.add(low, double), total))
                self._each(lambda i: self._put(self.scratch, i, self._get(self.inverse, i)))

    def _merge(self, low: Index, middle: Index, high: Index) -> None:
        b = self.b

        def step(i: Index, carried: list[Value]) -> list[Value]:
            left, right = carried
            has_left, has_right = b.compare("slt", left, middle), b.compare("slt", right, high)

            def ordered() -> list[Value]:
                order = self._compared(
                    self._get(self.scratch, left), self._get(self.scratch, right)
                )
                return [b.op(f"arith.cmpi sle, {order}, {b.int_constant(0)} : i64")]

            among = both(self.pull, has_left, has_right)
            takes = b.choose(among, ["i1"], ordered, lambda: [_word(b, has_left)])[0]
            taken = self._get(self.scratch, b.select(takes, left, right))
            self._put(self.inverse, i, taken)
            moved = b.select(takes, 1, 0)
            return [b.index(b.add(left, moved)), b.index(b.add(right, b.sub(1, moved)))]

        starts = [b.index(low), b.index(middle)]
        b.reduce(low, high, 1, starts, ["index", "index"], step)

    # -- numbers --------------------------------------------------------------------------------

    def _number(self) -> None:
        """The number of each element's value, in ascending order, and how many values there are."""
        b = self.b

        def step(i: Index, carried: list[Value]) -> list[Value]:
            here = self._get(self.scratch, i)
            before = self._get(self.scratch, b.max(b.sub(i, 1), 0))
            same = b.op(f"arith.cmpi eq, {self._compared(before, here)}, {b.int_constant(0)} : i64")
            first = b.compare("eq", i, 0)
            old = b.select(both(self.pull, same, _not(b, first)), 0, 1)
            count = b.index(b.add(carried[0], old))
            self._put(self.inverse, here, b.sub(count, 1))
            return [count]

        count = _nest_one(self.pull, self.total, step)
        self.pull.store(self.count, self.pull.as_integer(count, "i64"), [])

    def _renumber(self) -> None:
        """Number the values in order of first occurrence instead; `first` is where the old number is met first."""
        b = self.b
        self._each(lambda i: self._put(self.first, i, -1))

        def step(i: Index, carried: list[Value]) -> list[Value]:
            old = self._get(self.inverse, i)
            new = b.compare("slt", self._get(self.first, old), 0)
            with b.when(new):
                self._put(self.first, old, carried[0])
            return [b.index(b.add(carried[0], b.select(new, 1, 0)))]

        _nest_one(self.pull, self.total, step)
        self._each(
            lambda i: self._put(self.inverse, i, self._get(self.first, self._get(self.inverse, i)))
        )

    def _note(self, i: Index) -> None:
        """Count an element with its value, which it may be the first of."""
        b = self.b
        number = self._get(self.inverse, i)
        seen = self._get(self.counts, number)
        with b.when(b.compare("eq", seen, 0)):
            self._put(self.first, number, i)
        self._put(self.counts, number, b.add(seen, 1))


def _word(b: Builder, condition: Value | bool) -> Value:
    return condition if isinstance(condition, str) else b.int_constant(int(condition), "i1")


def _not(b: Builder, condition: Value | bool) -> Value | bool:
    if isinstance(condition, bool):
        return not condition
    return b.op(f"arith.xori {condition}, {b.int_constant(1, 'i1')} : i1")


def _nest_one(pull: Pull, extent: Index, step: Callable[..., list[Value]]) -> Value:
    """A loop that carries one index, which begins as 0."""
    return nest(pull, [extent], [pull.b.index(0)], ["index"], lambda ks, c: step(ks[0], c))[0]


WHOLE["nn.find_unique"] = Whole(_one, lambda slices, op, at: _Unique(slices, op).write())


@pulls("nn.leading")
def _leading(pull: Pull, op: Any, at: At) -> Value:
    return pull.value(op.x, at)


@pulls("nn.range_count")
def _range_count(pull: Pull, op: Any, at: At) -> Value:
    """See the op: computed in float64, or in int64 for integers."""
    b, dtype = pull.b, dtype_of(op.start)
    s = Scalars(b, pull.lanes, "f64" if Scalars(b, 0, dtype).float else "i64")
    start, limit, delta = (
        convert(b, pull.value(v, []), dtype, s.dtype, pull.lanes)
        for v in (op.start, op.limit, op.delta)
    )
    zero, one = s.const(0), s.const(1)
    distance = s.sub(limit, start)
    if not s.float:
        back = s.compare("lt", delta, zero)
        ahead, step = (s.select(back, s.sub(zero, v), v) for v in (distance, delta))
        step = s.maximum(step, one)
        count = s.add(s.op("arith.divsi", s.sub(s.maximum(ahead, one), one), step), one)
        count = s.select(s.compare("gt", ahead, zero), count, zero)
        return s.select(s.compare("eq", delta, zero), s.const(-1), count)
    quotient = b.op(f"math.ceil {s.div(distance, delta)} : {pull.type('f64')}")
    most = s.const(float(1 << 62))
    number = convert(b, s.minimum(s.maximum(quotient, zero), most), "f64", "i64", pull.lanes)
    whole = Scalars(b, pull.lanes, "i64")
    finite = s.compare("lt", s.mul(distance, zero), one)
    moves = s.compare("ne", delta, zero)
    real = s.compare("eq", delta, delta)
    for condition in (finite, moves, real):
        number = whole.select(condition, number, whole.const(-1))
    return number


@pulls("nn.scaled_sizes")
def _scaled_sizes(pull: Pull, op: Any, at: At) -> Value:
    """See the op: computed in float64."""
    b, lanes = pull.b, pull.lanes
    s, c = Scalars(b, lanes, "f64"), pull.coordinates

    def number(value: Tensor, place: Coordinate) -> Value:
        return convert(b, pull.value(value, [place]), dtype_of(value), "f64", lanes)

    scale = number(op.scales, at[0])
    exact = s.mul(number(op.sizes, at[0]), scale)
    if op.roi is not None:
        end = c.add(at[0], pull.shape(op.y)[0])
        exact = s.mul(exact, s.sub(number(op.roi, end), number(op.roi, at[0])))
    nearest = b.op(f"math.roundeven {exact} : {s.type}")
    apart, size = (b.op(f"math.absf {v} : {s.type}") for v in (s.sub(exact, nearest), nearest))
    whole = s.compare("le", apart, s.mul(size, s.const(SCALE_ROUNDING)))
    found = s.select(whole, nearest, b.op(f"math.floor {exact} : {s.type}"))
    for condition in (
        s.compare("gt", scale, s.const(0)),
        s.compare("lt", size, s.const(2.0**62)),
    ):
        found = s.select(condition, found, s.const(-1))
    return convert(b, found, "f64", "i64", lanes)
