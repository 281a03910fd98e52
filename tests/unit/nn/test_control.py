"""Branches and loops: what they compute, the sizes they give, and what is refused."""

import numpy as np
import pytest

from xcompile.compiler.ir.context import context
from xcompile.compiler.ir.text import parse_module
from xcompile.compiler.ir.verifier import verify_module
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.interpreter import interpret
from xcompile.dialects.nn.shapes import ShapeAnalysis, refine_types

BRANCH = """
module attributes {xc.input_dims = ["", "N,4", "M,4"]} {
  func.func @main(%c: tensor<i1>, %x: tensor<?x4xf32>, %z: tensor<?x4xf32>) -> tensor<?x4xf32> {
    %y = "nn.if"(%c) ({
      %a = "nn.neg"(%x) : (tensor<?x4xf32>) -> tensor<?x4xf32>
      "nn.yield"(%a) : (tensor<?x4xf32>) -> ()
    }, {
      "nn.yield"(%z) : (tensor<?x4xf32>) -> ()
    }) : (tensor<i1>) -> tensor<?x4xf32>
    return %y : tensor<?x4xf32>
  }
}
"""

LOOP = """
module attributes {xc.input_dims = ["", "2,N"]} {
  func.func @main(%n: tensor<i64>, %x: tensor<2x?xf32>) -> (tensor<2x?xf32>, tensor<?x2x?xf32>) {
    %last, %all = "nn.loop"(%n, %x) ({
    ^body(%i: tensor<i64>, %c: tensor<2x?xf32>):
      %next = "nn.add"(%c, %x) : (tensor<2x?xf32>, tensor<2x?xf32>) -> tensor<2x?xf32>
      %go = "nn.const"() {value = dense<true> : tensor<i1>} : () -> tensor<i1>
      "nn.yield"(%go, %next, %c) : (tensor<i1>, tensor<2x?xf32>, tensor<2x?xf32>) -> ()
    }) {operandSegmentSizes = array<i32: 1, 0, 1>}
      : (tensor<i64>, tensor<2x?xf32>) -> (tensor<2x?xf32>, tensor<?x2x?xf32>)
    return %last, %all : tensor<2x?xf32>, tensor<?x2x?xf32>
  }
}
"""

GROWING = LOOP.replace(
    '"nn.add"(%c, %x) : (tensor<2x?xf32>, tensor<2x?xf32>) -> tensor<2x?xf32>',
    '"nn.concat"(%c, %x) {axis = 1 : i64} : (tensor<2x?xf32>, tensor<2x?xf32>) -> tensor<2x?xf32>',
).replace('"nn.yield"(%go, %next, %c)', '"nn.yield"(%go, %next, %x)')

WHILE = """
module {
  func.func @main(%limit: tensor<i64>) -> (tensor<i64>, tensor<?xi64>) {
    %one = "nn.const"() {value = dense<1> : tensor<i64>} : () -> tensor<i64>
    %true = "nn.less"(%one, %limit) : (tensor<i64>, tensor<i64>) -> tensor<i1>
    %last, %all = "nn.loop"(%true, %one) ({
    ^body(%i: tensor<i64>, %c: tensor<i64>):
      %next = "nn.add"(%c, %c) : (tensor<i64>, tensor<i64>) -> tensor<i64>
      %go = "nn.less"(%next, %limit) : (tensor<i64>, tensor<i64>) -> tensor<i1>
      "nn.yield"(%go, %next, %c) : (tensor<i1>, tensor<i64>, tensor<i64>) -> ()
    }) {operandSegmentSizes = array<i32: 0, 1, 1>}
      : (tensor<i1>, tensor<i64>) -> (tensor<i64>, tensor<?xi64>)
    return %last, %all : tensor<i64>, tensor<?xi64>
  }
}
"""


def run(text: str, *inputs: np.ndarray) -> list[np.ndarray]:
    with context():
        module = parse_module(text)
        verify_module(module)
        return interpret(module, inputs)


