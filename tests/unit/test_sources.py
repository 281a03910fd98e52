"""Rules about the sources that no linter states."""

import re
from pathlib import Path

import pytest

from xcompile.compiler.target.registry import targets

ROOT = Path(__file__).parents[2]
PRODUCT = ("compiler", "dialects", "passes", "frontends", "runtime")
SOURCES = sorted(path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py"))


def users(pattern: str) -> set[str]:
    """The product's files in which a pattern occurs."""
    return {
        path.relative_to(ROOT).as_posix()
        for path in SOURCES
        if re.search(pattern, path.read_text(encoding="utf-8"))
    }


def test_contexts_are_made_in_one_file_and_in_the_workers() -> None:
    allowed = {"compiler/ir/context.py", "compiler/codegen/lowering.py"}
    assert users(r"\bir\.Context\(") <= allowed


def test_the_environment_is_read_in_one_file() -> None:
    assert users(r"\bos\.(environ|getenv)\b") <= {"compiler/support/options.py"}


def test_passes_schedules_and_emitters_ask_for_features_and_name_no_target() -> None:
    asking = ("passes/", "dialects/", "frontends/", "compiler/schedule/", "compiler/codegen/cpu/")
    named = rf"[\"']({'|'.join(targets())})[\"']|\btarget\.(name|arch|triple)\b"
    assert [file for file in users(named) if file.startswith(asking)] == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_path_of_a_machine_stands_in_the_sources(path: Path) -> None:
    assert not re.search(r"/(home|root|work|Users)/", path.read_text(encoding="utf-8"))
