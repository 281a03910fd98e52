"""A GPU through a driver's library that is a fake: what is called, and one clear error for each failure."""

import ctypes
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from xcompile.runtime.cuda import Driver, Gpu
from xcompile.runtime.device import COPY, DeviceKernel, DeviceMemory, Launcher
from xcompile.runtime.devices import find_device
from xcompile.runtime.errors import RuntimeModelError

SOURCE = Path(__file__).parent / "fake_driver.c"
FILL = DeviceKernel("fill", 2, 1, 0, 64, 64, 0, 1 << 31, {"ptx": b"// ptx", "sm_80": b"// cubin"})
DEFAULTS = {
    "init_status": 0, "version": 13000, "count": 1, "major": 8, "minor": 0, "fault_status": 0, "shared_attribute": 0,
}  # fmt: skip


class FakeDriver:
    """The library, and the variables of it that tests set and look at."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.library = ctypes.CDLL(self.path)
        for name, value in DEFAULTS.items():
            self.set(name, value)
        self.fail("", 0)

    def set(self, name: str, value: int) -> None:
        ctypes.c_int.in_dll(self.library, f"fake_{name}").value = value

    def fail(self, function: str, status: int) -> None:
        (ctypes.c_char * 64).in_dll(self.library, "fake_fault").value = function.encode()
        self.set("fault_status", status)

    @property
    def live(self) -> int:
        return ctypes.c_int64.in_dll(self.library, "fake_live").value

    @property
    def launch(self) -> list[int]:
        return list((ctypes.c_int * 6).in_dll(self.library, "fake_launch"))

    @property
    def code(self) -> bytes:
        return (ctypes.c_char * 16).in_dll(self.library, "fake_code").value

    def gpu(self, number: int = 0) -> Gpu:
        return Gpu(Driver(self.path), number)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("driver") / "libfake.so"
    flags = ("-shared", "-fPIC", "-O1", "-fno-sanitize=all")
    subprocess.run(
        [sys.executable, "-m", "ziglang", "cc", *flags, str(SOURCE), "-o", str(made)], check=True
    )
    return made


@pytest.fixture
def fake(library: Path) -> FakeDriver:
    return FakeDriver(library)


def record_of(*values: int) -> tuple[ctypes.Array[ctypes.c_int64], int]:
    cells = (ctypes.c_int64 * len(values))(*values)
    return cells, ctypes.addressof(cells)


def test_a_launch_passes_the_record_and_the_extent(fake: FakeDriver) -> None:
    gpu = fake.gpu()
    memory = DeviceMemory(gpu, 8 * 100)
    launcher = Launcher(gpu, [FILL])
    descriptor, record = record_of(0, 2), record_of(memory.address, 7)
    launcher.function(1, descriptor[1], record[1], 100, 1, 0)
    assert launcher.take_failure(1) is None
    out = np.zeros(100, np.int64)
    gpu.copy_out(out.view(np.uint8), memory.address)
    assert (out == 7).all()
    assert fake.launch[:5] == [2, 1, 1, 64, 0]


def test_memory_is_given_back_when_nothing_refers_to_it(fake: FakeDriver) -> None:
    before = fake.live
    memory = DeviceMemory(fake.gpu(), 100)
    assert (fake.live - before, memory.address % 256) == (1, 0)
    del memory
    assert fake.live == before


def test_copies_within_the_device_may_overlap(fake: FakeDriver) -> None:
    gpu = fake.gpu()
    memory = DeviceMemory(gpu, 8)
    gpu.copy_in(memory.address, np.arange(8, dtype=np.uint8))
    launcher = Launcher(gpu, [])
    descriptor, record = record_of(COPY, 3), record_of(memory.address + 2, memory.address, 6)
    launcher.function(1, descriptor[1], record[1], 6, 1, 0)
    out = np.zeros(8, np.uint8)
    gpu.copy_out(out, memory.address)
    assert out.tolist() == [0, 1, 0, 1, 2, 3, 4, 5]


def test_a_gpu_gets_its_own_machine_code_and_another_one_the_ptx(fake: FakeDriver) -> None:
    fake.gpu().load(FILL)
    assert fake.code == b"// cubin"
    fake.set("major", 9)
    gpu = fake.gpu()
    gpu.load(FILL)
    assert gpu.name == "Fake GPU (sm_90)"
    assert fake.code == b"// ptx"


def test_more_shared_memory_than_usual_is_asked_for(fake: FakeDriver) -> None:
    large = DeviceKernel("fill", 2, 1, 0, 64, 64, 99 << 10, 1, {"ptx": b"// ptx"})
    fake.gpu().load(large)
    assert (
        ctypes.c_int.in_dll(fake.library, "fake_shared_attribute").value == 99 << 10
    )  # bytes of a block


def test_no_driver_is_one_clear_error() -> None:
    with pytest.raises(RuntimeModelError) as caught:
        Driver("libno-such-driver.so.1")
    text = str(caught.value)
    assert text.startswith("XC5008 the model runs on an NVIDIA GPU, and no driver for one is")
    assert "--device=emulate" in text


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("init_status", 100, "XC5008 the model runs on an NVIDIA GPU, and there is none"),
        ("init_status", 999, "XC5008 the model runs on an NVIDIA GPU, and its driver says: error 999"),
        ("version", 11080, "XC5008 the driver of the GPU is of CUDA 11.8, and at least 12.0 is needed"),
        ("count", 0, "XC5008 there is no GPU 0: the driver finds 0"),
    ],
)  # fmt: skip
def test_a_machine_that_cannot_run_a_model_says_why(
    fake: FakeDriver, name: str, value: int, message: str
) -> None:
    fake.set(name, value)
    with pytest.raises(RuntimeModelError) as caught:
        fake.gpu()
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("function", "status", "message"),
    [
        ("cuMemAlloc_v2", 2, "XC5009 the GPU has not enough memory for the model and its inputs"),
        ("cuMemcpyHtoD_v2", 700, "XC5009 the GPU failed: cuMemcpyHtoD_v2: an illegal memory access"),
        ("cuCtxSynchronize", 700, "XC5009 the GPU failed: cuCtxSynchronize: an illegal memory access"),
    ],
)  # fmt: skip
def test_what_fails_on_the_gpu_is_told(
    fake: FakeDriver, function: str, status: int, message: str
) -> None:
    gpu = fake.gpu()
    fake.fail(function, status)
    with pytest.raises(RuntimeModelError) as caught:
        memory = DeviceMemory(gpu, 4)
        gpu.copy_in(memory.address, np.zeros(4, np.uint8))
        gpu.synchronize()
    assert str(caught.value).startswith(message)


def test_a_gpu_of_another_architecture_is_told_with_what_to_do(fake: FakeDriver) -> None:
    gpu = fake.gpu()
    fake.fail("cuModuleLoadData", 209)
    with pytest.raises(RuntimeModelError) as caught:
        gpu.load(FILL)
    assert str(caught.value) == (
        "XC5009 the GPU failed: cuModuleLoadData: no kernel image is available for execution on the device"
        " (kernel 'fill' on Fake GPU (sm_80)) (help: compile the model for this architecture: --arch)"
    )


def test_the_first_failure_of_a_run_ends_its_launches(fake: FakeDriver) -> None:
    gpu = fake.gpu()
    memory = DeviceMemory(gpu, 8)
    launcher = Launcher(gpu, [FILL])
    descriptor, record = record_of(0, 2), record_of(memory.address, 7)
    fake.fail("cuLaunchKernel", 700)
    before = fake.launch[5]
    for _ in range(3):
        launcher.function(5, descriptor[1], record[1], 1, 1, 0)
    assert fake.launch[5] - before == 1
    failure = launcher.take_failure(5)
    assert str(failure).startswith(
        "XC5009 the GPU failed: cuLaunchKernel: an illegal memory access"
    )
    assert "(kernel 'fill')" in str(failure)
    assert launcher.take_failure(5) is None


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "emulated", ""])
def test_a_device_of_no_such_name_is_refused(name: str) -> None:
    with pytest.raises(RuntimeModelError, match="XC5008 there is no device"):
        find_device(name)
