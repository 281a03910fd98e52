"""`diff` names what is wrong with a model, and nothing in one that is right."""

import html.parser
import json
import re
import shutil
import subprocess

import numpy as np
import pytest

import xcompile
from tests.e2e.mutations import MUTATIONS, dense, image, inputs_of, pulled, tokens
from tests.e2e.networks import Network, save
from tests.unit.frontends import control_models as control
from tests.unit.frontends.onnx_models import model as control_model
from xcompile.compiler.cli.main import execute
from xcompile.compiler.diff.report import Culprit, Report, Row
from xcompile.compiler.driver import worker_pool
from xcompile.compiler.numerics.compare import metrics
from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.support.options import Options

QUICK = (
    "front end: swapped operands of Sub",
    "pass: dropped bias of a convolution",
)
"""Those that every run of the tests plants, besides one in a kernel of its own; all of them run with `-m full`."""


@pytest.fixture(scope="module")
def pool():
    with worker_pool(Options({"jobs": 2})) as started:
        yield started


def check(name, tmp_path, monkeypatch):
    mutation = MUTATIONS[name]
    model = mutation.model()
    arguments = mutation.plant(monkeypatch, tmp_path)
    report = xcompile.diff(model, inputs_of(model), **arguments)
    assert not report.good
    first = report.culprits[0]
    assert first.kind == mutation.kind, report.culprits
    assert mutation.node in first.nodes.split(" + "), report.culprits
    assert {culprit.kind for culprit in report.culprits} == {mutation.kind}
    assert report.sorted_rows()[0].verdict != "equal"


@pytest.mark.parametrize("name", QUICK)
def test_a_planted_fault_is_named(name, tmp_path, monkeypatch):
    check(name, tmp_path, monkeypatch)


@pytest.mark.full
@pytest.mark.parametrize("name", [name for name in MUTATIONS if name not in QUICK])
def test_every_planted_fault_is_named(name, tmp_path, monkeypatch):
    check(name, tmp_path, monkeypatch)


def test_there_are_twenty_faults():
    assert len(MUTATIONS) == 20


@pytest.mark.parametrize("make", [image, tokens])
def test_a_right_model_has_nothing_wrong(make, pool):
    model = make()
    report = xcompile.diff(model, inputs_of(model), against="onnxruntime", pool=pool)
    assert report.culprits == ()
    assert {row.verdict for row in report.rows} == {"equal"}
    named = {row.tensor for row in report.rows}
    assert named <= {name for node in model.graph.node for name in node.output}
    assert model.graph.output[0].name in named


@pytest.mark.full
@pytest.mark.parametrize("name", ["squeezenet", "minilm"])
def test_a_real_model_has_nothing_wrong(name, pool):
    from bench import corpus

    assert xcompile.diff(corpus.model(name), against="onnxruntime", pool=pool).culprits == ()


def test_a_fault_inside_a_fused_kernel_names_the_op(tmp_path, monkeypatch):
    arguments = MUTATIONS["kernel: relu does nothing"].plant(monkeypatch, tmp_path)
    (culprit,) = xcompile.diff(dense(), **arguments).culprits
    assert (culprit.kind, culprit.name, culprit.nodes) == ("kernel", "contraction", "Relu_1")
    assert culprit.text.startswith("nn.relu, alone too, differs by ")


def test_a_wrong_program_around_right_kernels_is_named(monkeypatch, pool):
    run = xcompile.Executable.run
    spoilt = lambda *given: {name: y + 1 for name, y in run(*given).items()}  # noqa: E731
    monkeypatch.setattr(xcompile.Executable, "run", spoilt)
    (culprit,) = xcompile.diff(tokens(), pool=pool).culprits
    assert culprit.kind == "program"
    assert culprit.text.endswith("when the kernels run one by one")


@pytest.mark.parametrize(
    ("inputs", "code"),
    [({"y": np.zeros(3)}, "XC5001"), ({"x": np.zeros((1, 2, 3), np.float32)}, "XC5003")],
)
def test_inputs_that_do_not_fit_are_one_error(inputs, code, pool):
    with pytest.raises(CompileError, match=code):
        xcompile.diff(tokens(), inputs, pool=pool)


