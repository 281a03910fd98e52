"""A cross-compiled library in a program with glibc: opened by the system's loader, run by real threads, closed.

In the full tier only, where Debian's `libc6-arm64-cross` is installed.
"""

import subprocess
from pathlib import Path

import numpy as np
import pytest

import xcompile
from tests.foreign.harness import machine_of
from tests.foreign.machines import SOURCES, scratch_folder, zig
from tests.foreign.models import run_compiled
from tests.foreign.test_models import EXAMPLE, digits
from xcompile.compiler.target.registry import targets
from xcompile.runtime.abi import DTYPE_CODES

pytestmark = pytest.mark.full

ROOT = Path("/usr/aarch64-linux-gnu")


@pytest.fixture(scope="module")
def program() -> Path:
    """`native/program.c`, linked against the C library of the other system."""
    machine_of(targets()["arm-neon"])
    if not (ROOT / "lib/libc.so.6").exists():
        pytest.skip(f"no {ROOT}/lib/libc.so.6: apt-get install libc6-arm64-cross")
    made, found = scratch_folder() / "program.o", scratch_folder() / "program"
    options = ("-target", "aarch64-linux-gnu.2.34", "-O2", "-fno-sanitize=all", "-Wall", "-Werror")
    zig("cc", *options, "-c", SOURCES / "program.c", "-o", made)
    loader = ("-dynamic-linker", "/lib/ld-linux-aarch64.so.1", "--allow-shlib-undefined")
    zig("ld.lld", "-maarch64linux", *loader, made, ROOT / "lib/libc.so.6", "-o", found)
    return found


def test_a_library_runs_on_threads_of_its_own(program: Path, tmp_path: Path) -> None:
    images = digits().images[:300]
    model = xcompile.compile(EXAMPLE / "digits.onnx", "arm-neon")
    model.save(tmp_path / "digits.so")
    wanted = run_compiled(model, {"images": images})["scores"].tobytes()
    for threads in (1, 2, 7):
        numbers = (threads, 20, DTYPE_CODES["float32"], len(wanted), *images.shape)
        command = ["qemu-aarch64", "-L", ROOT, program, tmp_path / "digits.so", "model"]
        done = subprocess.run(
            [*map(str, command), *map(str, numbers)],
            input=images.tobytes(), capture_output=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout == wanted
    assert np.isfinite(np.frombuffer(wanted, np.float32)).all()
