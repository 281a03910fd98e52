"""What convolution, depthwise convolution and pools share when they write code."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from xcompile.compiler.codegen.cpu.builder import Builder, Index
from xcompile.compiler.schedule.window import Size, Window


class Windowed(Protocol):
    """A problem with an image and a window."""

    @property
    def n(self) -> Size: ...
    @property
    def h(self) -> Size: ...
    @property
    def w(self) -> Size: ...
    @property
    def window(self) -> Window: ...


@dataclass(frozen=True)
class WindowSizes:
    """The sizes of a problem as indices: batch, rows and columns of input and output."""

    n: Index
    h: Index
    w: Index
    oh: Index
    ow: Index

    @classmethod
    def of(cls, b: Builder, problem: Windowed, sizes: Mapping[str, Index]) -> "WindowSizes":
        """Write what computes the sizes that are not known."""
        n, h, w = (index_of(b, size, sizes) for size in (problem.n, problem.h, problem.w))
        window = problem.window
        oh, ow = (
            b.add(b.div(b.add(size, window.slack(axis)), window.strides[axis]), 1)
            for axis, size in enumerate((h, w))
        )
        return cls(n, h, w, oh, ow)


def index_of(b: Builder, size: Size, sizes: Mapping[str, Index]) -> Index:
    """A size as an index: the product of its factors."""
    if isinstance(size, int):
        return size
    result: Index = 1
    for factor in size.split("*"):
        result = b.mul(result, int(factor) if factor.isdigit() else sizes[factor])
    return result
