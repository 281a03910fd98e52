"""The code blocks of the README."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


def blocks(language: str) -> list[str]:
    """The fenced code blocks of the README in a language, in order."""
    text = README.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def test_the_python_blocks_run_one_after_the_other() -> None:
    script = "\n".join(blocks("python"))
    subprocess.run([sys.executable, "-c", script], cwd=README.parent, check=True)


@pytest.mark.parametrize("block", blocks("sh"))
def test_a_shell_block_parses(block: str) -> None:
    subprocess.run(["bash", "-n", "-c", block], check=True)


def test_the_test_command_stands_in_the_readme() -> None:
    assert any("pytest -n 2" in block for block in blocks("sh"))


def test_every_link_leads_to_a_file() -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", README.read_text(encoding="utf-8"))
    assert targets
    for target in targets:
        assert (README.parent / target).exists(), target
