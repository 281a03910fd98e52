"""The command line: what each command does, and how it fails."""

import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import xcompile
from xcompile.compiler.cli.main import execute

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"
COMMAND = [sys.executable, "-m", "xcompile.compiler.cli.main"]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}

PLUGIN = '''
from dataclasses import dataclass
from typing import ClassVar

from xcompile.compiler.ir.passes import PASS_REGISTRY, Pass


@PASS_REGISTRY.register
@dataclass(frozen=True)
class Announce(Pass):
    """Say a word."""

    NAME: ClassVar[str] = "my-announce"

    word: str = "hello"

    def run(self, module, context):
        print(f"{self.word} from a pass")
'''


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits model, compiled."""
    path = tmp_path_factory.mktemp("cli") / "digits.so"
    assert execute([str(DIGITS), "-o", str(path)]) == 0
    return path


@pytest.fixture
def images(tmp_path: Path) -> Path:
    path = tmp_path / "images.npy"
    np.save(path, np.random.default_rng(1).uniform(0, 16, (5, 1, 8, 8)).astype(np.float32))
    return path


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    path = tmp_path / "announce.py"
    path.write_text(PLUGIN)
    return path


def failure(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """The one line that a failing command prints."""
    assert execute([str(word) for word in words]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    return captured.err.removeprefix("error: ").rstrip()


def output(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """What a command that succeeds prints."""
    assert execute([str(word) for word in words]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


# -- starting -------------------------------------------------------------------------------------


def test_no_words_print_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute([]) == 0
    assert "doctor" in capsys.readouterr().out


def test_a_word_that_is_neither_command_nor_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert failure(capsys, "frobnicate") == (
        "XC6006 there is no command and no model 'frobnicate'"
        " (help: the commands are compile, run, bench, diff, profile, opt, passes, targets, doctor)"
    )


def test_running_for_another_machine_is_an_error_line(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("run", DIGITS, "--target", "arm-neon", "-i", "random:1x1x8x8")
    assert failure(capsys, *words).startswith("XC6007 this machine cannot run code for aarch64")


def test_starting_imports_none_of_the_heavy_packages() -> None:
    code = "import sys, xcompile.compiler.cli.main; print(*{n.split('.')[0] for n in sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", code], env=ENVIRONMENT, check=True, capture_output=True, text=True
    )
    heavy = {"numpy", "onnx", "torch_mlir", "llvmlite", "onnxruntime", "rich", "ml_dtypes"}
    assert not heavy & set(done.stdout.split())


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "--help")
    for command in (
        "compile",
        "run",
        "bench",
        "diff",
        "profile",
        "opt",
        "passes",
        "targets",
        "doctor",
    ):
        assert re.search(rf"^  {command} ", text, flags=re.MULTILINE)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert output(capsys, "--version") == f"xcompile {xcompile.__version__}\n"


def test_a_word_that_is_nearly_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert failure(capsys, "bnech", "model.onnx") == (
        "XC6006 there is no command and no model 'bnech' (help: did you mean `xcompile bench`?)"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run"], "XC6006 Missing argument 'model' (help: `xcompile run --help` shows"),
        (["run", "m.onnx", "--inptu", "x"], "XC6006 No such option: --inptu"),
        (["--target"], "XC6006 Option '--target' requires an argument"),
        (["run", "m.onnx", "--threads", "two"], "XC6006 Invalid value for '--threads': "),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert execute(words) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {message}")
    assert error.count("\n") == 1


# -- compile --------------------------------------------------------------------------------------


def test_the_first_word_is_a_model(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert re.fullmatch(r"digits\.so: \d+\.\d KB, \d+ kernels, \d+\.\d s\n", output(capsys, DIGITS))
    assert xcompile.load("digits.so").inputs[0].name == "images"


def test_verbose_and_report_name_the_signature_the_passes_and_the_kernels(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = output(capsys, "-o", tmp_path / "d.so", DIGITS, "--verbose", "--report")
    assert "input   images: float32[N, 1, 8, 8]\n" in text
    assert "output  scores: float32[N, 10]\n" in text
    assert re.search(r"^passes  .*nn-assign-layout", text, flags=re.MULTILINE)
    assert re.search(r"^conv2 \+ relu2 +conv +ConvSchedule\(", text, flags=re.MULTILINE)


def test_the_prefix_names_the_functions_of_the_library(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    output(capsys, DIGITS, "-o", tmp_path / "d.so", "--prefix", "digits")
    assert b"digits_run_model" in (tmp_path / "d.so").read_bytes()


def test_a_library_for_another_machine_is_made_but_not_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "arm.so"
    output(capsys, DIGITS, "--target", "arm-neon", "-o", path)
    assert failure(capsys, "run", path, "-i", "random:1x1x8x8").startswith("XC7003 the library is")


def test_winograd_sets_the_mode_of_its_pass(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "d.so"
    text = output(capsys, DIGITS, "--winograd", "f4", "-o", path, "--verbose", "--report")
    assert "nn-choose-winograd{mode=f4}" in text
    assert re.search(r"^conv2 .*winograd", text, flags=re.MULTILINE)
    text = output(capsys, DIGITS, "--winograd", "off", "-o", path, "--report")
    assert not re.search(r"^conv2 .*winograd", text, flags=re.MULTILINE)
    assert failure(capsys, DIGITS, "--winograd", "f3") == (
        "XC6005 --winograd is 'f3' (help: off, f2, f4 or auto)"
    )


def test_a_pass_of_ones_own_is_loaded_inserted_and_given_options(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, plugin: Path
) -> None:
    edit = "+after(nn-assign-layout):my-announce;my-announce{word=greetings}"
    words = [DIGITS, "--load", plugin, "--passes", edit, "--cache", tmp_path / "cache"]
    text = output(capsys, *words, "-o", tmp_path / "d.so")
    assert text.startswith("greetings from a pass\n")


def test_a_pass_explains_why_it_did_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = output(capsys, DIGITS, "-o", tmp_path / "d.so", "--explain", "nn-conv-bias")
    lines = [line for line in text.splitlines() if line.startswith("nn-conv-bias: ")]
    assert lines
    assert all(" fired at " in line or " did not fire at " in line for line in lines)


def test_a_library_that_cannot_be_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "none" / "d.so"
    message = failure(capsys, DIGITS, "-o", path)
    assert message == f"XC7001 '{path}' cannot be written: No such file or directory"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["none.onnx"], "XC1001 "),
        ([str(ROOT / "README.md")], "XC100"),
        ([str(DIGITS), "--target", "x86-axv2"], "XC6001 no target 'x86-axv2' (help: did you mean"),
        ([str(DIGITS), "--passes", "-none"], "XC3001 the pipeline has no pass 'none'"),
        ([str(DIGITS), "--pipeline", "none,"], "XC3001 there is no pass 'none'"),
        ([str(DIGITS), "--load", "none.py"], "XC3009 none.py cannot be read"),
    ],
)
def test_what_is_wrong_is_one_line_with_a_code(
    capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert failure(capsys, *words).startswith(message)


def test_all_ops_that_are_not_supported_are_listed_at_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    nodes = [
        helper.make_node("Frobnicate", ["x"], ["a"], "first", domain="some.where"),
        helper.make_node("Relu", ["a"], ["b"], "second"),
        helper.make_node("Rleu", ["b"], ["y"], "third"),
    ]
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "xy"]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("some.where", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "m.onnx")
    message = failure(capsys, tmp_path / "m.onnx")
    assert message.startswith("XC1006 2 ops are not supported: ")
    assert "Frobnicate (domain 'some.where', opset 1) at 'first'" in message
    assert "Rleu (domain 'ai.onnx', opset 17) at 'third'; known: " in message


def test_debug_shows_the_traceback_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["--debug", "none.onnx"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("Traceback (most recent call last)")
    assert error.splitlines()[-1].startswith("error: XC1001")


def test_a_fault_of_the_compiler_is_one_line_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("xcompile.frontends.onnx.importer.import_onnx", lambda *_, **__: 1 / 0)
    assert failure(capsys, DIGITS, "--cache", tmp_path) == (
        "internal error: ZeroDivisionError: division by zero (help: --debug shows where)"
    )


# -- run ------------------------------------------------------------------------------------------


def test_run_gives_the_same_from_the_model_and_from_its_library(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, library: Path, images: Path
) -> None:
    first = output(capsys, "run", DIGITS, "-i", f"images={images}", "-o", tmp_path / "a")
    second = output(capsys, "run", library, "-i", images, "-o", tmp_path / "b", "--threads", 1)
    assert first == second
    assert re.fullmatch(r"scores: float32\[5, 10\] min -?\d.* mean -?\d.* max -?\d.*\n", first)
    found = [np.load(tmp_path / folder / "scores.npy") for folder in "ab"]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], xcompile.compile(DIGITS)(np.load(images)))


def test_run_takes_an_archive_of_arrays(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, library: Path, images: Path
) -> None:
    np.savez(tmp_path / "all.npz", images=np.load(images))
    from_archive = output(capsys, "run", library, "--input", tmp_path / "all.npz")
    assert from_archive == output(capsys, "run", library, "--input", images)


def test_random_inputs_are_the_same_each_time(
    capsys: pytest.CaptureFixture[str], library: Path
) -> None:
    words = ("run", library, "-i", "images=random:2x1x8x8")
    assert output(capsys, *words) == output(capsys, *words)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("image=a.npy", "XC6006 --input 'image=a.npy' names no input of the model (help: write"),
        ("random:2x", "XC6006 'random:2x' is no shape"),
        ("random:999999999999x999999999999", "XC6006 'random:999999999999x999999999999' has"),
        ("random:2x8x8", "XC5003 "),
        ("random:2x1x8x9", "XC5003 "),
        ("none.npy", "XC6006 the array file none.npy cannot be read: No such file"),
        ("none.npz", "XC6006 the array file none.npz cannot be read: No such file"),
        (f"images={DIGITS}", "XC6006 the array file"),
        (f"{ROOT / 'README.md'}.npz", "XC6006 the array file"),
    ],
)
def test_wrong_inputs(
    capsys: pytest.CaptureFixture[str], library: Path, value: str, message: str
) -> None:
    assert failure(capsys, "run", library, "--input", value).startswith(message)


def test_an_input_that_is_missing(capsys: pytest.CaptureFixture[str], library: Path) -> None:
    assert failure(capsys, "run", library).startswith("XC5001 ")


def test_a_library_that_was_changed_is_not_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, library: Path
) -> None:
    content = bytearray(library.read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "changed.so").write_bytes(content)
    message = failure(capsys, "run", tmp_path / "changed.so", "-i", "random:1x1x8x8")
    assert message.startswith("XC7002 ")


def test_names_of_outputs_do_not_leave_the_folder(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    names = ["../up", "", "/etc/x", "a b"]
    nodes = [helper.make_node("Relu", ["x"], [name or "empty"]) for name in names]
    info = [helper.make_tensor_value_info(n or "empty", TensorProto.FLOAT, [2]) for n in names]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    graph = helper.make_graph(nodes, "g", [x], info)
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "m.onnx")
    output(capsys, "run", tmp_path / "m.onnx", "-i", "random:2", "-o", tmp_path / "out")
    written = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert written == ["___up.npy", "_etc_x.npy", "a_b.npy", "empty.npy"]


# -- bench ----------------------------------------------------------------------------------------


def test_bench_prints_both_engines(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("bench", DIGITS, "--against", "onnxruntime", "--seconds", 0, "--threads", 1)
    lines = output(capsys, *words).splitlines()
    assert [line.split()[0] for line in lines] == ["ms,", "xcompile", "onnxruntime", "5"]
    assert lines[1].split()[-1] == "1.00"


def test_bench_of_a_library(capsys: pytest.CaptureFixture[str], library: Path) -> None:
    words = ("bench", library, "-i", "random:3x1x8x8", "--seconds", 0)
    assert output(capsys, *words).splitlines()[1].startswith("xcompile ")
    assert failure(capsys, "bench", library, "--report").startswith("XC6006 --report needs")
    assert failure(capsys, "bench", library, "--against", "tvm").startswith("XC6006 no engine")


def test_the_report_names_each_kernel_its_rates_and_the_peak(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = output(capsys, "bench", DIGITS, "--report", "--seconds", 0, "--threads", 1)
    # 16 pixels of 32 channels, each of 16·9 products and sums, and as many maxima; weights of 16·32·9 floats
    rates = r"\d+\.\d +\d+\.\d% +\d+\.\d +\d+\.\d%"
    assert re.search(rf" \d+\.\d% +1 +0\.148 +0\.022 +6\.8 +{rates}  conv: conv2 \+ relu2\n", text)
    assert re.search(r"total; \d+\.\d% of it in fallback kernels\n", text)
    peak = re.search(r"measured peaks on 1 threads: (\d+) GFLOP/s, (\d+) GB/s", text)
    assert peak is not None
    assert 1 <= int(peak[1]) <= 1000
    assert 1 <= int(peak[2]) <= 1000


# -- opt, passes, targets -------------------------------------------------------------------------

RELU_OF_RELU = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "nn.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "nn.relu"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}
"""


