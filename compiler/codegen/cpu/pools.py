"""The families of pools of images and volumes in blocked layout.

They may read 8-bit images through the ops that widen them.
"""

from collections.abc import Sequence
from typing import Any

from xcompile.compiler.codegen.cpu.anchored import monomial
from xcompile.compiler.codegen.cpu.builder import Builder, Index, Signature, Value
from xcompile.compiler.codegen.cpu.casts import cast
from xcompile.compiler.codegen.cpu.coordinates import Coordinate, Lane
from xcompile.compiler.codegen.cpu.family import Kernel, emitted
from xcompile.compiler.codegen.cpu.images import BYTES, ImagePlan, row_cost, widening, window_of
from xcompile.compiler.codegen.cpu.indexed_pool import emit_indexed_pool
from xcompile.compiler.codegen.cpu.layout import Layout
from xcompile.compiler.codegen.cpu.pool import emit_global_pool, emit_pool
from xcompile.compiler.codegen.cpu.pull import Pull
from xcompile.compiler.codegen.cpu.sink import Sink
from xcompile.compiler.codegen.cpu.windows import Decode
from xcompile.compiler.codegen.job import EmittedKernel
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.op import Value as Tensor
from xcompile.compiler.ir.op import view
from xcompile.compiler.ir.rewrite import no_match
from xcompile.compiler.schedule import pool
from xcompile.compiler.schedule.products import NARROW_FLOATS
from xcompile.compiler.schedule.schedule import from_json
from xcompile.compiler.schedule.window import WindowSchedule
from xcompile.compiler.support.dims import Dim, product
from xcompile.dialects.nn.base import dtype_of
from xcompile.dialects.nn.kinds import is_elementwise


class DecodedPlan(ImagePlan):
    """A plan that reads a blocked image, or an expression of its elements and of numbers of each channel."""

    dtypes = ("f32", "i32", *BYTES, *NARROW_FLOATS)

    def image(self) -> Tensor:
        value: Tensor = self.op.operands[0]
        kernel = self.kernel
        shape = kernel.shape(value)
        while value not in kernel.parameters:
            op = view(value.owner) if isinstance(value.owner, ir.Operation | ir.OpView) else None
            if op is None or not is_elementwise(op.NAME):
                no_match("the input is computed by more than elementwise ops")
            full = [v for v in op.operands if kernel.shape(v) == shape]
            others = [kernel.shape(v) for v in op.operands if v not in full]
            if len(full) != 1 or any(d != 1 for s in others for d in s[2 - len(shape) :]):
                no_match("the input is computed from several images")
            value = full[0]
        if Layout.of(value.type).block == 0:
            no_match("operands are row-major")
        return value

    def pooled(self) -> str:
        """The type in which elements are pooled."""
        dtype = dtype_of(self.op.operands[0])
        return "f32" if dtype in NARROW_FLOATS else dtype

    def finish(self, pull: Pull, value: Value, at: Sequence[Coordinate]) -> Value:
        return cast(pull.b, value, self.pooled(), dtype_of(self.op.results[0]), pull.lanes)

    def decode(self, b: Builder, signature: Signature) -> Decode | None:
        """What makes the op's input of what is in memory; None where that is the problem's input."""
        value = self.op.operands[0]
        first = [0] * (len(self.kernel.shape(value)) - 2)
        lanes = self.kernel.target.lanes(32)
        widen = widening(b, dtype_of(value), lanes)
        if value == self.x:
            return widen
        pull = self.kernel.pull(b, signature, lanes)

        def decode(raw: Value, image: Index, channel: Index) -> Value:
            with pull.bound(self.x, lambda at: raw):
                found = pull.value(value, [image, Lane(channel, lanes), *first])
            return found if widen is None else widen(found, image, channel)

        return decode


_KINDS = {
    "nn.max_pool": "max",
    "nn.max_pool_with_indices": "place",
    "nn.average_pool": "average",
    "nn.lp_pool": "norm",
}


class PoolPlan(DecodedPlan):
    """Maximum, average and norm pools."""

    family = "pool"

    def __init__(self, kernel: Kernel, op: Any, schedule: str | None) -> None:
        super().__init__(kernel, op)
        kind, dtype = _KINDS[op.NAME], self.pooled()
        if dtype not in ("f32", *BYTES) or not (kind in ("max", "place") or dtype == "f32"):
            no_match(f"a pool of {dtype}")
        kinds: dict[str, Any] = {"kind": kind, "dtype": dtype, "power": getattr(op, "p", 2)}
        depth, window = window_of(kernel, op, op.kernel)
        self.problem = pool.PoolProblem(
            self.n, self.channels, self.h, self.w, window=window, d=self.d, depth=depth,
            count_include_pad=getattr(op, "count_include_pad", False), **kinds,
        )  # fmt: skip
        target = kernel.target
        self.schedule = (
            from_json(WindowSchedule, schedule)
            if schedule
            else pool.heuristic(self.problem, target)
        )
        self.schedule.check(self.problem, target)
        self.extent: Dim = self.schedule.extent(self.problem, target, self.symbols)

    @property
    def unit_cost(self) -> float:
        return row_cost(self.schedule, self.w, self.problem.window, self.problem.depth)

    def write(self, b: Builder, signature: Signature, sink: Sink) -> None:
        emit_pool(
            b, self.problem, self.schedule, self.kernel.target, self.argument(signature, self.x), sink,
            signature.begin, signature.end, self.kernel.environment(signature), self.decode(b, signature),
        )  # fmt: skip


