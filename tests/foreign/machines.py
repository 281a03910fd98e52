"""Emulators that run a memory image: qemu for AArch64, Bochs for AVX-512 on a host without it.

Their programs (`native/`) are compiled once a session by the clang and lld of the ziglang wheel; no system compiler,
no libc. Bochs is Debian's 2.7: it has AVX-512 with VNNI in the EVEX form, not the VEX form (AVX-VNNI).
"""

import functools
import os
import pty
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.foreign.image import Image
from xcompile.compiler.target.target import Target

REQUIRED = "XCOMPILE_FOREIGN_REQUIRED"
"""The variable that, set to anything, makes a missing emulator an error; `.ci/run` sets it."""

TIMEOUT_SECONDS = 300

SOURCES = Path(__file__).parent / "native"
_COMPILE = (
    *("-O2", "-ffreestanding", "-fno-stack-protector", "-fno-sanitize=all"),
    *("-fno-unwind-tables", "-fno-asynchronous-unwind-tables", "-Wall", "-Wextra", "-Werror"),
)
_DONE = b"done\0\0\0\0"
_SECTOR = 512
_IMAGE_SECTOR = 64
_BOCHS_FEATURES = frozenset(
    "avx avx2 avx512bw avx512cd avx512dq avx512f avx512vl avx512vnni bmi bmi2 cx16 f16c fma lzcnt movbe popcnt"
    " sahf sse sse2 sse3 sse4.1 sse4.2 ssse3".split()
)
_BOCHS_FILES = ("/usr/share/bochs/BIOS-bochs-latest", "/usr/share/vgabios/vgabios.bin")


class MachineError(Exception):
    """The code in a machine crashed, or did not end in time."""


