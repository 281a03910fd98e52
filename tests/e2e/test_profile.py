"""What profiles say: operations and bytes, against a count made from the ONNX model alone; times, calls and traces."""

import json
import math
import re
import struct

import numpy as np
import onnx
import pytest

import xcompile
from tests.e2e.networks import Network, residual_network, save
from tests.unit.frontends import control_models as control
from tests.unit.frontends.onnx_models import model as control_model
from xcompile.compiler.cli.main import execute
from xcompile.compiler.codegen.link import link_library
from xcompile.compiler.driver import worker_pool
from xcompile.compiler.peak import Peak
from xcompile.compiler.profile import _Run, measure, profile_library
from xcompile.compiler.profile_report import Profile, Row, Span
from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.support.options import Options
from xcompile.runtime import native_library
from xcompile.runtime.elf_image import read_elf, section_bytes
from xcompile.runtime.errors import RuntimeModelError
from xcompile.runtime.profile import EVENT, record


@pytest.fixture(scope="module")
def pool():
    with worker_pool(Options()) as started:
        yield started


def operations(model):
    """Floating-point operations by op, from ONNX's own shape inference; a multiply-add is two."""
    inferred = onnx.shape_inference.infer_shapes(model).graph
    shapes = {i.name: list(i.dims) for i in inferred.initializer}
    for info in (*inferred.input, *inferred.value_info, *inferred.output):
        shapes[info.name] = [d.dim_value for d in info.type.tensor_type.shape.dim]
    found: dict[str, int] = {}
    for node in inferred.node:
        x, y = math.prod(shapes[node.input[0]]), math.prod(shapes[node.output[0]])
        count = {
            "Conv": lambda y=y, node=node: 2 * y * math.prod(shapes[node.input[1]][1:]),
            "Gemm": lambda y=y, node=node: 2 * y * shapes[node.input[0]][1],
            "MatMul": lambda y=y, node=node: 2 * y * shapes[node.input[0]][-1],
            "Relu": lambda y=y: y,
            "Add": lambda y=y: y,
            "MaxPool": lambda y=y: 4 * y,
            "GlobalAveragePool": lambda x=x: x,
            "Softmax": lambda y=y: 4 * y,
        }.get(node.op_type, lambda: 0)()
        found[node.op_type] = found.get(node.op_type, 0) + count
    return found


@pytest.mark.parametrize("batch", [1, 3])
def test_operations_of_all_launches_are_those_of_the_model(pool, batch):
    compiled = xcompile.compile(residual_network(), pool=pool)
    x = np.zeros((batch, 3, 16, 16), np.float32)
    rows = measure(compiled.artifact, [x], repeats=1).rows
    counted = operations(residual_network(batch=batch))
    assert min(counted[op] for op in ("Conv", "Gemm", "Relu", "Add", "MaxPool", "Softmax")) > 0
    assert sum(row.flops for row in rows) == sum(counted.values()) + batch * 10  # the bias of Gemm


def test_bytes_of_a_launch_are_those_of_its_operands_and_results(pool):
    n = Network()
    y = n("MatMul", "x", n.weight(64, 48))
    z = n("Transpose", n("Add", y, n.weight(48)), perm=[1, 0])
    model = n.model({"x": ("FLOAT", [32, 64])}, {z: ("FLOAT", [48, 32])})
    rows = measure(
        xcompile.compile(model, pool=pool).artifact, [np.zeros((32, 64), np.float32)], repeats=1
    ).rows
    product, moved = rows[0], rows[-1]
    assert product.flops == 2 * 32 * 64 * 48 + 32 * 48
    assert product.bytes == 4 * (32 * 64 + 64 * 48 + 48 + 32 * 48)
    assert (moved.flops, moved.bytes) == (0, 4 * 2 * 32 * 48)


# -- times and traces -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compiled(pool):
    return xcompile.compile(residual_network(), pool=pool)


IMAGES = np.zeros((3, 3, 16, 16), np.float32)


