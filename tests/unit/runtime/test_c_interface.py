"""A compiled library as a C program sees it."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.unit.runtime import fake_model
from tests.unit.runtime.c_interface import CModel, Tensor, run_python
from tests.unit.runtime.fake_model import expected, inputs
from xcompile.compiler.codegen.link import link_library
from xcompile.runtime.abi import Manifest, TensorSpec
from xcompile.runtime.library import load

Build = Callable[..., Path]


@pytest.fixture
def c_model(build: Build) -> CModel:
    return CModel(ctypes.CDLL(str(build())))


def test_the_c_interface_runs_models_of_changing_sizes(c_model: CModel) -> None:
    for n in (3, 100, 0, 100, 7):
        data = inputs(n)
        y, total = np.empty((n, 4), np.float32), np.empty(n, np.float32)
        outputs = [Tensor.of(y), Tensor.of(total)]
        outputs[0].dims[0] = outputs[0].dims[1] = -1
        assert c_model.run([Tensor.of(data["x"]), Tensor.of(data["bias"])], outputs) == 0
        assert outputs[0].dims[:2] == [n, 4]
        wanted = expected(**data)
        assert y.tobytes() == wanted["y"].tobytes()
        assert total.tobytes() == wanted["total"].tobytes()
    c_model.destroy()


def test_the_c_interface_tells_shapes_and_memory(c_model: CModel) -> None:
    dims, shapes = (ctypes.c_int64 * 4)(7, 4, 7, 4), (ctypes.c_int64 * 3)()
    assert c_model.functions["shapes"](c_model.handle, dims, shapes) == 0
    assert list(shapes) == [7, 4, 7]
    assert c_model.functions["required_bytes"](c_model.handle, dims) == 128 + 2 * 64
    wrong = (ctypes.c_int64 * 4)(7, 4, 8, 4)
    assert c_model.functions["required_bytes"](c_model.handle, wrong) == -1
    assert c_model.functions["shapes"](c_model.handle, wrong, shapes) == -1


def test_the_c_interface_checks_everything_before_it_touches_memory(c_model: CModel) -> None:
    data = inputs(4)
    arrays = [data["x"], data["bias"], np.empty((4, 4), np.float32), np.empty(4, np.float32)]
    arena = np.empty(4096, np.uint8)
    address = arena.ctypes.data + -arena.ctypes.data % 64

    def status(index: int = 0, counts: tuple[int, int] = (2, 2), **fields: object) -> int:
        tensors = [Tensor.of(array) for array in arrays]
        for name, value in fields.items():
            setattr(tensors[index], name, value)
        return c_model.run(tensors[: counts[0]], tensors[2 : 2 + counts[1]])

    def dims(*sizes: int) -> ctypes.Array[ctypes.c_int64]:
        return (ctypes.c_int64 * len(sizes))(*sizes)

    assert status() == 0
    assert status(size=8) == 2
    assert status(dims=None) == 2
    assert status(counts=(1, 2)) == 3
    assert status(counts=(2, 1)) == 3
    assert status(dtype=0x240) == 4
    assert status(index=3, dtype=0x020) == 4
    assert status(rank=3) == 5
    assert status(rank=-1) == 5
    assert status(dims=dims(4, 5)) == 6
    assert status(dims=dims(-1, 4)) == 6
    assert status(dims=dims(1 << 62, 4)) == 6
    assert status(dims=dims(5, 4)) == 7
    assert status(data=None) == 7
    assert status(data=data["x"].ctypes.data + 1) == 7
    assert status(bytes=63) == 7
    assert status(index=2, bytes=63) == 7
    assert status(index=2, data=data["x"].ctypes.data) == 7
    assert status(index=1, dims=dims(3, 4)) == -1
    tensors = [Tensor.of(array) for array in arrays]
    assert c_model.run(tensors[:2], tensors[2:], address, 255) == 8
    assert c_model.run(tensors[:2], tensors[2:], address + 1, 1024) == 8
    assert c_model.run(tensors[:2], tensors[2:], address, 256) == 0
    assert status() == 0
    assert c_model.functions["status_text"](4) == b"wrong element type"
    for unknown in (-7, 99):
        assert c_model.functions["status_text"](unknown)


def test_a_model_of_a_number_that_needs_no_memory_runs(tmp_path: Path) -> None:
    source = tmp_path / "double.c"
    source.write_text("""
