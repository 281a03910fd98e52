"""The families of convolutions of images and volumes in blocked layout; see `pools.py` for pools."""

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from xcompile.compiler.codegen.cpu import winograd_pack
from xcompile.compiler.codegen.cpu.anchored import (
    anchor,
    make_sink,
    operand_position,
    size,
    static,
    symbol_sizes,
)
from xcompile.compiler.codegen.cpu.builder import Builder, Signature, Value
from xcompile.compiler.codegen.cpu.casts import cast
from xcompile.compiler.codegen.cpu.conv import emit_conv
from xcompile.compiler.codegen.cpu.coordinates import Coordinate
from xcompile.compiler.codegen.cpu.depthwise import emit_depthwise
from xcompile.compiler.codegen.cpu.family import Kernel, Packing, Preparation, emitted
from xcompile.compiler.codegen.cpu.layout import Layout
from xcompile.compiler.codegen.cpu.pull import Pull
from xcompile.compiler.codegen.cpu.sink import Sink
from xcompile.compiler.codegen.cpu.windows import Decode
from xcompile.compiler.codegen.cpu.winograd import emit_winograd
from xcompile.compiler.codegen.cpu.winograd_transforms import emit_winograd_weights
from xcompile.compiler.codegen.job import EmittedKernel
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.op import Value as Tensor
from xcompile.compiler.ir.rewrite import no_match
from xcompile.compiler.schedule import conv, depthwise, winograd
from xcompile.compiler.schedule.products import NARROW_FLOATS
from xcompile.compiler.schedule.schedule import from_json
from xcompile.compiler.schedule.window import Window, WindowSchedule, of_volume
from xcompile.compiler.support.dims import Dim
from xcompile.dialects.nn.base import dtype_of
from xcompile.dialects.nn.spatial import resolve_pads

BYTES = ("i8", "ui8")
"""The types of quantized images."""


class ImagePlan:
    """What the plans below share; see `family.Plan`."""

    family = ""
    packings: dict[int, Packing] = {}
    preparations: dict[int, Preparation] = {}
    scratch = 0
    schedule: Any = None
    dtypes: tuple[str, ...] = ("f32",)
    """Of the image."""

    def __init__(self, kernel: Kernel, op: Any) -> None:
        self.kernel = kernel
        self.op: Any = op
        self.x: Tensor = self.image()
        block = kernel.target.lanes(32)
        if dtype_of(self.x) not in self.dtypes:
            no_match(f"an image of {dtype_of(self.x)}")
        if Layout.of(op.results[0].type).block not in (0, block):
            no_match(f"the layout is not blocked by {block}")
        self.symbols = symbol_sizes(kernel)
        self.n, self.c, *spatial = (size(d) for d in kernel.shape(self.x))
        self.d, self.h, self.w = [1, 1, 1, *spatial][-3:]
        operand_position(kernel, self.x)

    def image(self) -> Tensor:
        """The image that is read from memory."""
        return self.op.operands[0]

    @property
    def channels(self) -> int:
        if not isinstance(self.c, int):
            no_match("the number of channels is known only at run time")
        return self.c

    def emit(self, symbol: str) -> EmittedKernel:
        signature = self.kernel.signature(scratch=self.scratch > 0)
        b = Builder()
        sink = make_sink(self.kernel, b, signature, self.op, 1, self.finish)
        self.write(b, signature, sink)
        return emitted(b, symbol, signature)

    def finish(self, pull: Pull, value: Value, at: Sequence[Coordinate]) -> Value:
        """What the anchor itself still does to an accumulator."""
        return value

    def write(self, b: Builder, signature: Signature, sink: Sink) -> None:
        raise NotImplementedError

    def argument(self, signature: Signature, value: Tensor) -> Any:
        return signature.buffer(operand_position(self.kernel, value))


