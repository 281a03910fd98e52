"""The targets that can be named, and the reading of `DEVICE[-ISA][-PRECISION]`.

A named target describes no machine in particular: its caches are those of a common server core of its
kind, so that the same name gives the same code everywhere. `cpu` is this host, measured; the CPU beside a `cuda` device
is any of this host's architecture.
"""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.target.device import Device, parse_architectures
from xcompile.compiler.target.host import host_target
from xcompile.compiler.target.target import Target

PRECISIONS: Final = ("fp32", "int8", "dynamic", "w8", "w4", "fp16", "bf16")
"""The precisions there are; the first is the default. `compiler/pipelines.py` has the passes of the others."""

MIXED: Final = "mixed"
"""In the name of a target: 8-bit integers, but what an accuracy budget chooses otherwise."""

_KIB: Final = 1024
_MIB: Final = 1024 * 1024

_AVX2 = frozenset(
    "avx avx2 bmi bmi2 cx16 f16c fma lzcnt movbe popcnt sahf sse sse2 sse3 sse4.1 sse4.2 ssse3".split()
)
_AVX512 = _AVX2 | frozenset("avx512bw avx512cd avx512dq avx512f avx512vl".split())
_NEON = frozenset({"fp-armv8", "neon"})
_DOTPROD = _NEON | frozenset({"dotprod", "fullfp16", "lse"})


def _x86(name: str, features: frozenset[str], l1d: int, l2: int, l3: int) -> Target:
    wide = "avx512f" in features
    return Target(
        name=name,
        triple="x86_64-unknown-linux-gnu",
        features=features,
        vector_bits=512 if wide else 256,
        vector_registers=32 if wide else 16,
        fma_ports=2,
        l1d=l1d,
        l2=l2,
        l3=l3,
        cores=4,
    )


def _arm(name: str, features: frozenset[str], l1d: int, l2: int, l3: int) -> Target:
    return Target(
        name=name,
        triple="aarch64-unknown-linux-gnu",
        features=features,
        vector_bits=128,
        vector_registers=32,
        fma_ports=2,
        l1d=l1d,
        l2=l2,
        l3=l3,
        cores=4,
    )


_NAMED: Final = (
    _x86("x86-avx2", _AVX2, 32 * _KIB, 512 * _KIB, 16 * _MIB),
    _x86("x86-avx512", _AVX512, 32 * _KIB, 1 * _MIB, 16 * _MIB),
    _x86("x86-vnni", _AVX512 | {"avx512vnni"}, 48 * _KIB, 1280 * _KIB, 24 * _MIB),
    _arm("arm-neon", _NEON, 32 * _KIB, 512 * _KIB, 0),
    _arm("arm-dotprod", _DOTPROD, 64 * _KIB, 1 * _MIB, 32 * _MIB),
    _arm("arm-i8mm", _DOTPROD | {"bf16", "fp16fml", "i8mm"}, 64 * _KIB, 1 * _MIB, 32 * _MIB),
)


CUDA: Final = "cuda"
"""The target whose kernels run on an NVIDIA GPU."""

DEFAULT_ARCHITECTURES: Final = ("sm_80",)
"""What `cuda` means where no architecture is named: GPUs since Ampere."""


def _cuda() -> Target:
    host = host_target()
    return Target(
        name=CUDA,
        triple=host.triple,
        features=frozenset(),
        vector_bits=128,
        vector_registers=16,
        fma_ports=1,
        l1d=32 * _KIB,
        l2=512 * _KIB,
        l3=0,
        cores=1,
        device=Device(DEFAULT_ARCHITECTURES),
    )


def targets() -> dict[str, Target]:
    """Every target by its name: `cpu`, which is this host, then the named ones."""
    return {target.name: target for target in (host_target(), *_NAMED, _cuda())}


def parse_target(text: str) -> tuple[Target, str]:
    """Reads `DEVICE[-ISA][-PRECISION]`, such as "cpu", "x86-avx2" or "arm-dotprod-fp32".

    Returns:
        The target and the precision, "fp32" when the text names none; one of `PRECISIONS`, or "mixed".

    Raises:
        CompileError: XC6001 for an unknown target, XC6002 for an unknown precision; the help names close matches.
    """
    known = targets()
    if text in known:
        return known[text], PRECISIONS[0]
    name, _, precision = text.rpartition("-")
    if name in known:
        check_precision(precision, f"target '{text}'", (*PRECISIONS, MIXED))
        return known[name], precision
    name = name if precision in (*PRECISIONS, MIXED) else text
    raise CompileError("XC6001", f"no target '{name}'", help=_suggestion(name, known))


def with_architectures(target: Target, names: Sequence[str]) -> Target:
    """The target with its device of some GPU architectures; the target itself when there are none.

    Args:
        target: the target.
        names: of architectures; one text may hold several, with commas between them.

    Raises:
        CompileError: XC6001 for an unknown architecture, XC6005 for a target without a device.
    """
    listed = [part.strip() for name in names for part in name.split(",")]
    if not listed:
        return target
    if target.device is None:
        raise CompileError(
            "XC6005", f"the target '{target.name}' has no GPU, and the architectures {', '.join(listed)} are of one",
            help=f"--target={CUDA}",
        )  # fmt: skip
    return replace(target, device=parse_architectures(listed))


def check_precision(name: str, where: str, known: Sequence[str] = PRECISIONS) -> None:
    """Raise unless there is a precision of this name.

    Args:
        name: of the precision.
        where: what named it, for the error.
        known: those that it may be.

    Raises:
        CompileError: XC6002.
    """
    if name not in known:
        help = _suggestion(str(name), known)
        raise CompileError("XC6002", f"no precision '{name}' (in {where})", help=help)


def _suggestion(wrong: str, known: Iterable[str]) -> str:
    """What to write instead: close matches where there are any, else everything there is."""
    names = list(known)
    close = [name for name in names if wrong and name.startswith(f"{wrong}-")]
    close = close or difflib.get_close_matches(wrong, names)
    return f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(names)}"
