"""Ops that are not supported, run by onnxruntime where that is asked for."""

import sys
import threading

import numpy as np
import onnx
import pytest
from onnx import helper

import xcompile
from tests.unit.frontends.onnx_models import model
from xcompile.compiler.cli.main import execute
from xcompile.runtime.errors import RuntimeModelError

MICROSOFT = {"com.microsoft": 1}
NODE = helper.make_node
WEIGHT = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32) / 10


def unknown(source: str, result: str, name: str = "") -> onnx.NodeProto:
    """CDist, an op that only onnxruntime has: all squared distances between the rows of a matrix and themselves."""
    return NODE(
        "CDist", [source, source], [result], name, domain="com.microsoft", metric="sqeuclidean"
    )


def chain() -> onnx.ModelProto:
    """Supported, not, supported, not, supported; with a dynamic batch."""
    nodes = [
        NODE("MatMul", ["x", "w"], ["a"], "first"),
        unknown("a", "b", "apart"),
        NODE("Relu", ["b"], ["c"], "middle"),
        NODE("Add", ["c", "one"], ["d"], "plus"),
        unknown("d", "e", "again"),
        NODE("Softmax", ["e"], ["y"], "last"),
    ]
    constants = {"w": WEIGHT, "one": np.ones(1, np.float32)}
    return model(nodes, {"x": ["N", 8]}, ["y", "c"], constants, domains=MICROSOFT)


