"""A static model allocates nothing while it runs: counted by a library that stands before malloc."""

import subprocess
import sys

import xcompile
from tests.e2e.networks import residual_network
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


def test_a_static_model_allocates_nothing_from_its_second_run_on(tmp_path):
    probe = tmp_path / "probe.so"
    fake_model.compile_c(
        fake_model.HERE / "pool_probe.c", tmp_path / "probe.o", "-DCOUNT_ALLOCATIONS"
    )
    fake_model.zig("ld.lld", "-shared", str(tmp_path / "probe.o"), "-o", str(probe))
    library = tmp_path / "m.so"
    xcompile.compile(residual_network(batch=1)).save(library)
    command = ["env", f"LD_PRELOAD={probe}", sys.executable, "-c", _PROGRAM, str(library)]
    done = subprocess.run(
        command, cwd=fake_model.ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == "True 0 True\n", done.stdout + done.stderr
