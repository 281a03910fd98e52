"""One kernel, from its Builder to a Python function; for tests and benchmarks."""

import ctypes
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from xcompile.compiler.codegen.cpu.builder import Builder, Signature
from xcompile.compiler.codegen.llvm import MachineSpec, compile_object
from xcompile.compiler.codegen.loader import LoadedObjects
from xcompile.compiler.codegen.lowering import lower_kernel
from xcompile.compiler.target.host import host_target
from xcompile.compiler.target.registry import targets
from xcompile.compiler.target.target import Target

NARROW = replace(targets()["x86-avx2"], name="x86-avx2-128", vector_bits=128)
"""AVX2 code with vectors of 128 bits: the shape of NEON's kernels on an x86 host."""


foreign: Callable[[Target, bytes, Sequence[np.ndarray | int]], bool] | None = None
"""Is offered each call of a `NativeKernel`: the target, the object file, the arguments. It says whether it has made the
call, in an emulator; tests set it."""

STACK_STORES = (
    r"vmov\w+\s+%[xyz]mm\d+, -?\d*\(%r[sb]p\)|"  # x86-64
    r"st[rp]\s+q\d+, (?:q\d+, )?\[sp"  # AArch64
)
"""A regular expression for vector stores to the stack in assembly."""

TARGETS = "XCOMPILE_KERNEL_TARGETS"
"""The variable that names other targets for tests of kernels, such as "arm-neon", separated by commas."""


def runnable_targets() -> list[Target]:
    """Targets of 4, 8 and 16 float lanes whose code this host runs, or those that `TARGETS` names."""
    if os.environ.get(TARGETS):
        return [targets()[name] for name in os.environ[TARGETS].split(",")]
    candidates = (NARROW, targets()["x86-avx2"], targets()["x86-avx512"])
    return [target for target in candidates if target.runs_on(host_target())]


class NativeKernel:
    """A kernel called with arrays, sizes and the part to do: in this process, or by `foreign`.

    Attributes:
        llvm_ms: milliseconds that LLVM took.
        code: the object file.
    """

    def __init__(self, builder: Builder, signature: Signature, target: Target) -> None:
        """Lower, compile for `target` and load what was written into `builder`."""
        text = lower_kernel(
            builder.function("kernel", signature),
            "kernel",
            buffers=len(signature.buffers),
            sizes=signature.sizes,
            scratch=signature.scratch,
        )
        spec = MachineSpec(target.triple, target.llvm_cpu(), target.llvm_features())
        start = time.perf_counter()
        self.code, _ = compile_object(text, spec)
        self.llvm_ms = (time.perf_counter() - start) * 1e3
        self._text, self._spec, self._target = text, spec, target

    def __call__(self, *arguments: np.ndarray | int) -> None:
        """Call it: arrays of the buffers, then sizes, begin and end."""
        if foreign is None or not foreign(self._target, self.code, arguments):
            self.bind(*arguments)()

    def bind(self, *arguments: np.ndarray | int) -> Callable[[], None]:
        """The call in this process with these arguments, ready to be timed; keeps the arrays and the code alive."""
        values: list[Any] = [
            ctypes.c_void_p(a.ctypes.data) if isinstance(a, np.ndarray) else ctypes.c_int64(a)
            for a in arguments
        ]
        function = ctypes.CFUNCTYPE(None, *(type(v) for v in values))(self.address)
        owners = (self, arguments)

        def call(_owners: object = owners) -> None:
            function(*values)

        return call

    @cached_property
    def address(self) -> int:
        """Of the function in this process."""
        self._objects = LoadedObjects([self.code], {}, ["kernel"])
        return self._objects.address("kernel")

    @cached_property
    def listing(self) -> str:
        """The assembly text."""
        return compile_object(self._text, self._spec, listing=True)[1] or ""

    @property
    def stack_stores(self) -> int:
        """Vector stores to the stack: spilled registers."""
        return len(re.findall(STACK_STORES, self.listing))

    @property
    def calls(self) -> list[str]:
        """The functions that the code calls; there should be none."""
        return sorted(set(re.findall(r"\t(?:call\w?|bl)\s+(\w+)", self.listing)) - {"kernel"})


def aligned(shape: Sequence[int], dtype: Any = np.float32) -> np.ndarray:
    """An array of zeros at an address that is a multiple of 64."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(shape)


def fastest(call: Callable[[], None], repeats: int = 10) -> float:
    """Seconds of the fastest of `repeats` calls."""
    times: list[float] = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)
