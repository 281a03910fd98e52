"""Reading modules that people and tools wrote: every mistake is one line."""

import pytest

from tests.unit.ir.toy import chain
from xcompile.compiler.ir.text import parse_module
from xcompile.compiler.support.errors import CompileError


def error(text: str) -> str:
    with pytest.raises(CompileError) as caught:
        parse_module(text)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_was_printed_is_read_back() -> None:
    text = chain("a b").text(locations=True)
    assert parse_module(text).text(locations=True) == text


def test_a_mistake_names_line_and_column() -> None:
    assert error("module {\n  what\n}").startswith("XC2012 line 2, column 3: ")


def test_values_that_are_not_defined_are_an_error() -> None:
    assert error("func.func @main() { return %b : i1 }").startswith("XC2012 line 1")


def test_deep_nesting_is_refused_before_it_overflows_the_parsers_stack() -> None:
    assert error("module {" * 20_000) == "XC2012 brackets are nested more than 256 deep"


def test_arrows_do_not_hide_the_nesting() -> None:
    assert "nested more than 256 deep" in error("(->" * 20_000)


def test_brackets_in_names_of_nodes_do_not_count_and_do_not_hide_others() -> None:
    text = chain("a").text(locations=True).replace('"n0"', f'"{"(" * 300}\\22 ["')
    assert "((((" in text
    assert parse_module(text).text(locations=True) == text
    assert "nested more than 256 deep" in error('// "\n' + "module {" * 300 + '// "')
