"""Makes a shared library of a compiled model: its objects, the runtime, the weights and the manifest.

The library needs nothing but libc, and libm where the model's code calls it. It exports `P_…` for the model's
prefix P and nothing else, so any number of them, also of the same model, live in one process. No C compiler is
involved: the linker itself binds the runtime's generic C interface to the one model of the library, by
defining symbols as others.
"""

from __future__ import annotations

import importlib.util
import mmap
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from xcompile.compiler.codegen.elf import MACHINES, DataSymbol, write_data_object
from xcompile.compiler.support.errors import CompileError
from xcompile.runtime import library_format, native_library
from xcompile.runtime.abi import Manifest, is_prefix
from xcompile.runtime.elf_image import read_elf
from xcompile.runtime.errors import RuntimeModelError

Weights = bytes | bytearray | memoryview | Path

_SECTIONS = {
    "launches": library_format.LAUNCHES_SECTION,
    "device": library_format.DEVICE_SECTION,
}
_TIMEOUT_SECONDS = 600
_EMULATIONS = {"x86_64": "elf_x86_64", "aarch64": "aarch64linux"}
# What the runtime and LLVM's code may ask of libc; the loader of any program with a libc provides it.
_LIBC = frozenset(
    "bcmp calloc clock_gettime close free getauxval getenv getpid madvise malloc memchr memcmp memcpy memmove memset "
    "open posix_memalign pthread_create pthread_join pthread_mutex_destroy pthread_mutex_init "
    "pthread_mutex_lock pthread_mutex_unlock pthread_sigmask read sigfillset snprintf strcmp strcspn strlen "
    "strncmp strtoll syscall".split()
)
# What LLVM's code may ask of libm: operations that are no instruction everywhere, such as a remainder.
_LIBM_NAMES = (
    "acos acosh asin asinh atan atan2 atanh cbrt ceil cos cosh erf erfc exp exp2 expm1 floor fma fmax fmin fmod "
    "ldexp log log10 log1p log2 nearbyint pow rint round roundeven sin sinh sqrt tan tanh trunc"
)
_LIBM = frozenset(name + suffix for name in _LIBM_NAMES.split() for suffix in ("", "f"))


def link_library(
    path: Path,
    objects: Sequence[bytes],
    manifest: Manifest,
    weights: Weights,
    *,
    architecture: str,
    launches: bytes = b"",
    device: bytes = b"",
    linker: Sequence[str] | None = None,
) -> None:
    """Links a model into the shared library `path`, which appears whole or not at all.

    The same arguments give the same bytes, wherever the library is written.

    Args:
        path: the file to make or to replace.
        objects: the object files of the kernels and of the host entry, with `P_prepare`, `P_run` and `P_init`.
        manifest: what callers must know of the model.
        weights: the packed constants, `manifest.weights_bytes` long: a buffer or a file.
        architecture: "x86_64" or "aarch64".
        launches: what the launches of a run are, for `xcompile profile`; no run loads it.
        device: the kernels of a GPU, see `runtime/device.py`.
        linker: the command to use instead of the one that `find_linker` finds.

    Raises:
        CompileError: XC7004 when there is no linker, XC7005 when it fails, XC7001 when the library cannot be
            written, XC7006 when the installation has no runtime for the architecture.
    """
    _check_arguments(objects, manifest, architecture)
    if path.exists() and not path.is_file():
        raise CompileError("XC7001", f"'{path}' cannot be written: it is not a regular file")
    command = list(linker) if linker is not None else find_linker(architecture)
    try:
        runtime = native_library.runtime_object(architecture)
        with tempfile.TemporaryDirectory(prefix=".xcompile-link-", dir=path.parent) as folder:
            scratch = Path(folder)
            inputs = _write_inputs(scratch, objects, manifest, weights, architecture)
            for name, data in (("launches", launches), ("device", device)):
                if data or name == "launches":
                    inputs.append(_write_section(scratch, name, data, architecture))
            shutil.copyfile(runtime, scratch / "runtime.o")
            link = [*command, *_for_driver(command, _options(manifest.prefix, architecture))]
            _run([*link, *inputs, "runtime.o", "-o", "out.so"], scratch)
            libm = _undefined(scratch / "out.so") & _LIBM
            if libm:
                stub = _write_stub(scratch, command, "libm.so.6", libm, architecture)
                _run([*link, *inputs, "runtime.o", stub, "-o", "out.so"], scratch)
            _finish(scratch / "out.so")
            (scratch / "out.so").replace(path)
    except RuntimeModelError as error:
        raise CompileError(error.code, error.message, help=error.help) from None
    except OSError as error:
        raise CompileError(
            "XC7001", f"'{path}' cannot be written: {error.strerror or error}"
        ) from error


def find_linker(architecture: str) -> list[str]:
    """The command of a linker for an architecture: lld of the ziglang wheel, or else the system's.

    Raises:
        CompileError: XC7004 when there is none.
    """
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "ld.lld"]
    native = architecture == native_library.host_architecture()
    for name in ("ld.lld", "ld", "cc") if native else ("ld.lld",):
        found = shutil.which(name)
        if found is not None:
            return [found]
    raise CompileError(
        "XC7004",
        f"no linker for {architecture} was found",
        help="pip install ziglang, or install lld",
    )


