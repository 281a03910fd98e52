"""Winograd weights in numpy: the layout that is shipped, and what the load-time kernel makes of it."""

import numpy as np

from xcompile.compiler.codegen.cpu.winograd_transforms import weight_1d
from xcompile.compiler.schedule.winograd import (
    WinogradProblem,
    WinogradSchedule,
    packed_shape,
    transformed_shape,
)


class _Float64:
    """The arithmetic of `weight_1d` on arrays."""

    def add(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return x + y

    def sub(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return x - y

    def scale(self, factor: float, x: np.ndarray) -> np.ndarray:
        return factor * x


def pack(weight: np.ndarray, problem: WinogradProblem, schedule: WinogradSchedule) -> np.ndarray:
    """Lay out weights [oc][c][3][3] as `emit_winograd_weights` reads them, channels padded with zeros."""
    vectors, channels, taps, lanes = packed_shape(problem, schedule)
    padded = np.zeros((vectors * lanes, channels, taps), np.float32)
    padded[: problem.oc, : problem.c] = weight.reshape(problem.oc, problem.c, taps)
    packed = padded.reshape(vectors, lanes, channels, taps).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(packed)


def transform_weights(
    packed: np.ndarray, problem: WinogradProblem, schedule: WinogradSchedule
) -> np.ndarray:
    """Transform packed weights, in float64 and rounded once: bit for bit what the kernel gives."""
    count, frequencies, panels, channels, width = transformed_shape(problem, schedule)
    taps = packed.astype(np.float64).reshape(-1, channels, 3, 3, problem.block)
    down = weight_1d(_Float64(), [taps[:, :, i] for i in range(3)], schedule.m)
    both = [weight_1d(_Float64(), [row[:, :, j] for j in range(3)], schedule.m) for row in down]
    u = np.array([value for row in both for value in row])
    u = u.reshape(frequencies, count, panels, schedule.vectors, channels, problem.block)
    ordered = u.transpose(1, 0, 2, 4, 3, 5).reshape(count, frequencies, panels, channels, width)
    return ordered.astype(np.float32)
