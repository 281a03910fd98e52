"""The family of recurrent layers: `nn.rnn`, `nn.gru` and `nn.lstm` without w, their r a constant."""

from typing import Any

import numpy as np

from xcompile.compiler.codegen.cpu.anchored import monomial, operand_position, symbol_sizes
from xcompile.compiler.codegen.cpu.builder import Builder
from xcompile.compiler.codegen.cpu.family import Kernel, Packing, Preparation, emitted
from xcompile.compiler.codegen.cpu.recurrent_steps import emit_recurrent, states_of
from xcompile.compiler.codegen.job import EmittedKernel
from xcompile.compiler.ir.rewrite import no_match
from xcompile.compiler.schedule import recurrent
from xcompile.compiler.schedule.recurrent import RecurrentProblem, RecurrentSchedule
from xcompile.compiler.schedule.schedule import from_json
from xcompile.compiler.support.dims import Dim
from xcompile.dialects.nn.base import dtype_of

_LAYERS = ("nn.rnn", "nn.gru", "nn.lstm")


class RecurrentFamily:
    """Takes recurrent layers of float32 or float64 whose inputs are projected already."""

    name = "recurrent"

    def plan(self, kernel: Kernel, schedule: str | None = None) -> "RecurrentPlan":
        if len(kernel.ops) != 1 or kernel.ops[0].NAME not in _LAYERS:
            no_match("the kernel is not a recurrent layer alone")
        return RecurrentPlan(kernel, kernel.ops[0], schedule)


class RecurrentPlan:
    """See `family.Plan`."""

    family = "recurrent"
    preparations: dict[int, Preparation] = {}

    def __init__(self, kernel: Kernel, op: Any, schedule: str | None) -> None:
        self.kernel = kernel
        self.op = op
        if op.w is not None:
            no_match("the layer multiplies its inputs itself")
        if not kernel.is_constant(op.r):
            no_match("r is not a constant of its own")
        self.problem = self._problem()
        target = kernel.target
        self.schedule = (
            from_json(RecurrentSchedule, schedule)
            if schedule
            else recurrent.heuristic(self.problem, target)
        )
        self.schedule.check(self.problem, target)
        self.extent: Dim = recurrent.extent(
            self.problem, self.schedule, target, symbol_sizes(kernel)
        )
        self.scratch = recurrent.scratch_bytes(self.problem, self.schedule, target, states_of(op))
        self.packings: dict[int, Packing] = {operand_position(kernel, op.r): self._packing()}

    def _problem(self) -> RecurrentProblem:
        dtype: Any = dtype_of(self.op.x)
        if dtype not in ("f32", "f64"):
            no_match(f"elements are {dtype}")
        products: tuple[tuple[int, ...], ...] = (tuple(range(self.op.GATES)),)
        if self.op.NAME == "nn.gru" and not self.op.linear_before_reset:
            products = ((0, 1), (2,))  # the reset gate comes before what it multiplies
        batch = monomial(self.kernel.shape(self.op.x)[1])
        weights: Any = dtype_of(self.op.r)
        quantized = self.op.quantize_state
        return RecurrentProblem(
            products, self.op.directions, batch, self.op.hidden, dtype, weights, quantized
        )

    def _packing(self) -> Packing:
        def pack(r: np.ndarray) -> np.ndarray:
            return recurrent.pack(r, self.problem, self.schedule, self.kernel.target)

        form = self.problem.form(self.kernel.target)
        return Packing(f"recurrent {self.problem} {self.schedule} {form}", pack)

    @property
    def unit_cost(self) -> float:
        steps = self.kernel.shape(self.op.x)[0]
        lanes = self.kernel.target.lanes(self.problem.bits)
        products = self.op.GATES * self.problem.hidden**2 * self.schedule.sequences / lanes
        return (steps if isinstance(steps, int) else 16) * products

    def emit(self, symbol: str) -> EmittedKernel:
        kernel, target = self.kernel, self.kernel.target
        signature = kernel.signature(scratch=True)
        b = Builder()
        emit_recurrent(
            kernel.pull(b, signature, target.lanes(self.problem.bits)),
            self.op, self.problem, self.schedule, target,
            signature.buffer(operand_position(kernel, self.op.r)),
            [kernel.destination(signature, i) for i in range(len(kernel.results))],
            signature.buffer(len(signature.buffers) - 1), signature.begin, signature.end,
        )  # fmt: skip
        return emitted(b, symbol, signature)
