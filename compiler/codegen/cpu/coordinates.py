"""Coordinates of the elements that the lanes of a vector stand for.

While code is written for a vector of elements, each axis has a coordinate: the same for every lane
(an `Index`), running along the lanes (`Lane(base)`: base, base + 1, …), known numbers (`Fixed`), or anything
(`Lanes(vector of index)`). Arithmetic keeps the simplest form, so that a load can see that it is a scalar, a
vector in memory, or a gather.
"""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd
from typing import TypeGuard

from xcompile.compiler.codegen.cpu.builder import Builder, Index, Value


@dataclass(frozen=True)
class Lane:
    """Lane i has the coordinate `base + i`; `base` is known to be a multiple of `multiple`."""

    base: Index
    multiple: int = 1


@dataclass(frozen=True)
class Lanes:
    """Lane i has the i-th element of an SSA `vector<lanes x index>`."""

    vector: Value


@dataclass(frozen=True)
class Fixed:
    """Lane i has the i-th of some numbers, which are known and not all the same."""

    places: tuple[int, ...]

    @property
    def is_run(self) -> bool:
        """Whether each number is one more than that before."""
        first = self.places[0]
        return self.places == tuple(range(first, first + len(self.places)))


Coordinate = Index | Lane | Lanes | Fixed


def varies(c: Coordinate) -> bool:
    """Whether lanes have different coordinates."""
    return isinstance(c, Lane | Lanes | Fixed)


_PREDICATES: dict[str, Callable[[int, int], bool]] = {
    "eq": operator.eq, "ne": operator.ne, "slt": operator.lt, "sle": operator.le, "sgt": operator.gt,
    "sge": operator.ge,
}  # fmt: skip