def expected(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    def apart(a: np.ndarray) -> np.ndarray:
        return ((a[:, None] - a[None]) ** 2).sum(-1)

    c = np.maximum(apart(x @ WEIGHT), 0)
    e = np.exp(apart(c + 1))
    return e / e.sum(-1, keepdims=True), c


def rows(count: int) -> np.ndarray:
    return np.random.default_rng(count).standard_normal((count, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def mixed():
    pytest.importorskip("onnxruntime")
    return xcompile.compile(chain(), fallback="onnxruntime")


@pytest.mark.parametrize("count", [1, 3, 10])
def test_one_model_with_two_regions_takes_every_batch_size(mixed, count: int) -> None:
    y, c = mixed(rows(count))
    for got, wanted in zip((y, c), expected(rows(count)), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def test_results_are_the_callers_own_arrays() -> None:
    """Outputs that nothing computes too: what a caller does to them changes neither the model nor the input."""
    pytest.importorskip("onnxruntime")
    made = xcompile.compile(
        model(
            [unknown("x", "y")],
            {"x": ["N", 8]},
            ["y", "one", "x"],
            {"one": np.ones(3, np.float32)},
            domains=MICROSOFT,
        ),
        fallback="onnxruntime",
    )
    x = rows(2)
    kept = x.copy()
    for array in made.run([x]).values():
        array += 1
    np.testing.assert_array_equal(x, kept)
    np.testing.assert_array_equal(made.run([x])["one"], np.ones(3))


def test_the_report_names_the_nodes_of_each_part(mixed) -> None:
    assert mixed.left == ("apart", "again")
    assert mixed.report().splitlines() == [
        "compiled: first", "onnxruntime: apart", "compiled: middle, plus", "onnxruntime: again", "compiled: last",
    ]  # fmt: skip
    assert "onnxruntime runs apart, again" in repr(mixed)


def test_the_signature_is_that_of_the_whole_model(mixed) -> None:
    assert [f"{spec.name} {spec}" for spec in mixed.inputs] == ["x float32[N, 8]"]
    assert [spec.name for spec in mixed.outputs] == ["y", "c"]
    assert all(spec.rank == 2 for spec in mixed.outputs)


def test_outputs_are_written_into_the_arrays_of_the_caller(mixed) -> None:
    y = np.empty((3, 3), np.float32)
    results = mixed.run({"x": rows(3)}, {"y": y})
    assert results["y"] is y
    np.testing.assert_allclose(y, expected(rows(3))[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (lambda a, b, both: {"y1": b}, "output 'y1' overlaps input 'b'"),
        (lambda a, b, both: {"y2": a}, "output 'y2' overlaps input 'a'"),
        (lambda a, b, both: {"y1": both[0], "y2": both[0]}, "output 'y2' overlaps output 'y1'"),
    ],
)
def test_outputs_overlap_no_tensor_of_another_part(parted, given, reason: str) -> None:
    a, b, both = rows(8), rows(8) + 1, np.empty((2, 8, 8), np.float32)
    with pytest.raises(RuntimeModelError, match=f"XC5005 {reason} in memory"):
        parted.run({"a": a, "b": b}, given(a, b, both))
    assert (a == rows(8)).all()
    assert (b == rows(8) + 1).all()


def test_outputs_side_by_side_are_written(parted) -> None:
    a, b, both = rows(8), rows(8) + 1, np.empty((2, 8, 8), np.float32)
    y1, y2 = parted(a, b)
    parted.run({"a": a, "b": b}, {"y1": both[0], "y2": both[1]})
    assert (both == (y1, y2)).all()


@pytest.fixture(scope="module")
def parted():
    """y1 is written by the first part of three, b is read by the last one."""
    pytest.importorskip("onnxruntime")
    nodes = [
        NODE("Softmax", ["a"], ["y1"], "first"),
        unknown("y1", "u", "apart"),
        NODE("Add", ["b", "u"], ["y2"], "last"),
    ]
    made = model(nodes, {"a": [8, 8], "b": [8, 8]}, ["y1", "y2"], domains=MICROSOFT)
    return xcompile.compile(made, fallback="onnxruntime")


def test_eight_threads_may_call_it(mixed) -> None:
    wrong: list[int] = []

    def call(count: int) -> None:
        y, _ = mixed(rows(count))
        if not np.allclose(y, expected(rows(count))[0], rtol=1e-4, atol=1e-4):
            wrong.append(count)

    threads = [threading.Thread(target=call, args=(i + 1,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_library_of_it_is_refused(mixed, tmp_path) -> None:
    with pytest.raises(xcompile.CompileError, match=r"XC7007 .*\(apart, again\)"):
        mixed.save(tmp_path / "m.so")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        ({}, "XC5001 the input 'x' is missing"),
        ({"z": rows(1)}, "XC5001 the model has no input 'z'"),
        ({"x": rows(1).astype(np.int64)}, "XC5002"),
        ({"x": rows(1)[:, :7]}, "XC5003"),
        ([rows(1), rows(1)], "XC5001 2 inputs for a model of 1"),
    ],
)
def test_wrong_inputs_are_refused(mixed, inputs, reason: str) -> None:
    with pytest.raises(RuntimeModelError, match=reason):
        mixed.run(inputs)


def test_what_onnxruntime_says_names_the_nodes() -> None:
    pytest.importorskip("onnxruntime")
    node = NODE("CDist", ["x", "z"], ["y"], "apart", domain="com.microsoft", metric="sqeuclidean")
    made = model([node], {"x": ["N", "K"], "z": ["M", "L"]}, ["y"], domains=MICROSOFT)
    mixed = xcompile.compile(made, fallback="onnxruntime")
    with pytest.raises(RuntimeModelError, match="XC5006 onnxruntime failed at node 'apart'"):
        mixed.run({"x": np.ones((2, 3), np.float32), "z": np.ones((2, 4), np.float32)})


def test_an_op_that_onnxruntime_lacks_too_is_named() -> None:
    pytest.importorskip("onnxruntime")
    made = model([NODE("Mystery", ["x"], ["y"], "odd")], {"x": [2]}, ["y"])
    with pytest.raises(xcompile.CompileError, match=r"XC1006 node 'odd': .*Mystery"):
        xcompile.compile(made, fallback="onnxruntime")


def test_a_supported_model_is_compiled_as_without() -> None:
    made = model([NODE("Neg", ["x"], ["y"], "neg")], {"x": ["N"]}, ["y"])
    compiled = xcompile.compile(made, fallback="onnxruntime")
    assert type(compiled) is xcompile.CompiledModel
    assert compiled.report().startswith("neg: ")


def test_without_the_option_all_unsupported_ops_are_listed() -> None:
    with pytest.raises(
        xcompile.CompileError, match=r"1 op is not supported: CDist .*'apart', 'again'"
    ):
        xcompile.compile(chain())


def test_other_fallbacks_are_refused() -> None:
    with pytest.raises(xcompile.CompileError, match="XC6005 the fallback is 'tvm'"):
        xcompile.compile(chain(), fallback="tvm")


def test_without_onnxruntime_the_error_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(xcompile.CompileError, match="pip install onnxruntime"):
        xcompile.compile(chain(), fallback="onnxruntime")


def test_the_command_line_runs_it_and_says_so(tmp_path, capsys, monkeypatch) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    onnx.save(chain(), "m.onnx")
    words = ["m.onnx", "--fallback=onnxruntime"]
    assert execute(["run", *words, "--input", "x=random:3x8"]) == 0
    shown = capsys.readouterr()
    assert "onnxruntime: apart\n" in shown.err
    assert "y: float32[3, 3]" in shown.out
    assert execute(["compile", *words]) == 1
    assert "error: XC7007" in capsys.readouterr().err
    assert not (tmp_path / "m.so").exists()


def test_external_data_of_a_part_is_read_or_missed_with_a_code(tmp_path) -> None:
    pytest.importorskip("onnxruntime")
    options = {"save_as_external_data": True, "location": "w.bin", "size_threshold": 0}
    onnx.save(chain(), tmp_path / "m.onnx", **options)
    mixed = xcompile.compile(tmp_path / "m.onnx", fallback="onnxruntime")
    np.testing.assert_allclose(mixed(rows(2))[1], expected(rows(2))[1], rtol=1e-4, atol=1e-4)
    (tmp_path / "w.bin").unlink()
    with pytest.raises(xcompile.CompileError, match="XC1004"):
        xcompile.compile(tmp_path / "m.onnx", fallback="onnxruntime")


def test_graphs_inside_nodes_and_functions_go_where_their_ops_are_known() -> None:
    pytest.importorskip("onnxruntime")
    function = helper.make_function(
        "local", "Apart", ["a"], ["b"], [unknown("a", "b")],
        [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)],
    )  # fmt: skip
    nodes = [NODE("Neg", ["x"], ["n"]), NODE("Apart", ["n"], ["y"], "call", domain="local")]
    made = model(
        nodes, {"x": ["N", 8]}, ["y"], functions=[function], domains={"local": 1, **MICROSOFT}
    )
    mixed = xcompile.compile(made, fallback="onnxruntime")
    assert mixed.left == ("call",)
    assert mixed(rows(4)).shape == (4, 4)


# -- tools -----------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path, mixed):
    path = tmp_path / "chain.onnx"
    onnx.save(chain(), path)
    return str(path)


INPUT = ("--input", "x=random:3x8", "--fallback=onnxruntime")


def test_the_profile_has_a_row_for_each_part_that_onnxruntime_runs(mixed) -> None:
    found = xcompile.profile(chain(), [rows(3)], repeats=2, fallback="onnxruntime")
    assert [row.node for row in found.rows if row.family == "onnxruntime"] == ["apart", "again"]
    compiled = [row.node for row in found.rows if row.family != "onnxruntime"]
    assert compiled[0] == "first"
    assert compiled[-1] == "last"
    assert all(row.seconds > 0 for row in found.rows)
    starts = [span.start for span in found.spans]
    assert starts == sorted(starts)


def test_diff_compares_the_compiled_parts_on_what_is_before_them(mixed) -> None:
    report = xcompile.diff(chain(), [rows(3)], against="onnxruntime", fallback="onnxruntime")
    assert report.good
    named = {row.tensor for row in report.rows}
    assert {"a", "c", "d", "y"} <= named
    assert not {"b", "e"} & named


def test_diff_names_what_is_wrong_in_a_compiled_part(mixed, monkeypatch) -> None:
    run = xcompile.Executable.run
    spoilt = lambda *given: {name: y + 1 for name, y in run(*given).items()}  # noqa: E731
    monkeypatch.setattr(xcompile.Executable, "run", spoilt)
    report = xcompile.diff(chain(), [rows(3)], fallback="onnxruntime")
    assert {culprit.kind for culprit in report.culprits} == {"program"}
    assert len(report.culprits) >= 3


def test_without_a_fallback_the_tools_refuse_such_a_model(mixed) -> None:
    for tool in (xcompile.diff, xcompile.profile):
        with pytest.raises(xcompile.CompileError, match=r"XC1006.*CDist"):
            tool(chain(), [rows(3)])


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("bench", "--seconds=0", "--report"), "onnxruntime: apart"),
        (("profile", "--repeats=1"), "onnxruntime: again"),
        (("diff",), "0 differ"),
    ],
)
def test_commands_take_a_fallback(saved, capsys, command, says) -> None:
    name, *more = command
    assert execute([name, saved, *INPUT, *more]) == 0
    assert says in capsys.readouterr().out


def test_diff_gives_indices_that_a_model_takes() -> None:
    """Integers of 0 and 1: others are no rows of this table."""
    pytest.importorskip("onnxruntime")
    nodes = [NODE("Gather", ["table", "places"], ["rows"], "look up"), unknown("rows", "y")]
    constants = {"table": np.eye(2, 8, dtype=np.float32)}
    integers = {"places": onnx.TensorProto.INT64}
    made = model(nodes, {"places": [200]}, ["y"], constants, domains=MICROSOFT, dtypes=integers)
    assert xcompile.diff(made, fallback="onnxruntime").good
