"""What watches passes: each instrument sees what it should and says where a fault is."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from torch_mlir import ir

from tests.unit.ir.toy import TENSOR, A, B, Picky, chain, names_in, parsed
from xcompile.compiler.ir.bisect import first_bad_pass
from xcompile.compiler.ir.instruments import (
    DumpIR,
    PrintIR,
    Reproducer,
    Timing,
    Verify,
)
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.passes import Instrument, Pass, PassContext, PatternPass
from xcompile.compiler.ir.pipeline import Fixpoint, Pipeline
from xcompile.compiler.ir.rewrite import Pattern, Rewriter
from xcompile.compiler.ir.runner import run_pipeline
from xcompile.compiler.ir.verifier import verify_module
from xcompile.compiler.support.errors import CompileError


class AToB(Pattern[A]):
    def rewrite(self, op: A, rewriter: Rewriter) -> None:
        rewriter.replace(op, rewriter.create(B, x=op.x))


class BToPicky(Pattern[B]):
    def rewrite(self, op: B, rewriter: Rewriter) -> None:
        rewriter.replace(op, rewriter.create(Picky, x=op.x))


@dataclass(frozen=True)
class Replace(PatternPass):
    NAME: ClassVar[str] = "replace"
    PATTERNS: ClassVar = (AToB,)


@dataclass(frozen=True)
class Spoil(PatternPass):
    NAME: ClassVar[str] = "spoil"
    PATTERNS: ClassVar = (BToPicky,)


@dataclass(frozen=True)
class Idle(Pass):
    NAME: ClassVar[str] = "idle"

    def run(self, module: Module, context: PassContext) -> None:
        pass


@dataclass(frozen=True)
class Fail(Pass):
    NAME: ClassVar[str] = "fail"

    reason: str = "so"

    def run(self, module: Module, context: PassContext) -> None:
        raise ValueError(self.reason)


Run = Callable[..., Module]


@pytest.fixture
def run(pass_context: PassContext) -> Run:
    def go(names: str, passes: list[Pass], *instruments: Instrument) -> Module:
        module = chain(names)
        pass_context.instruments = instruments
        run_pipeline(module, Pipeline(tuple(passes)), pass_context)
        return module

    return go


def error(run: Run, names: str, passes: list[Pass], *instruments: Instrument) -> str:
    with pytest.raises(CompileError) as caught:
        run(names, passes, *instruments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# -- verification -------------------------------------------------------------------------------------


def test_an_op_that_a_pass_spoils_names_pass_and_node(run: Run) -> None:
    assert error(run, "a b", [Replace(), Spoil()], Verify()) == (
        "XC3005 the module does not verify after the pass: too picky, at node 'n0', in pass 'spoil' "
        "(help: the fault is the pass's, not the model's)"
    )


def test_a_pass_that_changes_nothing_is_not_blamed(run: Run) -> None:
    run("picky", [Replace()], Verify())


def test_verify_each_looks_at_everything(run: Run) -> None:
    assert "XC3005" in error(run, "picky", [Replace()], Verify(each=True))


def test_after_a_pass_without_patterns_everything_is_verified(run: Run) -> None:
    assert "too picky, at node 'n0', in pass 'idle'" in error(run, "picky", [Idle()], Verify())


def test_a_verifier_that_raises_is_an_error_too() -> None:
    module = parsed(
        f'%0 = "toy.picky"(%x) {{how = "fault"}} : ({TENSOR}) -> {TENSOR} loc("n9")\nreturn %0 : {TENSOR}'
    )
    with pytest.raises(CompileError) as caught:
        verify_module(module)
    assert str(caught.value) == (
        "XC2001 the verifier of toy.picky failed: ZeroDivisionError: a fault in the verifier, at node 'n9'"
    )


@pytest.mark.parametrize(
    ("op", "message"),
    [
        ('"toy.pair"(%x)', "toy.pair needs the attribute 'label'"),
        ('"toy.pair"(%x) {label = 3}', "the attribute 'label' of toy.pair can't be 3 : i64"),
        ('"toy.a"(%x) {beta = 1.0}', "toy.a has no attribute 'beta'"),
        ('"toy.a"(%x) {axes = [1]}', "the attribute 'axes' of toy.a can't be [1]"),
    ],
)
def test_attributes_are_checked_against_the_declaration(op: str, message: str) -> None:
    module = parsed(f"%0 = {op} : ({TENSOR}) -> {TENSOR}\nreturn %0 : {TENSOR}")
    with pytest.raises(CompileError) as caught:
        verify_module(module)
    assert str(caught.value) == f"XC2001 {message}"


def test_discardable_attributes_are_allowed() -> None:
    verify_module(
        parsed(f'%0 = "toy.b"(%x) {{xc.note = 1}} : ({TENSOR}) -> {TENSOR}\nreturn %0 : {TENSOR}')
    )


def test_what_mlir_finds_wrong_names_the_node() -> None:
    module = parsed(f'%0 = "toy.b"(%x) : ({TENSOR}) -> {TENSOR} loc("n4")\nreturn %0 : {TENSOR}')
    block = module.main.regions[0].blocks[0]
    block.operations[0].operation.results[0].set_type(ir.Type.parse("tensor<5xf32>"))
    with pytest.raises(CompileError, match=r"XC2001 .*type of return operand"):
        verify_module(module)


# -- the others ---------------------------------------------------------------------------------------


def test_ir_is_printed_around_the_passes_that_are_asked_for(run: Run) -> None:
    texts: list[str] = []
    run("a", [Idle(), Replace()], PrintIR("before", ["replace"], texts.append))
    assert len(texts) == 1
    assert texts[0].startswith("// ----- before replace -----\n")
    assert "toy.a" in texts[0]


def test_after_change_prints_only_changes(run: Run) -> None:
    texts: list[str] = []
    run("a", [Idle(), Replace(), Replace()], PrintIR("after-change", write=texts.append))
    assert [t.splitlines()[0] for t in texts] == ["// ----- after-change replace -----"]
    assert "toy.b" in texts[0]


def test_after_prints_every_pass(run: Run) -> None:
    texts: list[str] = []
    run("a", [Idle(), Replace()], PrintIR("after", write=texts.append))
    assert len(texts) == 2


def test_another_time_to_print_is_refused() -> None:
    with pytest.raises(CompileError, match=r"XC6005"):
        PrintIR("sometimes")


def test_dumps_are_numbered_files_that_parse(run: Run, tmp_path: Path) -> None:
    run("a", [Replace(), Idle()], DumpIR(tmp_path / "dump"))
    names = sorted(p.name for p in (tmp_path / "dump").iterdir())
    assert names == ["000-input.mlir", "001-replace.mlir", "002-idle.mlir"]
    text = (tmp_path / "dump" / "001-replace.mlir").read_text()
    assert 'loc("n0")' in text
    assert str(ir.Module.parse(text)) in str(ir.Module.parse(text))


def test_a_folder_that_cannot_be_written_is_an_error(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "XC7001" in error(run, "a", [Idle()], DumpIR(tmp_path / "file"))


def test_timing_lists_passes_inside_fixpoints_with_their_rewrites(run: Run) -> None:
    timing = Timing()
    run("a a", [Fixpoint((Replace(),))], timing)
    assert [(name, rewrites) for name, _, rewrites in timing.seconds] == [
        ("replace", 2),
        ("replace", 0),
    ]
    assert timing.report().splitlines()[-1].endswith("2  total")


def test_a_failure_leaves_its_input_and_a_pipeline_of_one_pass(run: Run, tmp_path: Path) -> None:
    text = error(run, "a", [Replace(), Fixpoint((Fail("x"),))], Reproducer(tmp_path))
    assert text.endswith(f"(help: to reproduce: {tmp_path / 'fail.mlir'})")
    lines = (tmp_path / "fail.mlir").read_text().splitlines()
    assert lines[0] == "// pipeline: fail{reason=x}"
    assert names_in(Module(ir.Module.parse("\n".join(lines)))) == ["b"]


def test_bisection_finds_the_pass_after_which_the_module_is_bad(pass_context: PassContext) -> None:
    passes = (Idle(), Idle(), Replace(), Idle(), Spoil(), Idle())
    arguments = (lambda: chain("a"), Pipeline(passes), pass_context)
    assert first_bad_pass(*arguments, lambda m: "picky" not in names_in(m)) is passes[4]
    assert first_bad_pass(*arguments, lambda m: "a" in names_in(m)) is passes[2]
    assert first_bad_pass(*arguments, lambda m: True) is None
