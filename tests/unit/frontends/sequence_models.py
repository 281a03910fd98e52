"""Small ONNX models of sequences whose length only a run knows, what they are run on and what they give."""

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper

from tests.unit.frontends.control_models import BOOL, FLOAT, INT64, Case, f32, graph, loop, node
from tests.unit.frontends.onnx_models import model

CONSTANTS = {
    "zero": np.array(0),
    "one": np.array(1),
    "two": np.array(2),
    "last": np.array(-1),
    "origin": np.array([0]),
    "yes": np.array(True),
}
CASES: dict[str, Case] = {}


def declare(body: onnx.GraphProto, element: int) -> None:
    """Give the types of the inputs and outputs of a loop's body that carries a sequence, as other runtimes want it."""
    index, going, before = body.input
    on, after = body.output
    index.CopyFrom(helper.make_tensor_value_info(index.name, INT64, []))
    for flag in (going, on):
        flag.CopyFrom(helper.make_tensor_value_info(flag.name, BOOL, []))
    for sequence in (before, after):
        sequence.CopyFrom(helper.make_tensor_sequence_value_info(sequence.name, element, None))


def body_of(nodes: Sequence[onnx.NodeProto], element: int = FLOAT) -> onnx.GraphProto:
    """The body of a loop that makes the sequence t of the sequence s_in."""
    made = graph([*nodes, node("Identity", ["go"], ["on"])], ["i", "go", "s_in"], ["on", "t"])
    declare(made, element)
    return made


def of_loop(
    name: str,
    body: Sequence[onnx.NodeProto],
    behind: Sequence[onnx.NodeProto],
    calls: Sequence[tuple[Sequence[np.ndarray], Sequence[np.ndarray]]],
    *,
    before: Sequence[onnx.NodeProto] = (helper.make_node("SequenceEmpty", [], ["s"]),),
    outputs: Sequence[str] = ("y",),
    sizes: Sequence[int | str] = ("N", "M"),
    dtypes: dict[str, int] | None = None,
    element: int = FLOAT,
) -> None:
    """A case of a loop of n iterations, whose body makes t of s_in and may read x; `behind` reads its result r."""
    made = body_of(body, element)
    CASES[name] = Case(
        model(
            [*before, loop(made, ["r"], cond="yes", initial=["s"]), *behind],
            {"n": [], "x": sizes},
            outputs,
            CONSTANTS,
            dtypes={"n": INT64, **(dtypes or {})},
        ),
        calls,
    )


def insert(x: str, *position: str) -> onnx.NodeProto:
    return node("SequenceInsert", ["s_in", x, *position], ["t"])


ROW = node("Gather", ["x", "i"], ["row"], axis=0)
HEAD = [  # the first i + 1 elements of the first axis
    node("Add", ["i", "one"], ["i1"]),
    node("Unsqueeze", ["i1", "origin"], ["end"]),
    node("Slice", ["x", "origin", "end"], ["head"]),
]
N = [np.array(n) for n in range(5)]
X = f32(1, 2, 3, 4, 5, 6).reshape(3, 2)