def returned_shapes(text: str) -> list[str]:
    with context():
        module = parse_module(text)
        analysis = ShapeAnalysis(module.main, module.input_shapes())
        last = list(module.main.regions[0].blocks[0].operations)[-1]
        return [",".join(map(str, analysis.shape(v))) for v in last.operation.operands]


def refusal(text: str) -> CompileError:
    with context():
        module = parse_module(text)
        with pytest.raises(CompileError) as caught:
            verify_module(module)
    return caught.value


@pytest.mark.parametrize(
    ("condition", "expected"), [(True, [[-1.0] * 4] * 2), (False, [[5.0] * 4] * 3)]
)
def test_a_branch_gives_what_its_region_yields(
    condition: bool, expected: list[list[float]]
) -> None:
    x, z = np.ones((2, 4), np.float32), np.full((3, 4), 5, np.float32)
    (y,) = run(BRANCH, np.array(condition), x, z)
    np.testing.assert_array_equal(y, np.array(expected, np.float32))


def test_a_loop_carries_and_stacks() -> None:
    x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    last, every = run(LOOP, np.array(3), x)
    np.testing.assert_array_equal(last, 4 * x)
    np.testing.assert_array_equal(every, np.stack([x, 2 * x, 3 * x]))


@pytest.mark.parametrize("trip", [0, -5])
def test_a_loop_without_iterations_gives_the_initial_values_and_nothing_stacked(trip: int) -> None:
    x = np.ones((2, 3), np.float32)
    last, every = run(LOOP, np.array(trip), x)
    np.testing.assert_array_equal(last, x)
    assert every.shape[:2] == (0, 2)


def test_carried_values_may_grow() -> None:
    x = np.ones((2, 3), np.float32)
    last, _ = run(GROWING, np.array(2), x)
    assert last.shape == (2, 9)


def test_a_condition_ends_a_loop() -> None:
    last, every = run(WHILE, np.array(20))
    assert last == 32
    np.testing.assert_array_equal(every, [1, 2, 4, 8, 16])


def test_a_condition_that_does_not_hold_at_first_means_no_iteration() -> None:
    last, every = run(WHILE, np.array(1))
    assert last == 1
    assert every.shape == (0,)


def test_sizes_that_differ_between_branches_are_open_and_others_are_not() -> None:
    assert returned_shapes(BRANCH) == ["result_0,4"]
    assert returned_shapes(BRANCH.replace("M,4", "N,4")) == ["N,4"]


def test_a_decided_branch_has_the_sizes_of_its_region() -> None:
    decided = BRANCH.replace(
        '%y = "nn.if"(%c)',
        '%t = "nn.const"() {value = dense<true> : tensor<i1>} : () -> tensor<i1> %y = "nn.if"(%t)',
    )
    assert returned_shapes(decided) == ["N,4"]


def test_sizes_that_stay_the_same_in_a_loop_are_known() -> None:
    assert returned_shapes(LOOP) == ["2,N", "result_0,2,N"]


def test_sizes_that_change_in_a_loop_are_open() -> None:
    assert returned_shapes(GROWING) == ["2,result_0", "result_1,2,N"]


def test_a_number_of_iterations_that_is_known_is_the_size_of_what_is_stacked() -> None:
    counted = LOOP.replace(
        '%last, %all = "nn.loop"(%n, %x)',
        '%k = "nn.const"() {value = dense<7> : tensor<i64>} : () -> tensor<i64> %last, %all = "nn.loop"(%k, %x)',
    )
    assert returned_shapes(counted) == ["2,N", "7,2,N"]


def test_what_must_hold_in_a_branch_is_no_condition_of_the_model() -> None:
    text = BRANCH.replace(
        '%a = "nn.neg"(%x) : (tensor<?x4xf32>)',
        '%a = "nn.add"(%x, %z) : (tensor<?x4xf32>, tensor<?x4xf32>)',
    )
    with context():
        module = parse_module(text)
        analysis = ShapeAnalysis(module.main, module.input_shapes())
        branch = module.main.regions[0].blocks[0].operations[0]
        then, otherwise = (region.blocks[0] for region in branch.operation.regions)
        assert analysis.constraints == []
        ((_, _, why),) = analysis.constraints_in(then)
        assert why.endswith("N and M must be equal or one of them 1")
        assert analysis.constraints_in(otherwise) == []


