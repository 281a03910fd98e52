"""Machine code of GPUs: PTX assembled by NVIDIA's `ptxas`, where it is installed.

Without it a model has PTX alone, which drivers compile when they load it.
"""

import base64
import importlib.util
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from xcompile.compiler.codegen.job import Job, JobResult
from xcompile.compiler.support.errors import CompileError

INSTALL: Final = "pip install nvidia-cuda-nvcc"

_TOOL: Final = "ptxas"
_SECONDS: Final = 300
_VERSION: Final = re.compile(r"\bV(\d+\.\d+\.\d+)")
_REGISTERS: Final = re.compile(r"Used (\d+) registers")
_SPILLS: Final = re.compile(r"(\d+) bytes spill (?:stores|loads)")
_SHARED: Final = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True)
class Assembler:
    """The program that assembles.

    Attributes:
        path: of the program.
        version: "13.0.88".
    """

    path: str
    version: str


@dataclass(frozen=True)
class AssemblyFacts:
    """What the assembler says of a kernel.

    Attributes:
        registers: of a thread.
        spilled: bytes that a thread stores to memory and loads again for want of registers.
        shared: bytes of shared memory that a block has, besides the dynamic ones.
    """

    registers: int
    spilled: int
    shared: int

    def __str__(self) -> str:
        return f"{self.registers} registers, {self.spilled} bytes spilled, {self.shared} bytes of shared memory"


@cache
def find_assembler() -> Assembler | None:
    """The assembler on PATH, or else in the wheel `nvidia-cuda-nvcc`; None where there is none that runs."""
    path = shutil.which(_TOOL) or _in_wheel()
    if path is None:
        return None
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60)  # noqa: PLW1510
    except (OSError, subprocess.SubprocessError):
        return None
    version = _VERSION.search(said.stdout)
    return Assembler(path, version[1]) if version else None


def _in_wheel() -> str | None:
    package = importlib.util.find_spec("nvidia")
    for folder in (package.submodule_search_locations or ()) if package else ():
        for place in sorted(Path(folder).glob(f"*/bin/{_TOOL}")):
            return str(place)
    return None


def assembly_job(kernel: Job, ptx: bytes, architecture: str, assembler: Assembler) -> Job:
    """The job that assembles the PTX that the job `kernel` made; `assembled` reads its answer."""
    payload = {
        "ptx": ptx.decode(),
        "architecture": architecture,
        "path": assembler.path,
        "version": assembler.version,
    }
    emitter = "xcompile.compiler.codegen.cuda.assembler:assemble"
    return Job(emitter, payload, kernel.machine, kernel=kernel.kernel, nodes=kernel.nodes)


def assemble(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Assemble a kernel; called in workers.

    Args:
        payload: see `assembly_job`.

    Raises:
        CompileError: XC4013, the assembler refuses the kernel or does not know the architecture.
    """
    with tempfile.TemporaryDirectory(prefix="xcompile-ptxas-") as folder:
        source, target = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        source.write_text(payload["ptx"])
        command = [
            payload["path"], f"-arch={payload['architecture']}", "-v", str(source), "-o", str(target)
        ]  # fmt: skip
        done = subprocess.run(  # noqa: PLW1510
            command, capture_output=True, text=True, errors="replace", timeout=_SECONDS
        )
        if done.returncode:
            said = next(iter((done.stderr or done.stdout).strip().splitlines()), "nothing")
            raise CompileError(
                "XC4013", f"ptxas {payload['version']} for {payload['architecture']}: {said[:300]}",
                help=f"an older ptxas does not know newer architectures: {INSTALL}",
            )  # fmt: skip
        facts = read_facts(done.stderr)
        return {
            "code": base64.b64encode(target.read_bytes()).decode(),
            "facts": [facts.registers, facts.spilled, facts.shared],
        }


def assembled(result: JobResult) -> tuple[bytes, AssemblyFacts]:
    """The machine code that an assembly job answered with, and what is known of it."""
    return base64.b64decode(result.metadata["code"]), AssemblyFacts(*result.metadata["facts"])


def read_facts(said: str) -> AssemblyFacts:
    """What the assembler prints of a module with one kernel."""
    registers, shared = _REGISTERS.search(said), _SHARED.search(said)
    return AssemblyFacts(
        registers=int(registers[1]) if registers else 0,
        spilled=sum(map(int, _SPILLS.findall(said))),
        shared=int(shared[1]) if shared else 0,
    )
