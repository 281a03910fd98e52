"""Pipelines as text, and passes that misbehave."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.ir.toy import A, B, chain, names_in
from xcompile.compiler.ir import passes
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.passes import (
    PASS_REGISTRY,
    Pass,
    PassContext,
    PassRegistry,
    PatternPass,
    make_pass,
)
from xcompile.compiler.ir.pipeline import Fixpoint, Pipeline, parse_pipeline
from xcompile.compiler.ir.rewrite import Pattern, Rewriter
from xcompile.compiler.ir.runner import run_pipeline
from xcompile.compiler.support.errors import CompileError


@dataclass(frozen=True)
class ToyOptions(Pass):
    """Has one option of each kind."""

    NAME: ClassVar[str] = "toy-options"

    count: int = 1
    eps_limit: float = 1e-3
    deep: bool = False
    word: str = "w"
    most: int | None = None

    def run(self, module: Module, context: PassContext) -> None:
        pass


class AToB(Pattern[A]):
    def rewrite(self, op: A, rewriter: Rewriter) -> None:
        rewriter.replace(op, rewriter.create(B, x=op.x))


@dataclass(frozen=True)
class ToyReplace(PatternPass):
    """Replaces each a by a b."""

    NAME: ClassVar[str] = "toy-replace"
    PATTERNS: ClassVar = (AToB,)


@dataclass(frozen=True)
class ToyRaise(Pass):
    """Raises."""

    NAME: ClassVar[str] = "toy-raise"

    def run(self, module: Module, context: PassContext) -> None:
        raise RuntimeError("oh\nno")


@dataclass(frozen=True)
class ToyNeeds(Pass):
    """Has an option without a default."""

    NAME: ClassVar[str] = "toy-needs"

    what: int


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    for cls in (ToyOptions, ToyReplace, ToyRaise, ToyNeeds):
        PASS_REGISTRY.register(cls)
    yield
    for cls in (ToyOptions, ToyReplace, ToyRaise, ToyNeeds):
        PASS_REGISTRY._entries.pop(cls.NAME)


def parse(text: str, **named: str) -> Pipeline:
    return parse_pipeline(text, named)


def error(text: str, **named: str) -> str:
    with pytest.raises(CompileError) as caught:
        parse(text, **named)
    return str(caught.value)


# -- text -------------------------------------------------------------------------------------------


def test_options_are_read_by_their_types() -> None:
    made = parse("toy-options{count=3 eps-limit=1e-5 deep=true word=x most=4}").passes[0]
    assert made == ToyOptions(3, 1e-5, True, "x", 4)


def test_options_with_their_default_are_not_printed() -> None:
    assert str(ToyOptions()) == "toy-options"
    assert str(ToyOptions(count=2, deep=True)) == "toy-options{count=2 deep=true}"


def test_named_pipelines_are_inserted() -> None:
    made = parse("@two, toy-raise", two="toy-replace,@one", one="toy-options")
    assert str(made) == "toy-replace,toy-options,toy-raise"


_passes = st.one_of(
    st.builds(
        ToyOptions,
        count=st.integers(),
        eps_limit=st.floats(allow_nan=False),
        deep=st.booleans(),
        word=st.from_regex(r"[\w.+-]+", fullmatch=True),
    ),
    st.just(ToyReplace()),
)
_pipelines = st.recursive(
    _passes,
    lambda inner: st.builds(
        Fixpoint, st.lists(inner, min_size=1, max_size=3).map(tuple), st.integers(1, 9)
    ),
    max_leaves=6,
)


@given(st.lists(_pipelines, min_size=1, max_size=4))
def test_a_pipeline_prints_and_parses_back(passes: list[Any]) -> None:
    PASS_REGISTRY.register(ToyOptions)
    PASS_REGISTRY.register(ToyReplace)
    made = Pipeline(tuple(passes))
    assert parse(str(made)) == made


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("", "XC3002 cannot parse the pipeline at column 1: expected a pass name"),
        ("toy-replace,,", "XC3002 cannot parse the pipeline at column 13"),
        ("toy-replace)", "XC3002 cannot parse the pipeline at column 12"),
        ("toy-replace{x", "XC3002 cannot parse the pipeline at column 12"),
        ("toy-options{count}", "XC3002 cannot parse the pipeline at column 12: 'count' is not"),
        ("fixpoint", "XC3002 cannot parse the pipeline at column 9: expected '(' after fixpoint"),
        ("fixpoint(toy-replace", "XC3002 cannot parse the pipeline at column 21: expected ')'"),
        ("@none", "XC3002 cannot parse the pipeline at column 1: there is no pipeline '@none'"),
        ("toy-repalce", "XC3001 there is no pass 'toy-repalce' (help: did you mean toy-replace"),
        ("toy-options{cuont=1}", "XC3003 the pass toy-options has no option 'cuont' (help: it has"),
        ("toy-options{count=x}", "XC3003 the option count of toy-options must be a int, not 'x'"),
        ("toy-options{deep=1}", "XC3003 the option deep of toy-options must be a bool, not '1'"),
        ("toy-needs", "XC3003 the pass toy-needs needs the option 'what'"),
        ("fixpoint{max=0}(toy-replace)", "XC3003 fixpoint takes max=ROUNDS, not max=0"),
        ("fixpoint{mix=2}(toy-replace)", "XC3003 fixpoint takes max=ROUNDS, not mix=2"),
        ("fixpoint(" * 5000, "XC3002 cannot parse the pipeline at column"),
    ],
)
def test_wrong_text_is_one_line_that_says_what_and_where(text: str, start: str) -> None:
    message = error(text)
    assert message.startswith(start)
    assert "\n" not in message


def test_a_pipeline_that_names_itself_is_an_error() -> None:
    assert "nest more than 16 deep" in error("@a", a="toy-replace,@b", b="@a")


# -- edits ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edits", "result"),
    [
        ("+after(toy-options):toy-raise", "toy-options,toy-raise,fixpoint(toy-replace)"),
        ("+before(toy-options):toy-raise", "toy-raise,toy-options,fixpoint(toy-replace)"),
        (
            "+after(toy-replace):toy-options{count=2}",
            "toy-options,fixpoint(toy-replace,toy-options{count=2})",
        ),
        ("-toy-replace", "toy-options"),
        ("-toy-options;+before(toy-replace):toy-raise", "fixpoint(toy-raise,toy-replace)"),
        ("toy-options{count=2}", "toy-options{count=2},fixpoint(toy-replace)"),
        ("-toy-options;toy-replace{}", "fixpoint(toy-replace)"),
        ("+before(fixpoint):@own", "toy-options,toy-raise,fixpoint(toy-replace)"),
    ],
)
def test_edits_insert_remove_and_change_passes(edits: str, result: str) -> None:
    made = parse("toy-options,fixpoint(toy-replace)")
    assert str(made.edited(edits, {"own": "toy-raise"})) == result


@pytest.mark.parametrize(
    ("edits", "start"),
    [
        (
            "-toy-none",
            "XC3001 the pipeline has no pass 'toy-none' (help: did you mean toy-options?)",
        ),
        ("toy-raise", "XC3002 'toy-raise' is no edit of a pipeline"),
        ("toy-options{count=x}", "XC3003 the option count of toy-options must be a int"),
        ("toy-none{x=1}", "XC3001 the pipeline has no pass 'toy-none'"),
        ("+after(toy-options):toy-none", "XC3001 there is no pass 'toy-none'"),
    ],
)
def test_wrong_edits_are_errors(edits: str, start: str) -> None:
    with pytest.raises(CompileError) as caught:
        parse("toy-options").edited(edits)
    assert str(caught.value).startswith(start)


# -- running ----------------------------------------------------------------------------------------


def test_a_pass_that_raises_is_one_line_with_its_name(pass_context: PassContext) -> None:
    with pytest.raises(CompileError) as caught:
        run_pipeline(chain("a"), parse("toy-replace,fixpoint(toy-raise)"), pass_context)
    assert str(caught.value) == (
        "XC3004 the pass failed: RuntimeError: oh\\nno, in pass 'toy-raise'"
    )


def test_a_failing_pattern_names_pass_pattern_and_node(pass_context: PassContext) -> None:
    class Fails(Pattern[B]):
        def rewrite(self, op: B, rewriter: Rewriter) -> None:
            raise ValueError("no")

    @dataclass(frozen=True)
    class ToyFails(PatternPass):
        NAME: ClassVar[str] = "toy-fails"
        PATTERNS: ClassVar = (Fails,)

    with pytest.raises(CompileError) as caught:
        run_pipeline(chain("a b"), Pipeline((ToyFails(),)), pass_context)
    assert str(caught.value) == (
        "XC3004 the pattern Fails failed: ValueError: no, at node 'n1', in pass 'toy-fails'"
    )


def test_a_fixpoint_ends_when_nothing_changes(pass_context: PassContext) -> None:
    module = chain("a a")
    run_pipeline(module, parse("fixpoint(toy-replace)"), pass_context)
    assert names_in(module) == ["b", "b"]
    assert [stats.fired.total() for _, stats in pass_context.stats] == [2, 0]


def test_explain_is_by_pass(pass_context: PassContext) -> None:
    pass_context.explain = frozenset({"toy-replace"})
    assert pass_context.wants_reasons("toy-replace")
    assert not pass_context.wants_reasons("toy-options")


# -- the registry -----------------------------------------------------------------------------------


def test_a_lazy_entry_that_cannot_be_imported_is_an_error() -> None:
    PASS_REGISTRY.add({"toy-lost": "xcompile.no_such_module:Lost"})
    try:
        with pytest.raises(CompileError, match=r"XC3009 the pass 'toy-lost' cannot be loaded from"):
            make_pass("toy-lost", {})
    finally:
        PASS_REGISTRY._entries.pop("toy-lost")


@pytest.mark.parametrize("name", ["", "two words", "a,b", "fixpoint", "1st"])
def test_a_name_that_cannot_stand_in_a_pipeline_is_refused(name: str) -> None:
    bad = type("Bad", (Pass,), {"NAME": name})
    with pytest.raises(CompileError, match=r"XC3009 the pass Bad has the name"):
        PASS_REGISTRY.register(bad)


def test_only_passes_can_be_registered() -> None:
    with pytest.raises(CompileError, match=r"XC3009 .* is registered as a pass but is none"):
        PASS_REGISTRY.register(dict)  # type: ignore[arg-type]


def test_passes_of_installed_packages_are_found_by_their_entry_points(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    point = EntryPoint("their-pass", f"{__name__}:ToyReplace", "xcompile.passes")
    monkeypatch.setattr(passes, "entry_points", lambda group: [point])
    registry = PassRegistry()
    assert registry.names() == ["their-pass"]
    assert registry.get("their-pass") is ToyReplace
