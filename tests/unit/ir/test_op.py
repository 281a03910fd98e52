"""Declared ops: reading, building, text."""

import math
import sys
from typing import Any

import pytest
from torch_mlir import ir

from tests.unit.ir.toy import TENSOR, A, B, Many, Pair, Toy, TwoOptional, chain, parsed, toy
from xcompile.compiler.ir.context import context, new_context
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Dialect, Op, Operand, Result, op_class, view
from xcompile.compiler.ir.verifier import verify_module
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects import nn as _nn


def first(module: Any, position: int = 0) -> ir.Operation:
    return module.main.regions[0].blocks[0].operations[position].operation


@pytest.fixture
def x() -> Any:
    module = parsed(f"return %x : {TENSOR}")
    block = module.main.regions[0].blocks[0]
    with ir.InsertionPoint.at_block_begin(block):
        yield block.arguments[0]


def built(cls: type[Op], **fields: Any) -> Any:
    return cls.build(fields, [ir.Type.parse(TENSOR)])


def test_view_finds_the_class_and_of_refuses_others() -> None:
    operation = first(chain("a"))
    assert isinstance(view(operation), A)
    assert A.of(operation) is not None
    assert B.of(operation) is None
    assert A.of(None) is None
    assert op_class("toy.b") is B


def test_ops_of_other_dialects_have_no_view() -> None:
    assert view(first(chain("a"), 1)) is None


def test_views_of_one_operation_are_equal() -> None:
    module = chain("a")
    assert A(first(module)) == A(first(module))
    assert len({A(first(module)), A(first(module))}) == 1


def test_attributes_with_their_default_are_left_out(x: ir.Value) -> None:
    assert "alpha" not in str(built(A, x=x, alpha=0.0))
    assert "alpha = 5.000000e-01" in str(built(A, x=x, alpha=0.5))


def test_minus_zero_is_not_the_default_zero(x: ir.Value) -> None:
    assert math.copysign(1, built(A, x=x, alpha=-0.0).alpha) == -1


def test_a_list_equals_the_default_tuple(x: ir.Value) -> None:
    assert "axes" not in str(built(A, x=x, axes=[]))
    assert built(A, x=x, axes=[1, 2]).axes == (1, 2)


def test_optional_attributes_may_be_none(x: ir.Value) -> None:
    assert built(A, x=x, name=None).name is None
    assert built(A, x=x, name="n").name == "n"


def test_an_optional_operand_reads_as_none_when_absent(x: ir.Value) -> None:
    assert built(Pair, x=x, label="l").bias is None
    assert built(Pair, x=x, bias=x, label="l").bias == x


def test_two_optional_operands_are_told_apart(x: ir.Value) -> None:
    other = built(B, x=x).y
    op = built(TwoOptional, x=x, high=other)
    assert op.low is None
    assert op.high == other


def test_operands_after_a_variadic_one_are_found(x: ir.Value) -> None:
    other = built(B, x=x).y
    op = built(Many, x=x, rest=[x, x], last=other, flags=(True, False))
    assert list(op.rest) == [x, x]
    assert op.last == other
    assert op.flags == (True, False)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"nothing": 1}, "toy.pair has no field nothing"),
        ({"x": None}, "toy.pair needs the operand 'x'"),
        ({}, "toy.pair needs the operand 'x'"),
    ],
)
def test_wrong_fields_are_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        built(Pair, **fields)


def test_a_missing_attribute_is_named(x: ir.Value) -> None:
    with pytest.raises(TypeError, match=r"toy.pair needs the attribute 'label'"):
        built(Pair, x=x)


def test_an_op_may_extend_a_declared_op() -> None:
    dialect = Dialect("extended")

    @dialect.op("c")
    class C(A):
        beta: int = 7

    try:
        with new_context(), ir.Location.unknown():
            module = chain("a")
            with ir.InsertionPoint.at_block_begin(module.main.regions[0].blocks[0]):
                made = built(C, x=module.main.regions[0].blocks[0].arguments[0])
            assert (made.alpha, made.beta) == (0.0, 7)
            assert A.NAME == "toy.a"
    finally:
        Dialect._all.pop("extended")


def test_an_op_or_dialect_declared_twice_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"the dialect 'toy' is declared twice"):
        Dialect("toy")
    with pytest.raises(ValueError, match=r"the op 'toy.a' is declared twice"):

        @toy.op("a")
        class Again(Toy):
            x: Operand
            y: Result


def test_text_parses_back_to_the_same_text() -> None:
    module = chain("a b a")
    again = ir.Module.parse(str(module.module))
    assert str(again) == str(module.module)


def test_mlir_finds_bindings_of_our_dialects_so_handles_are_cheap() -> None:
    assert "torch_mlir.dialects.toy" in sys.modules


assert _nn


def test_the_verifier_checks_operand_counts() -> None:
    module = parsed(f'%0 = "toy.a"() : () -> {TENSOR}\nreturn %0 : {TENSOR}')
    with pytest.raises(CompileError, match=r"XC2001.*toy.a has 0 operands, 1 are declared"):
        verify_module(module)


def test_ops_that_are_not_declared_are_refused() -> None:
    module = parsed(f'%0 = "toy.unknown"(%x) : ({TENSOR}) -> {TENSOR}\nreturn %0 : {TENSOR}')
    with pytest.raises(CompileError, match=r"XC2001.*no op 'toy.unknown'"):
        verify_module(module)


def test_a_variadic_operand_takes_values_of_different_types() -> None:
    text = "func.func @main(%x: tensor<2xf32>, %y: tensor<3xf32>) -> tensor<5xf32> {\n"
    text += '%0 = "nn.concat"(%x, %y) {axis = 0 : i64} : (tensor<2xf32>, tensor<3xf32>) -> tensor<5xf32>\n'
    with context():
        module = Module(ir.Module.parse(text + "return %0 : tensor<5xf32>\n}"))
        verify_module(module)


def test_an_operation_stays_itself_when_its_operands_change(x: ir.Value) -> None:
    op = built(B, x=x)
    known = {op: "it"}
    op.operation.operands[0] = built(A, x=x).y
    assert known[B(op.operation)] == "it"