class ConvPlan(ImagePlan):
    """Direct convolution."""

    family = "conv"
    dtypes = ("f32", *NARROW_FLOATS)

    def __init__(self, kernel: Kernel, op: Any, schedule: str | None) -> None:
        super().__init__(kernel, op)
        self._check(kernel)
        self.problem = self.find_problem()
        target = kernel.target
        self.schedule = (
            from_json(conv.ConvSchedule, schedule)
            if schedule
            else conv.heuristic(self.problem, target)
        )
        self.schedule.check(self.problem, target)
        self.extent: Dim = conv.extent(self.problem, self.schedule, target, self.symbols)
        self.scratch = conv.scratch_bytes(self.problem, self.schedule, target)
        self.packings = {operand_position(kernel, op.w): self._packing()}

    def find_problem(self) -> conv.ConvProblem:
        """The convolution."""
        kernel, op = self.kernel, self.op
        weight = static(kernel.shape(op.w))
        depth, window = window_of(kernel, op, tuple(weight[2:]))
        problem = conv.ConvProblem(
            self.n, self.channels, self.h, self.w, weight[0], window, op.groups, self.layout,
            d=self.d, depth=depth, **self.kinds(),
        )  # fmt: skip
        return conv.flatten(problem) if self._may_flatten() else problem

    def kinds(self) -> dict[str, Any]:
        """The types of the problem's operands."""
        return {"dtype": dtype_of(self.x), "weights": dtype_of(self.op.w)}

    @property
    def layout(self) -> Literal["plain", "blocked"]:
        """How the input lies in memory."""
        return "blocked" if Layout.of(self.x.type).block else "plain"

    def _check(self, kernel: Kernel) -> None:
        if not kernel.is_constant(self.op.w):
            no_match("the weights are not constant")
        if Layout.of(self.op.y.type).block == 0:
            no_match("the result is row-major")
        kinds = dtype_of(self.x), dtype_of(self.op.w)
        scaled = self.op.NAME == "nn.conv" and kinds == ("f32", "i8")
        if kinds[0] not in BYTES and kinds[0] != kinds[1] and not scaled:
            no_match(f"weights of {dtype_of(self.op.w)} for an image of {dtype_of(self.x)}")

    def _may_flatten(self) -> bool:
        """Whether everything in the epilogue takes the image's rows for one long row."""
        kernel, op = self.kernel, self.op
        if not kernel.is_pointwise(besides=op) or any(axis > 2 for axis in kernel.seams):
            return False
        others = [p for p in kernel.spread if p not in op.operands]
        full = kernel.shape(op.y)
        return all(s == full or all(d == 1 for d in s[-2:]) for s in map(kernel.shape, others))

    def weights(self, weight: np.ndarray) -> np.ndarray:
        """The weights as the problem has them."""
        return weight

    def _packing(self) -> Packing:
        def pack(weight: np.ndarray) -> np.ndarray:
            return conv.pack(self.weights(weight), self.problem, self.schedule, self.kernel.target)

        return Packing(f"conv {self.problem} {self.schedule}", pack)

    @property
    def unit_cost(self) -> float:
        kh, kw = self.problem.taps
        pixels = self.schedule.tile_h * self.schedule.tile_w
        channels = (
            self.problem.c // self.problem.groups / self.problem.form(self.kernel.target).group
        )
        taps = self.problem.depth_taps * kh * kw
        return pixels * self.schedule.vectors * channels * taps / self.kernel.target.fma_ports

    def finish(self, pull: Pull, value: Value, at: Sequence[Coordinate]) -> Value:
        return finished(pull, value, self.op, at)

    def write(self, b: Builder, signature: Signature, sink: Sink) -> None:
        scratch = signature.buffer(len(signature.buffers) - 1) if signature.scratch else None
        emit_conv(
            b, self.problem, self.schedule, self.kernel.target, self.argument(signature, self.x),
            self.argument(signature, self.op.w), sink, signature.begin, signature.end,
            self.kernel.environment(signature), scratch, self.fill(b, signature),
        )  # fmt: skip

    def fill(self, b: Builder, signature: Signature) -> Value | None:
        """What padding holds; None for zero."""
        return None


