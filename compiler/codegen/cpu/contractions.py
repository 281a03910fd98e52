"""The family of contractions: `nn.matmul` and `nn.matmul_integer` with elementwise ops behind them.

Operands are read through transpositions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from xcompile.compiler.codegen.cpu.anchored import (
    anchor,
    make_sink,
    monomial,
    operand_position,
    symbol_sizes,
)
from xcompile.compiler.codegen.cpu.builder import Builder, Index
from xcompile.compiler.codegen.cpu.builder import Value as Register
from xcompile.compiler.codegen.cpu.casts import cast
from xcompile.compiler.codegen.cpu.contraction import emit_contraction
from xcompile.compiler.codegen.cpu.coordinates import Coordinate
from xcompile.compiler.codegen.cpu.family import Kernel, Packing, Preparation, emitted
from xcompile.compiler.codegen.cpu.layout import Layout
from xcompile.compiler.codegen.cpu.pull import Pull
from xcompile.compiler.codegen.job import EmittedKernel
from xcompile.compiler.ir.op import Value
from xcompile.compiler.ir.rewrite import no_match, producer
from xcompile.compiler.schedule import contraction
from xcompile.compiler.schedule.contraction import ContractionProblem, ContractionSchedule
from xcompile.compiler.schedule.products import NARROW_FLOATS
from xcompile.compiler.schedule.schedule import from_json
from xcompile.compiler.schedule.window import Size
from xcompile.compiler.support.dims import Dim, product
from xcompile.dialects.nn.base import Shape, dtype_of
from xcompile.dialects.nn.reshape import Transpose


@dataclass(frozen=True)
class Strided:
    """A kernel argument seen through transpositions.

    Attributes:
        argument: the argument.
        shape: the sizes of the view's axes.
        strides: elements from one index to the next, for each axis.
        order: which axis of the argument each axis is.
    """

    argument: Value
    shape: Shape
    strides: tuple[Dim, ...]
    order: tuple[int, ...]

    @staticmethod
    def of(kernel: Kernel, value: Value) -> "Strided":
        """How `value` lies in memory; leaves by `no_match` when it is computed in the kernel."""
        transpose = producer(value, Transpose)
        if transpose is not None:
            inner = Strided.of(kernel, transpose.x)
            return inner.permuted(transpose.perm)
        operand_position(kernel, value)
        if Layout.of(value.type).block:
            no_match("an operand is in a blocked layout")
        shape = kernel.shape(value)
        strides = tuple(product(shape[i + 1 :]) for i in range(len(shape)))
        return Strided(value, shape, strides, tuple(range(len(shape))))

    def permuted(self, perm: Sequence[int]) -> "Strided":
        return Strided(
            self.argument,
            tuple(self.shape[p] for p in perm),
            tuple(self.strides[p] for p in perm),
            tuple(self.order[p] for p in perm),
        )

    @property
    def is_contiguous(self) -> bool:
        return self.order == tuple(range(len(self.order)))


class ContractionFamily:
    """Takes kernels whose anchor is a `nn.matmul` of floats of at least two axes.

    Or a `nn.matmul_integer` of such without zero points.
    """

    name = "contraction"

    def plan(self, kernel: Kernel, schedule: str | None = None) -> "ContractionPlan":
        return ContractionPlan(kernel, anchor(kernel, "nn.matmul", "nn.matmul_integer"), schedule)


class ContractionPlan:
    """See `family.Plan`."""

    family = "contraction"
    preparations: dict[int, Preparation] = {}

    def __init__(self, kernel: Kernel, op: Any, schedule: str | None) -> None:
        self.kernel = kernel
        self.op = op
        integers = op.NAME == "nn.matmul_integer"
        if integers and not op.is_plain:
            no_match("operands have zero points")
        if not integers and dtype_of(op.a) not in ("f32", "f64", *NARROW_FLOATS):
            no_match(f"elements are {dtype_of(op.a)}")
        self._a, self._b = Strided.of(kernel, op.a), Strided.of(kernel, op.b)
        if min(len(self._a.shape), len(self._b.shape)) < 2:
            no_match("an operand is a vector")
        if op.transpose_a:
            self._a = self._a.permuted(_swapped(len(self._a.shape)))
        if op.transpose_b:
            self._b = self._b.permuted(_swapped(len(self._b.shape)))
        self._constant = kernel.is_constant(self._b.argument)
        self._flat = self._may_flatten()
        self._order = self._axes_of_rows_last()
        self._a = self._a.permuted((*self._order, len(self._order)))
        self.problem = self._problem()
        target = kernel.target
        self.schedule = (
            from_json(ContractionSchedule, schedule)
            if schedule
            else contraction.heuristic(self.problem, target)
        )
        self.schedule.check(self.problem, target)
        self.extent: Dim = contraction.extent(
            self.problem, self.schedule, target, symbol_sizes(kernel)
        )
        self.scratch = contraction.scratch_bytes(self.problem, self.schedule, target)
        self.packings: dict[int, Packing] = {}
        if self._constant:
            self.packings[operand_position(kernel, self._b.argument)] = self._packing()

    # -- the problem --------------------------------------------------------------------------

    def _may_flatten(self) -> bool:
        """Whether the batch of A and its rows are one long axis of rows, for B and for everything in the epilogue."""
        if len(self._b.shape) != 2 or not self._a.is_contiguous:
            return False
        if any(op.NAME == "nn.transpose" and op.results[0] != self.op.a for op in self.kernel.ops):
            return False
        full = self.kernel.shape(self.op.y)
        behind = {v for op in self.kernel.ops if op != self.op for v in op.operands}
        for parameter in self.kernel.spread:
            if parameter == self._a.argument or parameter not in behind:
                continue
            shape = self.kernel.shape(parameter)
            if shape != full and any(d != 1 for d in shape[:-1]):
                return False
        return True

    def _axes_of_rows_last(self) -> tuple[int, ...]:
        """The axes of A without k, in the order of the problem's batch and rows.

        Where B is the same for the whole batch any of them may be the rows: the one along which A is contiguous, lest
        each of the rows is an image of its own.
        """
        axes = tuple(range(len(self._a.shape) - 1))
        if self._flat or len(self._b.shape) != 2:
            return axes
        near = next((axis for axis in axes if self._a.strides[axis] == 1), axes[-1])
        size, rows = self._a.shape[near], self._a.shape[-2]
        if isinstance(size, int) and (not isinstance(rows, int) or size < rows):
            return axes
        return (*(axis for axis in axes if axis != near), near)

    def _problem(self) -> ContractionProblem:
        *a_batch, m, k = self._a.shape
        n = self._b.shape[-1]
        if not isinstance(k, int):
            k = self._b.shape[-2]  # the sizes are equal when the kernel runs; this one may be known
        dtype: Any = dtype_of(self.op.y)
        operands: Any = (dtype_of(self.op.a), dtype_of(self.op.b))
        if dtype in NARROW_FLOATS:
            dtype = "f32"
        elif dtype != "i32":
            operands = None
        if self._flat:
            return ContractionProblem(
                m=monomial(product([*a_batch, m])), n=monomial(n), k=monomial(k),
                a_strides=None, b_strides=self._b_strides(()), constant_b=self._constant, dtype=dtype,
                operands=operands,
            )  # fmt: skip
        full = self.kernel.shape(self.op.y)
        batch = (
            tuple(full[axis] for axis in self._order[:-1]) if len(self._b.shape) == 2 else full[:-2]
        )
        return ContractionProblem(
            m=monomial(m), n=monomial(n), k=monomial(k), batch=tuple(monomial(d) for d in batch),
            a_strides=self._strides(self._a, batch), b_strides=self._b_strides(batch),
            constant_b=self._constant, dtype=dtype, operands=operands,
        )  # fmt: skip

    def _b_strides(self, batch: Shape) -> tuple[Size, ...] | None:
        """Where B is; a constant is stored contiguously in logical order, with axes of size 1 along
        which it repeats.
        """
        if self._constant:
            shape = self._b.shape
            strides = tuple(product(shape[i + 1 :]) for i in range(len(shape)))
            return self._strides(replace(self._b, strides=strides), batch)
        return self._strides(self._b, batch)

    @staticmethod
    def _strides(operand: Strided, batch: Shape) -> tuple[Size, ...]:
        """Strides along the batch (0 where the operand repeats) and the two inner axes."""
        found: list[Size] = []
        missing = len(batch) - (len(operand.shape) - 2)
        for axis, size in enumerate(batch):
            position = axis - missing
            if position < 0 or (operand.shape[position] == 1 and size != 1):
                found.append(0)
            elif operand.shape[position] == size:
                found.append(monomial(operand.strides[position]))
            else:
                no_match(f"the batch sizes {operand.shape[position]} and {size} may differ")
        return (*found, *(monomial(s) for s in operand.strides[-2:]))

    def _packing(self) -> Packing:
        def pack(weight: np.ndarray) -> np.ndarray:
            return contraction.pack(
                weight.transpose(self._b.order), self.problem, self.schedule, self.kernel.target
            )

        return Packing(f"contraction {self._b.order} {self.problem} {self.schedule}", pack)

    @property
    def unit_cost(self) -> float:
        k = self.problem.k if isinstance(self.problem.k, int) else 256
        n = (
            min(self.problem.n, self.schedule.n_block)
            if isinstance(self.problem.n, int)
            else self.schedule.n_block
        )
        m = (
            min(self.problem.m, self.schedule.m_block)
            if isinstance(self.problem.m, int)
            else self.schedule.m_block
        )
        target = self.kernel.target
        group = self.problem.form(target, self.schedule.rows).group
        return k * n * m / target.lanes(self.problem.bits) / group / target.fma_ports

    # -- code ---------------------------------------------------------------------------------

    def emit(self, symbol: str) -> EmittedKernel:
        signature = self.kernel.signature(scratch=self.scratch > 0)
        b = Builder()
        rank = len(self.kernel.shape(self.op.y))
        made = make_sink(
            self.kernel,
            b,
            signature,
            self.op,
            rank - 1,
            self._finish,
            rank - 2 if self._flat else 0,
        )

        def sink(
            b: Builder, value: Register, at: Sequence[Index], lanes: int, mask: Register | None
        ) -> None:
            if not self._flat and len(self._b.shape) == 2:
                at = [*(at[self._order.index(axis)] for axis in range(rank - 1)), at[-1]]
            made(b, value, at, lanes, mask)

        emit_contraction(
            b, self.problem, self.schedule, self.kernel.target,
            signature.buffer(operand_position(self.kernel, self._a.argument)),
            signature.buffer(operand_position(self.kernel, self._b.argument)),
            sink, signature.begin, signature.end, self.kernel.environment(signature),
            signature.buffer(len(signature.buffers) - 1) if signature.scratch else None,
        )  # fmt: skip
        return emitted(b, symbol, signature)

    def _finish(self, pull: Pull, value: Register, at: Sequence[Coordinate]) -> Register:
        """A sum as the result has it: rounded where that has 16 bits."""
        del at
        return cast(pull.b, value, self.problem.dtype, dtype_of(self.op.y), pull.lanes)


def _swapped(rank: int) -> tuple[int, ...]:
    return (*range(rank - 2), rank - 1, rank - 2)
