"""Kernels of one element, such as the conditions of loops, are straight scalar code."""

import re

import pytest

from xcompile import passes as _passes
from xcompile.compiler.codegen.cpu.families import plan
from xcompile.compiler.codegen.cpu.family import Kernel
from xcompile.compiler.ir.context import context
from xcompile.compiler.ir.passes import PassContext
from xcompile.compiler.ir.pipeline import parse_pipeline
from xcompile.compiler.ir.runner import run_pipeline
from xcompile.compiler.ir.text import parse_module
from xcompile.compiler.target.registry import targets
from xcompile.dialects.kernel import Func

assert _passes.PASSES

TARGET = targets()["x86-avx512"]


def loops_text(op: str, shape: str, element: str) -> str:
    """What is emitted for a compare of two operands."""
    operand, result = f"tensor<{shape}{element}>", f"tensor<{shape}i1>"
    with context():
        module = parse_module(f"""
            func.func @main(%a: {operand}, %b: {operand}) -> {result} {{
              %0 = "nn.{op}"(%a, %b) : ({operand}, {operand}) -> {result}
              return %0 : {result}
            }}""")
        run_pipeline(module, parse_pipeline("kernel-form", {}), PassContext(TARGET))
        funcs = [Func.of(o) for o in module.module.body.operations]
        (func,) = [f for f in funcs if f is not None]
        return plan(Kernel(func, TARGET)).emit("k").text


@pytest.mark.parametrize("shape", ["", "1x", "1x1x"])
@pytest.mark.parametrize(
    ("op", "element", "compare"),
    [
        ("less", "i64", "arith.cmpi slt"),
        ("equal", "i32", "arith.cmpi eq"),
        ("greater", "f32", "arith.cmpf ogt"),
    ],
)
def test_a_compare_of_one_element_is_one_scalar_compare_without_a_loop(
    op: str, element: str, compare: str, shape: str
) -> None:
    text = loops_text(op, shape, element)
    of_data = [c for c in re.findall(r"= (arith\.cmp. \w+), .* : (\S+)", text) if c[1] != "index"]
    assert of_data == [(compare, element)]
    assert "scf.for" not in text
    assert "vector" not in text


def test_a_compare_of_many_elements_has_loops_and_vectors() -> None:
    text = loops_text("less", "8x1000x", "i64")
    assert "scf.for" in text
    assert "vector" in text