def test_opt_prints_a_model_with_its_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "opt", DIGITS, "--locations")
    assert text.count('"nn.conv"') == 2
    assert 'loc("conv2")' in text


def test_opt_runs_a_pipeline(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "opt", DIGITS, "--passes", "@cpu")
    assert '"kernel.launch"' in text


def test_opt_reads_text_from_a_file_and_from_stdin(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "m.mlir").write_text(RELU_OF_RELU)
    text = output(capsys, "opt", tmp_path / "m.mlir", "--passes", "kernel-form")
    assert text.count('"nn.relu"') == 2
    monkeypatch.setattr("sys.stdin", io.StringIO(RELU_OF_RELU))
    assert output(capsys, "opt", "-", "--passes", "kernel-form") == text


def test_opt_prints_what_each_pass_changed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "m.mlir").write_text(RELU_OF_RELU)
    words = ("opt", tmp_path / "m.mlir", "--passes", "cse,kernel-form", "--print-changes")
    assert "// ----- after-change kernel-form -----\n" in output(capsys, *words)


def test_opt_says_where_text_is_wrong(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "m.mlir").write_text("func.func @main() {\n  nonsense\n}")
    message = failure(capsys, "opt", tmp_path / "m.mlir")
    assert message.startswith("XC2012 line 2, column ")
    assert failure(capsys, "opt", tmp_path / "none.mlir").startswith("XC1001 ")