@pytest.mark.parametrize("threads", [1, 2])
def test_each_launch_is_called_once_and_its_parts_lie_in_the_run(compiled, threads):
    found = measure(compiled.artifact, [IMAGES], threads=threads, repeats=3)
    steps = compiled.artifact.program.launches
    assert [row.node for row in found.rows] == [step.node for step in steps]
    assert {row.calls for row in found.rows} == {1}
    assert all(row.seconds > 0 for row in found.rows)
    assert {span.row for span in found.spans} == set(range(len(steps)))
    assert all(0 <= span.start <= span.stop for span in found.spans)
    assert len({span.thread for span in found.spans}) <= threads
    parts = [[s.part for s in found.spans if s.row == row] for row in range(len(steps))]
    assert max(map(len, parts)) <= threads
    assert all(sorted(each) == list(range(len(each))) for each in parts)


def test_the_trace_has_a_complete_event_for_each_part_and_names_the_threads(compiled, tmp_path):
    found = measure(compiled.artifact, {"x": IMAGES}, threads=2, repeats=1)
    found.save_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    complete = [e for e in events if e["ph"] == "X"]
    assert len(complete) == len(found.spans)
    assert {e["name"] for e in complete} == {row.node for row in found.rows}
    assert all(e["dur"] >= 0 and e["pid"] == 1 and isinstance(e["ts"], float) for e in complete)
    named = {e["tid"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    assert named == {e["tid"] for e in complete}


def test_a_profile_runs_the_code_that_ships_and_a_model_without_one_has_none_of_it(
    compiled, pool, tmp_path
):
    before = dict(compiled.artifact.objects)
    measure(compiled.artifact, [IMAGES], repeats=1)
    assert compiled.artifact.objects == before
    assert xcompile.compile(residual_network(), pool=pool).artifact.objects == before
    entry = before["model_entry"]
    assert b"xc_parallel_for\0" in entry
    compiled.save(tmp_path / "model.so")
    shipped = [(tmp_path / "model.so").read_bytes(), *before.values()]
    assert not any(b"profile" in code for code in shipped)
    runtime = native_library.runtime_object(native_library.host_architecture()).read_bytes()
    assert b"profile" not in runtime


@pytest.fixture(scope="module")
def saved(compiled, tmp_path_factory):
    path = tmp_path_factory.mktemp("profile") / "model.so"
    compiled.save(path)
    return path


@pytest.mark.parametrize("threads", [1, 2])
def test_a_saved_library_says_what_a_model_in_memory_says(compiled, saved, threads):
    found = profile_library(saved, [IMAGES], threads=threads, repeats=2)
    wanted = measure(compiled.artifact, [IMAGES], threads=threads, repeats=1)
    assert len(found.rows) > 4
    assert all(row.seconds > 0 for row in found.rows)
    assert [(r.node, r.family, r.symbol, r.calls, r.flops, r.bytes) for r in found.rows] == [
        (r.node, r.family, r.symbol, r.calls, r.flops, r.bytes) for r in wanted.rows
    ]
    assert {span.row for span in found.spans} == set(range(len(found.rows)))


def test_the_launches_of_a_loop_in_a_library_are_counted(pool, tmp_path):
    body = control.graph(
        [control.node("Mul", ["a", "a"], ["a2"], name="square")], ["i", "go", "a"], ["go", "a2"]
    )
    model = control_model(
        [control.loop(body, ["y"], trip="n", cond="")],
        {"n": [], "x": [4]},
        ["y"],
        dtypes={"n": control.INT64},
    )
    xcompile.compile(model, pool=pool).save(tmp_path / "loop.so")
    x = np.ones(4, np.float32)
    found = profile_library(tmp_path / "loop.so", [np.array(5), x], repeats=1)
    (row,) = [row for row in found.rows if "square" in row.node]
    assert row.calls == 5


def test_what_a_library_says_of_its_launches_is_not_in_memory(saved):
    data = memoryview(saved.read_bytes())
    loaded = 0x2
    (section,) = [s for s in section_flags(data) if s[0] == ".xcompile_launches"]
    assert not section[1] & loaded
    assert b"Conv_0 + Relu_1" in bytes(section_bytes(data, read_elf(data).sections[section[0]]))


def section_flags(data):
    """Name and flags of the sections, by the System V ABI."""
    at, size, count, names = (
        struct.unpack_from("<Q", data, 40)[0], *struct.unpack_from("<HHH", data, 58)
    )  # fmt: skip
    rows = [struct.unpack_from("<IIQQQ", data, at + size * i) for i in range(count)]
    texts = bytes(data[rows[names][4] :])
    return [(texts[row[0] :].partition(b"\0")[0].decode(), row[2]) for row in rows]


def test_a_library_that_does_not_say_what_its_launches_are_is_one_error(compiled, tmp_path):
    artifact = compiled.artifact
    objects = list(artifact.objects.values())
    host = native_library.host_architecture()
    path = tmp_path / "m.so"
    link_library(path, objects, artifact.manifest, artifact.weights, architecture=host)
    with pytest.raises(CompileError, match="XC7002 the library does not say what its launches are"):
        profile_library(path, [IMAGES])


def test_models_that_are_not_profiled_are_not_recorded(compiled):
    compiled.run([IMAGES])
    assert len(record(lambda: compiled.run([IMAGES]))) == 0


def test_too_many_events_are_one_error(compiled):
    entry, _ = compiled.artifact.link(native_library.symbols())
    artifact = compiled.artifact
    model = xcompile.Executable(entry, artifact.manifest, artifact.weights, observed=True)
    with pytest.raises(RuntimeModelError, match=r"XC5006 a run has \d+ events; 3 can be recorded"):
        record(lambda: model.run([IMAGES]), capacity=3)
    assert len(record(lambda: model.run([IMAGES]))) > 3


def test_launches_of_a_loop_are_those_of_its_steps():
    events = np.zeros(6, EVENT)
    events["part"], events["launch"] = -1, range(6)
    events["task"] = [1, 2, 3, 2, 3, 2]  # a, then twice: b c, then the last b
    run = _Run(events, {1: "a", 2: "b", 3: "c"}, ["a", "b", "c", "b"])
    assert run.launches == [[0], [1], [2, 4], [3, 5]]


def test_the_table_has_shares_of_time_and_of_both_peaks():
    rows = (
        Row("Conv_1", "conv", "xk_conv", 3e-3, 1, 3 * 10**8, 10**6),
        Row("Shape\x1b[31m", "fallback", "xk_fallback", 1e-3, 2, 0, 10**6),
    )
    lines = Profile(rows, (), 1).table(Peak(flops=2e11, bandwidth=1e10)).splitlines()
    assert re.fullmatch(
        r" +3\.0000  75\.0% +1 +300\.000 +1\.000 +300\.0 +100\.0 +50\.0% +0\.3 +3\.3%  conv: Conv_1",
        lines[1],
    )
    assert re.fullmatch(
        r" +1\.0000  25\.0% +2 .* 2\.0 +20\.0%  fallback: Shape\\x1b\[31m", lines[2]
    )
    assert "25.0% of it in fallback kernels" in lines[3]


def test_a_span_is_drawn_in_microseconds_at_its_thread():
    rows = (Row("Conv_1", "conv", "xk_conv", 1e-3, 1, 8, 4),)
    event = Profile(rows, (Span(0, 2, 7, 1500, 4000),), 1).to_trace()["traceEvents"][-1]
    assert (event["ts"], event["dur"], event["tid"]) == (1.5, 2.5, 7)
    assert event["args"] == {"kernel": "xk_conv", "part": 2, "flops": 8, "bytes": 4}


def test_the_command_prints_the_nodes_and_writes_the_trace(tmp_path, capsys):
    path = save(residual_network(), tmp_path / "m.onnx")
    trace = tmp_path / "trace.json"
    assert execute(["profile", str(path), "--threads=1", f"--trace={trace}", "--repeats=2"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"% +conv: Conv_0 \+ Relu_1$", text, flags=re.MULTILINE)
    assert "measured peaks on 1 threads: " in text
    assert json.loads(trace.read_text())["traceEvents"]


def test_the_command_takes_a_library(saved, capsys):
    assert execute(["profile", str(saved), "--threads=1", "--repeats=2"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"% +conv: Conv_0 \+ Relu_1$", text, flags=re.MULTILINE)
