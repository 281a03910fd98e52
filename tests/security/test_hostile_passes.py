"""Whatever a pass of a user's file does, it ends in one error line that names it, and this process lives."""

import importlib
import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import xcompile
from xcompile.compiler import isolation
from xcompile.compiler.cli.main import execute
from xcompile.compiler.driver import Request, plan_module
from xcompile.compiler.ir.passes import PASS_REGISTRY
from xcompile.compiler.support import fingerprint
from xcompile.compiler.support.options import Options
from xcompile.compiler.support.plugins import load_plugin
from xcompile.compiler.target.registry import parse_target
from xcompile.frontends.onnx.importer import import_onnx

FILE = Path(__file__).with_name("hostile_passes.py")
DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"

ENDINGS = {
    "raise": "ZeroDivisionError: no such\\nthing",
    "exit": "failed: SystemExit: goodbye",
    "exit-at-once": "ended its process (exit status 7)",
    "loop": "took longer than 12 s",
    "segfault": "ended its process (SIGSEGV)",
    "abort": "ended its process (SIGABRT)",
    "memory": "MemoryError",
    "recurse": "RecursionError",
    "print": "that was a lot",
    "no-module": "AttributeError",
    "no-main": "the pass has changed the model's inputs or outputs",
}
WHO = {
    "pass": "the pass ",
    "pattern": "the pattern Misbehave ",
    "verifier": "the verifier of hostile.moody ",
}


def failure(edits: str, file: Path = FILE, *, how: str = "") -> xcompile.CompileError:
    options = Options({"worker-timeout": 12 if how == "loop" else 60})
    request = Request(parse_target("cpu")[0], passes=edits, load=(str(file),), options=options)
    with pytest.raises(xcompile.CompileError) as caught:
        isolation.plan_isolated(DIGITS, request, memory_bytes=3 << 30)
    assert "\n" not in str(caught.value)
    return caught.value


CASES = [
    *(("pass", how) for how in ENDINGS),
    *((w, how) for w in ("pattern", "verifier") for how in ("exit", "loop", "segfault", "memory")),
]


@pytest.mark.parametrize(("where", "how"), CASES)
def test_a_hostile_pass_pattern_or_verifier_is_one_error(where: str, how: str) -> None:
    edits = f"+after(nn-canonicalize):hostile-{where}{{how={how}}}"
    error = failure(edits, how=how)
    assert ENDINGS[how] in str(error)
    assert WHO[where] in error.message
    assert error.pass_name == f"hostile-{where}"
    if where != "pass":
        assert error.node == "conv2"


@pytest.mark.parametrize("how", ["segfault", "loop"])
def test_a_file_that_does_not_even_load_is_one_error(tmp_path: Path, how: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        f"import ctypes\n{'ctypes.string_at(1)' if how == 'segfault' else 'while True: pass'}\n"
    )
    error = failure("", file, how=how)
    assert error.code == "XC3011"
    assert f"loading mine.py {ENDINGS[how]}" in error.message


def test_a_pass_that_behaves_gives_the_same_model_as_in_this_process(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    edits = "+after(nn-canonicalize):hostile-pass"
    models = [
        xcompile.compile(
            DIGITS,
            load=[FILE],
            passes=edits,
            explain=["nn-conv-bias"],
            options={"isolate": isolate, "cache": tmp_path / str(isolate)},
        )
        for isolate in (True, False)
    ]
    assert capsys.readouterr().out == "about to \n" * 2
    one, two = (model.artifact for model in models)
    assert one.objects == two.objects
    assert (one.weights, one.program, one.kernels) == (two.weights, two.program, two.kernels)
    assert (one.manifest, one.explanations) == (two.manifest, two.explanations)
    x = np.random.default_rng(0).standard_normal((2, 1, 8, 8)).astype(np.float32)
    np.testing.assert_array_equal(models[0](x), models[1](x))


@pytest.mark.parametrize("form", ["bytes", "message"])
def test_a_model_in_memory_goes_to_the_other_process_too(form: str) -> None:
    import onnx

    model = onnx.load(DIGITS) if form == "message" else DIGITS.read_bytes()
    compiled = xcompile.compile(model, load=[FILE])
    assert compiled.inputs[0].name == "images"


def test_errors_of_the_model_are_what_they_are_without_files() -> None:
    texts = []
    for load in ([], [FILE]):
        with pytest.raises(xcompile.CompileError) as caught:
            xcompile.compile(b"no model", load=load)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("how", "code", "reason"),
    [
        ("garbage", "XC3004", "the pattern Mistaken returned a int"),
        ("gone", "XC3007", "which Mistaken has replaced or erased"),
        ("ping-pong", "XC3006", "patterns keep firing"),
    ],
)
def test_mistakes_of_patterns_are_told_as_in_one_process(how: str, code: str, reason: str) -> None:
    error = failure(f"+after(nn-canonicalize):mistaken-pattern{{how={how}}}")
    assert error.code == code
    assert reason in error.message
    assert (error.pass_name, error.node) == ("mistaken-pattern", "conv2")


