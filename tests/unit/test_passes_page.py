"""The documents on passes and the passes themselves agree."""

import inspect
import re
from pathlib import Path

import pytest

from xcompile.compiler.ir.op import op_class
from xcompile.compiler.ir.passes import PASS_REGISTRY, PatternPass
from xcompile.compiler.ir.pipeline import parse_pipeline
from xcompile.compiler.pipelines import PIPELINES
from xcompile.passes import PASSES
from xcompile.passes.reference import passes_page

ROOT = Path(__file__).parents[2]

PATTERNS = [
    (name, pattern)
    for name in PASSES
    if issubclass(PASS_REGISTRY.get(name), PatternPass)
    for pattern in PASS_REGISTRY.get(name).PATTERNS  # type: ignore[attr-defined]
]


def test_the_page_is_printed_from_the_passes() -> None:
    assert (ROOT / "docs" / "passes.md").read_text(encoding="utf-8") == passes_page()


@pytest.mark.parametrize("name", PASSES)
def test_file_class_and_name_of_a_pass_share_their_words(name: str) -> None:
    module, _, cls = PASSES[name].partition(":")
    assert name == PASS_REGISTRY.get(name).NAME
    words = module.rpartition(".")[2].split("_")
    assert set(words) <= set(name.split("-")) or name in ("cse", "dce")
    assert cls[0].isupper()


@pytest.mark.parametrize(("name", "pattern"), PATTERNS, ids=lambda v: getattr(v, "__name__", v))
def test_the_ops_in_a_patterns_docstring_exist(name: str, pattern: type) -> None:
    text = inspect.getdoc(pattern) or ""
    assert "\n->\n" in text, f"{pattern.__name__} of {name} shows no before and after"
    for op in re.findall(r'"(nn\.\w+)"', text):
        assert op_class(op) is not None, op


@pytest.mark.parametrize(
    "name", sorted(n for n in PASSES if issubclass(PASS_REGISTRY.get(n), PatternPass))
)
def test_a_pass_of_patterns_has_a_text_test(name: str) -> None:
    assert f"--passes={name}" in (ROOT / "tests" / "lit" / f"{name}.mlir").read_text().replace(
        "'", ""
    )


@pytest.mark.parametrize("name", PASSES)
def test_a_text_test_shows_what_a_pass_leaves_alone(name: str) -> None:
    text = (ROOT / "tests" / "lit" / f"{name}.mlir").read_text()
    assert re.search(r" missed |CHECK-NOT|_stay|--check-prefix=(OFF|ERROR)", text)


@pytest.mark.parametrize("name", PIPELINES)
def test_the_named_pipelines_parse_and_print(name: str) -> None:
    made = parse_pipeline(f"@{name}", PIPELINES)
    assert parse_pipeline(str(made), {}) == made
