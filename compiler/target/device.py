"""What the compiler knows about GPUs: data of each architecture, and the device that a model is compiled for.

An architecture's sizes are those of the data-center product that has it, where there is one: numbers of the vendor's
data sheets and programming guide, dense peaks without sparsity. As with CPUs, passes and schedules ask for features
and numbers, never for names.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from xcompile.compiler.support.errors import CompileError

WARP = 32
"""Threads of a warp."""
DEVICE_TRIPLE = "nvptx64-nvidia-cuda"
"""LLVM's target triple of every device."""
MOST_BLOCKS = (1 << 31) - 1
"""Blocks that a launch may have."""

_KIB: Final = 1024


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """One GPU architecture.

    Attributes:
        name: "sm_80".
        product: the GPU whose numbers these are.
        ptx: the least version of the PTX language that knows it and all that kernels for it use: 70 is 7.0.
        multiprocessors: of the product.
        threads: that a multiprocessor holds at once.
        registers: of 32 bits, of a multiprocessor.
        shared: bytes of shared memory of a multiprocessor.
        shared_block: bytes of it that a block may have.
        bandwidth: of its memory, in GB/s.
        peaks: operations a second, in tera, by the type of the products; a multiply-add is two. "fp32" is that of
            ordinary arithmetic, the others are those of the matrix units.
    """

    name: str
    product: str
    ptx: int
    multiprocessors: int
    threads: int
    registers: int
    shared: int
    shared_block: int
    bandwidth: float
    peaks: Mapping[str, float]

    @property
    def number(self) -> int:
        """80 for "sm_80"."""
        return int(self.name.removeprefix("sm_"))


def _architecture(
    name: str,
    product: str,
    ptx: int,
    multiprocessors: int,
    threads: int,
    shared_kib: tuple[int, int],
    bandwidth: float,
    **peaks: float,
) -> Architecture:
    return Architecture(
        name=name, product=product, ptx=ptx, multiprocessors=multiprocessors, threads=threads, registers=65536,
        shared=shared_kib[0] * _KIB, shared_block=shared_kib[1] * _KIB, bandwidth=bandwidth, peaks=peaks,
    )  # fmt: skip


ARCHITECTURES: Final[Mapping[str, Architecture]] = {
    made.name: made
    for made in (
        _architecture("sm_75", "T4", 70, 40, 1024, (64, 64), 320, fp32=8.1, fp16=65, int8=130, int4=260),
        _architecture(
            "sm_80", "A100 SXM", 70, 108, 2048, (164, 163), 2039, fp32=19.5, tf32=156, fp16=312, bf16=312,
            int8=624, int4=1248,
        ),
        _architecture(
            "sm_86", "A10", 71, 72, 1536, (100, 99), 600, fp32=31.2, tf32=62.5, fp16=125, bf16=125, int8=250,
            int4=500,
        ),
        _architecture(
            "sm_89", "L4", 78, 58, 1536, (100, 99), 300, fp32=30.3, tf32=60, fp16=121, bf16=121, int8=242,
            int4=485,
        ),
        _architecture(
            "sm_90", "H100 SXM", 78, 132, 2048, (228, 227), 3350, fp32=67, tf32=494, fp16=989, bf16=989,
            int8=1979,
        ),
        _architecture(
            "sm_100", "B200", 86, 148, 2048, (228, 227), 8000, fp32=75, tf32=1125, fp16=2250, bf16=2250,
            int8=4500,
        ),
        _architecture(
            "sm_120", "RTX 5090", 87, 170, 1536, (100, 99), 1792, fp32=104.8, tf32=104.8, fp16=209.5,
            bf16=209.5, int8=838,
        ),
    )
}  # fmt: skip
"""Every architecture there is code for, oldest first."""

_FEATURES: Final[Mapping[str, tuple[int, int | None]]] = {
    "ldmatrix": (75, None),
    "mma.f16.m16n8k8": (75, None),
    "mma.s8.m8n8k16": (75, None),
    "mma.s4.m8n8k32": (75, 89),
    "mma.f16.m16n8k16": (80, None),
    "mma.bf16.m16n8k16": (80, None),
    "mma.tf32.m16n8k8": (80, None),
    "mma.s8.m16n8k32": (80, None),
    "mma.s4.m16n8k64": (80, 89),
    "bf16": (80, None),
    "tf32": (80, None),
    "cp.async": (80, None),
    "wgmma": (90, 90),
    "tma": (90, None),
}
"""The first and the last architecture that has each feature; None: all later ones."""


@dataclass(frozen=True)
class Device:
    """The GPUs that a model is compiled for.

    Attributes:
        architectures: names of `ARCHITECTURES`, oldest first. PTX is made for the oldest, which newer drivers compile
            for what they find, and machine code for each of them.
    """

    architectures: tuple[str, ...]

    @property
    def oldest(self) -> Architecture:
        """The architecture that kernels are written and planned for."""
        return ARCHITECTURES[self.architectures[0]]

    @property
    def features(self) -> frozenset[str]:
        """What kernels may use: what the oldest has and every other one that is named."""
        numbers = [ARCHITECTURES[name].number for name in self.architectures]
        return frozenset(
            name
            for name, (first, last) in _FEATURES.items()
            if all(first <= n and (last is None or n <= last) for n in numbers)
        )

    def has(self, feature: str) -> bool:
        """Whether kernels may use a feature: "mma.s8.m16n8k32", "cp.async", …"""
        return feature in self.features

    def to_json(self) -> list[str]:
        """The names of the architectures; `from_json` reads them back."""
        return list(self.architectures)

    @classmethod
    def from_json(cls, values: Any) -> Device:
        """The device that `to_json` described.

        Raises:
            CompileError: XC6005, it is no list of names; XC6001, one is unknown.
        """
        if not isinstance(values, list) or not all(isinstance(name, str) for name in values):
            raise CompileError("XC6005", "a device is a list of architectures")
        return parse_architectures(values)


def parse_architectures(names: Sequence[str]) -> Device:
    """The device of some architectures, in any order.

    Raises:
        CompileError: XC6001, there is none, or one is not known.
    """
    for name in names:
        if name not in ARCHITECTURES:
            close = sorted(difflib.get_close_matches(name, ARCHITECTURES)) or list(ARCHITECTURES)
            plain = re.fullmatch(r"sm_(\d+)[af]", name)
            if plain and f"sm_{plain[1]}" in ARCHITECTURES:
                close = [f"sm_{plain[1]}"]
            raise CompileError(
                "XC6001", f"no GPU architecture '{name}'", help=f"there are {', '.join(close)}"
            )
    if not names:
        known = ", ".join(ARCHITECTURES)
        raise CompileError("XC6001", "no GPU architecture is named", help=f"there are {known}")
    return Device(tuple(name for name in ARCHITECTURES if name in names))
