"""Attention as a callable over numpy arrays of any strides; for tests and benchmarks."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from bench.matmul import DTYPES, Store
from bench.native import NativeKernel, aligned
from xcompile.compiler.codegen.cpu.attention import AttentionInputs, emit_attention
from xcompile.compiler.codegen.cpu.builder import Builder, Index, Signature
from xcompile.compiler.codegen.cpu.windows import index_of
from xcompile.compiler.schedule import attention
from xcompile.compiler.schedule.attention import AttentionProblem, AttentionSchedule
from xcompile.compiler.schedule.window import resolve
from xcompile.compiler.target.target import Target


class CompiledAttention:
    """An attention, compiled once and called at any sizes of its symbols."""

    def __init__(
        self,
        problem: AttentionProblem,
        target: Target,
        symbols: Sequence[str] = (),
        schedule: AttentionSchedule | None = None,
    ) -> None:
        self.problem, self.target, self.symbols = problem, target, symbols
        self.schedule = schedule or attention.heuristic(problem, target)
        needed = attention.scratch_bytes(problem, self.schedule, target)
        signature = Signature((problem.dtype,) * 5 + ("i8",), len(symbols), scratch=True)
        b = Builder()
        sizes: dict[str, Index] = {name: signature.size(i) for i, name in enumerate(symbols)}
        shape = [
            index_of(b, s, sizes) for s in (*problem.batch, problem.queries, problem.value_depth)
        ]
        q, k, v, mask, out, scratch = (signature.buffer(i) for i in range(6))
        inputs = AttentionInputs(
            (q, 0), (k, 0), (v, 0), (mask, 0) if problem.mask_strides is not None else None
        )
        emit_attention(
            b, problem, self.schedule, target, inputs, Store(out, None, shape, False),
            signature.begin, signature.end, sizes, scratch,
        )  # fmt: skip
        self.kernel = NativeKernel(b, signature, target)
        self.scratch = aligned((needed + 64,), np.uint8)
        self.scratch[:] = 255

    def extent(self, sizes: Mapping[str, int]) -> int:
        """How many units there are."""
        return attention.extent(self.problem, self.schedule, self.target, sizes)

    def __call__(
        self,
        q: np.ndarray,
        k: np.ndarray,
        v: np.ndarray,
        mask: np.ndarray | None = None,
        sizes: Mapping[str, int] | None = None,
        threads: int = 1,
    ) -> np.ndarray:
        """The result of arrays whose memory is as the problem's strides say."""
        sizes, problem = sizes or {}, self.problem
        shape = [resolve(s, sizes) for s in (*problem.batch, problem.queries, problem.value_depth)]
        flat = np.full(int(np.prod(shape)) + 128, 77, DTYPES[problem.dtype])
        out = flat[64 : len(flat) - 64]
        mask = q if mask is None else mask
        values = [sizes[s] for s in self.symbols]
        extent = self.extent(sizes)
        cuts = [extent * i // threads for i in range(threads + 1)]
        for begin, end in pairwise(cuts):
            self.kernel(q, k, v, mask, out, self.scratch, *values, begin, end)
        assert (flat[:64] == 77).all()
        assert (flat[len(flat) - 64 :] == 77).all()
        return out.reshape(shape)