of_loop(
    "rows_that_a_loop_collects_are_joined",
    [ROW, insert("row")],
    [node("ConcatFromSequence", ["r"], ["y"], axis=0), node("SequenceLength", ["r"], ["k"])],
    [([N[3], X], [f32(1, 2, 3, 4, 5, 6), N[3]]), ([N[1], X], [f32(1, 2), N[1]])],
    outputs=["y", "k"],
    dtypes={"k": INT64},
)
of_loop(
    "rows_that_a_loop_collects_are_stacked_along_a_new_axis",
    [ROW, insert("row")],
    [node("ConcatFromSequence", ["r"], ["y"], axis=-1, new_axis=1)],
    [([N[3], X], [X.T]), ([N[2], X], [X[:2].T])],
)
of_loop(
    "tensors_that_differ_in_size_are_joined_along_the_first_axis",
    [*HEAD, insert("head")],
    [node("ConcatFromSequence", ["r"], ["y"], axis=0)],
    [([N[3], X], [X[[0, 0, 1, 0, 1, 2]]]), ([N[1], X], [X[:1]])],
)
of_loop(
    "tensors_that_differ_in_size_are_joined_along_the_last_axis",
    [*HEAD, node("Transpose", ["head"], ["turned"]), insert("turned")],
    [node("ConcatFromSequence", ["r"], ["y"], axis=-1)],
    [([N[3], X], [X[[0, 0, 1, 0, 1, 2]].T]), ([N[2], X], [X[[0, 0, 1]].T])],
)
of_loop(
    "tensors_are_put_in_front",
    [ROW, insert("row", "zero")],
    [node("ConcatFromSequence", ["r"], ["y"], axis=0, new_axis=1)],
    [([N[3], X], [X[::-1]])],
)
of_loop(
    "tensors_of_all_sizes_are_put_at_computed_positions",
    [*HEAD, node("Div", ["i", "two"], ["middle"]), insert("head", "middle")],
    [node("ConcatFromSequence", ["r"], ["y"], axis=0)],
    [([N[3], X], [X[[0, 1, 0, 1, 2, 0]]])],
)
of_loop(
    "each_iteration_reads_the_last_tensor",
    [
        node("SequenceAt", ["s_in", "last"], ["before"]),
        node("Add", ["before", "before"], ["after"]),
        insert("after"),
    ],
    [node("ConcatFromSequence", ["r"], ["y"], axis=0)],
    [([N[2], X], [np.concatenate([X, 2 * X, 4 * X])]), ([N[0], X], [X])],
    before=[node("SequenceConstruct", ["x"], ["s"])],
)
of_loop(
    "a_window_of_the_last_tensors_slides",
    [*HEAD, node("SequenceErase", ["s_in", "zero"], ["rest"]), node("SequenceInsert", ["rest", "head"], ["t"])],
    [node("ConcatFromSequence", ["r"], ["y"], axis=0)],
    [([N[3], X], [X[[0, 1, 0, 1, 2]]]), ([N[0], X], [np.concatenate([X, X])])],
    before=[node("SequenceConstruct", ["x", "x"], ["s"])],
)  # fmt: skip
of_loop(
    "the_last_tensor_is_erased_and_another_is_taken_out",
    [*HEAD, insert("head")],
    [
        node("SequenceErase", ["r"], ["u"]),
        node("SequenceLength", ["u"], ["k"]),
        node("Sub", ["k", "two"], ["place"]),
        node("SequenceAt", ["u", "place"], ["y"]),
    ],
    [([N[3], X], [X[:1], N[2]])],
    outputs=["y", "k"],
    dtypes={"k": INT64},
)
of_loop(
    "scalars_and_numbers",
    [insert("i")],
    [
        node("SequenceAt", ["r", "one"], ["y"]),
        node("ConcatFromSequence", ["r"], ["z"], axis=0, new_axis=1),
    ],
    [([N[4], X], [N[1], np.arange(4)])],
    before=[node("SequenceEmpty", [], ["s"], dtype=INT64)],
    element=INT64,
    outputs=["y", "z"],
    dtypes={"y": INT64, "z": INT64},
)
of_loop(
    "tensors_of_bools_without_elements",
    [
        node("Less", ["x", "x"], ["b"]),
        node("Unsqueeze", ["i", "origin"], ["end"]),
        node("Slice", ["b", "origin", "end"], ["head"]),
        insert("head"),
    ],
    [node("ConcatFromSequence", ["r"], ["y"], axis=0), node("SequenceAt", ["r", "zero"], ["z"])],
    [([N[3], X], [np.zeros((3, 2), bool), np.zeros((0, 2), bool)])],
    before=[node("SequenceEmpty", [], ["s"], dtype=BOOL)],
    element=BOOL,
    outputs=["y", "z"],
    dtypes={"y": BOOL, "z": BOOL},
)
of_loop(
    "a_tensor_is_taken_out_of_a_sequence_that_begins_empty",
    [
        node("SequenceLength", ["s_in"], ["k"]),
        node("Equal", ["k", "zero"], ["none"]),
        node(
            "If", ["none"], ["v"],
            then_branch=graph([node("Identity", ["x"], ["v1"])], [], ["v1"]),
            else_branch=graph(
                [node("SequenceAt", ["s_in", "last"], ["w"]), node("Add", ["w", "x"], ["v2"])], [], ["v2"]
            ),
        ),
        insert("v"),
    ],
    [node("SequenceAt", ["r", "last"], ["y"])],
    [([N[3], X], [3 * X]), ([N[1], X], [X])],
)  # fmt: skip
of_loop(
    "a_branch_decides_whether_a_tensor_is_inserted",
    [
        node("Mod", ["i", "two"], ["odd"]),
        node("Cast", ["odd"], ["is_odd"], to=BOOL),
        node(
            "If", ["is_odd"], ["t"],
            then_branch=graph([ROW, node("SequenceInsert", ["s_in", "row"], ["t1"])], [], ["t1"]),
            else_branch=graph([node("Identity", ["s_in"], ["t2"])], [], ["t2"]),
        ),
    ],
    [node("ConcatFromSequence", ["r"], ["y"], axis=0)],
    [([N[3], X], [X[1]]), ([N[2], X], [X[1]])],
)  # fmt: skip
INNER = graph(
    [node("SequenceInsert", ["s2", "head"], ["t2"]), node("Identity", ["go2"], ["on2"])],
    ["j", "go2", "s2"], ["on2", "t2"],
)  # fmt: skip
declare(INNER, FLOAT)
of_loop(
    "loops_in_loops_grow_one_sequence",
    [*HEAD, node("Loop", ["i1", "yes", "s_in"], ["t"], body=INNER)],
    [node("ConcatFromSequence", ["r"], ["y"], axis=0)],
    [([N[2], X], [X[[0, 0, 1, 0, 1]]])],
)
of_loop(
    "a_body_that_may_replace_the_sequence_by_a_list",
    [node("SequenceConstruct", ["x", "x"], ["t"])],
    [node("ConcatFromSequence", ["r"], ["y"], axis=0)],
    [([N[2], X], [np.concatenate([X, X])])],
)


