"""Kernel families: who turns a fused kernel into loops.

A family looks at a kernel and either *plans* it or says why it does not take it. A plan knows
everything that the rest of the compiler must know without emitting code: the schedule, how many
parallel units there are, the scratch memory, and how constant operands are packed. Planning is
cheap and happens in the user's process; the worker plans again from the same schedule and emits.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from xcompile.compiler.codegen.cpu.builder import Builder, Index, Signature
from xcompile.compiler.codegen.cpu.layout import Layout
from xcompile.compiler.codegen.cpu.pull import Pull, Source, memory_dtype
from xcompile.compiler.codegen.job import EmittedKernel
from xcompile.compiler.ir.op import Op, Value, view
from xcompile.compiler.ir.rewrite import no_match
from xcompile.compiler.support.dims import Dim, symbols_of
from xcompile.compiler.target.target import Target
from xcompile.dialects.kernel import Func, KernelSizes, Rows
from xcompile.dialects.nn.base import Shape, dtype_of
from xcompile.dialects.nn.kinds import is_elementwise


@dataclass(frozen=True)
class Packing:
    """How a constant operand is stored: a name for caching, and the numpy function that does it."""

    key: str
    pack: Callable[[np.ndarray], np.ndarray] = field(compare=False)


@dataclass(frozen=True)
class Preparation:
    """A constant operand that is computed once, when the model is loaded, from its packed form.

    Attributes:
        key: names the result, for sharing.
        bytes: the length of the result.
        extent: parallel units of the computation.
        emit: the kernel's text as function `@symbol`: one input, one output.
    """

    key: str
    bytes: int
    extent: int
    emit: Callable[[str], EmittedKernel] = field(compare=False)


class Plan(Protocol):
    """What a family decided about one kernel."""

    @property
    def family(self) -> str: ...

    @property
    def schedule(self) -> Any:
        """The schedule, a frozen dataclass that `schedule.to_json` can write."""
        ...

    @property
    def extent(self) -> Dim:
        """The number of parallel units, over the kernel's symbols."""
        ...

    @property
    def scratch(self) -> int:
        """Bytes of scratch memory a thread; 0 for none."""
        ...

    @property
    def unit_cost(self) -> float:
        """A rough number of cycles a parallel unit takes, for deciding how far to split."""
        ...

    @property
    def packings(self) -> dict[int, Packing]:
        """How constant arguments are stored, by position; row-major when absent."""
        ...

    @property
    def preparations(self) -> dict[int, Preparation]:
        """What is computed from packed constants at load, by argument position."""
        ...

    def emit(self, symbol: str) -> EmittedKernel:
        """The loops-level text of the kernel as function `@symbol`."""
        ...


