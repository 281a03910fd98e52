"""Transposed convolution as phases of direct convolution, against float64, on every vector width of this host."""

from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest

from bench.blocked import CompiledConv, from_blocked
from bench.native import runnable_targets
from xcompile.compiler.schedule.conv import ConvProblem
from xcompile.compiler.schedule.phases import phase_weights, transposed
from xcompile.compiler.target.target import Target

TARGETS = [pytest.param(t, id=f"{t.lanes(32)} lanes") for t in runnable_targets()]


@dataclass(frozen=True)
class Case:
    c: int
    h: int
    w: int
    oc: int
    kernel: tuple[int, int]
    strides: tuple[int, int] = (2, 2)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilations: tuple[int, int] = (1, 1)
    output_pads: tuple[int, int] = (0, 0)
    n: int = 1

    @property
    def fields(self) -> tuple[tuple[int, ...], ...]:
        return self.kernel, self.strides, self.pads, self.dilations, self.output_pads


CASES = {
    "2x2 stride 2": Case(24, 7, 9, 24, (2, 2), n=2),
    "4x4 stride 2, padded": Case(16, 5, 6, 40, (4, 4), pads=(1, 1, 1, 1)),
    "3x3 stride 2, output padded": Case(
        20, 6, 5, 11, (3, 3), pads=(1, 1, 1, 1), output_pads=(1, 1)
    ),
    "3x3 stride 2, an odd size": Case(8, 4, 4, 16, (3, 3), pads=(1, 0, 1, 1)),
    "stride 3, kernel 2": Case(9, 5, 4, 17, (2, 2), (3, 3)),
    "strides differ": Case(32, 3, 8, 16, (1, 5), (1, 4), (0, 2, 0, 1)),
    "dilated": Case(16, 6, 7, 16, (3, 2), (2, 1), (2, 1, 1, 0), (2, 3)),
    "stride 1": Case(16, 6, 7, 32, (3, 3), (1, 1), (1, 1, 1, 1)),
    "many channels": Case(600, 4, 4, 48, (4, 4), pads=(1, 1, 1, 1)),
}


def transposed_convolution(x: np.ndarray, weight: np.ndarray, case: Case) -> np.ndarray:
    """In float64, from the definition: each input pixel adds the kernel to the output."""
    (kh, kw), (sh, sw), (top, left, bottom, right), (dh, dw), (oph, opw) = case.fields
    n, _, h, w = x.shape
    full = np.zeros(
        (
            n,
            weight.shape[1],
            sh * (h - 1) + dh * (kh - 1) + 1 + oph,
            sw * (w - 1) + dw * (kw - 1) + 1 + opw,
        )
    )
    for i, j in product(range(kh), range(kw)):
        added = np.einsum("nchw,co->nohw", x.astype(np.float64), weight[:, :, i, j])
        full[:, :, i * dh : i * dh + sh * h : sh, j * dw : j * dw + sw * w : sw] += added
    return full[:, :, top : full.shape[2] - bottom, left : full.shape[3] - right]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dynamic", [False, True], ids=["known sizes", "any size"])
def test_a_transposed_convolution_is_right(name: str, target: Target, dynamic: bool) -> None:
    case = CASES[name]
    window, phases = transposed(*case.fields)
    sizes = ("d0", "d1", "d2") if dynamic else (case.n, case.h, case.w)
    problem = ConvProblem(sizes[0], case.c, sizes[1], sizes[2], case.oc, window, phases=phases)
    rng = np.random.default_rng(11)
    x = rng.standard_normal((case.n, case.c, case.h, case.w)).astype(np.float32)
    weight = rng.standard_normal((case.c, case.oc, *case.kernel)).astype(np.float32)
    bias = rng.standard_normal(case.oc).astype(np.float32)
    parts = phase_weights(weight, phases, case.dilations)
    values = {"d0": case.n, "d1": case.h, "d2": case.w}
    kernel = CompiledConv(problem, target, relu=False)
    got = kernel(x, parts.reshape(-1, *parts.shape[2:]), bias, values, threads=3)
    want = transposed_convolution(x, weight, case) + bias[:, None, None]
    scale = np.sqrt(case.c * weight[0, 0].size)
    np.testing.assert_allclose(from_blocked(got, case.oc), want, rtol=1e-5, atol=2e-6 * scale)