def straight(
    name: str,
    nodes: Sequence[onnx.NodeProto],
    calls: Sequence[tuple[Sequence[np.ndarray], Sequence[np.ndarray]]],
    inputs: dict[str, Sequence[int | str]],
    *,
    outputs: Sequence[str] = ("y",),
    dtypes: dict[str, int] | None = None,
) -> None:
    CASES[name] = Case(model(nodes, inputs, outputs, CONSTANTS, dtypes=dtypes), calls)


JOINED = node("ConcatFromSequence", ["s"], ["y"], axis=0)
XS = {"x": ["N", "M"]}
NUMBERS = {"i": INT64, "k": INT64, "n": INT64, "lengths": INT64}
straight(
    "a_list_is_read_at_a_computed_position",
    [node("SequenceConstruct", ["x", "head"], ["s"]), node("SequenceAt", ["s", "i"], ["y"])],
    [([X, X[:1], N[1]], [X[:1]]), ([X, X[:1], np.array(-2)], [X])],
    {**XS, "head": ["K", "M"], "i": []},
    dtypes=NUMBERS,
)
straight(
    "branches_give_sequences_that_differ_in_length",
    [
        node(
            "If", ["c"], ["s"],
            then_branch=graph([node("SequenceConstruct", ["x", "x"], ["t"])], [], ["t"]),
            else_branch=graph([node("SequenceConstruct", ["x"], ["e"])], [], ["e"]),
        ),
        JOINED,
    ],
    [([np.array(True), X], [np.concatenate([X, X])]), ([np.array(False), X], [X])],
    {"c": [], **XS},
    dtypes={"c": BOOL},
)  # fmt: skip
for axis in (0, 1):
    parts = node("SplitToSequence", ["x"], ["s"], axis=axis, keepdims=0)
    straight(
        f"slices_of_an_axis_of_open_size_are_stacked_{axis}",
        [parts, node("ConcatFromSequence", ["s"], ["y"], axis=0, new_axis=1)],
        [([X], [X if axis == 0 else X.T]), ([X[:1]], [X[:1] if axis == 0 else X[:1].T])],
        XS,
    )
    straight(
        f"parts_of_two_of_an_axis_of_open_size_{axis}",
        [
            node("SplitToSequence", ["x", "two"], ["s"], axis=axis),
            node("SequenceLength", ["s"], ["k"]),
            node("SequenceAt", ["s", "last"], ["y"]),
        ],
        [([X], [X[2:], N[2]] if axis == 0 else [X, N[1]])],
        XS,
        outputs=["y", "k"],
        dtypes=NUMBERS,
    )
    straight(
        f"parts_of_computed_lengths_{axis}",
        [
            node("SplitToSequence", ["x", "lengths"], ["s"], axis=axis),
            node("SequenceErase", ["s", "one"], ["u"]),
            node("ConcatFromSequence", ["u"], ["y"], axis=axis),
        ],
        [([X, np.array([1, 1, 1])], [X[[0, 2]]]) if axis == 0 else ([X, np.array([1, 0, 1])], [X])],
        {**XS, "lengths": ["K"]},
        dtypes=NUMBERS,
    )
ADDED = graph([node("Add", ["a", "b"], ["c"]), node("Shape", ["c"], ["z"])], ["a", "b"], ["c", "z"])
for port, dtype in zip([*ADDED.input, *ADDED.output], (FLOAT, FLOAT, FLOAT, INT64), strict=True):
    port.CopyFrom(helper.make_tensor_value_info(port.name, dtype, None))
for kind, made in {
    "list": node("SequenceConstruct", ["x", "x"], ["s"]),
    "sequence": node("SplitToSequence", ["x", "two"], ["s"]),
}.items():
    straight(
        f"a_body_for_each_tensor_of_a_{kind}",
        [
            made,
            node("SequenceMap", ["s", "w"], ["t", "z"], body=ADDED),
            node("ConcatFromSequence", ["t"], ["y"], axis=0),
            node("ConcatFromSequence", ["z"], ["k"], axis=0, new_axis=1),
        ],
        [([X, f32(1)], [np.concatenate([X, X]) + 1, np.array([[3, 2], [3, 2]])])]
        if kind == "list"
        else [([X, f32(1)], [X + 1, np.array([[2, 2], [1, 2]])])],
        {**XS, "w": [1]},
        outputs=["y", "k"],
        dtypes=NUMBERS,
    )
