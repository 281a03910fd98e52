"""A heap in memory, as code: what orders elements, or takes them in order."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from xcompile.compiler.codegen.cpu.builder import Builder, Index, Value
from xcompile.compiler.codegen.cpu.pull import Pull


@dataclass(frozen=True)
class Element:
    """A value and its place in the input (i64)."""

    value: Value
    place: Value


class Heap(ABC):
    """A binary heap whose root comes behind all others in the order that `after` says.

    Args:
        b: where the code goes.
        register: the type of a value in a register.
    """

    def __init__(self, b: Builder, register: str) -> None:
        self.b = b
        self._register = register

    @abstractmethod
    def load(self, k: Index) -> Element:
        """Element k of the heap."""

    @abstractmethod
    def store(self, k: Index, element: Element) -> None:
        """Make it element k of the heap."""

    @abstractmethod
    def after(self, x: Element, other: Element) -> Value:
        """Whether x comes behind another element."""

    def order(self, count: Index, pull: Pull) -> None:
        """Make a heap of the first `count` elements."""
        half = self.b.div(count, 2)
        with self.b.loop(0, half) as step, pull.scope():
            node = self.b.sub(self.b.sub(half, 1), step)
            self.sift(node, count, self.load(node))

    def sift(self, start: Index, end: Index, element: Element) -> None:
        """Put an element at `start`, then below what comes behind it, in the heap [0, end)."""
        b = self.b

        def step(hole: Value) -> tuple[Value | bool, Index]:
            left = b.add(b.mul(hole, 2), 1)

            def move() -> Sequence[Value]:
                child, place = self._last(left, b.add(left, 1), end)
                goes = self.after(child, element)
                with b.when(goes):
                    self.store(hole, child)
                return [goes, b.index(b.select(goes, place, hole))]

            inside, still = b.compare("slt", left, end), b.int_constant(0, "i1")
            goes, place = b.choose(inside, ["i1", "index"], move, lambda: [still, hole])
            return goes, place

        self.store(b.repeat(start, step), element)

    def _last(self, left: Index, right: Index, end: Index) -> tuple[Element, Index]:
        """The child that comes behind the other one, and where it is."""
        b = self.b
        child, other = self.load(left), self.load(b.min(right, b.sub(end, 1)))
        second = b.both(b.compare("slt", right, end), self.after(other, child))
        value = b.op(f"arith.select {second}, {other.value}, {child.value} : {self._register}")
        number = b.op(f"arith.select {second}, {other.place}, {child.place} : i64")
        return Element(value, number), b.index(b.select(second, right, left))
