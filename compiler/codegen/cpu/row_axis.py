"""Sweeps along an axis: the loops that all row kernels are made of.

An axis offers two things: `fold`, which transforms every element and combines the results to one, and `emit`, which
transforms every element and gives it to the sink. `Along` has lanes along the axis itself, `Across` along another one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from xcompile.compiler.codegen.cpu.builder import Buffer, Builder, Index, Value, vector_type
from xcompile.compiler.codegen.cpu.shuffles import reduce_lanes
from xcompile.compiler.codegen.cpu.sink import Sink
from xcompile.compiler.schedule.rows import ACROSS_SUMS, ALONG_SUMS


class Load(Protocol):
    """The prologue of a row kernel: gives its input."""

    def __call__(self, b: Builder, /, at: Sequence[Index], lanes: int, mask: Value | None) -> Value:
        """A vector of the input, as `Sink` takes one.

        Args:
            b: where to write the code.
            at: (outer, position, inner) of lane 0; inner is 0 for contiguous rows.
            lanes: the length of the vector, along the position (contiguous rows) or along inner.
            mask: the lanes that exist, or None when all do; the others may get any value.
        """
        ...


@dataclass(frozen=True)
class Fold:
    """How elements become one: an associative operation and its neutral element, as MLIR's literal."""

    combine: Callable[[Builder, Value, Value, int, str], Value]
    neutral: str


Transform = Callable[[Value, int], Value]
"""A function of an element; the number tells which of the vectors side by side it is in."""

Emit = Callable[[Value, int, Index, Value | None], Value]
"""A function of an element, the number of its vector, its position along the axis and its mask."""

_Masks = tuple[Value | None, ...]


class Axis(Protocol):
    """What row kernels ask of an axis."""

    @property
    def result_lanes(self) -> int:
        """Lanes of a fold's result: 0, a scalar, or those of a vector."""
        ...

    def fold(
        self, how: Fold, transform: Transform | None = None, keep: bool = False
    ) -> list[Value]:
        """Combine all elements, transformed; `keep` makes the transformed ones the elements from now on."""
        ...

    def emit(self, transform: Emit) -> None:
        """Give all elements to the sink, transformed."""
        ...

    def spread(self, results: Sequence[Value]) -> list[Value]:
        """Results of a fold as operands of transforms, by number of the vector."""
        ...

    def deliver(self, results: Sequence[Value]) -> None:
        """Give results of a fold to the sink."""
        ...


