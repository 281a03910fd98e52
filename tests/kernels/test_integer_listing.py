"""What the innermost loops of integer contractions are made of, in the assembly of every target."""

import os
import re
import shutil
import subprocess

import pytest

from bench.matmul import CompiledContraction
from tests.foreign.machines import REQUIRED
from tests.kernels.test_integer_contraction import signs
from xcompile.compiler.schedule.contraction import ContractionProblem as Problem
from xcompile.compiler.target.registry import targets

INSTRUCTIONS = {
    "x86-avx2": "vpmaddwd",
    "x86-avx512": "vpmaddwd",
    "x86-vnni": "vpdpbusd",
    "arm-neon": "sadalp",
    "arm-dotprod": "sdot",
    "arm-i8mm": "smmla",
}
STACK = re.compile(r"\(%rsp\)|\[sp")


def listing(name: str, m: int, constant: bool = True, transposed: bool = False) -> str:
    """The assembly of a product with 512 columns and a depth of 512."""
    target = targets()[name]
    problem = Problem(
        m, 512, 512, b_strides=(1, 512) if transposed else None, constant_b=constant, dtype="i32",
        operands=signs(target),  # type: ignore[arg-type]
    )  # fmt: skip
    return CompiledContraction(problem, target).kernel.listing


def loops(assembly: str, instruction: str) -> list[list[str]]:
    """The bodies of loops of one block that have the instruction."""
    found: list[list[str]] = []
    for label, block in re.findall(
        r"^(\.L\w+):(.*?)(?=^\.L|\Z)", assembly, re.DOTALL | re.MULTILINE
    ):
        body: list[str] = []
        for line in block.splitlines():
            if not line.startswith("\t") or line.startswith("\t."):
                continue
            body.append(line)
            if re.search(rf"\s{re.escape(label)}$", line):
                if any(re.match(rf"\t{instruction}\b", inner) for inner in body):
                    found.append(body)
                break
    return found


def count(body: list[str], instruction: str) -> int:
    return sum(bool(re.match(rf"\t{instruction}\b", line)) for line in body)


@pytest.mark.parametrize("name", INSTRUCTIONS)
@pytest.mark.parametrize("b", ["constant", "data", "transposed"])
@pytest.mark.parametrize(("m", "least"), [(4, 8), (64, 12)])
def test_the_loop_is_the_instruction_and_keeps_its_sums_in_registers(
    name: str, b: str, m: int, least: int
) -> None:
    assembly = listing(name, m, b == "constant", b == "transposed")
    found = loops(assembly, INSTRUCTIONS[name])
    assert max(count(body, INSTRUCTIONS[name]) for body in found) >= least
    for body in found:
        assert not [line for line in body if STACK.search(line)]
    assert "vpmaddubsw" not in assembly


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_one_row_streams_its_panel(name: str) -> None:
    instruction = "sdot" if name == "arm-i8mm" else INSTRUCTIONS[name]
    assembly = listing(name, 1)
    found = loops(assembly, instruction)
    assert max(count(body, instruction) for body in found) >= 8
    for body in found:
        assert not [line for line in body if STACK.search(line)]
    assert "vpmaddubsw" not in assembly


@pytest.mark.parametrize("m", [64, 512])
def test_vpdpbusd_is_issued_at_four_fifths_of_what_the_ports_take(m: int) -> None:
    """Two a cycle on Cascade Lake, in llvm-mca's simulation of the loop."""
    if not shutil.which("llvm-mca"):
        if os.environ.get(REQUIRED):
            pytest.fail("llvm-mca is not installed")
        pytest.skip("llvm-mca is not installed")
    body = max(loops(listing("x86-vnni", m), "vpdpbusd"), key=len)
    rounds = 100
    shown = subprocess.run(
        ["llvm-mca", "-mcpu=cascadelake", f"-iterations={rounds}"],
        input="\n".join(body), capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    cycles = int(re.findall(r"Total Cycles:\s+(\d+)", shown)[0])
    assert rounds * count(body, "vpdpbusd") / cycles >= 0.8 * 2
