"""A model allocates nothing from its second run on: counted by a library that stands before malloc."""

import subprocess
import sys

import xcompile
from tests.e2e.networks import residual_network
from tests.e2e.test_data_sizes import nonzero_chain
from tests.unit.runtime import fake_model

_PROGRAM = """
import ctypes, sys, numpy as np
from tests.unit.runtime.c_interface import CModel, Tensor
count = ctypes.CDLL(None).allocations_of
count.restype = ctypes.c_int64
model = CModel(ctypes.CDLL(sys.argv[1]), "model")
model.create(threads=3)
x, y = np.ones((1, 3, 16, 16), np.float32), np.empty((1, 10), np.float32)
one, run = ctypes.c_int64(1), model.functions["run_model"]
def allocations(times):
    pair = (Tensor * 1)(Tensor.of(x)), (Tensor * 1)(Tensor.of(y))
    return count(run, model.handle, pair[0], one, pair[1], one, ctypes.c_int64(times))
first = allocations(1)
print(first > 0, allocations(1000), bool(np.isclose(y.sum(), 1)))
"""


_LATE_PROGRAM = """
import ctypes, sys, numpy as np
from tests.unit.runtime.c_interface import CModel, Tensor
count = ctypes.CDLL(None).allocations_of
count.restype = ctypes.c_int64
model = CModel(ctypes.CDLL(sys.argv[1]), "model")
model.create(threads=3)
run, one, two = model.functions["run_model"], ctypes.c_int64(1), ctypes.c_int64(2)
y, n = np.empty(8000, np.float32), np.empty(1, np.int64)
outputs = (Tensor * 2)(Tensor.of(y), Tensor.of(n))
def allocations(x, times):
    inputs = (Tensor * 1)(Tensor.of(x))
    return count(run, model.handle, inputs, one, outputs, two, ctypes.c_int64(times))
arrays = [np.ones((4, columns), np.float32) for columns in (3, 900, 70)]
first = [allocations(x, 1) for x in arrays]
print(first[0] > 0, first[1] > 0, [allocations(x, 300) for x in arrays * 2], n[0])
"""


def run_counted(tmp_path, model, program):
    """What a program prints that runs with the counter, given the library of a model."""
    probe = tmp_path / "probe.so"
    fake_model.compile_c(
        fake_model.HERE / "pool_probe.c", tmp_path / "probe.o", "-DCOUNT_ALLOCATIONS"
    )
    fake_model.zig("ld.lld", "-shared", str(tmp_path / "probe.o"), "-o", str(probe))
    library = tmp_path / "m.so"
    xcompile.compile(model).save(library)
    command = ["env", f"LD_PRELOAD={probe}", sys.executable, "-c", program, str(library)]
    done = subprocess.run(
        command, cwd=fake_model.ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    return done.stdout or done.stderr


def test_a_static_model_allocates_nothing_from_its_second_run_on(tmp_path):
    printed = run_counted(tmp_path, residual_network(batch=1), _PROGRAM)
    assert printed == "True 0 True\n"


def test_sizes_that_depend_on_data_allocate_nothing_when_they_come_again(tmp_path):
    printed = run_counted(tmp_path, nonzero_chain(), _LATE_PROGRAM)
    assert printed == "True True [0, 0, 0, 0, 0, 0] 560\n"