def _check_arguments(objects: Sequence[bytes], manifest: Manifest, architecture: str) -> None:
    if not is_prefix(manifest.prefix):
        raise CompileError(
            "XC6005",
            f"'{manifest.prefix}' cannot start the names of a library",
            help="a C identifier of at most 64 characters that is not one of the C library's",
        )
    if architecture not in MACHINES:
        raise CompileError("XC6007", f"no libraries are made for {architecture}")
    for data in objects:
        if (
            data[:4] != b"\x7fELF"
            or int.from_bytes(data[18:20], "little") != MACHINES[architecture]
        ):
            raise CompileError("XC7005", f"an object of the model is not one for {architecture}")


def _write_inputs(
    folder: Path, objects: Sequence[bytes], manifest: Manifest, weights: Weights, architecture: str
) -> list[str]:
    """Writes the objects of the model into the folder and returns their names."""
    names = [f"{index}.o" for index in range(len(objects))]
    for name, data in zip(names, objects, strict=True):
        (folder / name).write_bytes(data)
    prefix = manifest.prefix
    symbols = [DataSymbol(f"{prefix}_weights", 0, max(manifest.weights_bytes, 1))]
    # One byte more, so that the symbol of a model without weights has a place.
    with (folder / "weights.o").open("wb") as target:
        written = write_data_object(target, [weights, b"\0"], symbols, architecture) - 1
    if written != manifest.weights_bytes:
        raise CompileError(
            "XC7005", f"the weights are {written} bytes, the manifest says {manifest.weights_bytes}"
        )
    description = library_format.describe(manifest)
    symbols = [
        DataSymbol(f"{prefix}_manifest", library_format.MANIFEST_AT, description.manifest_bytes),
        DataSymbol("xc_model_signature", description.signature_at, description.signature_bytes),
    ]
    with (folder / "manifest.o").open("wb") as target:
        write_data_object(target, [description.data], symbols, architecture, library_format.SECTION)
    exports = [
        f"{prefix}_{name}" for name in library_format.ENTRY_POINTS + library_format.C_FUNCTIONS
    ]
    script = f"{{ global: {' '.join(f'{name};' for name in exports)} local: *; }};\n"
    (folder / "exports").write_text(script, encoding="ascii")
    return [*names, "weights.o", "manifest.o"]


def _write_section(folder: Path, name: str, data: bytes, architecture: str) -> str:
    """Writes a section that is in the file only."""
    section = _SECTIONS[name]
    with (folder / f"{name}.o").open("wb") as target:
        write_data_object(target, [data], [], architecture, section, loaded=False)
    return f"{name}.o"


def _write_stub(
    folder: Path, command: list[str], name: str, symbols: frozenset[str], architecture: str
) -> str:
    """Makes a library that has only the name and the symbols of a system's, to link against."""
    with (folder / "stub.o").open("wb") as target:
        named = [DataSymbol(symbol, 0, 1) for symbol in sorted(symbols)]
        write_data_object(target, [b"\0"], named, architecture)
    options = [f"-m{_EMULATIONS[architecture]}", "-shared", "--build-id=none", f"-soname={name}"]
    _run([*command, *_for_driver(command, options), "stub.o", "-o", "stub.so"], folder)
    return "stub.so"


def _options(prefix: str, architecture: str) -> list[str]:
    model = {"weights": "weights", "prepare": "prepare", "run_program": "run", "init": "init"}
    functions = {name: name for name in library_format.C_FUNCTIONS} | {"run_model": "run"}
    return [
        f"-m{_EMULATIONS[architecture]}",
        *("-shared", "--gc-sections", "--build-id=none", "--hash-style=gnu"),
        *("-znow", "-zrelro", "-znoexecstack", "-ztext"),
        "--version-script=exports",
        *(f"--defsym=xc_model_{ours}={prefix}_{theirs}" for ours, theirs in model.items()),
        *(f"--defsym={prefix}_{theirs}=xc_model_{ours}" for theirs, ours in functions.items()),
    ]


def _for_driver(command: list[str], options: list[str]) -> list[str]:
    """The options as a C compiler takes them, when it does the linking."""
    if Path(command[-1]).name != "cc":
        return options
    passed = [f"-Wl,{option}" for option in options if option != "-shared"]
    return ["-shared", "-nostdlib", *passed]


def _run(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompileError("XC7005", f"the linker could not be run: {error}") from error
    if done.returncode:
        reason = " ".join((done.stderr or done.stdout).split())[:1000]
        raise CompileError("XC7005", f"the linker failed with code {done.returncode}: {reason}")


def _undefined(library: Path) -> frozenset[str]:
    with library.open("rb") as file:
        view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    return frozenset(s.name for s in read_elf(view).symbols.values() if not s.defined)


def _finish(library: Path) -> None:
    """Checks that the library asks for nothing but libc and libm, and seals it with its hash."""
    foreign = sorted(_undefined(library) - _LIBC - _LIBM)
    if foreign:
        raise CompileError(
            "XC7005", f"the model needs symbols that no library has: {', '.join(foreign)[:500]}"
        )
    with library.open("r+b") as file:
        library_format.seal(memoryview(mmap.mmap(file.fileno(), 0)))