class DepthwisePlan(ImagePlan):
    """Depthwise convolution."""

    family = "depthwise"
    dtypes = ("f32", *NARROW_FLOATS)

    def __init__(self, kernel: Kernel, op: Any, schedule: str | None) -> None:
        super().__init__(kernel, op)
        self.op: Any = op
        weight = static(kernel.shape(op.w))
        if (
            not kernel.is_constant(op.w)
            or not op.groups == self.channels == weight[0]
            or weight[1] != 1
        ):
            no_match("not one constant window a channel")
        if dtype_of(self.x) not in BYTES and dtype_of(op.w) != dtype_of(self.x):
            no_match(f"weights of {dtype_of(op.w)} for an image of {dtype_of(self.x)}")
        if Layout.of(self.x.type).block == 0 or Layout.of(op.y.type).block == 0:
            no_match("operands are row-major")
        self.problem = self.find_problem(*window_of(kernel, op, tuple(weight[2:])))
        target = kernel.target
        self.schedule = (
            from_json(WindowSchedule, schedule)
            if schedule
            else depthwise.heuristic(self.problem, target)
        )
        self.schedule.check(self.problem, target)
        self.extent: Dim = self.schedule.extent(self.problem, target, self.symbols)
        self.packings = {operand_position(kernel, op.w): self.packing()}

    def find_problem(self, depth: Window | None, window: Window) -> depthwise.DepthwiseProblem:
        """The convolution."""
        return depthwise.DepthwiseProblem(
            self.n, self.channels, self.h, self.w, window, d=self.d, depth=depth
        )

    def packing(self) -> Packing:
        """How weights are stored."""
        target = self.kernel.target
        return Packing(f"depthwise {target.lanes(32)}", lambda w: depthwise.pack(w, target))

    @property
    def unit_cost(self) -> float:
        return row_cost(self.schedule, self.w, self.problem.window, self.problem.depth)

    def finish(self, pull: Pull, value: Value, at: Sequence[Coordinate]) -> Value:
        return finished(pull, value, self.op, at)

    def write(self, b: Builder, signature: Signature, sink: Sink) -> None:
        emit_depthwise(
            b, self.problem, self.schedule, self.kernel.target, self.argument(signature, self.x),
            self.argument(signature, self.op.w), sink, signature.begin, signature.end,
            self.kernel.environment(signature),
            widening(b, dtype_of(self.x), self.kernel.target.lanes(32)),
        )  # fmt: skip


class WinogradPlan(ImagePlan):
    """3×3 convolution by Winograd's algorithm, where `nn-choose-winograd` marked it."""

    family = "winograd"

    def __init__(self, kernel: Kernel, op: Any, schedule: str | None) -> None:
        if "xc.winograd" not in op.operation.attributes:
            no_match("not marked for Winograd's algorithm")
        super().__init__(kernel, op)
        self.op: Any = op
        weight = static(kernel.shape(op.w))
        _, window = window_of(kernel, op, tuple(weight[2:]))
        pads: Any = window.pads
        target = kernel.target
        self.problem = winograd.WinogradProblem(
            self.n, self.channels, self.h, self.w, weight[0], target.lanes(32), pads
        )
        mode: Any = f"f{ir.IntegerAttr(op.operation.attributes['xc.winograd']).value}"
        self.schedule = (
            from_json(winograd.WinogradSchedule, schedule)
            if schedule
            else winograd.heuristic(self.problem, target, mode)
        )
        self.schedule.check(self.problem, target)
        self.extent: Dim = winograd.extent(self.problem, self.schedule)
        self.scratch = winograd.scratch_bytes(self.problem, self.schedule)
        position, key = operand_position(kernel, op.w), f"winograd {self.problem} {self.schedule}"
        self.packings = {
            position: Packing(key, lambda w: winograd_pack.pack(w, self.problem, self.schedule))
        }
        shape = winograd.transformed_shape(self.problem, self.schedule)
        self.preparations = {
            position: Preparation(
                key,
                4 * math.prod(shape),
                winograd.groups(self.problem, self.schedule),
                self.prepare,
            )
        }

    @property
    def unit_cost(self) -> float:
        s, lanes = self.schedule, self.kernel.target.lanes(32)
        return (
            s.frequencies
            * s.tiles
            * s.oc_block
            * self.problem.c
            / lanes
            / self.kernel.target.fma_ports
        )

    def prepare(self, symbol: str) -> EmittedKernel:
        """The kernel that transforms the weights."""
        signature = Signature(("f32", "f32"))
        b = Builder()
        emit_winograd_weights(
            b, self.problem, self.schedule, self.kernel.target, signature.buffer(0), signature.buffer(1),
            signature.begin, signature.end,
        )  # fmt: skip
        return emitted(b, symbol, signature)

    def finish(self, pull: Pull, value: Value, at: Sequence[Coordinate]) -> Value:
        return finished(pull, value, self.op, at)

    def write(self, b: Builder, signature: Signature, sink: Sink) -> None:
        emit_winograd(
            b, self.problem, self.schedule, self.kernel.target, self.argument(signature, self.x),
            self.argument(signature, self.op.w), sink, signature.begin, signature.end,
            self.kernel.environment(signature), signature.buffer(len(signature.buffers) - 1),
        )  # fmt: skip


