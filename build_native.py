"""Compiles the C runtime for every architecture with the clang and lld of the `ziglang` wheel.

`setup.py` calls `build_native` while it builds a wheel; a developer runs `python build_native.py` after
changing a file in `runtime/native/`. The shared library is linked without a libc: its undefined libc
symbols resolve when the library is loaded, so that no libc has to be built and any glibc from 2.17 on serves.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ARCHITECTURES = ("x86_64", "aarch64")
SOURCES = Path(__file__).parent / "xcompile" / "runtime" / "native"
PREBUILT = SOURCES / "prebuilt"
NAME = "xcompile_rt"
PYTHON_ONLY = ("profile.c",)
"""Sources that are part of the shared library, which Python loads, and not of the object in compiled libraries."""

_COMPILE = (
    *("-std=gnu11", "-O2", "-g0", "-fPIC", "-fvisibility=hidden", "-fno-sanitize=all"),
    *("-Wall", "-Wextra", "-Werror"),
)


def build_native(out_dir: Path = PREBUILT) -> list[Path]:
    """Compiles `runtime/native/*.c` into `out_dir/<arch>-linux/` for each architecture.

    Args:
        out_dir: the folder to write to; it is created when missing.

    Returns:
        The files written: for each architecture the relocatable object and the shared library.

    Raises:
        FileNotFoundError: there are no C sources.
        subprocess.CalledProcessError: the compiler or the linker failed; its messages are on stderr.
    """
    sources = sorted(path.name for path in SOURCES.glob("*.c"))
    if not sources:
        raise FileNotFoundError(f"no C sources in {SOURCES}")
    written: list[Path] = []
    with tempfile.TemporaryDirectory(prefix="xcompile-build-") as scratch:
        for arch in ARCHITECTURES:
            folder = out_dir.absolute() / f"{arch}-linux"
            folder.mkdir(parents=True, exist_ok=True)
            written += _build(arch, sources, folder, Path(scratch))
    return written


def _build(arch: str, sources: list[str], folder: Path, scratch: Path) -> list[Path]:
    """Builds the object and the shared library of one architecture."""
    parts: dict[str, Path] = {}
    for source in sources:
        part = scratch / f"{arch}-{source}.o"
        _zig(
            scratch, "cc", "-target", f"{arch}-linux-gnu.2.17", *_COMPILE, "-c", source, "-o", part
        )
        parts[source] = part
    merged, shared = folder / f"{NAME}.o", folder / f"lib{NAME}.so"
    shipped = [part for source, part in parts.items() if source not in PYTHON_ONLY]
    _zig(scratch, "ld.lld", "-r", *shipped, "-o", merged)
    options = ("-shared", "-soname", shared.name, "--build-id=none", "-z", "noexecstack")
    _zig(scratch, "ld.lld", *options, *parts.values(), "-o", shared)
    return [merged, shared]


def _zig(scratch: Path, *arguments: str | Path) -> None:
    """Runs a tool of ziglang in the sources' folder, with its caches in `scratch`."""
    caches = {"ZIG_GLOBAL_CACHE_DIR": str(scratch), "ZIG_LOCAL_CACHE_DIR": str(scratch)}
    subprocess.run(
        [sys.executable, "-m", "ziglang", *arguments],
        cwd=SOURCES,
        env={**os.environ, **caches},
        check=True,
    )


if __name__ == "__main__":
    for file in build_native(*map(Path, sys.argv[1:2])):
        print(file)
