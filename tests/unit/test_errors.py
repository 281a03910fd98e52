"""`CompileError` and the table of codes."""

import copy
import pickle
import re
from pathlib import Path

import pytest

from xcompile.compiler.support.errors import CODES, RANGES, CompileError, errors_page

ROOT = Path(__file__).parents[2]
PRODUCT = ("compiler", "dialects", "passes", "frontends", "runtime", "xcompile")


def test_the_text_is_code_message_node_pass_and_help() -> None:
    error = CompileError(
        "XC2007",
        "3 groups do not divide 64 channels",
        node="Conv_17",
        pass_name="nn-canonicalize",
        help="the model is invalid",
    )
    assert str(error) == (
        "XC2007 3 groups do not divide 64 channels, at node 'Conv_17', in pass 'nn-canonicalize'"
        " (help: the model is invalid)"
    )


def test_unknown_parts_are_left_out_of_the_text() -> None:
    assert str(CompileError("XC6001", "no target 'x87'")) == "XC6001 no target 'x87'"


def test_a_pass_name_set_later_appears_in_the_text() -> None:
    error = CompileError("XC3004", "it failed")
    error.pass_name = "nn-fuse"
    assert str(error) == "XC3004 it failed, in pass 'nn-fuse'"


def test_the_text_is_one_printable_line_whatever_the_node_is_called() -> None:
    error = CompileError("XC2001", "bad", node="a\nb\r\x1b[31m\u2028\ud800é")
    assert str(error) == r"XC2001 bad, at node 'a\nb\r\x1b[31m\u2028\ud800é'"


def test_an_error_survives_json_pickle_and_copy() -> None:
    error = CompileError("XC4001", "died", node="Conv_1", pass_name="p", help="h")
    for other in (
        CompileError.from_json(error.to_json()),
        pickle.loads(pickle.dumps(error)),
        copy.copy(error),
    ):
        assert other.to_json() == error.to_json()


def test_every_code_has_four_digits_and_a_range() -> None:
    for code in CODES:
        assert re.fullmatch(r"XC\d{4}", code)
        assert code[:3] in RANGES


def test_codes_stand_in_order_and_titles_are_unique() -> None:
    assert list(CODES) == sorted(CODES)
    assert len(set(CODES.values())) == len(CODES)


def test_the_docs_page_is_the_table() -> None:
    assert (ROOT / "docs" / "errors.md").read_text(encoding="utf-8") == errors_page()


@pytest.mark.parametrize("folder", PRODUCT)
def test_every_code_in_the_sources_is_in_the_table(folder: str) -> None:
    for path in sorted((ROOT / folder).rglob("*.py")):
        used = set(re.findall(r"\bXC[1-7]\d{3}\b", path.read_text(encoding="utf-8")))
        assert used <= CODES.keys(), f"{path}: declare {sorted(used - CODES.keys())} in errors.py"