@dataclass
class Along:
    """A contiguous row with lanes along it.

    Attributes:
        b: where the code goes.
        dtype: of the elements.
        lanes: of a vector.
        load: the input.
        sink: the output.
        row: the row's index.
        length: how many elements it has.
        cached: how many elements the cache keeps; 0 without a cache.
        cache: memory for these and 16 more.
    """

    b: Builder
    dtype: str
    lanes: int
    load: Load
    sink: Sink
    row: Index
    length: Index
    cached: int
    cache: Buffer | None
    _chain: list[Transform] = field(default_factory=list[Transform])
    _filled: bool = False

    result_lanes = 0

    @property
    def _vectors(self) -> int:
        return max(1, ALONG_SUMS // self.lanes)

    def fold(
        self, how: Fold, transform: Transform | None = None, keep: bool = False
    ) -> list[Value]:
        b, dtype, lanes = self.b, self.dtype, self.lanes
        neutral = b.constant(how.neutral, dtype, lanes)

        def step(
            column: Index, slot: Index | None, masks: _Masks, sums: list[Value]
        ) -> list[Value]:
            values = self._read(column, slot, masks)
            changed = [transform(x, v) for v, x in enumerate(values)] if transform else values
            if slot is not None and (keep or not self._filled):
                self._write(changed if keep else values, slot)
            out: list[Value] = []
            for total, value, mask in zip(sums, changed, masks, strict=True):
                if mask is not None:
                    kind = vector_type(lanes, dtype)
                    value = b.op(
                        f"arith.select {mask}, {value}, {neutral} : vector<{lanes}xi1>, {kind}"
                    )
                out.append(how.combine(b, total, value, lanes, dtype))
            return out

        sums = self._sweep(step, [neutral] * self._vectors)
        self._filled = self.cache is not None
        if keep and transform:
            self._chain.append(transform)
        return [reduce_lanes(b, partial(how.combine, b), sums, lanes, dtype)]

    def emit(self, transform: Emit) -> None:
        def step(
            column: Index, slot: Index | None, masks: _Masks, sums: list[Value]
        ) -> list[Value]:
            for v, value in enumerate(self._read(column, slot, masks)):
                at = self.b.add(column, v * self.lanes)
                value = transform(value, v, at, masks[v])
                self.sink(self.b, value, (self.row, at, 0), self.lanes, masks[v])
            return sums

        self._sweep(step, [])

    def spread(self, results: Sequence[Value]) -> list[Value]:
        return [self.b.broadcast(results[0], self.dtype, self.lanes)] * self._vectors

    def deliver(self, results: Sequence[Value]) -> None:
        self.sink(self.b, self.b.broadcast(results[0], self.dtype, 1), (self.row, 0), 1, None)

    def _read(self, column: Index, slot: Index | None, masks: _Masks) -> list[Value]:
        """Elements from the cache or from the input through what later sweeps made of them."""
        b, out = self.b, list[Value]()
        for v, mask in enumerate(masks):
            if slot is not None and self._filled and self.cache is not None:
                out.append(b.load(self.cache, b.add(slot, v * self.lanes), self.lanes))
                continue
            value = self.load(b, (self.row, b.add(column, v * self.lanes), 0), self.lanes, mask)
            for transform in self._chain:
                value = transform(value, v)
            out.append(value)
        return out

    def _write(self, values: Sequence[Value], slot: Index) -> None:
        assert self.cache is not None
        for v, value in enumerate(values):
            self.b.store(value, self.cache, self.b.add(slot, v * self.lanes), self.lanes)

    def _sweep(self, step: "_Step", sums: list[Value]) -> list[Value]:
        """Cached elements, those past the cache, and the last ones, which do not fill 16 lanes."""
        b, types = self.b, [vector_type(self.lanes, self.dtype)] * len(sums)
        none: _Masks = (None,) * self._vectors
        whole = b.mul(b.div(self.length, ALONG_SUMS), ALONG_SUMS)
        kept = b.min(whole, self.cached) if self.cache is not None else 0

        def run(low: Index, high: Index, cached: bool, sums: list[Value]) -> list[Value]:
            def body(column: Index, carried: list[Value]) -> Sequence[Value]:
                return step(column, column if cached else None, none, carried)

            if low == high:
                return sums
            if sums:
                return b.reduce(low, high, ALONG_SUMS, sums, types, body)
            with b.loop(low, high, ALONG_SUMS) as column:
                body(column, [])
            return []

        sums = run(0, kept, True, sums)
        sums = run(kept, whole, False, sums)
        rest = b.sub(self.length, whole)
        if rest == 0:
            return sums
        slot = kept if self.cache is not None else None

        def last() -> Sequence[Value]:
            if isinstance(rest, int):
                vectors = -(-rest // self.lanes)
                masks = tuple(_mask(b, rest - v * self.lanes, self.lanes) for v in range(vectors))
            else:
                masks = tuple(
                    b.tail_mask(b.max(b.sub(rest, v * self.lanes), 0), self.lanes)
                    for v in range(self._vectors)
                )
            partial_sums = step(whole, slot, masks, sums[: len(masks)])
            return [*partial_sums, *sums[len(masks) :]]

        exists = b.compare("ne", rest, 0)
        if sums:
            return b.choose(exists, types, last, lambda: sums)
        with b.when(exists):
            last()
        return []


_Step = Callable[[Index, Index | None, _Masks, list[Value]], list[Value]]


def _mask(b: Builder, count: int, lanes: int) -> Value | None:
    return None if count >= lanes else b.tail_mask(count, lanes)


@dataclass
class Across:
    """An axis with lanes along another one, a few vectors side by side.

    Attributes:
        b: where the code goes.
        dtype: of the elements.
        lanes: of a vector.
        load: the input.
        sink: the output.
        outer: the index before the axis.
        length: how many elements the axis has.
        size: of the axis of the lanes.
        inner: the index along that axis, of lane 0 of each vector.
        masks: for each vector, its lanes that exist, or None.
    """

    b: Builder
    dtype: str
    lanes: int
    load: Load
    sink: Sink
    outer: Index
    length: Index
    size: Index
    inner: Sequence[Index]
    masks: _Masks
    _chain: list[Transform] = field(default_factory=list[Transform])

    @property
    def result_lanes(self) -> int:
        return self.lanes

    def fold(
        self, how: Fold, transform: Transform | None = None, keep: bool = False
    ) -> list[Value]:
        b, dtype, lanes, count = self.b, self.dtype, self.lanes, len(self.masks)
        neutral = b.constant(how.neutral, dtype, lanes)

        def body(steps: int, position: Index, sums: list[Value]) -> list[Value]:
            sums = list(sums)
            for step in range(steps):
                values = self._read(b.add(position, step))
                for v, value in enumerate(values):
                    at = step * count + v
                    changed = transform(value, v) if transform else value
                    sums[at] = how.combine(b, sums[at], changed, lanes, dtype)
            return sums

        types = [vector_type(lanes, dtype)] * (ACROSS_SUMS * count)
        sums = [neutral] * len(types)
        whole = b.mul(b.div(self.length, ACROSS_SUMS), ACROSS_SUMS)
        if whole != 0:
            sums = b.reduce(0, whole, ACROSS_SUMS, sums, types, partial(body, ACROSS_SUMS))
        if whole != self.length:
            sums = b.reduce(whole, self.length, 1, sums, types, partial(body, 1))
        if keep and transform:
            self._chain.append(transform)
        while len(sums) > count:
            half = len(sums) // 2
            sums = [how.combine(b, sums[i], sums[i + half], lanes, dtype) for i in range(half)]
        return sums

    def emit(self, transform: Emit) -> None:
        with self.b.loop(0, self.length) as position:
            for v, value in enumerate(self._read(position)):
                value = transform(value, v, position, self.masks[v])
                self._sink(value, (self.outer, position, self.inner[v]), v)

    def spread(self, results: Sequence[Value]) -> list[Value]:
        return list(results)

    def deliver(self, results: Sequence[Value]) -> None:
        for v, value in enumerate(results):
            self._sink(value, (self.outer, self.inner[v]), v)

    def _sink(self, value: Value, at: tuple[Index, ...], v: int) -> None:
        """Give a vector to the sink; one that is wholly past the end does not exist."""
        exists = (
            True if v == 0 or self.masks[v] is None else self.b.compare("slt", at[-1], self.size)
        )
        with self.b.when(exists):
            self.sink(self.b, value, at, self.lanes, self.masks[v])

    def _read(self, position: Index) -> list[Value]:
        out: list[Value] = []
        for v, mask in enumerate(self.masks):
            value = self.load(self.b, (self.outer, position, self.inner[v]), self.lanes, mask)
            for transform in self._chain:
                value = transform(value, v)
            out.append(value)
        return out
