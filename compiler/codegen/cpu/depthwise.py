"""The emitter of depthwise convolution."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xcompile.compiler.codegen.cpu.builder import Buffer, Builder, Index, Value, vector_type
from xcompile.compiler.codegen.cpu.casts import cast
from xcompile.compiler.codegen.cpu.sink import Sink
from xcompile.compiler.codegen.cpu.windows import Decode, WindowRows, WindowSizes
from xcompile.compiler.schedule.depthwise import DepthwiseProblem
from xcompile.compiler.schedule.schedule import TargetNumbers
from xcompile.compiler.schedule.window import WindowSchedule


def emit_depthwise(
    b: Builder,
    problem: DepthwiseProblem,
    schedule: WindowSchedule,
    target: TargetNumbers,
    x: Buffer,
    weights: Buffer,
    sink: Sink,
    begin: Index,
    end: Index,
    sizes: Mapping[str, Index],
    decode: Decode | None = None,
) -> None:
    """Write the units [begin, end) of a depthwise convolution.

    Args:
        b: where to write.
        problem: the convolution.
        schedule: a legal schedule.
        target: the machine.
        x: the blocked input.
        weights: what `pack` returned.
        sink: called with output indices (n, channel, row, column), lanes along channels.
        begin: the first unit.
        end: one past the last unit.
        sizes: values of the problem's symbols.
        decode: makes float32 of the elements in memory; None where they are that.
    """
    reduction = _WeightedSum(b, weights, problem, target.lanes(32))
    window_sizes = WindowSizes.of(b, problem, sizes)
    WindowRows(b, problem, schedule, target, x, reduction, [sink], window_sizes, decode).units(
        begin, end
    )


@dataclass(frozen=True)
class _WeightedSum:
    b: Builder
    weights: Buffer
    problem: DepthwiseProblem
    lanes: int

    @property
    def types(self) -> Sequence[str]:
        return [vector_type(self.lanes, "f32")]

    def identity(self, block: Index) -> Sequence[Value]:
        return [self.b.float_constant(0.0, "f32", self.lanes)]

    def weight(self, block: Index, r: Index, s: Index, alone: Value | bool) -> Value:
        b, (kh, kw) = self.b, self.problem.window.kernel
        rows = kh * (self.problem.depth.kernel[0] if self.problem.depth else 1)
        place = b.add(b.mul(b.add(b.mul(block, rows), r), kw), s)
        loaded = b.load(self.weights, b.mul(place, self.lanes), self.lanes)
        return cast(b, loaded, self.weights.dtype, "f32", self.lanes)

    def combine(
        self, accumulators: Sequence[Value], x: Value, weight: Value | None
    ) -> Sequence[Value]:
        assert weight is not None
        return [self.b.fma(x, weight, accumulators[0], self.lanes)]

    def result(
        self, accumulators: Sequence[Value], at: Sequence[Index], whole: bool
    ) -> Sequence[Value]:
        return accumulators
