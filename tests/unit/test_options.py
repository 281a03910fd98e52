"""The registry of options and environment variables."""

import re
from pathlib import Path
from typing import Any

import pytest

from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.support.options import (
    CACHE,
    OPTIONS,
    THREADS,
    VERIFY_EACH,
    WORKER_TIMEOUT,
    Option,
    Options,
    choice,
    integer,
    options_page,
)

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for option in OPTIONS.values():
        monkeypatch.delenv(option.variable, raising=False)


def test_a_given_value_outranks_the_environment_and_that_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert Options()[THREADS] is None
    monkeypatch.setenv("XCOMPILE_THREADS", "3")
    assert Options()[THREADS] == 3
    assert Options({"threads": 5})[THREADS] == 5
    assert Options({"threads": "5"})[THREADS] == 5


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XCOMPILE_WORKER_TIMEOUT", "")
    assert Options()[WORKER_TIMEOUT] == 120


def test_none_stands_for_a_default_of_none_and_for_no_cache() -> None:
    assert Options({"threads": None})[THREADS] is None
    assert Options({"cache": None})[CACHE] is None
    with pytest.raises(CompileError, match="XC6005 option 'worker-timeout': 'None' is not"):
        Options({"worker-timeout": None})


@pytest.mark.parametrize(
    ("text", "value"), [("1", True), ("ON", True), ("true", True), ("0", False), ("no", False)]
)
def test_a_switch_reads_the_usual_words(text: str, value: bool) -> None:
    assert Options({"verify-each": text})[VERIFY_EACH] is value


def test_a_folder_may_begin_with_the_users_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somewhere")
    assert Options({"cache": "~/kernels"})[CACHE] == Path("/somewhere/kernels")


def test_a_folder_in_the_home_of_an_unknown_user_is_refused() -> None:
    with pytest.raises(CompileError, match=r"XC6005.*lies in a home folder that is not known"):
        Options({"cache": "~nobody-has-this-name/kernels"})


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", "٣", " 4", "true"])
def test_a_wrong_number_of_threads_is_refused_with_the_variable_and_the_help(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XCOMPILE_THREADS", text)
    with pytest.raises(CompileError) as caught:
        Options()
    assert str(caught.value) == (
        f"XC6005 XCOMPILE_THREADS: '{text}' is not an integer from 1 to 256"
        " (help: the number of threads a model runs on)"
    )


def test_an_unknown_option_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(CompileError) as caught:
        Options({"thread": 2})
    assert str(caught.value) == "XC6004 no option 'thread' (help: did you mean threads?)"


def test_exactly_the_options_that_affect_code_are_in_the_key() -> None:
    declared: dict[str, Option[Any]] = {
        "tile": Option("tile", integer(1, 9), 6, "", affects_code=True),
        "form": Option("form", choice("a", "b"), "a", "", affects_code=True),
        "color": Option("color", choice("red", "blue"), "red", ""),
    }
    key = Options({"tile": 8, "color": "blue"}, declared=declared).code_key()
    assert key == '{"form": "a", "tile": 8}'


@pytest.mark.parametrize("option", OPTIONS.values(), ids=OPTIONS.keys())
def test_names_are_kebab_case_and_help_is_one_sentence(option: Option[Any]) -> None:
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", option.name)
    assert option.help
    assert "\n" not in option.help


def test_the_docs_page_is_the_registry() -> None:
    assert (ROOT / "docs" / "options.md").read_text(encoding="utf-8") == options_page()
