import re
import subprocess
import sys

import pytest


def run(kind, first, count, seconds):
    """The share of mutated models that were refused by a `CompileError`; the others were imported."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.security.mutate_onnx", kind, str(first), str(count)],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-300:] + done.stderr[-3000:]
    refused, total = re.search(r"refused (\d+) of (\d+)", done.stdout).groups()
    return int(refused) / int(total)


def test_300_mutations_end_in_a_module_or_a_compile_error():
    assert 0.3 < run("bytes", 0, 300, 60) < 1


def test_distorted_node_cases_end_in_a_module_or_a_compile_error():
    assert 0.3 < run("cases", 0, 1, 120) < 0.9


@pytest.mark.full
def test_10000_mutations_end_in_a_module_or_a_compile_error():
    run("bytes", 300, 10_000, 1200)


@pytest.mark.full
def test_distorting_every_node_case_20_times_ends_in_a_module_or_a_compile_error():
    run("cases", 1, 20, 2400)