class Kernel:
    """A `kernel.func` with what emitters ask of it.

    Attributes:
        func: the view of the op.
        sizes: shapes and contents of its values, over d0, d1, ….
        target: the machine.
    """

    def __init__(self, func: Func, target: Target) -> None:
        self.func = func
        self.target = target
        self.sizes = KernelSizes(func)

    @property
    def ops(self) -> list[Op]:
        """The views of the body's ops, without the return."""
        return [v for o in self.func.ops[:-1] if (v := view(o)) is not None]

    @property
    def results(self) -> list[Value]:
        return self.func.returned

    @property
    def parameters(self) -> list[Value]:
        return self.func.parameters

    @property
    def spread(self) -> list[Value]:
        """The parameters that are read where results lie: all but tables."""
        tables = {op.operands[1] for op in self.ops if op.NAME == "nn.lookup"}
        return [p for p in self.parameters if p not in tables]

    @property
    def rows(self) -> list[Rows | None]:
        """For each result how it lies within a larger tensor; None for one of its own."""
        return self.func.result_rows()

    @property
    def seams(self) -> frozenset[int]:
        """Axes in memory before which rows of a result end: no loop over memory may go on across these."""
        return frozenset(rows.axes for rows in self.rows if rows is not None)

    def shape(self, value: Value) -> Shape:
        return self.sizes.shape(value)

    def is_constant(self, value: Value) -> bool:
        """Whether the value is an argument that is a constant of the model, and one operand only.

        Then it may be stored as that operand is read.
        """
        if value not in self.parameters:
            return False
        uses = sum(op.operands.count(value) for op in self.ops)
        return uses == 1 and self.parameters.index(value) in self.func.constants

    def is_pointwise(self, *, besides: Op | None = None) -> bool:
        """Whether each element depends on those at its place only, in all ops but one."""
        return all(
            op == besides or is_elementwise(op.NAME) or self._is_splat(op) for op in self.ops
        )

    def _is_splat(self, op: Op) -> bool:
        """Whether the op gives the same element everywhere."""
        if op.NAME == "kernel.dims":
            return len(self.sizes.content(op.results[0]) or ()) == 1
        return op.NAME == "nn.const"

    def reduced_axes(self, op: Any) -> list[int]:
        """The axes that a reduction reduces, ascending; leaves by `no_match` when they are data."""
        rank = len(self.shape(op.x))
        if op.dynamic_axes is None:
            return list(op.axes)
        content = self.sizes.content(op.dynamic_axes)
        if content is None or not all(isinstance(a, int) for a in content):
            no_match("the reduced axes are data")
        axes = sorted(int(a) % rank for a in content if isinstance(a, int))
        return axes or ([] if op.noop_with_empty_axes else list(range(rank)))

    @property
    def symbols(self) -> list[str]:
        """d0, d1, … as far as the arguments use them."""
        found: dict[str, None] = {}
        for shape in self.func.argument_shapes():
            for dim in shape:
                found.update(dict.fromkeys(symbols_of(dim)))
        for op in self.ops:
            shapes = [self.shape(r) for r in op.results]
            content = (self.sizes.content(op.results[0]) or ()) if op.NAME == "kernel.dims" else ()
            for dim in (*content, *(d for shape in shapes for d in shape)):
                found.update(dict.fromkeys(symbols_of(dim)))
        for rows in filter(None, self.rows):
            found.update(dict.fromkeys(symbols_of(rows.pitch)))
        return sorted(found, key=lambda name: int(name[1:]))

    def signature(self, *, scratch: bool = False) -> Signature:
        """The parameters of the kernel function."""
        tensors = [*self.parameters, *self.results]
        dtypes = [memory_dtype(dtype_of(v)) for v in tensors]
        return Signature(tuple(dtypes + ["i8"] * scratch), len(self.symbols), scratch)

    def environment(self, signature: Signature) -> dict[str, Index]:
        """What each symbol is inside the function."""
        return {name: signature.size(i) for i, name in enumerate(self.symbols)}

    def pull(self, b: Builder, signature: Signature, lanes: int) -> Pull:
        """Element functions of this kernel's values."""
        sources = {
            v: Source(signature.buffer(i), self.shape(v), Layout.of(v.type), dtype_of(v))
            for i, v in enumerate(self.parameters)
        }
        return Pull(
            b, self.sizes, self.environment(signature), sources, lanes, self.target.features
        )

    def destination(self, signature: Signature, result: int) -> Source:
        """Where a result is stored."""
        value = self.results[result]
        buffer = signature.buffer(len(self.parameters) + result)
        layout, rows = Layout.of(value.type), self.rows[result]
        return Source(buffer, self.shape(value), layout, dtype_of(value), rows)


class Family(Protocol):
    """A kind of kernel; `plan` leaves by `no_match(reason)` when it does not take the kernel."""

    name: str

    def plan(self, kernel: Kernel, schedule: str | None = None) -> Plan:
        """Plan a kernel with a schedule given as JSON text, or the heuristic's."""
        ...


def emitted(b: Builder, symbol: str, signature: Signature) -> EmittedKernel:
    """What `b` wrote, as an emitter's answer."""
    return EmittedKernel(
        b.function(symbol, signature),
        symbol,
        len(signature.buffers),
        signature.sizes,
        signature.scratch,
    )
