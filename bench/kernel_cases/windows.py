"""The benchmark of depthwise convolutions and pools.

    python -m bench.kernel_cases.windows [filter]

prints microseconds, GFLOP/s (an input of a window counts as two operations), the share of the peak of
multiply-adds, and GB/s of input and output together.
"""

import itertools
import sys

import numpy as np

from bench.blocked import CompiledWindow
from bench.kernel_cases.winograd import Row, multiply_add_peak
from bench.native import runnable_targets
from xcompile.compiler.schedule.depthwise import DepthwiseProblem
from xcompile.compiler.schedule.pool import GlobalPoolProblem, PoolProblem
from xcompile.compiler.schedule.window import Window
from xcompile.compiler.target.target import Target

Problem = DepthwiseProblem | PoolProblem | GlobalPoolProblem


def same(kernel: int, stride: int = 1) -> Window:
    """A square window that keeps the image's size, but for the stride."""
    return Window((kernel,) * 2, (stride,) * 2, (kernel // 2,) * 4)


CASES: dict[str, Problem] = {
    f"depthwise {k}x{k}/{s} {c}x{size}": DepthwiseProblem(1, c, size, size, same(k, s))
    for c, size, k, s in [
        (32, 112, 3, 1), (96, 112, 3, 2), (144, 56, 3, 1), (192, 28, 3, 1), (384, 14, 3, 1),
        (576, 14, 3, 1), (960, 7, 3, 1), (240, 14, 5, 1), (96, 56, 7, 1),
    ]
} | {
    "max 3x3/2 64x112": PoolProblem(1, 64, 112, 112, "max", same(3, 2)),
    "max 3x3/2 64x111": PoolProblem(1, 64, 111, 111, "max", Window((3, 3), (2, 2))),
    "max 2x2/2 64x224": PoolProblem(1, 64, 224, 224, "max", Window((2, 2), (2, 2))),
    "max 3x3 256x28": PoolProblem(1, 256, 28, 28, "max", same(3)),
    "average 3x3 256x28": PoolProblem(1, 256, 28, 28, "average", same(3)),
    "global average 2048x7": GlobalPoolProblem(1, 2048, 7, 7, "average"),
    "global average 1000x13": GlobalPoolProblem(1, 1000, 13, 13, "average"),
}  # fmt: skip


def row(name: str, problem: Problem, target: Target) -> tuple[Row, int]:
    """The benchmark of one problem, and the bytes it reads and writes."""
    compiled = CompiledWindow(problem, target)
    x = np.random.default_rng(0).standard_normal((1, problem.c, problem.h, problem.w), np.float32)
    weight = None
    if isinstance(problem, DepthwiseProblem):
        weight = np.ones((problem.c, 1, *problem.window.kernel), np.float32)
    arguments, y, extent = compiled.arguments(x, weight, {})
    call = compiled.kernel.bind(*arguments, 0, extent)
    if isinstance(problem, GlobalPoolProblem):
        flops = x.size
    else:
        flops = 2 * y.size * problem.window.kernel[0] * problem.window.kernel[1]
    return Row(name, itertools.repeat(call), flops), x.nbytes + y.nbytes


def main(pattern: str = "") -> None:
    """Print the cases whose name contains `pattern`, the best of many interleaved rounds."""
    for target in runnable_targets()[1:]:
        peak = multiply_add_peak(target)
        rows = [row(name, problem, target) for name, problem in CASES.items() if pattern in name]
        for _ in range(60):
            for each in [peak, *(r for r, _ in rows)]:
                each.step()
        print(f"{target.name}: {peak.gflops:.1f} GFLOP/s")
        for each, size in rows:
            print(
                f"{each.name:28} {each.best * 1e6:8.1f} us {each.gflops:6.1f} GFLOP/s"
                f" {each.gflops / peak.gflops:5.2f} of peak {size / each.best / 1e9:6.1f} GB/s"
            )


if __name__ == "__main__":
    main(*sys.argv[1:2])
