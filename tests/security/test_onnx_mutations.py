import re
import subprocess
import sys

import pytest


def run(first, count, seconds):
    done = subprocess.run(
        [sys.executable, "-m", "tests.security.mutate_onnx", str(first), str(count)],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-300:] + done.stderr[-3000:]
    refused = int(re.search(r"refused (\d+)", done.stdout)[1])
    assert (
        0.3 * count < refused < count
    )  # mutations that all fail the same way would test the parser only


def test_300_mutations_end_in_a_module_or_a_compile_error():
    run(0, 300, 60)


@pytest.mark.full
def test_10000_mutations_end_in_a_module_or_a_compile_error():
    run(300, 10_000, 1200)
