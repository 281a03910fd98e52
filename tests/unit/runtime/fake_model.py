"""Builds `fake_model.c` and says what it computes."""

from __future__ import annotations

import _ctypes
import ctypes
import subprocess
import sys
from pathlib import Path

import numpy as np

from xcompile.runtime.abi import Manifest, TensorSpec
from xcompile.runtime.executable import ModelEntry

HERE = Path(__file__).parent
NATIVE = HERE.parents[2] / "runtime" / "native"
ROOT = HERE.parents[2]
HALF_WEIGHTS = np.array([0.5, 1.0, -1.5, 2.0], np.float32)
CHECK_TEXT = "x and bias have different batch sizes"

MANIFEST = Manifest(
    prefix="m",
    inputs=(TensorSpec("x", "float32", ("n", "4")), TensorSpec("bias", "float32", ("n", "4"))),
    outputs=(TensorSpec("y", "float32", ("n", "4")), TensorSpec("total", "float32", ("n",))),
    table_slots=5,
    weights_bytes=16,
    prepared_bytes=16,
    scratch_stride=64,
    target="cpu",
    checks=(CHECK_TEXT, "the first element of x is -12345"),
)


def zig(*arguments: str) -> None:
    """Runs a tool of the ziglang wheel."""
    subprocess.run([sys.executable, "-m", "ziglang", *arguments], check=True)


def compile_c(source: Path, target: Path, *options: str, architecture: str = "x86_64") -> Path:
    """Compiles a C file of the tests to an object."""
    triple = ("-target", f"{architecture}-linux-gnu.2.17")
    flags = ("-std=gnu11", "-O2", "-g0", "-fPIC", "-fno-sanitize=all", f"-I{NATIVE}")
    zig("cc", *triple, *flags, *options, "-c", str(source), "-o", str(target))
    return target


def model_object(
    folder: Path, prefix: str = "m", scale: int = 1, architecture: str = "x86_64"
) -> Path:
    """Compiles the model with a prefix and a factor."""
    target = folder / f"{prefix}.{scale}.{architecture}.o"
    defines = (f"-DPREFIX={prefix}", f"-DSCALE={scale}")
    return compile_c(HERE / "fake_model.c", target, *defines, architecture=architecture)


def bare_library(folder: Path, scale: int = 1) -> Path:
    """The model as a plain shared library that takes `xc_parallel_for` from the process, as a loader would."""
    target = folder / f"bare{scale}.so"
    zig("ld.lld", "-shared", str(model_object(folder, f"b{scale}", scale)), "-o", str(target))
    return target


class LoadedCode:
    """Native code that lives as long as this object."""

    def __init__(self, path: Path) -> None:
        self.handle = _ctypes.dlopen(str(path), 0x2)

    def address(self, name: str) -> int:
        return _ctypes.dlsym(self.handle, name)


def bare_entry(path: Path, scale: int = 1) -> ModelEntry:
    """The functions of a library made by `bare_library`."""
    ctypes.CDLL(str(NATIVE / "prebuilt" / "x86_64-linux" / "libxcompile_rt.so"), ctypes.RTLD_GLOBAL)
    code = LoadedCode(path)
    names = [f"b{scale}_{name}" for name in ("prepare", "run", "init")]
    return ModelEntry(*[code.address(name) for name in names], keep_alive=code)


def expected(x: np.ndarray, bias: np.ndarray, scale: int = 1) -> dict[str, np.ndarray]:
    """What the model computes, in the same order of float32 additions."""
    y = np.maximum(x * (HALF_WEIGHTS * 2), np.float32(0)) * np.float32(scale) + bias
    total = ((y[:, 0] + y[:, 1]) + y[:, 2]) + y[:, 3]
    return {"y": y, "total": total}


def inputs(n: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Random inputs of batch size n."""
    random = np.random.default_rng(seed)
    return {name: random.standard_normal((n, 4), np.float32) for name in ("x", "bias")}
