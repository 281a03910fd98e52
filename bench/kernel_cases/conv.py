"""The benchmark of direct convolution.

    python -m bench.kernel_cases.conv [filter [lanes]]

prints, for each layer and vector length, milliseconds, GFLOP/s, the share of the peak of multiply-adds measured in
the same process, and the share of a network's direct convolutions as a whole. Layers with few pixels stream their
weights from memory in a network, so they rotate over copies of them that no cache holds.
"""

import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bench.blocked import CompiledConv
from bench.kernel_cases.winograd import Row, multiply_add_peak
from bench.native import aligned, runnable_targets
from xcompile.compiler.schedule.conv import ConvProblem, ConvSchedule, flatten
from xcompile.compiler.schedule.window import Window
from xcompile.compiler.target.target import Target

COLD_PIXELS = 28 * 28
COLD_BYTES = 96 << 20


@dataclass(frozen=True)
class Layer:
    """A convolution of a square image, and how often the network has it."""

    network: str
    c: int
    size: int
    oc: int
    kernel: int = 1
    stride: int = 1
    pad: int = 0
    times: int = 1
    groups: int = 1

    @property
    def problem(self) -> ConvProblem:
        window = Window((self.kernel,) * 2, (self.stride,) * 2, (self.pad,) * 4)
        layout = "plain" if self.c <= 4 else "blocked"
        problem = ConvProblem(1, self.c, self.size, self.size, self.oc, window, self.groups, layout)
        return flatten(problem)

    @property
    def name(self) -> str:
        stride = f"/{self.stride}" if self.stride > 1 else ""
        stride += f" g{self.groups}" if self.groups > 1 else ""
        return (
            f"{self.network} {self.kernel}x{self.kernel}{stride} {self.c}x{self.size} -> {self.oc}"
        )


LAYERS = [
    Layer("resnet50", 3, 224, 64, 7, 2, 3),
    Layer("resnet50", 64, 56, 64),
    Layer("resnet50", 64, 56, 256, times=4),
    Layer("resnet50", 256, 56, 64, times=2),
    Layer("resnet50", 256, 56, 128),
    Layer("resnet50", 128, 56, 128, 3, 2, 1),
    Layer("resnet50", 256, 56, 512, 1, 2),
    Layer("resnet50", 128, 28, 512, times=4),
    Layer("resnet50", 512, 28, 128, times=3),
    Layer("resnet50", 512, 28, 256),
    Layer("resnet50", 256, 28, 256, 3, 2, 1),
    Layer("resnet50", 512, 28, 1024, 1, 2),
    Layer("resnet50", 256, 14, 1024, times=6),
    Layer("resnet50", 1024, 14, 256, times=5),
    Layer("resnet50", 1024, 14, 512),
    Layer("resnet50", 512, 14, 512, 3, 2, 1),
    Layer("resnet50", 1024, 14, 2048, 1, 2),
    Layer("resnet50", 512, 7, 2048, times=3),
    Layer("resnet50", 2048, 7, 512, times=2),
    Layer("squeezenet", 3, 224, 64, 3, 2),
    Layer("squeezenet", 64, 55, 16),
    Layer("squeezenet", 128, 55, 16),
    Layer("squeezenet", 16, 55, 64, times=2),
    Layer("squeezenet", 128, 27, 32),
    Layer("squeezenet", 256, 27, 32),
    Layer("squeezenet", 32, 27, 128, times=2),
    Layer("squeezenet", 256, 13, 48),
    Layer("squeezenet", 384, 13, 48),
    Layer("squeezenet", 48, 13, 192, times=2),
    Layer("squeezenet", 384, 13, 64),
    Layer("squeezenet", 512, 13, 64),
    Layer("squeezenet", 64, 13, 256, times=2),
    Layer("squeezenet", 512, 13, 1000),
    Layer("same3x3", 64, 56, 64, 3, 1, 1),
    Layer("same3x3", 128, 28, 128, 3, 1, 1),
    Layer("same3x3", 256, 14, 256, 3, 1, 1),
    Layer("same3x3", 512, 7, 512, 3, 1, 1),
    Layer("same3x3", 16, 56, 32, 5, 1, 2),
    Layer("groups", 128, 56, 128, 3, 1, 1, groups=32),
    Layer("groups", 1024, 7, 1024, 3, 1, 1, groups=32),
    Layer("groups", 272, 28, 68, groups=4),
    Layer("groups", 68, 28, 272, groups=4),
    Layer("groups", 544, 14, 136, groups=4),
]


def row(
    name: str, problem: ConvProblem, target: Target, schedule: ConvSchedule | None = None
) -> Row:
    """The benchmark of one problem of static sizes."""
    compiled = CompiledConv(problem, target, schedule)
    rng = np.random.default_rng(0)
    kernel = (problem.oc, problem.c // problem.groups, *problem.window.kernel)
    x = rng.standard_normal((problem.n, problem.c, problem.h, problem.w), np.float32)
    weight = rng.standard_normal(kernel, np.float32) * 0.01
    arguments, y, extent = compiled.arguments(x, weight, np.zeros(problem.oc, np.float32), {})
    packed = arguments[1]
    pixels = y.shape[2] * y.shape[3]
    copies = [packed]
    if pixels <= COLD_PIXELS:
        for _ in range(min(64, COLD_BYTES // packed.nbytes)):
            copies.append(aligned(packed.shape))
            copies[-1][:] = packed
    calls = [compiled.kernel.bind(arguments[0], copy, *arguments[2:], 0, extent) for copy in copies]
    return Row(name, itertools.cycle(calls), 2 * weight[0].size * problem.oc * len(y) * pixels)


def report(peak: Row, rows: list[tuple[Layer, Row]]) -> Iterator[str]:
    """The lines of one target."""
    for layer, each in rows:
        yield (
            f"{layer.name:34} {each.best * 1e3:8.3f} ms {each.gflops:6.1f} GFLOP/s"
            f" {each.gflops / peak.gflops:5.2f} of peak"
        )
    for network, group in itertools.groupby(rows, key=lambda pair: pair[0].network):
        pairs = list(group)
        flops = sum(layer.times * each.flops for layer, each in pairs)
        seconds = sum(layer.times * each.best for layer, each in pairs)
        share = flops / seconds / 1e9 / peak.gflops
        yield f"{network:34} {seconds * 1e3:8.3f} ms {share:28.2f} of peak"


def main(pattern: str = "", lanes: str = "") -> None:
    """Print the layers whose name contains `pattern`, the best of many interleaved rounds."""
    for target in runnable_targets():
        if lanes not in ("", str(target.lanes(32))):
            continue
        peak = multiply_add_peak(target)
        rows = [
            (layer, row(layer.name, layer.problem, target))
            for layer in LAYERS
            if pattern in layer.name
        ]
        for _ in range(40):
            for each in [peak, *(r for _, r in rows)]:
                each.step()
        print(f"{target.name}: {peak.gflops:.1f} GFLOP/s")
        for line in report(peak, rows):
            print(line)


if __name__ == "__main__":
    main(*sys.argv[1:3])