def test_options_that_a_pass_refuses_are_an_error() -> None:
    error = failure("+after(nn-canonicalize):mistaken-pattern{how=refuse}")
    assert str(error) == "XC3003 the pass mistaken-pattern refuses its options: not that way"


def test_a_pass_reads_weights_and_makes_new_ones_and_reasons_have_names_of_nodes() -> None:
    edits = "+after(nn-canonicalize):double-weights;-nn-choose-winograd"
    explain = frozenset({"double-weights"})
    request = Request(parse_target("cpu")[0], passes=edits, load=(str(FILE),), explain=explain)
    there, jobs, _ = isolation.plan_isolated(DIGITS, request)
    load_plugin(FILE)
    here, same_jobs = plan_module(import_onnx(DIGITS), request)
    plain, _ = plan_module(import_onnx(DIGITS), replace(request, passes="-nn-choose-winograd"))
    assert (there, jobs) == (here, same_jobs)
    assert there.weights != plain.weights
    for node in ("conv1", "conv2"):
        assert f"double-weights: Doubles fired at '{node}'" in there.explanations


# -- xcompile opt -----------------------------------------------------------------------------------


def test_opt_survives_a_hostile_pass_and_its_own_command_shows_the_fault_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["opt", str(DIGITS), f"--load={FILE}", "--passes=hostile-pattern{how=segfault}"]
    for _ in range(2):
        assert execute(words) == 1
        message = capsys.readouterr().err
        assert "the pattern Misbehave ended its process (SIGSEGV), at node 'conv2'" in message
        assert message.count("\n") == 1
        words = shlex.split(message.rpartition("to reproduce: xcompile ")[2].rstrip(")\n"))
    assert Path(words[1]).read_text().startswith("// XC3011 the pattern Misbehave")


def test_opt_prints_the_same_in_both_processes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["opt", str(DIGITS), f"--load={FILE}", "--passes=hostile-pass,cse"]
    words += ["--locations", "--print-changes", "--explain=*"]
    texts = []
    for isolate in ("1", "0"):
        monkeypatch.setenv("XCOMPILE_ISOLATE", isolate)
        assert execute(words) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    assert texts[0].startswith("about to \n")


# -- passes that are not in files ---------------------------------------------------------------------

THEIRS = """
import os
from dataclasses import dataclass
from typing import ClassVar
from xcompile.compiler.ir.passes import PASS_REGISTRY, Pass

@dataclass(frozen=True)
class Theirs(Pass):
    NAME: ClassVar[str] = "theirs"
    how: str = "process"

    def run(self, module, context):
        if self.how == "abort":
            os.abort()
        raise ValueError(f"in process {os.getpid()}")
"""


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module with a pass, which nothing has registered."""
    monkeypatch.setattr(fingerprint, "_extensions", {})
    monkeypatch.setattr(PASS_REGISTRY, "_entries", dict(PASS_REGISTRY._entries))
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "their_passes.py").write_text(THEIRS)
    yield importlib.import_module("their_passes")
    del sys.modules["their_passes"]


def test_a_pass_of_an_importable_module_runs_in_another_process(theirs: ModuleType) -> None:
    PASS_REGISTRY.register(theirs.Theirs)
    with pytest.raises(xcompile.CompileError, match=r"ended its process \(SIGABRT\)") as caught:
        xcompile.compile(DIGITS, passes="+after(nn-canonicalize):theirs{how=abort}")
    assert caught.value.pass_name == "theirs"
    assert "the module that it was given is in " in str(caught.value)


def test_a_pass_of_an_entry_point_runs_in_another_process(theirs: ModuleType) -> None:
    PASS_REGISTRY._entries["theirs"] = "their_passes:Theirs"
    with pytest.raises(xcompile.CompileError, match="in process") as caught:
        xcompile.compile(DIGITS, passes="+after(nn-canonicalize):theirs")
    assert f"in process {os.getpid()}" not in str(caught.value)


def test_a_pass_that_exists_here_only_runs_here_and_says_so(
    theirs: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[int] = []

    class Local(theirs.Theirs):
        NAME = "only-here"

        def run(self, module: object, context: object) -> None:
            calls.append(os.getpid())

    PASS_REGISTRY.register(Local)
    edits = "+after(nn-canonicalize):only-here"
    model = xcompile.compile(DIGITS, passes=edits, explain="only-here")
    assert calls == [os.getpid()]
    (said,) = model.artifact.explanations
    assert said.startswith("only-here: the pass 'only-here' runs in this process, where a crash")
    assert [r.message for r in caplog.records if "only-here" in r.message] == [said[11:]]


def test_isolation_may_be_off(theirs: ModuleType) -> None:
    PASS_REGISTRY.register(theirs.Theirs)
    with pytest.raises(xcompile.CompileError, match=f"in process {os.getpid()}"):
        xcompile.compile(
            DIGITS, passes="+after(nn-canonicalize):theirs", options={"isolate": False}
        )


def test_a_compile_without_passes_of_others_starts_no_process_for_them(
    theirs: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    PASS_REGISTRY.register(theirs.Theirs)
    monkeypatch.setattr(isolation, "plan_isolated", None)
    assert xcompile.compile(DIGITS, options={"cache": None}).outputs