def test_refining_writes_sizes_into_the_arguments_of_a_loop() -> None:
    with context():
        module = parse_module(LOOP)
        refine_types(module, [(), (2, 3)])
        assert "^bb0(%arg2: tensor<i64>, %arg3: tensor<2x3xf32>)" in module.text()


def test_a_loop_in_loops_is_inferred_in_time_that_does_not_double_with_each() -> None:
    head, tail = "", '"nn.yield"(%go, %next30) : (tensor<i1>, tensor<?xf32>) -> ()'
    for depth in range(31):
        outer = "%x" if depth == 0 else f"%c{depth - 1}"
        head += f"""%l{depth} = "nn.loop"(%n, {outer}) ({{
            ^body(%i{depth}: tensor<i64>, %c{depth}: tensor<?xf32>):\n"""
    head += '%next30 = "nn.concat"(%c30, %c30) {axis = 0 : i64} : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>\n'
    for depth in reversed(range(31)):
        tail += "}) {operandSegmentSizes = array<i32: 1, 0, 1>} : (tensor<i64>, tensor<?xf32>) -> tensor<?xf32>\n"
        if depth:
            tail += f'"nn.yield"(%go, %l{depth}) : (tensor<i1>, tensor<?xf32>) -> ()\n'
    text = f"""func.func @main(%n: tensor<i64>, %go: tensor<i1>, %x: tensor<?xf32>) -> tensor<?xf32> {{
        {head}{tail} return %l0 : tensor<?xf32> }}"""
    assert returned_shapes(text) == ["result_30"]


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ('"nn.yield"(%z) : (tensor<?x4xf32>) -> ()', '"nn.yield"() : () -> ()', "XC2001"),
        (
            '"nn.yield"(%z) : (tensor<?x4xf32>) -> ()',
            '"nn.yield"(%c) : (tensor<i1>) -> ()',
            "XC2002",
        ),
        ('"nn.if"(%c)', '"nn.if"(%x)', "XC2002"),
    ],
)
def test_branches_that_do_not_fit_are_refused(old: str, new: str, code: str) -> None:
    text = BRANCH.replace(old, new)
    text = text.replace("}) : (tensor<i1>)", "}) : (tensor<?x4xf32>)") if "(%x)" in new else text
    assert refusal(text).code == code


def test_branches_of_different_ranks_are_refused() -> None:
    text = BRANCH.replace("%z: tensor<?x4xf32>", "%z: tensor<4xf32>").replace(
        '"nn.yield"(%z) : (tensor<?x4xf32>)', '"nn.yield"(%z) : (tensor<4xf32>)'
    )
    assert refusal(text).code == "XC2003"


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ('"nn.yield"(%go, %next, %c) : (tensor<i1>, tensor<2x?xf32>, tensor<2x?xf32>)',
         '"nn.yield"(%go, %next) : (tensor<i1>, tensor<2x?xf32>)', "XC2001"),
        ('"nn.yield"(%go, %next, %c) : (tensor<i1>, tensor<2x?xf32>, tensor<2x?xf32>)',
         '"nn.yield"(%i, %next, %c) : (tensor<i64>, tensor<2x?xf32>, tensor<2x?xf32>)', "XC2002"),
        ('"nn.yield"(%go, %next, %c) : (tensor<i1>, tensor<2x?xf32>, tensor<2x?xf32>)',
         '"nn.yield"(%go, %i, %c) : (tensor<i1>, tensor<i64>, tensor<2x?xf32>)', "XC2002"),
        ("^body(%i: tensor<i64>, %c: tensor<2x?xf32>)", "^body(%c: tensor<2x?xf32>)", "XC2001"),
        ("^body(%i: tensor<i64>", "^body(%i: tensor<i32>", "XC2002"),
    ],
)  # fmt: skip
def test_loops_that_do_not_fit_are_refused(old: str, new: str, code: str) -> None:
    assert refusal(LOOP.replace(old, new)).code == code