class IndexedPoolPlan(PoolPlan):
    """Maximum pools that also say where the maxima stand; there are no ops behind them."""

    family = "indexed-pool"

    def emit(self, symbol: str) -> EmittedKernel:
        kernel, op = self.kernel, self.op
        signature = kernel.signature()
        b = Builder()
        sizes = [kernel.pull(b, signature, 0).dim(d) for d in kernel.shape(self.x)]
        emit_indexed_pool(
            b, self.problem, self.schedule, kernel.target, self.argument(signature, self.x),
            self._values(b, signature), signature.buffer(len(kernel.parameters) + 1), sizes, op.column_major,
            signature.begin, signature.end, kernel.environment(signature),
        )  # fmt: skip
        return emitted(b, symbol, signature)

    def _values(self, b: Builder, signature: Signature) -> Sink:
        """The sink of the maxima."""
        lanes, destination = self.kernel.target.lanes(32), self.kernel.destination(signature, 0)
        pull = self.kernel.pull(b, signature, lanes)

        def sink(
            _: Builder, value: Value, at: Sequence[Index], lanes: int, mask: Value | None
        ) -> None:
            with pull.masked(mask, zero_padding=True):
                pull.store(destination, value, [at[0], Lane(at[1], lanes), *at[2:]])

        return sink


class IndexedPoolFamily:
    """Kernels of nothing but a maximum pool of a blocked image, with the places of the maxima."""

    name = "indexed-pool"

    def plan(self, kernel: Kernel, schedule: str | None = None) -> IndexedPoolPlan:
        op = next((o for o in kernel.ops if o.NAME == "nn.max_pool_with_indices"), None)
        if op is None or list(kernel.results) != list(op.results):
            no_match("the kernel is not a maximum pool with indices")
        if Layout.of(op.results[0].type).block == 0:
            no_match("the result is row-major")
        return IndexedPoolPlan(kernel, op, schedule)


class GlobalPoolPlan(DecodedPlan):
    """The mean or the sum of each channel of an image or a volume."""

    family = "global-pool"

    def __init__(self, kernel: Kernel, op: Any, schedule: str | None) -> None:
        super().__init__(kernel, op)
        is_sum, dtype = op.NAME == "nn.reduce_sum", self.pooled()
        if dtype not in ("f32", "i32") or not (is_sum or dtype == "f32"):
            no_match(f"a reduction of {dtype}")
        if len(op.operands) > 1:
            no_match("the reduced axes are data")
        rank = len(kernel.shape(self.x))
        if not op.keepdims or sorted(a % rank for a in op.axes) != list(range(2, rank)):
            no_match("not over all places of a channel")
        kinds: dict[str, Any] = {"kind": "sum" if is_sum else "average", "dtype": dtype}
        rows = monomial(product(kernel.shape(self.x)[2:-1]))
        self.problem = pool.GlobalPoolProblem(self.n, self.channels, rows, self.w, **kinds)
        self.schedule = (
            from_json(pool.GlobalPoolSchedule, schedule)
            if schedule
            else pool.global_heuristic(self.problem, kernel.target)
        )
        self.schedule.check(self.problem, kernel.target)
        self.extent: Dim = pool.global_extent(self.problem, kernel.target, self.symbols)

    @property
    def unit_cost(self) -> float:
        h, w = self.problem.h, self.problem.w
        return float(h * w if isinstance(h, int) and isinstance(w, int) else 1024)

    def write(self, b: Builder, signature: Signature, sink: Sink) -> None:
        behind = [0] * (len(self.kernel.shape(self.x)) - 2)

        def give(
            b: Builder, value: Value, at: Sequence[Index], lanes: int, mask: Value | None
        ) -> None:
            sink(b, value, [*at[:2], *behind], lanes, mask)

        emit_global_pool(
            b, self.problem, self.schedule, self.kernel.target, self.argument(signature, self.x), give,
            signature.begin, signature.end, self.kernel.environment(signature), self.decode(b, signature),
        )  # fmt: skip
