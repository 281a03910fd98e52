"""The C runtime as Python sees it: `libxcompile_rt.so`, one copy a process."""

from __future__ import annotations

import ctypes
import functools
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from xcompile.runtime.errors import RuntimeModelError

_PREBUILT: Final = Path(__file__).parent / "native" / "prebuilt"
_ARCHITECTURES: Final[Mapping[str, str]] = {"arm64": "aarch64", "AMD64": "x86_64"}
_JIT_SYMBOLS: Final = (
    "xc_parallel_for",
    "xc_heap_begin",
    "xc_heap_allocate",
    "xc_heap_free",
)


def host_architecture() -> str:
    """The architecture of this process: "x86_64" or "aarch64" where the runtime is built for it."""
    machine = platform.machine()
    return _ARCHITECTURES.get(machine, machine)


def runtime_object(architecture: str) -> Path:
    """The relocatable object that is linked into a library for an architecture ("x86_64", "aarch64").

    Raises:
        RuntimeModelError: XC7006 when the installation has none.
    """
    return _existing(_PREBUILT / f"{architecture}-linux" / "xcompile_rt.o")


def symbols() -> dict[str, int]:
    """Addresses of the runtime functions that generated code calls, for a loader in memory."""
    library = _library()
    return {name: _address(getattr(library, name)) for name in _JIT_SYMBOLS}


def launch_recorder() -> int:
    """The address of what makes launches that can be recorded; see `Context.launch`."""
    return _address(_library().xc_profiled_launch)


def record_launches(address: int | None, count: int) -> None:
    """Record the launches from now on into `count` events at an address, see `runtime.profile`; None ends it."""
    _library().xc_profile_into(address, count)


def recorded_events() -> int:
    """How many events there have been since `record_launches`."""
    return _library().xc_profile_count()


def default_threads() -> int:
    """The fewest of: CPUs this process may use, its CPU quota in whole CPUs, `XCOMPILE_THREADS`."""
    return _library().xc_default_threads()


def quota_cpus(memberships: str, root: Path) -> int | None:
    """The CPU quota in whole CPUs, rounded up, of the control groups that a process belongs to.

    Args:
        memberships: the text of `/proc/self/cgroup`.
        root: where control groups are mounted, `/sys/fs/cgroup` on a real system.
    """
    return _library().xc_quota_cpus(memberships.encode(), str(root).encode()) or None


def cpu_has(feature: str) -> bool | None:
    """Whether this CPU has the feature, by LLVM's name for it; None for a name the runtime does not know."""
    answer = _library().xc_cpu_has(feature.encode())
    return None if answer < 0 else bool(answer)


def release_pages(address: int, length: int) -> None:
    """Give the whole pages of `length` bytes of a mapped file, which nobody has written, back to the system."""
    _library().xc_release_pages(address, length)


class Pool:
    """A thread pool of its own, for a program that wants one besides the shared one.

    The threads start at the first launch, sleep while there is nothing to do, and end when the object
    is collected; models that run on it keep it alive.

    Args:
        threads: threads that work at once, the caller counted.
    """

    def __init__(self, threads: int) -> None:
        if not 1 <= threads <= 256:
            raise RuntimeModelError("XC5006", f"a pool of {threads} threads; expected 1 to 256")
        self._destroy = _library().xc_pool_destroy
        self.address: int = _library().xc_pool_create(threads) or 0
        if not self.address:
            raise MemoryError("no memory for a thread pool")

    def __del__(self) -> None:
        if getattr(self, "address", 0):
            self._destroy(self.address)


class Heap:
    """Memory of one run at a time, for values whose size depends on data; it keeps its blocks from run to run.

    Args:
        poisoned: fill what it hands out with 0xFF.
    """

    def __init__(self, *, poisoned: bool) -> None:
        self._destroy = _library().xc_heap_destroy
        self.address: int = _library().xc_heap_create(poisoned) or 0
        if not self.address:
            raise MemoryError("no memory for a heap")

    def __del__(self) -> None:
        if getattr(self, "address", 0):
            self._destroy(self.address)


def default_pool() -> int:
    """The address of the pool that all models of this process share; it is never destroyed."""
    return _library().xc_default_pool()


@functools.cache
def _library() -> ctypes.CDLL:
    path = _existing(_PREBUILT / f"{host_architecture()}-linux" / "libxcompile_rt.so")
    library = ctypes.CDLL(str(path))
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    for name, result, arguments in (
        ("xc_pool_create", pointer, [integer]),
        ("xc_pool_destroy", None, [pointer]),
        ("xc_default_pool", pointer, []),
        ("xc_heap_create", pointer, [ctypes.c_int32]),
        ("xc_heap_destroy", None, [pointer]),
        ("xc_release_pages", None, [pointer, integer]),
        ("xc_default_threads", integer, []),
        ("xc_profile_into", None, [pointer, integer]),
        ("xc_profile_count", integer, []),
        ("xc_quota_cpus", integer, [ctypes.c_char_p, ctypes.c_char_p]),
        ("xc_cpu_has", ctypes.c_int32, [ctypes.c_char_p]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def _address(function: object) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0  # pyright: ignore[reportArgumentType]


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise RuntimeModelError(
            "XC7006",
            f"the runtime has no {path.name} for {path.parent.name}",
            help="install the wheel of this platform, or run `python build_native.py` in a checkout",
        )
    return path