def test_passes_lists_and_describes(capsys: pytest.CaptureFixture[str], plugin: Path) -> None:
    text = output(capsys, "passes")
    assert re.search(r"^nn-choose-winograd +Mark convolutions", text, flags=re.MULTILINE)
    assert "\n@cpu = " in text
    assert "\npattern GeluOfProduct: " in output(capsys, "passes", "nn-fuse-gelu")
    described = output(capsys, "passes", "nn-choose-winograd")
    assert described.endswith("option mode: str, auto by default\n")
    assert "my-announce  " in output(capsys, "passes", "--load", plugin)
    message = failure(capsys, "passes", "nn-choose-winogard")
    assert message.startswith(
        "XC3001 there is no pass 'nn-choose-winogard' (help: did you mean nn-choose-winograd"
    )


def test_targets_says_which_run_here(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "targets", "--features")
    assert re.search(r"^cpu .* yes +\w", text, flags=re.MULTILINE)
    assert re.search(r"^arm-neon +aarch64 .* neon$", text, flags=re.MULTILINE)
    assert re.search(r"^cuda +sm_80 .* on a GPU$", text, flags=re.MULTILINE)


# -- doctor ---------------------------------------------------------------------------------------


def findings(text: str) -> dict[str, str]:
    """The state of each thing that the doctor looked for."""
    return {line.split()[1]: line.split()[0] for line in text.splitlines()}


