"""What the parts of the emitter of one direct convolution share: where things lie, and how they are counted."""

from dataclasses import dataclass

from xcompile.compiler.codegen.cpu.builder import Buffer, Builder, Index, Value
from xcompile.compiler.codegen.cpu.products import Products
from xcompile.compiler.codegen.cpu.sink import Sink
from xcompile.compiler.codegen.cpu.windows import WindowSizes
from xcompile.compiler.schedule.conv import ConvBlocking, ConvProblem, ConvSchedule
from xcompile.compiler.schedule.schedule import TargetNumbers


@dataclass(frozen=True)
class ConvContext:
    """What all parts of the emitter of one convolution share.

    Attributes:
        b: where to write.
        problem: the convolution.
        schedule: a legal schedule.
        target: the machine.
        products: writes the multiply-adds.
        blocking: what follows from these.
        x: the input.
        weights: the packed weights.
        sink: takes the results.
        sizes: of input and output.
        fill: what padding holds, of the type of integers in memory; None for zero.
        staged: scratch memory for a tile's input; None when it is read in place.
        partial: scratch memory for partial sums; None when there are none.
    """

    b: Builder
    problem: ConvProblem
    schedule: ConvSchedule
    target: TargetNumbers
    products: Products
    blocking: ConvBlocking
    x: Buffer
    weights: Buffer
    sink: Sink
    sizes: WindowSizes
    fill: Value | None
    staged: Buffer | None
    partial: Buffer | None

    @property
    def skips_images(self) -> bool:
        """Whether images of the window that lie in the padding are left out; else they are staged."""
        return self.problem.pads_depth and self.fill is None

    @property
    def lanes(self) -> int:
        """V, the vector length."""
        return self.blocking.lanes

    @property
    def sum_dtype(self) -> str:
        """The type of the sums."""
        return self.blocking.form.sum


@dataclass(frozen=True)
class Source:
    """Where a tile's input pixels are: offsets and strides in elements of a buffer."""

    buffer: Buffer
    base: Index
    image: Index  # from one image of the window to the next
    plane: Index
    row: Index
    steps: tuple[int, int]  # input rows and columns from one output pixel to the next


@dataclass(frozen=True)
class Tile:
    """A tile of output pixels of one image; of a transposed convolution, those of one phase.

    `images` are the images of the window with weights that are summed up: the first, and one past the last.
    """

    n: Index
    od: Index
    oh: Index
    ow: Index
    height: Index
    width: Index
    source: Source
    images: tuple[Index, Index] = (0, 1)
    phase: tuple[Index, ...] = (0, 0)


@dataclass(frozen=True)
class Place:
    """Row and column of an output pixel in its tile; the column is `column + shift`."""

    row: Index
    column: Index
    shift: int = 0
