"""This machine, as Linux describes it in `/proc` and `/sys`."""

import functools
import math
import os
import platform
import re
from pathlib import Path
from typing import Final

from xcompile.compiler.target.target import Target

# /proc/cpuinfo lists only what processor and operating system both support. LLVM's names differ here:
_X86_NAMES: Final = {
    "abm": "lzcnt",
    "avx512_bf16": "avx512bf16",
    "avx512_bitalg": "avx512bitalg",
    "avx512_fp16": "avx512fp16",
    "avx512_vbmi2": "avx512vbmi2",
    "avx512_vnni": "avx512vnni",
    "avx512_vpopcntdq": "avx512vpopcntdq",
    "avx_vnni": "avxvnni",
    "bmi1": "bmi",
    "lahf_lm": "sahf",
    "pni": "sse3",
    "sse4_1": "sse4.1",
    "sse4_2": "sse4.2",
}
_X86_SAME: Final = frozenset(
    "avx avx2 avx512bw avx512cd avx512dq avx512f avx512ifma avx512vbmi avx512vl bmi2 cx16 f16c fma gfni movbe"
    " popcnt sse sse2 ssse3".split()
)
_ARM_NAMES: Final = {
    "asimd": "neon",
    "asimddp": "dotprod",
    "asimdfhm": "fp16fml",
    "asimdhp": "fullfp16",
    "atomics": "lse",
    "bf16": "bf16",
    "fp": "fp-armv8",
    "i8mm": "i8mm",
}

# What a core has at least, where /sys says nothing (some containers and virtual machines).
_SMALLEST_CACHES: Final = {1: 32 * 1024, 2: 256 * 1024, 3: 0}


@functools.cache
def host_target() -> Target:
    """The machine this process runs on, named "cpu"; looked up once a process."""
    return detect(Path("/"), platform.machine())


def detect(root: Path, machine: str) -> Target:
    """Describes the machine whose `/proc` and `/sys` lie under `root`.

    Args:
        root: "/" for this machine; a folder with copies of the files for another.
        machine: its architecture as `uname -m` prints it.
    """
    cpuinfo = _read(root / "proc/cpuinfo")
    features = _features(cpuinfo, machine)
    caches = _caches(root)
    wide = "avx512f" in features
    return Target(
        name="cpu",
        triple=f"{machine}-unknown-linux-gnu",
        features=features,
        vector_bits=512 if wide else 256 if "avx2" in features else 128,
        vector_registers=16 if machine == "x86_64" and not wide else 32,
        fma_ports=_fma_ports(cpuinfo, features),
        l1d=caches[1],
        l2=caches[2],
        l3=caches[3],
        cores=usable_cores(root),
    )


def usable_cores(root: Path = Path("/")) -> int:
    """How many threads can run at once: the processors this process may use, within its cgroup's quota."""
    processors = len(os.sched_getaffinity(0))
    return max(1, math.floor(min(processors, _quota(root))))


def _read(path: Path) -> str:
    """The text of a file, empty where it is missing or closed to us."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _field(cpuinfo: str, *names: str) -> str:
    """The value of the first line of /proc/cpuinfo that has one of the names."""
    found = re.search(rf"^(?:{'|'.join(names)})\s*:(.*)$", cpuinfo, flags=re.MULTILINE)
    return found[1].strip() if found else ""


def _features(cpuinfo: str, machine: str) -> frozenset[str]:
    flags = set(_field(cpuinfo, "flags", "Features").split())
    if machine == "aarch64":
        return frozenset(llvm for name, llvm in _ARM_NAMES.items() if name in flags)
    renamed = {llvm for name, llvm in _X86_NAMES.items() if name in flags}
    return frozenset(renamed | (flags & _X86_SAME))


def _fma_ports(cpuinfo: str, features: frozenset[str]) -> int:
    """Two, but for the first AMD family with AVX-512, which runs a 512-bit operation in two halves."""
    halves = (
        _field(cpuinfo, "vendor_id") == "AuthenticAMD" and _field(cpuinfo, "cpu family") == "25"
    )
    return 1 if halves and "avx512f" in features else 2


def _caches(root: Path) -> dict[int, int]:
    """Bytes of the data caches by level, as the first processor sees them."""
    sizes = dict(_SMALLEST_CACHES)
    folder = root / "sys/devices/system/cpu/cpu0/cache"
    for index in sorted(folder.glob("index*")):
        size = re.fullmatch(r"(\d+)([KM])", _read(index / "size").strip())
        level = _read(index / "level").strip()
        if size and level in {"1", "2", "3"} and _read(index / "type").strip() != "Instruction":
            sizes[int(level)] = int(size[1]) * (1024 if size[2] == "K" else 1024 * 1024)
    return sizes


def _quota(root: Path) -> float:
    """Processors' worth of time that the cgroup and those above it allow; infinite without a limit."""
    groups = root / "sys/fs/cgroup"
    limits = [math.inf]
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        own = [part for part in path.split("/") if part and part != ".."]
        for depth in range(len(own) + 1):
            if not controllers:  # version 2: "max 100000" or "150000 100000"
                limits.append(_ratio(_read(groups.joinpath(*own[:depth], "cpu.max"))))
            elif "cpu" in controllers.split(","):
                folder = groups.joinpath("cpu", *own[:depth])
                quota, period = (
                    _read(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period")
                )
                limits.append(_ratio(f"{quota} {period}"))
    return min(limits)


def _ratio(text: str) -> float:
    """The quotient of two positive integers in a text, infinite for any other text."""
    numbers = re.fullmatch(r"(\d+)\s+(\d+)\s*", text)
    return int(numbers[1]) / int(numbers[2]) if numbers and int(numbers[2]) else math.inf
