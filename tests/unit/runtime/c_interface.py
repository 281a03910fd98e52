"""The C interface of compiled libraries, for tests of them."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import numpy as np

from tests.unit.runtime import fake_model
from xcompile.runtime import library_format
from xcompile.runtime.abi import DTYPE_CODES


class Tensor(ctypes.Structure):
    """`xc_tensor`."""

    _fields_ = (
        ("size", ctypes.c_uint64),
        ("data", ctypes.c_void_p),
        ("bytes", ctypes.c_uint64),
        ("dims", ctypes.POINTER(ctypes.c_int64)),
        ("rank", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
    )

    @staticmethod
    def of(array: np.ndarray) -> Tensor:
        dims = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
        size = ctypes.sizeof(Tensor)
        code = DTYPE_CODES[array.dtype.name]
        return Tensor(size, array.ctypes.data, array.nbytes, dims, array.ndim, code)

    def sizes(self) -> list[int]:
        """The sizes that it has now."""
        return self.dims[: self.rank]


class CModel:
    """The C interface of a library, as a C program would use it."""

    def __init__(self, library: ctypes.CDLL, prefix: str = "m", create: bool = True) -> None:
        self.functions = {
            name: getattr(library, f"{prefix}_{name}") for name in library_format.C_FUNCTIONS
        }
        self.functions["create"].restype = ctypes.c_void_p
        self.functions["required_bytes"].restype = ctypes.c_int64
        self.functions["status_text"].restype = ctypes.c_char_p
        self.handle = None
        if create:
            assert self.create() == 0

    def create(self, threads: int = 2) -> int:
        status = ctypes.c_int32(99)
        made = self.functions["create"](ctypes.c_int64(threads), ctypes.byref(status))
        self.handle = ctypes.c_void_p(made)
        assert (made is None) == (status.value != 0)
        return status.value

    def destroy(self) -> None:
        self.functions["destroy"](self.handle)

    def run(
        self,
        inputs: list[Tensor],
        outputs: list[Tensor],
        arena: int | None = None,
        arena_bytes: int = 0,
    ) -> int:
        array = (Tensor * max(len(outputs), 1))(*outputs)
        return self.run_arrays(inputs, array, len(outputs), arena, arena_bytes)

    def run_arrays(
        self,
        inputs: list[Tensor],
        outputs: ctypes.Array[Tensor],
        count: int | None = None,
        arena: int | None = None,
        arena_bytes: int = 0,
    ) -> int:
        """The same with outputs that the caller looks at afterwards."""
        return self.functions["run_model"](
            *(self.handle, (Tensor * max(len(inputs), 1))(*inputs), ctypes.c_int64(len(inputs))),
            *(outputs, ctypes.c_int64(len(outputs) if count is None else count)),
            *(ctypes.c_void_p(arena), ctypes.c_uint64(arena_bytes)),
        )

    def scale(self) -> float:
        one = np.ones((5, 4), np.float32)
        y, total = np.empty((5, 4), np.float32), np.empty(5, np.float32)
        zero = np.zeros((5, 4), np.float32)
        assert self.run([Tensor.of(one), Tensor.of(zero)], [Tensor.of(y), Tensor.of(total)]) == 0
        return y[4, 0]


def run_python(text: str, *arguments: str) -> str:
    """The output of a Python program that runs on its own."""
    command = [sys.executable, "-c", text, *arguments]
    done = subprocess.run(
        command, cwd=fake_model.ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
