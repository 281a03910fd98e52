"""Whatever a pass of a user's file does, it ends in one error line that names it, and this process lives."""

from pathlib import Path

import numpy as np
import pytest

import xcompile
from xcompile.compiler import isolation
from xcompile.compiler.driver import Request
from xcompile.compiler.support.options import Options
from xcompile.compiler.target.registry import parse_target

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


MISTAKES = """
from dataclasses import dataclass
from typing import ClassVar

from xcompile.compiler.ir.passes import PASS_REGISTRY, PatternPass
from xcompile.compiler.ir.rewrite import Pattern
from xcompile.dialects.nn.conv import Conv


def again(op, rewriter):
    return rewriter.create(Conv, **op.operand_fields(), **op.attributes())


class Mistaken(Pattern[Conv]):
    def rewrite(self, op, rewriter):
        HOW


@PASS_REGISTRY.register
@dataclass(frozen=True)
class MistakenPass(PatternPass):
    NAME: ClassVar[str] = "mistaken-pass"
    PATTERNS: ClassVar = (Mistaken,)
"""


@pytest.mark.parametrize(
    ("how", "code", "reason"),
    [
        ("return 7", "XC3004", "the pattern Mistaken returned a int"),
        (
            "rewriter.replace(op, again(op, rewriter)); again(op, rewriter)",
            "XC3007",
            "which Mistaken has replaced or erased",
        ),
        ("rewriter.replace(op, again(op, rewriter))", "XC3006", "patterns keep firing"),
        ("[print('all work' * 99) for _ in range(9999)]; 1 / 0", "XC3004", "ZeroDivisionError"),
    ],
)
def test_mistakes_of_patterns_are_told_as_in_one_process(
    tmp_path: Path, how: str, code: str, reason: str
) -> None:
    file = tmp_path / "mistaken.py"
    file.write_text(MISTAKES.replace("HOW", how))
    error = failure("+after(nn-canonicalize):mistaken-pass", file)
    assert error.code == code
    assert reason in error.message
    assert error.pass_name == "mistaken-pass"
    assert error.node in ("conv1", "conv2")
