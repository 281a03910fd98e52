"""The emitter of depthwise convolution of 8-bit integers, summed exactly in int32.

Where an instruction multiplies groups of four bytes and adds them up, it takes four columns (`depthwise_dots.py`).
Elsewhere on x86 two rows of the window are taken at a time: their inputs are interleaved and widened to pairs of int16,
which one instruction multiplies by pairs of weights and adds up. On other machines each input is multiplied in 32 bits,
of which LLVM makes the widening multiply-adds of the machine.

What padding holds is subtracted from inputs, so that the taps in the padding vanish, and added again with the sum of
all weights.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xcompile.compiler.codegen.cpu import isa
from xcompile.compiler.codegen.cpu.builder import Buffer, Builder, Index, Value, vector_type
from xcompile.compiler.codegen.cpu.conv_staging import extended
from xcompile.compiler.codegen.cpu.depthwise_dots import emit_depthwise_dots
from xcompile.compiler.codegen.cpu.shuffles import shuffle
from xcompile.compiler.codegen.cpu.sink import Sink
from xcompile.compiler.codegen.cpu.windows import WindowRows, WindowSizes
from xcompile.compiler.schedule.depthwise import DepthwiseProblem, takes_dots, takes_pairs
from xcompile.compiler.schedule.schedule import TargetNumbers
from xcompile.compiler.schedule.window import WindowSchedule


def emit_integer_depthwise(
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
    fill: Value | None = None,
) -> None:
    """Write the units [begin, end) of a depthwise convolution.

    Args:
        b: where to write.
        problem: the convolution, of integers.
        schedule: a legal schedule.
        target: the machine.
        x: the blocked input.
        weights: what `pack_integers` returned.
        sink: called with output indices (n, channel, row, column), lanes along channels.
        begin: the first unit.
        end: one past the last unit.
        sizes: values of the problem's symbols.
        fill: what padding holds, of the type of integers in memory; zero when None.
    """
    padded = any(problem.window.pads) or (problem.depth is not None and any(problem.depth.pads))
    fill = fill if padded else None
    if takes_dots(problem, target):
        emit_depthwise_dots(b, problem, schedule, target, x, weights, sink, begin, end, sizes, fill)
        return
    products = _Products(b, weights, problem, target, fill)
    window_sizes = WindowSizes.of(b, problem, sizes)
    rows = WindowRows(
        b, problem, schedule, target, x, products, [sink], window_sizes,
        decode=lambda value, image, channel: products.widened(value),
        pair=products.pair if products.pairs else None,
    )  # fmt: skip
    rows.units(begin, end)


@dataclass(frozen=True)
class _Products:
    b: Builder
    weights: Buffer
    problem: DepthwiseProblem
    target: TargetNumbers
    fill: Value | None

    @property
    def pairs(self) -> bool:
        return takes_pairs(self.target)

    @property
    def lanes(self) -> int:
        return self.target.lanes(32)

    @property
    def types(self) -> Sequence[str]:
        return [vector_type(self.lanes, "i32")]

    def identity(self, block: Index) -> Sequence[Value]:
        if self.fill is None:
            return [self.b.int_constant(0, "i32", self.lanes)]
        b, lanes = self.b, self.lanes
        bits = b.load(self.weights, b.mul(block, self._block), 4 * lanes)
        sums = b.op(f"vector.bitcast {bits} : {vector_type(4 * lanes, 'i8')} to {self.types[0]}")
        fill = extended(b, self.fill, self.problem.dtype, 0, "i32")
        return [b.binary("arith.muli", sums, b.broadcast(fill, "i32", lanes), lanes, "i32")]

    @property
    def _row(self) -> int:
        """Bytes of the weights of a row of a window."""
        return self.problem.window.kernel[1] * self.lanes * (4 if self.pairs else 1)

    @property
    def _block(self) -> int:
        """Bytes of a block of channels."""
        images = self.problem.depth.kernel[0] if self.problem.depth else 1
        return 4 * self.lanes + images * self.problem.window.kernel[0] * self._row

    def weight(self, block: Index, r: Index, s: Index, alone: Value | bool) -> Value:
        b, count = self.b, self.lanes * (2 if self.pairs else 1)
        at = b.add(b.mul(block, self._block), 4 * self.lanes, b.mul(r, self._row), b.mul(s, count))
        if self.pairs:
            at = b.add(at, b.select(alone, self._row // 2, 0))
        return extended(b, b.load(self.weights, at, count), "i8", count, "i16")

    def pair(self, x: Value, following: Value) -> Value:
        """Inputs of two rows, channel by channel next to each other, as int16."""
        lanes = self.lanes
        picks = [source * lanes + lane for lane in range(lanes) for source in (0, 1)]
        both = shuffle(self.b, x, following, lanes, picks, "i8")
        return self._moved(extended(self.b, both, self.problem.dtype, 2 * lanes, "i16"), 2 * lanes)

    def widened(self, x: Value) -> Value:
        """Inputs as int16."""
        return self._moved(extended(self.b, x, self.problem.dtype, self.lanes, "i16"), self.lanes)

    def _moved(self, x: Value, count: int) -> Value:
        """Inputs less what padding holds."""
        if self.fill is None:
            return x
        fill = extended(self.b, self.fill, self.problem.dtype, 0, "i16")
        return self.b.binary("arith.subi", x, self.b.broadcast(fill, "i16", count), count, "i16")

    def combine(
        self, accumulators: Sequence[Value], x: Value, weight: Value | None
    ) -> Sequence[Value]:
        assert weight is not None
        b, lanes = self.b, self.lanes
        if self.pairs:
            portable = self.target.has("portable")
            products = isa.vpmaddwd(lanes).write(b, x, weight, portable=portable)
        else:
            left, right = (_int32(b, v, lanes) for v in (x, weight))
            products = b.binary("arith.muli", left, right, lanes, "i32")
        return [b.binary("arith.addi", accumulators[0], products, lanes, "i32")]

    def result(
        self, accumulators: Sequence[Value], at: Sequence[Index], whole: bool
    ) -> Sequence[Value]:
        return accumulators


def _int32(b: Builder, value: Value, lanes: int) -> Value:
    """int16 as int32."""
    return b.op(f"arith.extsi {value} : {vector_type(lanes, 'i16')} to {vector_type(lanes, 'i32')}")
