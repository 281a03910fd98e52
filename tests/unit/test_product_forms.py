"""Which instruction sums products of which types on which target."""

from dataclasses import replace

import pytest

from xcompile.compiler.schedule.products import product_form
from xcompile.compiler.schedule.schedule import ScheduleError
from xcompile.compiler.target.registry import targets
from xcompile.compiler.target.target import Target

AVX_VNNI = replace(targets()["x86-avx2"], features=targets()["x86-avx2"].features | {"avxvnni"})


@pytest.mark.parametrize(
    ("left", "right", "target", "instruction", "group"),
    [
        ("f32", "f32", targets()["x86-avx2"], "fma", 1),
        ("ui8", "i8", targets()["x86-vnni"], "vpdpbusd", 4),
        ("ui8", "i8", AVX_VNNI, "vpdpbusd", 4),
        ("ui8", "i8", replace(AVX_VNNI, vector_bits=512), "pairs", 2),
        ("i8", "i8", targets()["x86-vnni"], "pairs", 2),
        ("ui8", "i8", targets()["x86-avx512"], "pairs", 2),
        ("ui8", "ui8", targets()["x86-avx2"], "pairs", 2),
        ("i8", "i8", targets()["arm-neon"], "smull", 2),
        ("i8", "i8", targets()["arm-dotprod"], "sdot", 4),
        ("ui8", "ui8", targets()["arm-dotprod"], "udot", 4),
        ("ui8", "i8", targets()["arm-dotprod"], "pairs", 2),
        ("i8", "i8", targets()["arm-i8mm"], "sdot", 4),
        ("bf16", "bf16", targets()["arm-i8mm"], "bfdot", 2),
        ("bf16", "bf16", targets()["arm-dotprod"], "fma", 1),
    ],
)
def test_the_instruction_of_one_row(
    left: str, right: str, target: Target, instruction: str, group: int
) -> None:
    form = product_form(left, right, target)
    assert (form.instruction, form.group, form.rows) == (instruction, group, 1)


@pytest.mark.parametrize(
    ("dtype", "instruction", "group"), [("i8", "smmla", 8), ("bf16", "bfmmla", 4)]
)
def test_two_rows_take_the_matrix_instruction(dtype: str, instruction: str, group: int) -> None:
    form = product_form(dtype, dtype, targets()["arm-i8mm"], rows=4)
    assert (form.instruction, form.group, form.rows) == (instruction, group, 2)


@pytest.mark.parametrize("name", ["arm-neon", "arm-dotprod", "arm-i8mm", "x86-vnni"])
def test_a_portable_target_has_the_forms_of_the_one_it_stands_for(name: str) -> None:
    target = targets()[name]
    portable = target.portable(targets()["x86-avx2"])
    for signs in (("i8", "i8"), ("ui8", "i8"), ("ui8", "ui8")):
        for rows in (1, 2):
            assert product_form(*signs, portable, rows) == product_form(*signs, target, rows)
    assert portable.runs_on(targets()["x86-avx2"])
    assert portable.llvm_features() == targets()["x86-avx2"].llvm_features()


def test_types_without_products_are_refused() -> None:
    with pytest.raises(ScheduleError, match="there are no products of i8 and f32"):
        product_form("i8", "f32", targets()["x86-avx2"])
