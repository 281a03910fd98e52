"""The family of products with packed weights: `nn.matmul_blocked` with elementwise ops behind it."""

from collections.abc import Callable
from typing import Any

import numpy as np

from xcompile.compiler.codegen.cpu.anchored import (
    anchor,
    make_sink,
    monomial,
    operand_position,
    plain,
    static,
    symbol_sizes,
)
from xcompile.compiler.codegen.cpu.blocked import PackedWeights, emit_blocked
from xcompile.compiler.codegen.cpu.builder import Builder
from xcompile.compiler.codegen.cpu.family import Kernel, Packing, Preparation, emitted
from xcompile.compiler.codegen.job import EmittedKernel
from xcompile.compiler.ir.dtypes import bits_of
from xcompile.compiler.ir.op import Value as Tensor
from xcompile.compiler.ir.rewrite import no_match
from xcompile.compiler.schedule import blocked
from xcompile.compiler.schedule.blocked import BlockedProblem, BlockedSchedule
from xcompile.compiler.schedule.schedule import from_json
from xcompile.compiler.support.dims import Dim, product
from xcompile.dialects.nn.base import dtype_of
from xcompile.dialects.nn.quantize import limits


class BlockedFamily:
    """Takes kernels whose anchor is a `nn.matmul_blocked` of constant weights."""

    name = "blocked"

    def plan(self, kernel: Kernel, schedule: str | None = None) -> "BlockedPlan":
        return BlockedPlan(kernel, anchor(kernel, "nn.matmul_blocked"), schedule)


class BlockedPlan:
    """See `family.Plan`."""

    family = "blocked"
    preparations: dict[int, Preparation] = {}

    def __init__(self, kernel: Kernel, op: Any, schedule: str | None) -> None:
        self.kernel, self.op = kernel, op
        plain(kernel)
        constants = [v for v in (op.b, op.scale, op.zero_point) if v is not None]
        if not all(kernel.is_constant(v) for v in constants):
            no_match("the weights are not constants of their own")
        operand_position(kernel, op.a)
        if len(kernel.shape(op.a)) < 2:
            no_match("the left operand is a vector")
        self.problem = self._problem()
        target = kernel.target
        self.schedule = (
            from_json(BlockedSchedule, schedule)
            if schedule
            else blocked.heuristic(self.problem, target)
        )
        self.schedule.check(self.problem, target)
        self.extent: Dim = blocked.extent(self.problem, self.schedule, target, symbol_sizes(kernel))
        self.scratch = blocked.scratch_bytes(self.problem, self.schedule, target)
        self.packings = {
            self._position(op.b): self._packing(blocked.pack_weights),
            self._position(op.scale): self._packing(blocked.pack_scales),
        }
        if op.zero_point is not None:
            self.packings[self._position(op.zero_point)] = self._packing(blocked.pack_zero_points)

    def _position(self, value: Tensor) -> int:
        return operand_position(self.kernel, value)

    def _problem(self) -> BlockedProblem:
        op = self.op
        *rows, _ = self.kernel.shape(op.a)
        k, n = static(self.kernel.shape(op.b))[:: -1 if op.transpose_b else 1]
        if min(k, n) < 1:
            no_match("there are no weights")
        dtype = dtype_of(op.b)
        return BlockedProblem(
            monomial(product(rows)), n, k, bits_of(dtype), op.block, limits(dtype)[0],
            dtype_of(op.scale), op.zero_point is not None,
        )  # fmt: skip

    def _packing(self, pack: Callable[[np.ndarray, BlockedProblem, int], np.ndarray]) -> Packing:
        width = self.schedule.width(self.kernel.target)

        def stored(array: np.ndarray) -> np.ndarray:
            return pack(array.T if self.op.transpose_b else array, self.problem, width)

        p = self.problem
        key = f"{pack.__name__} {self.op.transpose_b} {p.bits} {p.least} {p.block} {p.k} {width}"
        return Packing(key, stored)

    @property
    def unit_cost(self) -> float:
        p, tile, target = self.problem, self.schedule.tile, self.kernel.target
        m = min(p.m, tile.m_block) if isinstance(p.m, int) else tile.m_block
        lanes = target.lanes(32) * target.fma_ports
        return p.k * min(p.n, tile.n_block) * (m + 2) / lanes

    def emit(self, symbol: str) -> EmittedKernel:
        kernel, op = self.kernel, self.op
        signature = kernel.signature(scratch=self.scratch > 0)
        b = Builder()
        rank = len(kernel.shape(op.y))
        zero = None if op.zero_point is None else self._position(op.zero_point)
        weights = PackedWeights(
            b, self.problem, kernel.target.lanes(32), self.schedule.width(kernel.target),
            b.view(signature.buffer(self._position(op.b)), 0, "i32"),
            signature.buffer(self._position(op.scale)),
            None if zero is None else signature.buffer(zero),
        )  # fmt: skip
        emit_blocked(
            b, self.schedule, kernel.target, signature.buffer(self._position(op.a)), weights,
            lambda: make_sink(kernel, b, signature, op, rank - 1, leading=rank - 2),
            signature.begin, signature.end, kernel.environment(signature),
            signature.buffer(len(signature.buffers) - 1) if signature.scratch else None,
        )  # fmt: skip
        return emitted(b, symbol, signature)