def test_doctor_without_a_path_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert execute(["doctor"]) == 1
    text = capsys.readouterr().out
    states = findings(text)
    assert states["linker"] == "missing"
    assert {states[name] for name in ("onnxruntime", "qemu", "bochs", "ptxas")} == {"absent"}
    assert {states[name] for name in ("python", "mlir", "worker", "runtime")} == {"ok"}
    assert re.search(r"linker +pip install ziglang, or install lld$", text, flags=re.M)
    assert re.search(r"targets +run here: cpu,.*; can be made: .*arm-neon", text)


def test_doctor_is_content_without_programs_that_only_some_uses_need(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name, **_: None)
    assert execute(["doctor"]) == 0
    assert findings(capsys.readouterr().out)["ptxas"] == "absent"


def test_doctor_finds_a_broken_installation(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xcompile.runtime.native_library._PREBUILT", tmp_path)
    assert execute(["doctor"]) == 2
    assert findings(capsys.readouterr().out)["runtime"] == "broken"


def test_doctor_finds_a_cache_that_cannot_be_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XCOMPILE_CACHE", str(tmp_path / "file" / "cache"))
    assert execute(["doctor"]) == 1
    assert findings(capsys.readouterr().out)["cache"] == "missing"


# -- terminals and signals ------------------------------------------------------------------------


def on_a_terminal(words: list[str]) -> tuple[int, bytes]:
    """The exit status of a command, and what it shows on a terminal, which is read while the command writes."""
    ours, theirs = pty.openpty()
    environment = {k: v for k, v in ENVIRONMENT.items() if k != "NO_COLOR"} | {"TERM": "xterm"}
    with subprocess.Popen(
        words, env=environment, stdout=subprocess.DEVNULL, stderr=theirs
    ) as process:
        os.close(theirs)
        shown = b""
        try:
            while chunk := os.read(ours, 4096):
                shown += chunk
        except OSError:  # the other side is closed
            os.close(ours)
    return process.returncode, shown


def test_a_pipe_sees_one_line_and_a_terminal_a_progress_bar(tmp_path: Path) -> None:
    words = [*COMMAND, str(DIGITS), "-o", str(tmp_path / "d.so"), "--cache"]
    piped = subprocess.run(
        [*words, str(tmp_path / "first")],
        env=ENVIRONMENT,
        check=True,
        capture_output=True,
        text=True,
    )
    assert piped.stderr == ""
    assert piped.stdout.count("\n") == 1
    status, shown = on_a_terminal([*words, str(tmp_path / "second")])
    assert status == 0
    assert b"compiling kernels" in shown


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    words = f"{sys.executable} -m xcompile.compiler.cli.main opt {DIGITS} | head -1"
    done = subprocess.run(words, shell=True, env=ENVIRONMENT, check=True, capture_output=True)
    assert done.stdout.startswith(b"module attributes {xc.input_dims = [")
    assert done.stdout.count(b"\n") == 1
    assert done.stderr == b""


def test_a_full_disk_is_an_error_and_a_poor_terminal_is_none() -> None:
    environment = ENVIRONMENT | {"PYTHONIOENCODING": "ascii"}
    plain = subprocess.run(
        [*COMMAND, "targets"], env=environment, check=True, capture_output=True, text=True
    )
    assert "512 bits \\xd7 32" in plain.stdout
    with Path("/dev/full").open("w") as full:
        failed = subprocess.run(
            [*COMMAND, "targets"], env=ENVIRONMENT, check=False, stdout=full, stderr=subprocess.PIPE
        )
    assert failed.returncode == 1
    assert failed.stderr == b"error: the output cannot be written: No space left on device\n"


def test_errors_are_red_on_a_terminal_only(tmp_path: Path) -> None:
    words = [*COMMAND, "none.onnx"]
    piped = subprocess.run(words, env=ENVIRONMENT, check=False, capture_output=True)
    assert piped.stderr.startswith(b"error: XC1001")
    status, shown = on_a_terminal(words)
    assert status == 1
    assert b"\x1b[31merror: XC1001" in shown


def test_ctrl_c_ends_everything_and_leaves_nothing(tmp_path: Path) -> None:
    words = [*COMMAND, str(DIGITS), "-o", "d.so", "--cache", str(tmp_path / "cache")]
    with subprocess.Popen(
        words, cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        while not (workers := _children(process.pid)):
            assert process.poll() is None
            time.sleep(0.005)
        os.killpg(process.pid, signal.SIGINT)
        _, error = process.communicate()
    assert process.returncode == 130
    assert error == b"error: interrupted\n"
    assert {path.name for path in tmp_path.iterdir()} <= {"cache"}
    deadline = time.monotonic() + 10
    while any(map(_is_running, workers)):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except FileNotFoundError:
        return False


def _children(pid: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_ctrl_c_at_any_moment_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("xcompile.frontends.onnx.importer.import_onnx", interrupt)
    assert execute([str(DIGITS), "--cache", str(tmp_path)]) == 130
    assert capsys.readouterr().err == "error: interrupted\n"


def test_ctrl_c_where_python_ignores_exceptions_is_not_lost(tmp_path: Path) -> None:
    script = """
import signal, sys, time, weakref
from xcompile.compiler.cli.main import main
from xcompile.frontends.onnx import importer

class Object: pass

def import_onnx(*_, **__):
    dying = Object()
    kept = weakref.ref(dying, lambda _: signal.raise_signal(signal.SIGINT))
    del dying
    time.sleep(60)

importer.import_onnx = import_onnx
sys.argv[1:] = [sys.argv[1], "--cache", sys.argv[2]]
main()
"""
    words = [sys.executable, "-c", script, str(DIGITS), str(tmp_path)]
    done = subprocess.run(words, env=ENVIRONMENT, check=False, capture_output=True)
    assert (done.returncode, done.stderr) == (130, b"error: interrupted\n")


def test_a_manifest_says_how_the_library_was_made(library: Path) -> None:
    from xcompile.runtime.library import read_manifest

    manifest = read_manifest(library)
    assert manifest.provenance["model"] == "digits"
    assert json.loads(manifest.to_json())["abi"] == 2
