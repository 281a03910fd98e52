"""Small ONNX models with If, Loop and Scan, what they are run on and what they give."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.unit.frontends.onnx_models import model

BOOL, INT64, FLOAT = onnx.TensorProto.BOOL, onnx.TensorProto.INT64, onnx.TensorProto.FLOAT
node = helper.make_node


def graph(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[str],
    outputs: Sequence[str],
    constants: dict[str, np.ndarray] | None = None,
) -> onnx.GraphProto:
    """A graph to put into a node; nothing is declared of its inputs and outputs."""
    made = onnx.GraphProto(name="body")
    made.node.extend(nodes)
    made.input.extend(onnx.ValueInfoProto(name=name) for name in inputs)
    made.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
    made.initializer.extend(numpy_helper.from_array(a, n) for n, a in (constants or {}).items())
    return made


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


@dataclass(frozen=True)
class Case:
    """A model and calls of it: the inputs, and the outputs they give."""

    model: onnx.ModelProto
    calls: Sequence[tuple[Sequence[np.ndarray], Sequence[np.ndarray]]]


CASES: dict[str, Callable[[], Case]] = {}
"""Makers of cases by what each shows."""


def case(make: Callable[[], Case]) -> Callable[[], Case]:
    CASES[make.__name__] = make
    return make


TRUE, FALSE = np.array(True), np.array(False)


@case
def branches_use_values_around_them() -> Case:
    then = graph([node("Add", ["x", "w"], ["t"])], [], ["t"])
    other = graph([node("Mul", ["h", "w"], ["e"])], [], ["e"])
    nodes = [
        node("Neg", ["x"], ["h"]),
        node("If", ["c"], ["y"], then_branch=then, else_branch=other),
        node("Relu", ["y"], ["z"]),
    ]
    made = model(nodes, {"c": [], "x": ["N"]}, ["y", "z"], {"w": f32(2)}, dtypes={"c": BOOL})
    x = f32(1, -3)
    return Case(made, [([TRUE, x], [f32(3, -1), f32(3, 0)]), ([FALSE, x], [f32(-2, 6), f32(0, 6)])])


@case
def branches_differ_in_size() -> Case:
    then = graph([node("Concat", ["x", "x"], ["t"], axis=0)], [], ["t"])
    other = graph([node("Identity", ["x"], ["e"])], [], ["e"])
    nodes = [
        node("If", ["c"], ["y"], then_branch=then, else_branch=other),
        node("Neg", ["y"], ["z"]),
    ]
    made = model(nodes, {"c": [1], "x": ["N"]}, ["z"], dtypes={"c": BOOL})
    x = f32(1, 2)
    return Case(made, [([TRUE[None], x], [f32(-1, -2, -1, -2)]), ([FALSE[None], x], [f32(-1, -2)])])


@case
def branches_in_branches_use_values_of_all_levels() -> Case:
    inner_then = graph([node("Add", ["x", "a"], ["t2"])], [], ["t2"])
    inner_else = graph([node("Sub", ["x", "a"], ["e2"])], [], ["e2"])
    then = graph(
        [node("Abs", ["x"], ["a"]), node("If", ["d"], ["t"], then_branch=inner_then, else_branch=inner_else)],
        [], ["t"],
    )  # fmt: skip
    other = graph([node("Neg", ["x"], ["e"])], [], ["e"])
    made = model(
        [node("If", ["c"], ["y"], then_branch=then, else_branch=other)],
        {"c": [], "d": [], "x": [2]}, ["y"], dtypes={"c": BOOL, "d": BOOL},
    )  # fmt: skip
    x = f32(1, -2)
    return Case(
        made,
        [
            ([TRUE, TRUE, x], [f32(2, 0)]),
            ([TRUE, FALSE, x], [f32(0, -4)]),
            ([FALSE, TRUE, x], [f32(-1, 2)]),
        ],
    )


@case
def names_in_a_branch_hide_those_around_it() -> Case:
    then = graph([node("Neg", ["x"], ["h"])], [], ["h"])
    other = graph([node("Identity", ["w"], ["e"])], [], ["e"], {"w": f32(7, 7)})
    nodes = [
        node("Abs", ["x"], ["h"]),
        node("If", ["c"], ["y"], then_branch=then, else_branch=other),
        node("Add", ["y", "h"], ["z"]),
    ]
    made = model(nodes, {"c": [], "x": [2]}, ["z"], {"w": f32(1)}, dtypes={"c": BOOL})
    x = f32(1, -2)
    return Case(made, [([TRUE, x], [f32(0, 4)]), ([FALSE, x], [f32(8, 9)])])


@case
def a_branch_that_squeezes_where_it_can() -> Case:
    """The ranks differ; what follows needs only one of them in the end."""
    then = graph([node("Squeeze", ["x", "zero"], ["t"])], [], ["t"])
    other = graph([node("Identity", ["x"], ["e"])], [], ["e"])
    constants = {"zero": np.array([0]), "one": np.array([1]), "shape": np.array([-1])}
    nodes = [
        node("Shape", ["x"], ["s"], start=0, end=1),
        node("Equal", ["s", "one"], ["c"]),
        node("If", ["c"], ["y"], then_branch=then, else_branch=other),
        node("Exp", ["w"], ["v"]),  # does not depend on the branches
        node("Mul", ["y", "v"], ["p"]),
        node("Reshape", ["p", "shape"], ["z"]),
    ]
    made = model(nodes, {"x": ["N", 2], "w": [1]}, ["z"], constants)
    w = f32(0)
    return Case(
        made,
        [([f32(1, 2).reshape(1, 2), w], [f32(1, 2)]), ([f32(1, 2, 3, 4).reshape(2, 2), w], [f32(1, 2, 3, 4)])],
    )  # fmt: skip


@case
def ranks_of_branches_of_branches_differ() -> Case:
    """Three ranks meet at the end of the outer branch."""
    inner_then = graph([node("Unsqueeze", ["x", "zero"], ["t2"])], [], ["t2"])
    inner_else = graph([node("Identity", ["x"], ["e2"])], [], ["e2"])
    then = graph(
        [node("If", ["d"], ["t"], then_branch=inner_then, else_branch=inner_else)], [], ["t"]
    )
    other = graph([node("Unsqueeze", ["x", "both"], ["e"])], [], ["e"])
    constants = {"zero": np.array([0]), "both": np.array([0, 1]), "shape": np.array([-1])}
    nodes = [
        node("If", ["c"], ["y"], then_branch=then, else_branch=other),
        node("Shape", ["y"], ["s"]),
        node("Size", ["s"], ["rank"]),
        node("Neg", ["y"], ["n"]),
        node("Reshape", ["n", "shape"], ["z"]),
    ]
    made = model(
        nodes, {"c": [], "d": [], "x": [2]}, ["rank", "z"], constants, dtypes={"c": BOOL, "d": BOOL}
    )
    x = f32(1, 2)
    return Case(
        made,
        [
            ([TRUE, TRUE, x], [np.array(2), -x]),
            ([TRUE, FALSE, x], [np.array(1), -x]),
            ([FALSE, TRUE, x], [np.array(3), -x]),
        ],
    )


@case
def a_branch_of_a_constant_stands_in_place_of_the_node() -> Case:
    then = graph([node("Unsqueeze", ["x", "zero"], ["t"])], [], ["t"])
    other = graph([node("Identity", ["x"], ["e"])], [], ["e"])
    constants = {"zero": np.array([0]), "c": np.array(True)}
    made = model(
        [node("If", ["c"], ["y"], then_branch=then, else_branch=other)],
        {"x": [2]},
        ["y"],
        constants,
    )
    return Case(made, [([f32(1, 2)], [f32(1, 2)[None]])])


@case
def an_output_of_a_branch_is_not_read() -> Case:
    then = graph(
        [node("Neg", ["x"], ["a"]), node("Unsqueeze", ["x", "zero"], ["b"])], [], ["a", "b"]
    )
    other = graph([node("Abs", ["x"], ["d"]), node("Abs", ["x"], ["e"])], [], ["d", "e"])
    made = model(
        [node("If", ["c"], ["y", "unread"], then_branch=then, else_branch=other)],
        {"c": [], "x": [2]}, ["y"], {"zero": np.array([0])}, dtypes={"c": BOOL},
    )  # fmt: skip
    return Case(made, [([TRUE, f32(1, -2)], [f32(-1, 2)]), ([FALSE, f32(1, -2)], [f32(1, 2)])])


def loop(
    body: onnx.GraphProto,
    outputs: Sequence[str],
    *,
    trip: str = "n",
    cond: str = "",
    initial: Sequence[str] = ("x",),
) -> onnx.NodeProto:
    return node("Loop", [trip, cond, *initial], outputs, body=body)


@case
def a_loop_carries_and_stacks() -> Case:
    body = graph(
        [node("Add", ["a", "w"], ["a2"]), node("Mul", ["a", "a"], ["part"]), node("Identity", ["go"], ["on"])],
        ["i", "go", "a"], ["on", "a2", "part"],
    )  # fmt: skip
    made = model(
        [loop(body, ["last", "all"])],
        {"n": [], "x": ["N"]},
        ["last", "all"],
        {"w": f32(2)},
        dtypes={"n": INT64},
    )
    x = f32(1, 3)
    return Case(
        made,
        [
            ([np.array(3), x], [f32(7, 9), np.stack([f32(1, 9), f32(9, 25), f32(25, 49)])]),
            ([np.array(1), x], [f32(3, 5), f32(1, 9)[None]]),
        ],
    )


@case
def a_loop_of_a_known_length() -> Case:
    body = graph(
        [node("Cast", ["i"], ["f"], to=FLOAT), node("Add", ["a", "f"], ["a2"])],
        ["i", "go", "a"], ["go", "a2", "f"],
    )  # fmt: skip
    made = model([loop(body, ["last", "all"])], {"x": [2]}, ["last", "all"], {"n": np.array([4])})
    return Case(made, [([f32(1, 3)], [f32(7, 9), f32(0, 1, 2, 3)])])


@case
def a_loop_that_runs_while_a_condition_holds() -> Case:
    body = graph(
        [node("Add", ["a", "a"], ["a2"]), node("Less", ["a2", "limit"], ["on"])],
        ["i", "go", "a"], ["on", "a2", "a"],
    )  # fmt: skip
    nodes = [node("Less", ["x", "limit"], ["c"]), loop(body, ["last", "all"], trip="", cond="c")]
    made = model(nodes, {"x": [], "limit": []}, ["last", "all"])
    return Case(
        made,
        [
            ([np.float32(1), np.float32(10)], [np.float32(16), f32(1, 2, 4, 8)]),
            ([np.float32(11), np.float32(10)], [np.float32(11), np.zeros(0, np.float32)]),
        ],
    )


@case
def a_loop_that_runs_at_least_once() -> Case:
    body = graph(
        [node("Add", ["a", "a"], ["a2"]), node("Less", ["a2", "limit"], ["on"])],
        ["i", "go", "a"], ["on", "a2"],
    )  # fmt: skip
    made = model(
        [loop(body, ["last"], trip="", cond="yes")],
        {"x": [], "limit": []},
        ["last"],
        {"yes": np.array(True)},
    )
    ten = np.float32(10)
    return Case(
        made, [([np.float32(11), ten], [np.float32(22)]), ([np.float32(3), ten], [np.float32(12)])]
    )


@case
def a_loop_ends_at_the_trip_count_or_the_condition() -> Case:
    body = graph(
        [node("Add", ["a", "a"], ["a2"]), node("Less", ["a2", "limit"], ["on"])],
        ["i", "go", "a"], ["on", "a2"],
    )  # fmt: skip
    made = model(
        [loop(body, ["last"], cond="yes")],
        {"n": [], "x": [], "limit": []}, ["last"], {"yes": np.array(True)}, dtypes={"n": INT64},
    )  # fmt: skip
    one, ten = np.float32(1), np.float32(10)
    return Case(
        made,
        [
            ([np.array(2), one, ten], [np.float32(4)]),
            ([np.array(9), one, ten], [np.float32(16)]),
            ([np.array(0), one, ten], [one]),
        ],
    )


@case
def without_a_condition_what_the_body_yields_for_it_is_only_handed_on() -> Case:
    body = graph(
        [node("Cast", ["go"], ["f"], to=FLOAT), node("Add", ["a", "f"], ["a2"]), node("Not", ["go"], ["on"])],
        ["i", "go", "a"], ["on", "a2"],
    )  # fmt: skip
    made = model([loop(body, ["last"])], {"n": [], "x": [1]}, ["last"], dtypes={"n": INT64})
    return Case(made, [([np.array(5), f32(0)], [f32(3)])])


@case
def a_carried_value_grows() -> Case:
    body = graph([node("Concat", ["a", "x"], ["a2"], axis=0)], ["i", "go", "a"], ["go", "a2"])
    made = model([loop(body, ["last"])], {"n": [], "x": [2]}, ["last"], dtypes={"n": INT64})
    return Case(
        made,
        [
            ([np.array(2), f32(1, 2)], [f32(1, 2, 1, 2, 1, 2)]),
            ([np.array(0), f32(1, 2)], [f32(1, 2)]),
        ],
    )


@case
def loops_in_loops_with_branches() -> Case:
    """Sums i + j over j < i for all i where the sum is even, and 100 where it is not."""
    then = graph([node("Add", ["b", "ij"], ["t"])], [], ["t"])
    other = graph([node("Add", ["b", "hundred"], ["e"])], [], ["e"])
    inner = graph(
        [
            node("Add", ["i", "j"], ["ij"]),
            node("Mod", ["ij", "two"], ["odd"]),
            node("Equal", ["odd", "nil"], ["even"]),
            node("If", ["even"], ["b2"], then_branch=then, else_branch=other),
        ],
        ["j", "go2", "b"], ["go2", "b2"],
    )  # fmt: skip
    outer = graph([loop(inner, ["a2"], trip="i", initial=["a"])], ["i", "go", "a"], ["go", "a2"])
    constants = {
        "two": np.array(2),
        "nil": np.array(0),
        "hundred": np.array(100),
        "zero": np.array(0),
    }
    made = model(
        [loop(outer, ["last"], initial=["zero"])],
        {"n": []},
        ["last"],
        constants,
        dtypes={"n": INT64, "last": INT64},
    )
    return Case(made, [([np.array(4)], [np.array(100 + 2 + 100 + 100 + 4 + 100)])])


@case
def initializers_of_a_body_that_are_inputs_too_are_constants() -> Case:
    body = graph(
        [node("Add", ["a", "k"], ["a2"])], ["i", "go", "a", "k"], ["go", "a2"], {"k": f32(5)}
    )
    made = model([loop(body, ["last"])], {"n": [], "x": [1]}, ["last"], dtypes={"n": INT64})
    return Case(made, [([np.array(3), f32(1)], [f32(16)])])


@case
def a_carried_value_overrides_the_initializer_of_its_name() -> Case:
    body = graph([node("Add", ["a", "a"], ["a2"])], ["i", "go", "a"], ["go", "a2"], {"a": f32(100)})
    made = model([loop(body, ["last"])], {"n": [], "x": [1]}, ["last"], dtypes={"n": INT64})
    return Case(made, [([np.array(3), f32(1)], [f32(8)])])


def scan(
    body: onnx.GraphProto,
    inputs: Sequence[str],
    outputs: Sequence[str],
    count: int,
    **attributes: object,
) -> onnx.NodeProto:
    return node("Scan", inputs, outputs, body=body, num_scan_inputs=count, **attributes)


RUNNING = graph(
    [node("Add", ["s", "e"], ["s2"]), node("Identity", ["s2"], ["part"])],
    ["s", "e"],
    ["s2", "part"],
)
"""A running sum."""

ROWS = np.array([[1, 2], [3, 4], [5, 6]], np.float32)


@case
def a_scan_runs_along_the_first_axis() -> Case:
    made = model(
        [scan(RUNNING, ["x0", "x"], ["last", "all"], 1)],
        {"x0": [2], "x": ["T", 2]},
        ["last", "all"],
    )
    sums = ROWS.cumsum(axis=0)
    return Case(
        made,
        [
            ([f32(0, 0), ROWS], [sums[-1], sums]),
            ([f32(0, 0), ROWS[:0]], [f32(0, 0), ROWS[:0]]),
        ],
    )


@case
def a_scan_runs_backward_along_another_axis() -> Case:
    made = model(
        [scan(RUNNING, ["x0", "x"], ["last", "all"], 1, scan_input_axes=[-1], scan_input_directions=[1],
              scan_output_axes=[1], scan_output_directions=[1])],
        {"x0": [2], "x": [2, "T"]}, ["last", "all"],
    )  # fmt: skip
    x = ROWS.T.copy()
    sums = x[:, ::-1].cumsum(axis=1)
    return Case(made, [([f32(0, 0), x], [sums[:, -1], sums[:, ::-1]])])


@case
def a_scan_of_two_inputs_without_states() -> Case:
    body = graph([node("Mul", ["a", "b"], ["p"])], ["a", "b"], ["p"])
    made = model(
        [scan(body, ["x", "z"], ["all"], 2, scan_input_directions=[0, 1])],
        {"x": ["T", 2], "z": ["T", 2]},
        ["all"],
    )
    return Case(made, [([ROWS, ROWS], [ROWS * ROWS[::-1]])])


@case
def a_scan_of_opset_8_runs_for_each_element_of_the_batch() -> Case:
    made = model(
        [scan(RUNNING, ["", "x0", "x"], ["last", "all"], 1, directions=[1])],
        {"x0": ["B", 2], "x": ["B", "T", 2]}, ["last", "all"], opset=8,
    )  # fmt: skip
    x = np.stack([ROWS, 10 * ROWS])
    sums = x[:, ::-1].cumsum(axis=1)
    return Case(made, [([np.zeros((2, 2), np.float32), x], [sums[:, -1], sums])])


def _short_sequences(**attributes: object) -> onnx.ModelProto:
    made = scan(RUNNING, ["lengths", "x0", "x"], ["last", "all"], 1, **attributes)
    inputs = {"lengths": ["B"], "x0": ["B", 2], "x": ["B", "T", 2]}
    return model([made], inputs, ["last", "all"], opset=8, dtypes={"lengths": INT64})


BATCH = np.stack([ROWS, 10 * ROWS, 100 * ROWS])


@case
def sequences_of_a_scan_of_opset_8_may_be_shorter() -> Case:
    """[1 2], [3 4], [5 6] in units of 1, 10 and 100: sums of all three, the first and none of them."""
    start = f32(7, 7, 7, 7, 7, 7).reshape(3, 2)
    last = f32(16, 19, 17, 27, 7, 7).reshape(3, 2)
    sums = np.zeros((3, 3, 2), np.float32)
    sums[0] = [[8, 9], [11, 13], [16, 19]]
    sums[1, 0] = [17, 27]
    return Case(_short_sequences(), [([np.array([3, 1, 0]), start, BATCH], [last, sums])])


@case
def shorter_sequences_are_read_backward_from_their_own_end() -> Case:
    last = f32(9, 12, 40, 60, 0, 0).reshape(3, 2)
    sums = np.zeros((3, 3, 2), np.float32)
    sums[0] = [[5, 6], [8, 10], [9, 12]]
    sums[1, :2] = [[30, 40], [40, 60]]
    zeros = np.zeros((3, 2), np.float32)
    proto = _short_sequences(directions=[1])
    return Case(proto, [([np.array([3, 2, 0]), zeros, BATCH], [last, sums])])


@case
def a_function_of_the_model_holds_a_loop() -> Case:
    body = graph([node("Mul", ["a", "w"], ["a2"])], ["i", "go", "a"], ["go", "a2"])
    function = helper.make_function(
        "my", "Power", ["v", "w"], ["r"],
        [node("Constant", [], ["count"], value=numpy_helper.from_array(np.array(3))),
         loop(body, ["r"], trip="count", initial=["v"])],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    nodes = [
        node("Power", ["x", "w"], ["h"], domain="my"),
        node("Power", ["h", "x"], ["y"], domain="my"),
    ]
    made = model(nodes, {"x": [2], "w": [2]}, ["y"], functions=[function], domains={"my": 1})
    return Case(made, [([f32(1, 2), f32(3, 1)], [f32(27, 16)])])
