"""Mutated models: each ends in an error line, or in a model that computes what the interpreter computes."""

import re
import resource
import subprocess
import sys

import pytest


def answer(module, words, seconds):
    """What a program prints that may take so many seconds of processor time; ten times that as the clock counts."""

    def limit():
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))

    done = subprocess.run(
        [sys.executable, "-m", f"tests.security.{module}", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=10 * seconds,
        preexec_fn=limit,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-300:] + done.stderr[-3000:]
    return done.stdout


def run(kind, first, count, seconds):
    """The share of mutated models that were refused by a `CompileError`; the others were imported."""
    text = answer("mutate_onnx", (kind, first, count), seconds)
    refused, total = re.search(r"refused (\d+) of (\d+)", text).groups()
    return int(refused) / int(total)


def test_300_mutations_end_in_a_module_or_a_compile_error():
    assert 0.3 < run("bytes", 0, 300, 60) < 1


def test_distorted_node_cases_end_in_a_module_or_a_compile_error():
    assert 0.3 < run("cases", 0, 1, 120) < 0.9


def test_mutated_branches_and_loops_end_in_a_module_or_a_compile_error():
    assert 0.3 < run("control", 0, 6, 60) < 0.95


def compiled(kind, first, count, step, seconds):
    """How many mutated models were refused, were compiled but not compared, and computed the right results."""
    text = answer("compile_mutated", (kind, first, count, step), seconds)
    found = re.search(r"refused (\d+) compiled (\d+) right (\d+)", text)
    return tuple(map(int, found.groups()))


def test_what_imports_of_mutated_models_computes_what_the_interpreter_computes():
    refused, _, right = compiled("bytes", 0, 120, 1, 300)
    assert refused > right > 10


def test_what_imports_of_distorted_node_cases_computes_what_the_interpreter_computes():
    assert compiled("cases", 0, 1, 60, 300)[2] > 3


@pytest.mark.full
def test_10000_mutations_compute_what_the_interpreter_computes_or_are_refused():
    assert compiled("bytes", 300, 10_000, 1, 7200)[2] > 1000


@pytest.mark.full
def test_every_distorted_node_case_computes_what_the_interpreter_computes_or_is_refused():
    assert compiled("cases", 1, 2, 1, 7200)[2] > 300


@pytest.mark.full
def test_10000_mutations_end_in_a_module_or_a_compile_error():
    run("bytes", 300, 10_000, 1200)


@pytest.mark.full
def test_mutating_branches_and_loops_300_times_ends_in_a_module_or_a_compile_error():
    run("control", 6, 300, 2400)


@pytest.mark.full
def test_distorting_every_node_case_20_times_ends_in_a_module_or_a_compile_error():
    run("cases", 1, 20, 2400)
