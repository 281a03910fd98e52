"""The text of the entry functions."""

import re

from xcompile.compiler.codegen.program.host_entry import STEPS_A_FUNCTION, entry_text
from xcompile.compiler.codegen.program.native_text import Writer
from xcompile.compiler.codegen.program.program import Launch, Place, Program


def program_of(launches):
    steps = tuple(
        Launch(f"k{i}", (Place("input", 0), Place("output", 0)), (), 1, 1, 0, "node")
        for i in range(launches)
    )
    return Program("m", ((4,),), ((4,),), 0, (), steps)


def functions(text):
    """The tasks that each function of the module takes the address of, and the parts that it calls, in order."""
    bodies = re.findall(r"llvm\.func (?:internal )?@(\w+)\([^\n]*\{\n(.*?)\n\}", text, re.DOTALL)
    return {
        name: re.findall(r"(?:addressof|call) @(k\d+|m_run_\d+)", body) for name, body in bodies
    }


def test_few_launches_are_one_function():
    found = functions(entry_text(program_of(3)))
    assert found == {"m_prepare": [], "m_run": ["k0", "k1", "k2"], "m_init": []}


def test_many_launches_are_functions_of_bounded_length_called_in_order():
    count = 2 * STEPS_A_FUNCTION + 1
    found = functions(entry_text(program_of(count)))
    assert found["m_run"] == ["m_run_0", "m_run_1", "m_run_2"]
    launched = [task for part in found["m_run"] for task in found[part]]
    assert launched == [f"k{i}" for i in range(count)]
    assert max(len(found[part]) for part in found["m_run"]) == STEPS_A_FUNCTION


def test_an_offset_of_2_gib_and_more_is_a_constant_of_64_bits():
    writer = Writer()
    writer.at("%arena", 2**31 - 1)
    writer.at("%arena", 2**31)
    assert writer.lines[0].endswith("%arena[2147483647] : (!llvm.ptr) -> !llvm.ptr, i8")
    assert writer.lines[1].endswith("%arena[%c0] : (!llvm.ptr, i64) -> !llvm.ptr, i8")