class ImageFamily:
    """One kind of plan for kernels whose anchor is one of some ops."""

    def __init__(self, kind: type[Any], *ops: str) -> None:
        self.name: str = kind.family
        self._kind = kind
        self.ops = ops

    def plan(self, kernel: Kernel, schedule: str | None = None) -> Any:
        op = anchor(kernel, *self.ops)
        if len(kernel.shape(op.results[0])) not in (4, 5):
            no_match("not an image or a volume")
        return self._kind(kernel, op, schedule)


def window_of(kernel: Kernel, op: Any, window: tuple[int, ...]) -> tuple[Window | None, Window]:
    """The window of a convolution or pool: along the depth of a volume, and over height and width."""
    sizes = kernel.shape(op.operands[0])[2:]
    if op.auto_pad != "notset" and any(
        not isinstance(d, int) and s > 1 for d, s in zip(sizes, op.strides, strict=True)
    ):
        no_match("the padding is known only at run time")
    # with stride 1 the padding does not depend on the size
    known = [d if isinstance(d, int) else 1 for d in sizes]
    befores, afters = zip(
        *resolve_pads(
            known,
            window,
            strides=op.strides,
            dilations=op.dilations,
            pads=op.pads,
            auto_pad=op.auto_pad,
        ),
        strict=True,
    )
    pads = (*befores, *afters)
    if any(p < 0 for p in pads):
        no_match("negative padding")
    found = Window(window, op.strides, pads, op.dilations, getattr(op, "ceil_mode", False))
    return of_volume(found) if len(window) == 3 else (None, found)


def finished(pull: Pull, value: Value, op: Any, at: Sequence[Coordinate]) -> Value:
    """A sum of float32 plus the bias of its channels, as the result has it: rounded where that has 16 bits."""
    b, lanes = pull.b, pull.lanes
    if op.bias is not None:
        bias = cast(b, pull.value(op.bias, [at[1]]), dtype_of(op.bias), "f32", lanes)
        value = b.binary("arith.addf", value, bias, lanes)
    return cast(b, value, "f32", dtype_of(op.results[0]), lanes)


def widening(b: Builder, dtype: str, lanes: int) -> Decode | None:
    """What makes float32 of the elements of an image; None where they are that."""
    if dtype not in NARROW_FLOATS:
        return None
    return lambda raw, image, channel: cast(b, raw, dtype, "f32", lanes)


def row_cost(schedule: WindowSchedule, w: int | str, window: Window, depth: Window | None) -> float:
    """Taps of the output pixels of a unit."""
    columns = window.output(1, w) if isinstance(w, int) else 64
    return float(
        schedule.rows * columns * math.prod(window.kernel) * (depth.kernel[0] if depth else 1)
    )
