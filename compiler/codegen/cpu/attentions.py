"""The family of attention: `nn.fused_attention`; operands are read and the result stored through transpositions."""

from collections.abc import Sequence
from typing import Any

from xcompile.compiler.codegen.cpu.anchored import (
    anchor,
    make_sink,
    monomial,
    operand_position,
    symbol_sizes,
)
from xcompile.compiler.codegen.cpu.attention import AttentionInputs, emit_attention
from xcompile.compiler.codegen.cpu.builder import Buffer, Builder, Index
from xcompile.compiler.codegen.cpu.builder import Value as Register
from xcompile.compiler.codegen.cpu.casts import cast
from xcompile.compiler.codegen.cpu.contractions import Strided
from xcompile.compiler.codegen.cpu.coordinates import Coordinate
from xcompile.compiler.codegen.cpu.family import Kernel, Packing, Preparation, emitted
from xcompile.compiler.codegen.cpu.pull import Pull
from xcompile.compiler.codegen.job import EmittedKernel
from xcompile.compiler.ir.rewrite import no_match
from xcompile.compiler.schedule import attention
from xcompile.compiler.schedule.attention import AttentionProblem, AttentionSchedule
from xcompile.compiler.schedule.products import NARROW_FLOATS
from xcompile.compiler.schedule.schedule import from_json
from xcompile.compiler.schedule.window import Size
from xcompile.compiler.support.dims import Dim
from xcompile.dialects.nn.base import Shape, dtype_of


class AttentionFamily:
    """Takes kernels whose anchor is `nn.fused_attention`."""

    name = "attention"

    def plan(self, kernel: Kernel, schedule: str | None = None) -> "AttentionPlan":
        return AttentionPlan(kernel, anchor(kernel, "nn.fused_attention"), schedule)


class AttentionPlan:
    """See `family.Plan`."""

    family = "attention"
    packings: dict[int, Packing] = {}
    preparations: dict[int, Preparation] = {}

    def __init__(self, kernel: Kernel, op: Any, schedule: str | None) -> None:
        self.kernel = kernel
        self.op = op
        self._operands = {
            name: Strided.of(kernel, value)
            for name, value in (("q", op.q), ("k", op.k), ("v", op.v), ("mask", op.mask))
            if value is not None
        }
        self.problem = self._problem()
        target = kernel.target
        self.schedule = (
            from_json(AttentionSchedule, schedule)
            if schedule
            else attention.heuristic(self.problem, target)
        )
        self.schedule.check(self.problem, target)
        self.extent: Dim = attention.extent(
            self.problem, self.schedule, target, symbol_sizes(kernel)
        )
        self.scratch = attention.scratch_bytes(self.problem, self.schedule, target)

    def _problem(self) -> AttentionProblem:
        shape = self.kernel.shape(self.op.y)
        *batch, queries, value_depth = shape
        q, k = self._operands["q"].shape, self._operands["k"].shape
        depth, keys = q[-1], k[-2]
        if not isinstance(depth, int) or not isinstance(value_depth, int):
            no_match("a depth is known only at run time")
        dtype: Any = dtype_of(self.op.q)
        if dtype in NARROW_FLOATS:
            dtype = "f32"
        if dtype not in ("f32", "f64"):
            no_match(f"elements are {dtype}")
        mask = self._operands.get("mask")
        return AttentionProblem(
            monomial(queries),
            monomial(keys),
            depth,
            value_depth,
            tuple(monomial(d) for d in batch),
            self._strides("q", (*batch, queries, depth)),
            self._strides("k", (*batch, keys, depth)),
            self._strides("v", (*batch, keys, value_depth)),
            self._strides("mask", (*batch, queries, keys)) if mask is not None else None,
            self.op.scale,
            dtype=dtype,
        )

    def _strides(self, name: str, shape: Shape) -> tuple[Size, ...]:
        """Strides along `shape`; 0 where the operand repeats."""
        operand = self._operands[name]
        missing = len(shape) - len(operand.shape)
        found: list[Size] = [0] * missing
        for have, want, stride in zip(operand.shape, shape[missing:], operand.strides, strict=True):
            if have == want:
                found.append(monomial(stride))
            elif have == 1:
                found.append(0)
            else:
                no_match(f"the sizes {have} and {want} may differ")
        return tuple(found)

    @property
    def unit_cost(self) -> float:
        keys = self.problem.keys if isinstance(self.problem.keys, int) else 256
        depth = self.problem.depth + self.problem.value_depth
        return keys * self.schedule.vectors * (depth / self.kernel.target.fma_ports + 20)

    def emit(self, symbol: str) -> EmittedKernel:
        signature = self.kernel.signature(scratch=True)
        b = Builder()
        rank = len(self.kernel.shape(self.op.y))
        sink = make_sink(self.kernel, b, signature, self.op, rank - 1, self._finish)
        places: dict[str, tuple[Buffer, Index]] = {
            name: (signature.buffer(operand_position(self.kernel, operand.argument)), 0)
            for name, operand in self._operands.items()
        }
        emit_attention(
            b,
            self.problem,
            self.schedule,
            self.kernel.target,
            AttentionInputs(**places),
            sink,
            signature.begin,
            signature.end,
            self.kernel.environment(signature),
            signature.buffer(len(signature.buffers) - 1),
        )
        return emitted(b, symbol, signature)

    def _finish(self, pull: Pull, value: Register, at: Sequence[Coordinate]) -> Register:
        """A result as it is stored: rounded where that has 16 bits."""
        del at
        return cast(pull.b, value, self.problem.dtype, dtype_of(self.op.y), pull.lanes)