def test_other_random_numbers_are_no_fault(pool):
    n = Network()
    y = n("Tanh", n("Add", n("RandomNormalLike", "x", seed=1.0), "x"))
    model = n.model({"x": ("FLOAT", [4, 5])}, {y: ("FLOAT", [4, 5])})
    report = xcompile.diff(model, against="onnxruntime", pool=pool)
    assert report.culprits == ()
    assert report.rows[-1].verdict == "carries"


def branching():
    """A branch and a loop, each with a kernel of its own inside."""
    then = control.graph([control.node("Exp", ["x"], ["grown"], name="grow")], [], ["grown"])
    other = control.graph([control.node("Neg", ["x"], ["turned"], name="turn")], [], ["turned"])
    body = control.graph(
        [control.node("Tanh", ["a"], ["squashed"], name="squash")],
        ["i", "go", "a"],
        ["go", "squashed"],
    )
    nodes = [
        control.node("If", ["c"], ["b"], then_branch=then, else_branch=other, name="branch"),
        control.loop(body, ["y"], trip="n", cond="", initial=["b"]),
    ]
    inputs = {"c": [], "n": [], "x": ["N"]}
    return control_model(nodes, inputs, ["y"], dtypes={"c": control.BOOL, "n": control.INT64})


X = np.linspace(-1, 1, 5, dtype=np.float32)


@pytest.mark.parametrize(
    ("cond", "taken", "left"), [(True, "grown", "turned"), (False, "turned", "grown")]
)
def test_values_of_the_branch_that_is_taken_and_of_iterations_are_compared(pool, cond, taken, left):
    inputs = {"c": np.array(cond), "n": np.array(3), "x": X}
    report = xcompile.diff(branching(), inputs, pool=pool)
    assert report.good
    rows = {row.tensor: row for row in report.rows}
    assert {taken, "squashed"} <= rows.keys()
    assert left not in rows
    assert rows["squashed"].nodes == "squash"
    assert rows["squashed"].shape == (5,)
    assert {row.verdict for row in report.rows} == {"equal"}


@pytest.mark.parametrize("op", ["exp", "tanh"])
def test_a_wrong_kernel_in_a_branch_or_a_loop_is_named(op, tmp_path, monkeypatch):
    key = f'pull.PULLS["nn.{op}"]'
    wrong = pulled(
        f"nn.{op}",
        f"_right = {key}\n{key} = lambda p, op, at: p.b.binary(\n"
        '    "arith.mulf", _right(p, op, at), p.b.float_constant(1.001, "f32", p.lanes), p.lanes)\n',
    )
    inputs = {"c": np.array(True), "n": np.array(3), "x": X}
    report = xcompile.diff(branching(), inputs, **wrong(monkeypatch, tmp_path))
    node = {"exp": "grow", "tanh": "squash"}[op]
    assert [(culprit.kind, culprit.nodes) for culprit in report.culprits] == [("kernel", node)]
    first = report.sorted_rows()[0]
    assert (first.verdict, first.nodes) == ("differs", node)


def test_the_first_wrong_iteration_of_a_loop_is_named(tmp_path, monkeypatch):
    """The kernel is wrong where the tangent is above 0.9: of five iterations that is the third one, and the fourth."""
    body = control.graph(
        [control.node("Gather", ["x", "i"], ["part"]), control.node("Tanh", ["part"], ["squashed"], name="squash")],
        ["i", "go"], ["go", "squashed"],
    )  # fmt: skip
    nodes = [control.loop(body, ["y"], trip="n", cond="", initial=[])]
    made = control_model(nodes, {"n": [], "x": [5, 1]}, ["y"], dtypes={"n": control.INT64})
    key = 'pull.PULLS["nn.tanh"]'
    clamped = pulled(
        "nn.tanh",
        f"_right = {key}\n{key} = lambda p, op, at: p.b.binary(\n"
        '    "arith.minimumf", _right(p, op, at), p.b.float_constant(0.9, "f32", p.lanes), p.lanes)\n',
    )
    inputs = {"n": np.array(5), "x": np.array([[0], [1], [3], [2], [0]], np.float32)}
    report = xcompile.diff(made, inputs, **clamped(monkeypatch, tmp_path))
    (culprit,) = report.culprits
    assert culprit.nodes.split(" + ")[-1] == "squash"
    assert culprit.text.endswith(", in run 3 of 5")
    first = report.sorted_rows()[0]
    assert first.verdict == "differs"
    assert first.own.endswith(", in run 3 of 5")
    assert first.metrics.max_abs == pytest.approx(np.tanh(3) - 0.9, rel=1e-4)


