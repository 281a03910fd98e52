"""Programs that load models on CPUs that lack what the models were compiled for: an error line, never a crash."""

import functools
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import xcompile
from tests.e2e.compiled_node import shared_pool
from tests.e2e.networks import residual_network
from tests.foreign.machines import require

ROOT = Path(__file__).parents[2]
CPUS = ("Nehalem", "SandyBridge")
"""Without AVX, and with AVX but without AVX2 and FMA."""

LOAD = """
import sys, xcompile
from xcompile.runtime import native_library
print(native_library.cpu_has("avx"), native_library.cpu_has("avx2"))
try:
    xcompile.load(sys.argv[1])
except Exception as error:
    print(error)
"""


@dataclass(frozen=True)
class OlderPc:
    """User-mode emulation of an x86-64 CPU."""

    packages = "qemu-user"

    def missing(self) -> str | None:
        return None if shutil.which("qemu-x86_64") else "qemu-x86_64"


@functools.cache
def library(folder: Path) -> Path:
    made = folder / "model.so"
    xcompile.compile(residual_network(), "x86-avx2", pool=shared_pool()).save(made)
    return made


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the interpreter is x86-64 code")
@pytest.mark.parametrize("cpu", CPUS)
def test_a_library_for_a_newer_cpu_is_refused_in_one_line(cpu, tmp_path_factory) -> None:
    require(OlderPc())
    model = library(tmp_path_factory.getbasetemp())
    done = subprocess.run(
        ["qemu-x86_64", "-cpu", cpu, sys.executable, "-c", LOAD, str(model)],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-500:]
    features, refused = done.stdout.splitlines()
    assert features == f"{cpu == 'SandyBridge'} False"
    assert refused.startswith(
        "XC7003 the library was compiled for 'x86-avx2' and needs the CPU features"
    )
    assert "avx2" in refused
