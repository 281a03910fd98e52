"""`xcompile doctor`: what this machine has and lacks, and what to do about it."""

import importlib.util
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

import typer

from xcompile.compiler.support.errors import CompileError
from xcompile.runtime.errors import RuntimeModelError


class State(IntEnum):
    """How good a finding is. The exit code follows from the worst one."""

    OK = 0
    ABSENT = 1
    MISSING = 2
    BROKEN = 3

    @property
    def exit_code(self) -> int:
        """0 when everything that xcompile itself does can be done, 1 when something cannot, 2 when it is broken."""
        return max(0, self - 1)


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Attributes:
        name: what was looked for.
        state: whether it is there; is absent (another program that some uses need); is missing (something cannot be
            done, or not well); or is broken.
        text: what was found, or what to do.
    """

    name: str
    state: State
    text: str


def doctor() -> None:
    """Look for what the compiler needs on this machine.

    The exit code is 0 when nothing is missing but other programs that some uses need, 1 when something cannot be done,
    2 when something is broken.
    """
    findings = [check() for check in _CHECKS]
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        print(f"{finding.state.name.lower():7}  {finding.name.ljust(width)}  {finding.text}")
    raise typer.Exit(max(finding.state for finding in findings).exit_code)


def _python() -> Finding:
    version = platform.python_version()
    if sys.platform != "linux":
        return Finding("python", State.BROKEN, f"{version} on {sys.platform}; Linux is needed")
    return Finding("python", State.OK, f"{version} on {platform.machine()}, {sys.executable}")


def _cpu() -> Finding:
    from xcompile.compiler.target.host import host_target

    host = host_target()
    wide = {"avx512f": "AVX-512", "avx2": "AVX2", "neon": "NEON"}
    sets = [text for name, text in wide.items() if host.has(name)]
    cores = "1 core" if host.cores == 1 else f"{host.cores} cores"
    if not sets:
        what = f"{host.arch} without AVX2 or NEON; models will run, slowly"
        return Finding("cpu", State.MISSING, what)
    return Finding("cpu", State.OK, f"{sets[0]}, vectors of {host.vector_bits} bits, {cores}")


def _targets() -> Finding:
    from xcompile.compiler.target.host import host_target
    from xcompile.compiler.target.registry import targets

    host = host_target()
    runs = {name: target.runs_on(host) for name, target in targets().items()}
    here, made = (", ".join(n for n in runs if runs[n] == wanted) for wanted in (True, False))
    return Finding("targets", State.OK, f"run here: {here}; can be made: {made or 'no others'}")


def _mlir() -> Finding:
    from xcompile.compiler.ir.context import new_context

    new_context()
    return Finding("mlir", State.OK, "the bindings work")


def _runtime() -> Finding:
    from xcompile.runtime.native_library import default_threads, runtime_object

    others = [a for a in ("x86_64", "aarch64") if runtime_object(a).is_file()]
    threads = default_threads()
    return Finding("runtime", State.OK, f"{threads} threads; built for {' and '.join(others)}")


def _worker() -> Finding:
    from xcompile.compiler.codegen.job import Job, MachineSpec
    from xcompile.compiler.worker.pool import WorkerPool

    with WorkerPool(1, timeout_s=60) as pool:
        pool.map([Job("builtins:dict", {}, MachineSpec("", "", ""))])
    return Finding("worker", State.OK, "a compiling process starts and answers")


def _linker() -> Finding:
    from xcompile.compiler.codegen.link import find_linker
    from xcompile.runtime.native_library import host_architecture

    command = find_linker(host_architecture())
    return Finding("linker", State.OK, " ".join(command))


def _cache() -> Finding:
    from xcompile.compiler.support.options import CACHE

    folder = CACHE.from_environment()
    if folder is None:
        return Finding("cache", State.MISSING, f"no home folder; set {CACHE.variable}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        what = f"{folder}: {error.strerror}; set {CACHE.variable} to a folder that can be written"
        return Finding("cache", State.MISSING, what)
    return Finding("cache", State.OK, str(folder))


def _onnxruntime() -> Finding:
    if importlib.util.find_spec("onnxruntime") is None:
        what = "for `diff`, `bench --against` and `--fallback`: pip install onnxruntime"
        return Finding("onnxruntime", State.ABSENT, what)
    return Finding("onnxruntime", State.OK, "installed")


def _tool(name: str, what_for: str, *commands: str) -> Callable[[], Finding]:
    """A check for a program on the PATH."""

    def check() -> Finding:
        for command in commands:
            found = shutil.which(command)
            if found is not None:
                return Finding(name, State.OK, found)
        return Finding(name, State.ABSENT, what_for)

    return check


def _guarded(name: str, check: Callable[[], Finding]) -> Callable[[], Finding]:
    """The check, with its failure as a finding."""

    def guarded() -> Finding:
        try:
            return check()
        except CompileError as error:
            state = State.MISSING if error.code == "XC7004" else State.BROKEN
            return Finding(name, state, error.help or str(error))
        except RuntimeModelError as error:
            return Finding(name, State.BROKEN, str(error))
        except (ImportError, OSError) as error:
            return Finding(name, State.BROKEN, f"{error}; install xcompile again")

    return guarded


_CHECKS = (
    _python,
    _guarded("cpu", _cpu),
    _guarded("targets", _targets),
    _guarded("mlir", _mlir),
    _guarded("worker", _worker),
    _guarded("runtime", _runtime),
    _guarded("linker", _linker),
    _guarded("cache", _cache),
    _onnxruntime,
    _tool("qemu", "to run AArch64 code here: apt install qemu-user", "qemu-aarch64", "qemu-aarch64-static"),
    _tool("bochs", "to run code of other x86 CPUs: apt install bochs", "bochs"),
    _tool("ptxas", "to assemble CUDA kernels: pip install nvidia-cuda-nvcc", "ptxas"),
)  # fmt: skip