#include "xcompile_rt.h"
int64_t d_prepare(const int64_t *dims, int64_t *table) { (void)dims; return table[0] = 0; }
int32_t d_init(xc_context *ctx) { return ctx->prepared != 0; }
int32_t d_run(xc_context *ctx, const int64_t *table) {
  (void)table;
  *(float *)ctx->buffers[1] = *(float *)ctx->buffers[0] * 2;
  return 0;
}""")
    code = fake_model.compile_c(source, tmp_path / "double.o").read_bytes()
    number = (TensorSpec("x", "float32", ()),)
    manifest = Manifest("d", number, number, table_slots=1, weights_bytes=0)
    link_library(tmp_path / "d.so", [code], manifest, b"", architecture="x86_64")
    y = np.zeros((), np.float32)
    library = CModel(ctypes.CDLL(str(tmp_path / "d.so")), "d")
    assert library.run([Tensor.of(np.full((), 21, np.float32))], [Tensor.of(y)]) == 0
    assert y == 42
    assert library.functions["required_bytes"](library.handle, None) == 0
    assert load(tmp_path / "d.so").run([np.float32(21)])["x"] == 42


def test_the_pool_of_the_program_can_be_given_to_a_library(c_model: CModel) -> None:
    part_function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
    for_each = ctypes.CFUNCTYPE(
        None, ctypes.c_void_p, ctypes.c_int64, part_function, ctypes.c_void_p
    )
    seen: list[int] = []

    def backwards(_: int, parts: int, part: Callable[[int, int], None], state: int) -> None:
        seen.append(parts)
        for index in reversed(range(parts)):
            part(state, index)

    class OwnPool(ctypes.Structure):
        _fields_ = (("size", ctypes.c_uint64), ("for_each", for_each))

    pool = OwnPool(ctypes.sizeof(OwnPool), for_each(backwards))
    c_model.functions["set_pool"](ctypes.byref(pool))
    c_model.create(threads=3)
    data = inputs(50)
    y, total = np.empty((50, 4), np.float32), np.empty(50, np.float32)
    call = [Tensor.of(data["x"]), Tensor.of(data["bias"])], [Tensor.of(y), Tensor.of(total)]
    assert c_model.run(*call) == 0
    assert y.tobytes() == expected(**data)["y"].tobytes()
    assert seen == [3]
    c_model.functions["set_pool"](None)
    assert c_model.run(*call) == 0
    assert seen == [3]


def test_the_program_of_the_manual_runs(build: Build, tmp_path: Path) -> None:
    page = (fake_model.ROOT / "docs" / "c_interface.md").read_text()
    source = tmp_path / "program.c"
    source.write_text(
        page.split("```c\n")[1].split("```")[0].replace("int main(void)", "int go(void)")
    )
    fake_model.compile_c(source, tmp_path / "program.o", "-Wall", "-Wextra", "-Werror")
    objects = [str(tmp_path / "program.o"), str(build("m"))]
    fake_model.zig("ld.lld", "-shared", *objects, "-o", str(tmp_path / "program.so"))
    text = """
import ctypes, sys
assert ctypes.CDLL(sys.argv[1]).go() == 0
ctypes.CDLL(None).fflush(None)
"""
    assert run_python(text, str(tmp_path / "program.so")) == "y is 3 x 4, y[0][0] = 1\n"


def test_a_cpp_program_means_the_same_functions(tmp_path: Path) -> None:
    source = tmp_path / "program.cc"
    source.write_text('#include "xcompile_rt.h"\nXC_DECLARE_MODEL(m)\nauto create = &m_create;\n')
    fake_model.compile_c(source, tmp_path / "program.o", "-std=c++17", "-Wall", "-Werror")
    names = (tmp_path / "program.o").read_bytes()
    assert b"\0m_create\0" in names
    assert b"_Z8m_create" not in names


def test_threads_of_a_library_end_with_its_last_handle(build: Build) -> None:
    text = """
import ctypes, os, sys
from tests.unit.runtime.c_interface import CModel
lib = ctypes.CDLL(sys.argv[1])
before = len(os.listdir("/proc/self/task"))
models = [CModel(lib), CModel(lib)]
for model in models:
    model.scale()
for model in models:
    print(len(os.listdir("/proc/self/task")) > before)
    model.destroy()
print(len(os.listdir("/proc/self/task")) > before)
"""
    out = run_python(text, str(build()))
    assert re.fullmatch(r"(True\nTrue|False\nFalse)\nFalse\n", out)


def test_runs_allocate_nothing_once_the_sizes_are_known(build: Build, tmp_path: Path) -> None:
    probe = tmp_path / "probe.so"
    fake_model.compile_c(
        fake_model.HERE / "pool_probe.c", tmp_path / "probe.o", "-DCOUNT_ALLOCATIONS"
    )
    fake_model.zig("ld.lld", "-shared", str(tmp_path / "probe.o"), "-o", str(probe))
    text = """
import ctypes, sys, numpy as np
from tests.unit.runtime.c_interface import CModel, Tensor
from tests.unit.runtime.fake_model import inputs
count = ctypes.CDLL(None).allocations_of
count.restype = ctypes.c_int64
model = CModel(ctypes.CDLL(sys.argv[1]))
model.create(threads=4)
data = inputs(64)
arrays = data["x"], data["bias"], np.empty((64, 4), np.float32), np.empty(64, np.float32)
tensors = [Tensor.of(array) for array in arrays]
def allocations(times):
    pair = (Tensor * 2)(*tensors[:2]), (Tensor * 2)(*tensors[2:])
    two = ctypes.c_int64(2)
    run = model.functions["run_model"]
    return count(run, model.handle, pair[0], two, pair[1], two, ctypes.c_int64(times))
print(allocations(1) > 0, allocations(1000))
"""
    command = ["env", f"LD_PRELOAD={probe}", sys.executable, "-c", text, str(build())]
    done = subprocess.run(
        command, cwd=fake_model.ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == "True 0\n", done.stdout + done.stderr
