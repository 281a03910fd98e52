"""Row kernels of GPUs: softmax, normalizations and reductions, in the order of summation that CPUs have.

Sixteen threads share a contiguous row, each with every sixteenth element, and join their sums by shuffles; where the
axis is not the innermost one, a thread has it to itself, and neighbouring threads are neighbours along the innermost.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from xcompile.compiler.codegen.cpu.anchored import anchor
from xcompile.compiler.codegen.cpu.builder import Builder, Index, Value
from xcompile.compiler.codegen.cpu.family import Kernel, Plan
from xcompile.compiler.codegen.cpu.row_axis import Across, Axis, Emit, Fold, Load, Transform
from xcompile.compiler.codegen.cpu.row_kernels import ANCHORS, RowPlan
from xcompile.compiler.codegen.cpu.rows import write_rows
from xcompile.compiler.codegen.cpu.sink import Sink
from xcompile.compiler.codegen.cpu.windows import index_of
from xcompile.compiler.codegen.cuda.launch import LaunchShape, emitted, signature_of, thread_number
from xcompile.compiler.codegen.job import EmittedKernel
from xcompile.compiler.schedule.rows import ALONG_SUMS
from xcompile.compiler.support.dims import Dim, product

_THREADS = 128
_WHOLE_WARP = -1
_LAST_LANE = 31


class RowsFamily:
    """Takes what `cpu.row_kernels.RowFamily` takes."""

    name = "rows"

    def plan(self, kernel: Kernel, schedule: str | None = None) -> Plan:
        """Plan the kernel; see `family.Family`."""
        return RowsPlan(kernel, anchor(kernel, *ANCHORS), schedule)


class RowsPlan(RowPlan):
    """A unit is a row of a contiguous axis, or one element of what lies around another axis."""

    def __init__(self, kernel: Kernel, op: object, schedule: str | None) -> None:
        super().__init__(kernel, op, schedule)
        self.scratch = 0
        self.extent: Dim = product([*self._shape[: self._first], *self._shape[self._last :]])

    @property
    def launch(self) -> LaunchShape:
        """How blocks share the rows."""
        shared = ALONG_SUMS if self.problem.is_contiguous else 1
        return LaunchShape(_THREADS, _THREADS // shared)

    def emit(self, symbol: str) -> EmittedKernel:
        """The kernel's text; see `family.Plan`."""
        signature = signature_of(self.kernel)
        b, problem = Builder(), self.problem
        load, sink, scale, bias = self.ends(b, signature)
        known = self.kernel.environment(signature)
        length, inner = index_of(b, problem.length, known), index_of(b, problem.inner, known)
        thread = thread_number(b)

        def write(axis: Axis) -> None:
            write_rows(b, problem, axis, 0, length, scale, bias)

        if problem.is_contiguous:
            row, lane = b.div(thread, ALONG_SUMS), b.rem(thread, ALONG_SUMS)
            exists = b.compare("slt", row, signature.end)
            within = b.min(row, b.sub(signature.end, 1))
            write(Shared(b, problem.dtype, load, sink, within, lane, length, exists))
        else:
            with b.when(b.compare("slt", thread, signature.end)):
                outer, place = b.unflatten(thread, (1, inner))
                write(
                    Across(b, problem.dtype, 0, load, sink, outer, length, inner, [place], (None,))
                )
        return emitted(b, symbol, signature, self.launch)


@dataclass
class Shared:
    """A contiguous row that sixteen neighbouring threads share; see `row_axis.Axis`.

    All threads of a warp must take part in a shuffle, so those without a row of their own compute the last one.

    Attributes:
        b: where the code goes.
        dtype: of the elements.
        load: the input.
        sink: the output.
        row: the row's index.
        lane: this thread among those of the row.
        length: how many elements the row has.
        exists: whether this thread gives anything to the sink.
    """

    b: Builder
    dtype: str
    load: Load
    sink: Sink
    row: Index
    lane: Index
    length: Index
    exists: Value | bool
    _chain: list[Transform] = field(default_factory=list[Transform])

    result_lanes = 0

    def fold(
        self, how: Fold, transform: Transform | None = None, keep: bool = False
    ) -> list[Value]:
        """See `row_axis.Axis`."""
        b, dtype = self.b, self.dtype

        def body(at: Index, carried: list[Value]) -> Sequence[Value]:
            value = self._read(at)
            value = transform(value, 0) if transform else value
            return [how.combine(b, carried[0], value, 0, dtype)]

        neutral = b.constant(how.neutral, dtype)
        (total,) = b.reduce(self.lane, self.length, ALONG_SUMS, [neutral], [dtype], body)
        if keep and transform:
            self._chain.append(transform)
        distance = ALONG_SUMS // 2
        while distance:
            total = how.combine(b, total, exchanged(b, total, dtype, distance), 0, dtype)
            distance //= 2
        return [total]

    def emit(self, transform: Emit) -> None:
        """See `row_axis.Axis`."""
        with self.b.when(self.exists), self.b.loop(self.lane, self.length, ALONG_SUMS) as at:
            value = transform(self._read(at), 0, at, None)
            self.sink(self.b, value, (self.row, at, 0), 0, None)

    def spread(self, results: Sequence[Value]) -> list[Value]:
        """See `row_axis.Axis`."""
        return list(results)

    def deliver(self, results: Sequence[Value]) -> None:
        """See `row_axis.Axis`."""
        first = self.b.compare("eq", self.lane, 0)
        with self.b.when(self.b.both(first, self.exists)):
            self.sink(self.b, results[0], (self.row, 0), 0, None)

    def _read(self, at: Index) -> Value:
        value = self.load(self.b, (self.row, at, 0), 0, None)
        for transform in self._chain:
            value = transform(value, 0)
        return value


def exchanged(b: Builder, value: Value, dtype: str, distance: int) -> Value:
    """The value of the thread of the warp whose lane differs in the bit `distance`; all threads must take part."""
    bits = int(dtype[1:])
    whole = b.bitcast(value, dtype, f"i{bits}")
    if bits == 32:
        return b.bitcast(_shuffled(b, whole, distance), "i32", dtype)
    words: list[Value] = []
    for word in range(2):
        amount = b.int_constant(32 * word, "i64")
        moved = b.op(f"arith.shrui {whole}, {amount} : i64")
        low = _shuffled(b, b.op(f"arith.trunci {moved} : i64 to i32"), distance)
        wide = b.op(f"arith.extui {low} : i32 to i64")
        words.append(b.op(f"arith.shli {wide}, {amount} : i64"))
    return b.bitcast(b.op(f"arith.ori {words[0]}, {words[1]} : i64"), "i64", dtype)


def _shuffled(b: Builder, word: Value, distance: int) -> Value:
    mask, apart, last = (b.int_constant(n, "i32") for n in (_WHOLE_WARP, distance, _LAST_LANE))
    return b.op(
        f'llvm.call_intrinsic "llvm.nvvm.shfl.sync.bfly.i32"({mask}, {word}, {apart}, {last}) : '
        "(i32, i32, i32, i32) -> i32"
    )