def test_an_unknown_oracle_is_one_error(pool):
    with pytest.raises(CompileError, match="XC6006 nothing is called 'tvm'"):
        xcompile.diff(tokens(), against="tvm", pool=pool)


# -- the command ------------------------------------------------------------------------------------


def test_the_command_prints_a_table_and_writes_a_page(tmp_path, capsys):
    path = save(tokens(), tmp_path / "tokens.onnx")
    page = tmp_path / "diff.html"
    assert execute(["diff", str(path), "--all", "--html", str(page)]) == 0
    text = capsys.readouterr().out
    assert re.search(r"^equal +v0_0 +LayerNormalization_0 +rows ", text, flags=re.MULTILINE)
    assert "against reference: " in text.splitlines()[-1]
    assert "xcompile diff" in page.read_text()


def test_the_command_fails_when_something_is_wrong(tmp_path, capsys, monkeypatch):
    mutation = MUTATIONS["pass: epsilon of a layer norm"]
    mutation.plant(monkeypatch, tmp_path)
    path = save(tokens(), tmp_path / "tokens.onnx")
    assert execute(["diff", str(path), "--passes", "+after(nn-fuse-layer-norm):wrong"]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("wrong: pass wrong at 'LayerNormalization_0': a value differs by ")
    assert last.endswith("rewrites: WrongEpsilon (1×)")


# -- the page ---------------------------------------------------------------------------------------

HOSTILE = (
    "</script><script>document.body.dataset.owned = '1'</script>",
    "<img src=x onerror=\"document.body.dataset.owned = '1'\">",
    "\"'`&<!-- line\nbreak \u2028 \x00 \x1b[31m",
    "x" * 10_000,
)


def hostile_report():
    array = np.zeros(2, np.float32)
    rows = tuple(
        Row(name, name, "map", "float32", (2,), metrics(array + 1, array), name, "differs")
        for name in HOSTILE
    )
    culprits = tuple(Culprit("kernel", name, "map", name) for name in HOSTILE)
    return Report(HOSTILE[0], "reference", "cpu", culprits, rows)


class Tags(html.parser.HTMLParser):
    """The tags and addresses of a page."""

    def __init__(self):
        super().__init__()
        self.tags, self.addresses = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href")]


def test_names_of_the_model_are_data_in_the_page():
    text = hostile_report().to_html()
    seen = Tags()
    seen.feed(text)
    expected = ["html", "head", "meta", "meta", "title", "style", "body", "script", "script"]
    assert seen.tags == expected
    assert seen.addresses == []
    data = json.loads(re.search(r'<script id="report"[^>]*>(.*?)</script>', text)[1])
    assert [row[1] for row in data["rows"]] == list(HOSTILE)


BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium")
def test_a_browser_shows_the_page_and_runs_nothing_of_the_model(tmp_path):
    page = tmp_path / "diff.html"
    page.write_text(hostile_report().to_html(), encoding="utf-8")
    words = "--headless --no-sandbox --disable-gpu --disable-background-networking --disable-component-update"
    done = subprocess.run(
        [BROWSER, *words.split(), "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}",
         "--dump-dom", page.as_uri()],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert 'data-rows="4"' in done.stdout
    assert "data-owned" not in done.stdout
    shown = html.parser.unescape(done.stdout)
    assert "document.body.dataset.owned = '1'</script></td>" in shown
    assert "x" * 200 + "…" in shown
