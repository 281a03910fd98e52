"""How the elements of a tensor lie in memory.

`plain` is row-major. `NCHW16c` (any block) keeps 16 channels of a pixel together: [N][ceil(C/16)][spatial…][16];
the logical shape stays N, C, spatial, and the channels beyond C in the last block are zero.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from xcompile.compiler.codegen.cpu.builder import Index
from xcompile.compiler.codegen.cpu.coordinates import Coordinate, Coordinates, Fixed, Lane
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.support.dims import Dim, ceildiv, product
from xcompile.dialects.nn.layouts import block_of

_NO_PITCHES: Mapping[int, Index] = {}


@dataclass(frozen=True)
class Layout:
    """A layout: `block` channels together, or 0 for row-major."""

    block: int = 0

    @staticmethod
    def of(tensor: ir.Type) -> "Layout":
        """The layout that a tensor type's encoding names."""
        return Layout(block_of(tensor))

    def sizes(self, shape: Sequence[Dim]) -> tuple[Dim, ...]:
        """The sizes of the axes in memory."""
        if not self.block:
            return tuple(shape)
        return (shape[0], ceildiv(shape[1], self.block), *shape[2:], self.block)

    def elements(self, shape: Sequence[Dim]) -> Dim:
        """How many elements the memory holds, padding included."""
        return product(self.sizes(shape))

    def pack(self, array: np.ndarray) -> np.ndarray:
        """The elements of a tensor in the order of memory; channels beyond the last are zero."""
        if not self.block:
            return array
        n, c, *spatial = array.shape
        blocks = -(-c // self.block)
        widths = [(0, 0), (0, blocks * self.block - c), *[(0, 0)] * len(spatial)]
        padded = np.pad(array, widths).reshape(n, blocks, self.block, *spatial)
        return np.ascontiguousarray(np.moveaxis(padded, 2, -1))

    def unpack(self, memory: np.ndarray, shape: Sequence[int]) -> np.ndarray:
        """The tensor of this shape whose elements lie flat in `memory`."""
        if not self.block:
            return memory.reshape(shape)
        n, c, *spatial = shape
        blocks = -(-c // self.block)
        split = np.moveaxis(memory.reshape(n, blocks, *spatial, self.block), -1, 2)
        return np.ascontiguousarray(split.reshape(n, blocks * self.block, *spatial)[:, :c])

    def offset(
        self,
        arithmetic: Coordinates,
        shape: Sequence[Index],
        at: Sequence[Coordinate],
        pitches: Mapping[int, Index] = _NO_PITCHES,
    ) -> Coordinate:
        """The linear offset of the elements at `at`; `pitches` are strides of axes behind which memory is not dense."""
        b = arithmetic.b
        if not self.block:
            return arithmetic.flatten(at, row_major_strides(arithmetic, shape, pitches))
        n, channel, *spatial = at
        outer, inner = self._split(arithmetic, channel)
        blocks = b.ceildiv(shape[1], self.block)
        sizes = [shape[0], blocks, *shape[2:], self.block]
        strides = row_major_strides(arithmetic, sizes, pitches)
        return arithmetic.flatten([n, outer, *spatial, inner], strides)

    def _split(self, arithmetic: Coordinates, channel: Coordinate) -> tuple[Coordinate, Coordinate]:
        lanes = arithmetic.lanes
        if isinstance(channel, Fixed) and channel.is_run and channel.places[0] % lanes == 0:
            channel = Lane(channel.places[0], lanes)
        if isinstance(channel, Lane) and channel.multiple % lanes == 0 and self.block % lanes == 0:
            inner = (
                0
                if channel.multiple % self.block == 0
                else arithmetic.b.rem(channel.base, self.block)
            )
            return arithmetic.b.div(channel.base, self.block), Lane(inner, lanes)
        return arithmetic.div(channel, self.block), arithmetic.rem(channel, self.block)


PLAIN = Layout()


def row_major_strides(
    arithmetic: Coordinates, shape: Sequence[Index], pitches: Mapping[int, Index] = _NO_PITCHES
) -> list[Index]:
    """The stride of each axis, in elements; `pitches` are those of axes that do not follow from the axes behind."""
    strides: list[Index] = []
    step: Index = 1
    for axis, size in reversed(list(enumerate(shape))):
        step = pitches.get(axis, step)
        strides.append(step)
        step = arithmetic.b.mul(step, size)
    return strides[::-1]
