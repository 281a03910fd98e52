"""Graphs of 8-bit images: convolutions, what requantizes their sums, pools; and how they are compiled and looked at."""

from collections.abc import Callable, Sequence

import numpy as np

from tests.e2e.compiled_node import shared_pool
from tests.numerics.graphs import Graph
from xcompile.compiler.artifact import Artifact
from xcompile.compiler.codegen.cpu.layout import Layout
from xcompile.compiler.driver import compile_module
from xcompile.compiler.ir.context import context
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import view
from xcompile.compiler.ir.regions import nested
from xcompile.compiler.model import CompiledModel
from xcompile.compiler.request import Request
from xcompile.compiler.support.options import Options
from xcompile.compiler.target.target import Target
from xcompile.dialects.kernel import Launch
from xcompile.dialects.nn.binary import Add, Maximum, Minimum, Mul, Sub
from xcompile.dialects.nn.integer import ConvInteger
from xcompile.dialects.nn.interpreter import interpret
from xcompile.dialects.nn.unary import Cast, Round


class IntegerGraph(Graph):
    """A graph of unsigned 8-bit images whose weights are drawn.

    Attributes:
        rng: draws them.
    """

    def __init__(self, *shapes: tuple[int | None, ...], seed: int = 0, dtype: str = "ui8") -> None:
        super().__init__(*shapes, dtype=dtype)
        self.rng = np.random.default_rng(seed)
        self.dtype = dtype

    def conv(
        self,
        x: ir.Value,
        oc: int,
        kernel: tuple[int, int] = (3, 3),
        strides: tuple[int, int] = (1, 1),
        pads: Sequence[int] = (0, 0, 0, 0),
        dilations: tuple[int, int] = (1, 1),
        groups: int = 1,
        fill: int | None = None,
    ) -> ir.Value:
        """Sums of a convolution, in int32."""
        c = ir.RankedTensorType(x.type).shape[1] // groups
        w = self.rng.integers(-128, 128, (oc, c, *kernel)).astype(np.int8)
        kind = np.uint8 if self.dtype == "ui8" else np.int8
        return self.make(
            ConvInteger, x=x, w=w, strides=strides, pads=tuple(pads), dilations=dilations,
            groups=groups, fill=None if fill is None else kind(fill),
        )  # fmt: skip

    def wide(self, x: ir.Value) -> ir.Value:
        """8-bit integers as int32."""
        return self.make(Cast, x=x, to="i32")

    def dequantized(self, x: ir.Value, zero: int) -> ir.Value:
        """Floats, by a scale of 0.7."""
        return self.make(
            Mul,
            a=self.make(Cast, x=self.make(Sub, a=self.wide(x), b=np.int32(zero)), to="f32"),
            b=np.float32(0.7),
        )

    def quantized(self, x: ir.Value, zero: int = 5) -> ir.Value:
        """Floats to 8 bits, by a factor of 1.1."""
        return self.rounded(self.make(Mul, a=x, b=np.float32(1.1)), zero)

    def requantized(self, sums: ir.Value, zero: int = 0, other: ir.Value | None = None) -> ir.Value:
        """int32 with a bias, by a scale of each channel, to 8 bits; `other` is an 8-bit image that is added."""
        channels = ir.RankedTensorType(sums.type).shape[1]
        bias = self.rng.integers(-5000, 5000, (channels, 1, 1)).astype(np.int32)
        scales = self.rng.uniform(0.0005, 0.005, (channels, 1, 1)).astype(np.float32)
        x = self.make(Cast, x=self.make(Add, a=sums, b=bias), to="f32")
        x = self.make(Mul, a=x, b=scales)
        if other is not None:
            wide = self.make(Mul, a=self.make(Cast, x=other, to="f32"), b=np.float32(0.37))
            x = self.make(Add, a=x, b=wide)
        return self.rounded(x, zero)

    def rounded(self, x: ir.Value, zero: int) -> ir.Value:
        """Floats rounded, clamped and moved by the zero point, to 8 bits."""
        low, high = (0, 255) if self.dtype == "ui8" else (-128, 127)
        x = self.make(Round, x=x)
        x = self.make(Maximum, a=x, b=np.float32(low - zero))
        x = self.make(Minimum, a=x, b=np.float32(high - zero))
        x = self.make(Cast, x=x, to="i32")
        if zero:
            x = self.make(Add, a=x, b=np.int32(zero))
        return self.make(Cast, x=x, to=self.dtype)


Build = Callable[[], Module]


def compiled(build: Build, target: Target) -> tuple[CompiledModel, Module]:
    """The graph that `build()` makes, compiled for a target; and what passes have made of it."""
    options = Options({"cache": "", "verify-each": True})
    with context():
        module = build()
        artifact = compile_module(module, Request(target, options=options), pool=shared_pool())
        return CompiledModel(artifact, threads=1), module


def expected(build: Build, *inputs: np.ndarray) -> list[np.ndarray]:
    """What the reference gives."""
    with context():
        return interpret(build(), inputs)


def families(artifact: Artifact) -> list[str]:
    """Who emits each launch."""
    return [artifact.kernels[step.symbol].family for step in artifact.program.launches]


def bytes_an_element(artifact: Artifact, module: Module) -> list[float]:
    """Bytes of memory for each element (channels beyond the last count) of what launches leave in the arena."""
    ops = [view(operation) for operation in nested(module.main.operation)]
    types = [ir.RankedTensorType(op.results[0].type) for op in ops if isinstance(op, Launch)]
    found: list[float] = []
    for step, made in zip(artifact.program.launches, types, strict=True):
        elements = Layout.of(made).elements(tuple(made.shape))
        if step.places[-1].space == "arena":
            found.append(step.lengths[-1] / elements)  # type: ignore[operator]
    return found
