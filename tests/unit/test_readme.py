"""The code blocks of the README and of the pages for users: each of them runs."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from xcompile.compiler.cli.main import execute

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
DEBUGGING = ROOT / "docs" / "debugging.md"
MIGRATING = ROOT / "docs" / "migrating_from_onnxruntime.md"
QUANTIZATION = ROOT / "docs" / "quantization.md"
PAGES = (README, ROOT / "docs" / "python_api.md", DEBUGGING, MIGRATING, QUANTIZATION)


def blocks(language: str, page: Path = README) -> list[str]:
    """The fenced code blocks of a page in a language, in order."""
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def commands(page: Path = README) -> list[str]:
    """The command lines of xcompile in a page."""
    lines = "".join(blocks("sh", page)).splitlines()
    return [line for line in lines if line.startswith("xcompile ")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the examples, as a reader's copy of the repository has them."""
    path = tmp_path_factory.mktemp("copy")
    (path / "examples").symlink_to(ROOT / "examples")
    return path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_python_blocks_run_one_after_the_other(folder: Path, page: Path) -> None:
    if page == MIGRATING:
        pytest.importorskip("onnxruntime")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    script = "\n".join(blocks("python", page))
    subprocess.run([sys.executable, "-c", script], cwd=folder, env=environment, check=True)


def test_the_commands_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    pages = (README, DEBUGGING, QUANTIZATION)
    assert [len(commands(page)) for page in pages] == [9, 6, 6]
    for line in (line for page in pages for line in commands(page)):
        assert execute(shlex.split(line)[1:]) == 0, line
    assert (folder / "results" / "scores.npy").exists()


def test_the_c_program_runs(folder: Path) -> None:
    """As a library that this process's libc serves: a program would have zig build a libc first, for a minute."""
    (program,) = blocks("c")
    (folder / "main.c").write_text(program)
    words = [ROOT / "examples/digits/digits.onnx", "--prefix", "digits", "-o", folder / "digits.so"]
    assert execute([str(word) for word in words]) == 0
    zig = [sys.executable, "-m", "ziglang"]
    compiler = [*zig, "cc", "-O1", "-fPIC", f"-I{ROOT / 'runtime' / 'native'}"]
    subprocess.run([*compiler, "-c", "main.c", "-o", "main.o"], cwd=folder, check=True)
    linker = [*zig, "ld.lld", "-shared", "main.o", "./digits.so", "-o", "main.so"]
    subprocess.run(linker, cwd=folder, check=True)
    call = "import ctypes; m = ctypes.CDLL('./main.so'); assert m.main() == 0; "
    call += "ctypes.CDLL(None).fflush(None)"
    done = subprocess.run(
        [sys.executable, "-c", call], cwd=folder, check=True, capture_output=True, text=True
    )
    assert re.fullmatch(r"10 scores, the first is -?\d+\.\d+\n", done.stdout)


@pytest.mark.parametrize("block", blocks("sh"))
def test_a_shell_block_parses(block: str) -> None:
    subprocess.run(["bash", "-n", "-c", block], check=True)


def test_two_commands_do_all_the_set_up() -> None:
    example, tests = blocks("sh")[:2]
    assert example.endswith("&& .venv/bin/python examples/digits/run.py\n")
    assert tests.endswith("&& .venv/bin/python -m pytest -n 2\n")


def test_the_number_of_ops_is_no_exaggeration() -> None:
    from xcompile.frontends.onnx import registry

    registry.load_converters()
    claimed = re.search(r"more than (\d+) ops", README.read_text(encoding="utf-8"))
    assert claimed is not None
    assert int(claimed[1]) < len([op for domain, op in registry._TABLE if domain == ""])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8"))
    assert targets
    for target in targets:
        assert (page.parent / target).exists(), target