@dataclass(frozen=True)
class Qemu:
    """User-mode emulation of AArch64 with every extension that the emulator has."""

    packages = "qemu-user"

    def missing(self) -> str | None:
        """What is not installed, or None."""
        return None if shutil.which("qemu-aarch64") else "qemu-aarch64"

    def run(self, image: Image) -> tuple[list[int], list[bytes]]:
        """Make the calls of an image.

        Args:
            image: the memory.

        Returns:
            What the calls returned, and the content of the image's ranges.

        Raises:
            MachineError: the code crashed or took too long.
        """
        command = ["qemu-aarch64", "-cpu", "max", str(_linux_program())]
        try:
            done = subprocess.run(
                command, input=image.encode(), capture_output=True, timeout=TIMEOUT_SECONDS, check=False
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise MachineError(f"no end within {TIMEOUT_SECONDS} s in qemu") from error
        if done.returncode or done.stdout[:8] != _DONE:
            raise MachineError(_crash(image, "qemu", done.stderr.decode(errors="replace")))
        return image.decode(done.stdout[8:])


@dataclass(frozen=True)
class Bochs:
    """A PC with a Tiger Lake, of which code uses SSE to AVX-512 with VNNI."""

    packages = "bochs bochs-term bochsbios vgabios"

    def missing(self) -> str | None:
        """What is not installed, or None."""
        needed = ("bochs", *_BOCHS_FILES)
        return next(
            (name for name in needed if not shutil.which(name) and not Path(name).exists()), None
        )

    def run(self, image: Image) -> tuple[list[int], list[bytes]]:
        """Make the calls of an image; see `Qemu.run`."""
        data = image.encode()
        given = -(-len(data) // _SECTOR)
        back = -(-(len(_DONE) + image.given_bytes) // _SECTOR)
        megabytes = 64 + (len(data) + image.heap + image.given_bytes) // 2**20
        with tempfile.TemporaryDirectory(prefix="xcompile-bochs-") as name:
            folder = Path(name)
            cylinders = -(-(_IMAGE_SECTOR + given + back) // (16 * 63))
            with (folder / "disk").open("wb") as disk:
                disk.write(_boot_program().read_bytes())
                disk.seek(_IMAGE_SECTOR * _SECTOR)
                disk.write(data)
                disk.truncate(cylinders * 16 * 63 * _SECTOR)
            _start_bochs(folder, cylinders, megabytes)
            with (folder / "disk").open("rb") as disk:
                disk.seek((_IMAGE_SECTOR + given) * _SECTOR)
                result = disk.read(len(_DONE) + image.given_bytes)
            log = (folder / "log").read_text(errors="replace")
        if result[:8] != _DONE:
            raise MachineError(_crash(image, "Bochs", log[-2000:]))
        return image.decode(result[8:])


Machine = Qemu | Bochs


def machine_for(target: Target) -> Machine | None:
    """The emulator whose processor has all that a target's code uses, installed or not."""
    if target.arch == "aarch64":
        return Qemu()
    return Bochs() if target.features <= _BOCHS_FEATURES else None


def require(machine: Machine) -> None:
    """Skip the test that asks when the machine is not installed; in the project's checks, fail."""
    missing = machine.missing()
    if missing is None:
        return
    reason = f"{missing} is not installed: apt-get install {machine.packages}"
    if os.environ.get(REQUIRED):
        pytest.fail(reason)
    pytest.skip(reason)


@functools.cache
def shared_libc(architecture: str) -> bytes:
    """The functions of libc that kernels and models may use, and `run_model`, as a shared object."""
    options = (
        f"{architecture}-freestanding-none",
        "-fPIC",
        "-fno-builtin",
        "-Wno-unused-parameter",
    )
    made = [_compile(source, *options) for source in ("libc.c", "model.c")]
    return link_shared([path.read_bytes() for path in made], architecture)


def link_shared(objects: Sequence[bytes], architecture: str) -> bytes:
    """Link object files into a small shared object; what they lack stays open."""
    emulation = {"x86_64": "elf_x86_64", "aarch64": "aarch64linux"}[architecture]
    with tempfile.TemporaryDirectory(dir=scratch_folder()) as name:
        scratch = Path(name)
        paths = [scratch / f"{index}.o" for index in range(len(objects))]
        for path, data in zip(paths, objects, strict=True):
            path.write_bytes(data)
        options = (
            f"-m{emulation}",
            "-shared",
            "-zmax-page-size=4096",
            "-znognustack",
            "--build-id=none",
        )
        zig("ld.lld", *options, *paths, "-o", scratch / "library.so")
        return (scratch / "library.so").read_bytes()


@functools.cache
def scratch_folder() -> Path:
    """A folder of this process, gone when it ends."""
    holder = tempfile.TemporaryDirectory(prefix="xcompile-foreign-")
    _HOLDERS.append(holder)
    return Path(holder.name)


_HOLDERS: list[tempfile.TemporaryDirectory[str]] = []


@functools.cache
def _linux_program() -> Path:
    made = _compile("linux.c", "aarch64-freestanding-none")
    program = scratch_folder() / "linux"
    zig("ld.lld", "-maarch64linux", made, "-o", program)
    return program


@functools.cache
def _boot_program() -> Path:
    target = "x86_64-freestanding-none"
    boot = _compile("boot.S", target)
    main = _compile("pc.c", target, "-fno-pic", "-mgeneral-regs-only", "-mno-red-zone")
    program = scratch_folder() / "pc"
    zig("ld.lld", "-T", SOURCES / "pc.ld", "--oformat", "binary", boot, main, "-o", program)
    return program


def _compile(source: str, target: str, *options: str) -> Path:
    made = scratch_folder() / f"{Path(source).stem}.o"
    zig("cc", "-target", target, *_COMPILE, *options, "-c", SOURCES / source, "-o", made)
    return made


def zig(*arguments: str | Path) -> None:
    """Run a tool of the ziglang wheel."""
    caches = dict.fromkeys(("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"), str(scratch_folder()))
    done = subprocess.run(
        [sys.executable, "-m", "ziglang", *map(str, arguments)],
        env={**os.environ, **caches}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise MachineError(f"{' '.join(map(str, arguments))}: {done.stderr}")


def _start_bochs(folder: Path, cylinders: int, megabytes: int) -> None:
    """Run Bochs on a terminal of its own, which it needs for its screen, until the PC switches itself off."""
    bios, vga = _BOCHS_FILES
    (folder / "settings").write_text(
        f"megs: {megabytes}\n"
        "cpu: model=tigerlake, count=1, ips=50000000, reset_on_triple_fault=0\n"
        f"romimage: file={bios}\nvgaromimage: file={vga}\ndisplay_library: term\n"
        f'ata0-master: type=disk, path="disk", mode=flat, cylinders={cylinders}, heads=16, spt=63\n'
        "boot: disk\nlog: log\nclock: sync=none\npanic: action=fatal\n"
    )
    (folder / "commands").write_text("c\n")  # Debian's has a debugger, which waits for one
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            ["bochs", "-q", "-f", "settings", "-rc", "commands"],
            cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs,
            env={**os.environ, "TERM": "xterm", "HOME": str(folder)}, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        reader = threading.Thread(target=_drain, args=(ours,), daemon=True)
        reader.start()
        try:
            process.wait(TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired as error:
            process.kill()
            process.wait()
            raise MachineError(f"no end within {TIMEOUT_SECONDS} s in Bochs") from error
        reader.join()
    finally:
        os.close(ours)


def _drain(file: int) -> None:
    """Read what is shown on a terminal until nobody shows anything any more."""
    try:
        while os.read(file, 1 << 16):
            pass
    except OSError:
        return  # the other end is closed


def _crash(image: Image, machine: str, said: str) -> str:
    absent = f"; no library has {', '.join(sorted(image.missing))}" if image.missing else ""
    return f"the code crashed in {machine}{absent}: {said}"