class Coordinates:
    """Arithmetic on coordinates. All are non-negative unless a method says otherwise."""

    def __init__(self, builder: Builder, lanes: int) -> None:
        self.b = builder
        self.lanes = lanes

    @property
    def _type(self) -> str:
        return f"vector<{self.lanes}xindex>"

    def vector(self, c: Coordinate) -> Value:
        """The SSA vector of any coordinate."""
        if isinstance(c, Lanes):
            return c.vector
        if isinstance(c, Fixed):
            return self.b.constant(str(list(c.places)), "index", self.lanes)
        if isinstance(c, Lane):
            steps = self.b.constant(str(list(range(self.lanes))), "index", self.lanes)
            if c.base == 0:
                return steps
            return self.b.op(f"arith.addi {self._splat(c.base)}, {steps} : {self._type}")
        return self._splat(c)

    def _splat(self, index: Index) -> Value:
        if isinstance(index, int):
            return self.b.constant(str(index), "index", self.lanes)
        return self.b.op(f"vector.broadcast {index} : index to {self._type}")

    def add(self, a: Coordinate, b: Coordinate) -> Coordinate:
        if _uniform(a) and _uniform(b):
            return self.b.add(a, b)
        if _uniform(a):
            a, b = b, a
        if b == 0:
            return a
        known = self._known(operator.add, a, b)
        if known is not None:
            return known
        if isinstance(a, Fixed) and a.is_run:
            a = Lane(a.places[0])
        if isinstance(a, Lane) and _uniform(b):
            return Lane(self.b.add(a.base, b), gcd(a.multiple, b) if isinstance(b, int) else 1)
        return self._binary("arith.addi", a, b)

    def sub(self, a: Coordinate, b: Index) -> Coordinate:
        """`a - b`; may be negative."""
        if _uniform(a):
            return self.b.sub(a, b)
        if (known := self._known(operator.sub, a, b)) is not None:
            return known
        if isinstance(a, Lane) and b != 0:
            return Lane(self.b.sub(a.base, b), gcd(a.multiple, b) if isinstance(b, int) else 1)
        return a if b == 0 else self._binary("arith.subi", a, b)

    def mul(self, a: Coordinate, by: Index) -> Coordinate:
        if _uniform(a):
            return self.b.mul(a, by)
        if by == 0:
            return 0
        if (known := self._known(operator.mul, a, by)) is not None:
            return known
        return a if by == 1 else self._binary("arith.muli", a, by)

    def div(self, a: Coordinate, by: Index) -> Coordinate:
        if _uniform(a):
            return self.b.div(a, by)
        if (known := self._known(operator.floordiv, a, by)) is not None:
            return known
        return a if by == 1 else self._binary("arith.divui", a, by)

    def rem(self, a: Coordinate, by: Index) -> Coordinate:
        if _uniform(a):
            return self.b.rem(a, by)
        if (known := self._known(operator.mod, a, by)) is not None:
            return known
        return 0 if by == 1 else self._binary("arith.remui", a, by)

    def clamp(self, a: Coordinate, low: Index, high: Index) -> Coordinate:
        """`min(max(a, low), high)` of signed values."""
        if _uniform(a):
            return self.b.min(self.b.max(a, low), high)
        raised = self._known(max, a, low)
        known = None if raised is None else self._known(min, raised, high)
        if known is not None:
            return known
        return self._binary("arith.minsi", self._binary("arith.maxsi", a, low), high)

    def modulo(self, a: Coordinate, by: Index) -> Coordinate:
        """`a` modulo `by`, which is positive; `a` may be negative, the result is not."""
        if (known := self._known(operator.mod, a, by)) is not None:
            return known
        left = self._signed("arith.remsi", a, by)
        return self._signed("arith.remsi", self.add(left, by), by)

    def minimum(self, a: Coordinate, b: Coordinate) -> Coordinate:
        """The lesser of two coordinates, lane by lane."""
        if _uniform(a) and _uniform(b):
            return self.b.min(a, b)
        if (known := self._known(min, a, b)) is not None:
            return known
        return self._binary("arith.minsi", a, b)

    def where(
        self, predicate: str, x: Coordinate, y: Coordinate, a: Coordinate, b: Coordinate
    ) -> Coordinate:
        """`a` where `x predicate y` holds, else `b`, lane by lane."""
        condition = self.compare(predicate, x, y)
        if isinstance(condition, bool):
            return a if condition else b
        if _uniform(x) and _uniform(y):
            if _uniform(a) and _uniform(b):
                return self.b.select(condition, a, b)
            flag = ""
        else:
            flag = f"vector<{self.lanes}xi1>, "
        if (known := self._chosen(predicate, (x, y, a, b))) is not None:
            return known
        operands = f"{self.vector(a)}, {self.vector(b)}"
        return Lanes(self.b.op(f"arith.select {condition}, {operands} : {flag}{self._type}"))

    def reflected(self, a: Coordinate, period: Index) -> Coordinate:
        """`period - a`."""
        if _uniform(a):
            return self.b.sub(period, a)
        if (known := self._known(operator.sub, period, a)) is not None:
            return known
        return self._binary("arith.subi", period, a)

    def _chosen(self, predicate: str, operands: Sequence[Coordinate]) -> Coordinate | None:
        """The result of `where`, if all numbers are known."""
        numbers = [self._numbers(c) for c in operands]
        known = [n for n in numbers if n is not None]
        if len(known) < len(numbers):
            return None
        holds = _PREDICATES[predicate]
        return _of_numbers([i if holds(p, q) else j for p, q, i, j in zip(*known, strict=True)])

    def _known(
        self, function: Callable[[int, int], int], a: Coordinate, b: Coordinate
    ) -> Coordinate | None:
        """The function of each lane's numbers, where these are known and at least one is `Fixed`."""
        x, y = self._numbers(a), self._numbers(b)
        if x is None or y is None or (_uniform(a) and _uniform(b)):
            return None
        return _of_numbers([function(i, j) for i, j in zip(x, y, strict=True)])

    def _numbers(self, c: Coordinate) -> Sequence[int] | None:
        if isinstance(c, Fixed):
            return c.places
        return [c] * self.lanes if isinstance(c, int) else None

    def _signed(self, op: str, a: Coordinate, by: Index) -> Coordinate:
        if _uniform(a):
            return self.b.op(f"{op} {self.b.index(a)}, {self.b.index(by)} : index")
        return self._binary(op, a, by)

    def compare(self, predicate: str, a: Coordinate, b: Coordinate) -> Value | bool:
        """An i1 (uniform), a vector of i1, or a Python bool when known."""
        if _uniform(a) and _uniform(b):
            return self.b.compare(predicate, a, b)
        x, y = self._numbers(a), self._numbers(b)
        if x is not None and y is not None and predicate in _PREDICATES:
            holds = [_PREDICATES[predicate](i, j) for i, j in zip(x, y, strict=True)]
            if len(set(holds)) == 1:
                return holds[0]
            words = ", ".join(str(h).lower() for h in holds)
            return self.b.constant(f"[{words}]", "i1", self.lanes)
        return self.b.op(
            f"arith.cmpi {predicate}, {self.vector(a)}, {self.vector(b)} : {self._type}"
        )

    def _binary(self, op: str, a: Coordinate, b: Coordinate) -> Lanes:
        return Lanes(self.b.op(f"{op} {self.vector(a)}, {self.vector(b)} : {self._type}"))

    def flatten(self, at: Sequence[Coordinate], strides: Sequence[Index]) -> Coordinate:
        """The sum of coordinate times stride; uniform terms first, so that a `Lane` survives."""
        total: Coordinate = 0
        varying: Coordinate | None = None
        for c, stride in zip(at, strides, strict=True):
            term = self.mul(c, stride)
            if _uniform(term):
                total = self.add(total, term)
            else:
                varying = term if varying is None else self.add(varying, term)
        return total if varying is None else self.add(varying, total)

    def unflatten(self, flat: Coordinate, sizes: Sequence[Index]) -> list[Coordinate]:
        """The row-major multi-index; the first size is not needed."""
        found: list[Coordinate] = []
        for size in reversed(sizes[1:]):
            found.append(self.rem(flat, size))
            flat = self.div(flat, size)
        if sizes:
            found.append(flat)
        return found[::-1]


def _of_numbers(numbers: Sequence[int]) -> Coordinate:
    return numbers[0] if len(set(numbers)) == 1 else Fixed(tuple(numbers))


def _uniform(c: Coordinate) -> TypeGuard[Index]:
    return isinstance(c, int | str)
