"""The command line in a process whose standard streams are closed."""

import shlex
import subprocess
import sys

import onnx
import pytest

from tests.unit.frontends.onnx_models import identity_model


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_model_is_compiled_whichever_streams_are_closed(tmp_path, closed):
    onnx.save(identity_model(), tmp_path / "m.onnx")
    words = [sys.executable, "-m", "xcompile", tmp_path / "m.onnx", "-o", tmp_path / "m.so"]
    command = shlex.join([*map(str, words), "--jobs", "1"])
    done = subprocess.run(f"{command} {closed}", shell=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "m.so").read_bytes()[:4] == b"\x7fELF"
