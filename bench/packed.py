"""Kernels of products with packed weights, for tests and benchmarks."""

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from bench.matmul import Store
from bench.native import NativeKernel, aligned
from xcompile.compiler.codegen.cpu.blocked import PackedWeights, emit_blocked
from xcompile.compiler.codegen.cpu.builder import Builder, Signature
from xcompile.compiler.codegen.cpu.windows import index_of
from xcompile.compiler.schedule import blocked
from xcompile.compiler.schedule.blocked import BlockedProblem, BlockedSchedule
from xcompile.compiler.schedule.window import resolve
from xcompile.compiler.target.target import Target


class CompiledBlocked:
    """A product with packed weights, compiled once and called for any rows that the problem allows."""

    def __init__(
        self, problem: BlockedProblem, target: Target, schedule: BlockedSchedule | None = None
    ) -> None:
        self.problem, self.target = problem, target
        self.schedule = schedule or blocked.heuristic(problem, target)
        needed = blocked.scratch_bytes(problem, self.schedule, target)
        buffers = ("f32", "i8", problem.scale, "i8", "f32", "i8")
        symbols = [problem.m] if isinstance(problem.m, str) else []
        signature = Signature(buffers, len(symbols), scratch=True)
        b = Builder()
        sizes = {name: signature.size(i) for i, name in enumerate(symbols)}
        weights = PackedWeights(
            b, problem, target.lanes(32), self.schedule.width(target),
            b.view(signature.buffer(1), 0, "i32"), signature.buffer(2),
            signature.buffer(3) if problem.zero_points else None,
        )  # fmt: skip
        shape = [index_of(b, problem.m, sizes), problem.n]
        emit_blocked(
            b, self.schedule, target, signature.buffer(0), weights,
            lambda: Store(signature.buffer(4), None, shape, relu=False), signature.begin, signature.end, sizes,
            signature.buffer(5) if needed else None,
        )  # fmt: skip
        self.kernel = NativeKernel(b, signature, target)
        self.scratch = aligned((needed + 64,), np.uint8)
        self.scratch[:] = 255

    def prepare(
        self, weights: np.ndarray, scales: np.ndarray, zeros: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Words, scales and zero points as the kernel reads them, from matrices [k, n] and [k / block, n]."""
        width = self.schedule.width(self.target)
        none = np.zeros(1, np.uint8)
        packed = (
            blocked.pack_weights(weights, self.problem, width),
            blocked.pack_scales(scales, self.problem, width),
            none if zeros is None else blocked.pack_zero_points(zeros, self.problem, width),
        )
        made = tuple(aligned(p.shape, p.dtype) for p in packed)
        for there, here in zip(made, packed, strict=True):
            there[:] = here
        return made[0], made[1], made[2]

    def __call__(
        self,
        left: np.ndarray,
        packed: tuple[np.ndarray, np.ndarray, np.ndarray],
        sizes: Mapping[str, int] | None = None,
        threads: int = 1,
    ) -> np.ndarray:
        """C, whose units are done in `threads` parts."""
        sizes = sizes or {}
        guard, never = 64, np.nan
        count = resolve(self.problem.m, sizes) * self.problem.n
        flat = np.full(count + 2 * guard, never, np.float32)
        out = flat[guard : guard + count]
        extent = blocked.extent(self.problem, self.schedule, self.target, sizes)
        cuts = [extent * i // threads for i in range(threads + 1)]
        for begin, end in pairwise(cuts):
            self.kernel(left, *packed, out, self.scratch, *sizes.values(), begin, end)
        around = np.concatenate([flat[:guard], flat[guard + count :]])
        np.testing.assert_array_equal(around, np.full(2 * guard, never, np.float32))
        return out.reshape(-1, self.problem.n)
