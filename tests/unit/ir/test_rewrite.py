"""The pattern driver: what it does, and what it says to patterns that misbehave."""

import threading
import time
from typing import Any

import pytest
from torch_mlir import ir

from tests.unit.ir.toy import A, B, Effect, Toy, chain, names_in, parsed
from xcompile.compiler.ir import rewrite
from xcompile.compiler.ir.context import context
from xcompile.compiler.ir.location import node_names
from xcompile.compiler.ir.op import view
from xcompile.compiler.ir.rewrite import (
    Pattern,
    Rewriter,
    apply_patterns,
    has_one_use,
    merge_types,
    no_match,
    producer,
)
from xcompile.compiler.support.errors import CompileError


class AToB(Pattern[A]):
    def rewrite(self, op: A, rewriter: Rewriter) -> None:
        rewriter.replace(op, rewriter.create(B, x=op.x))


class BToA(Pattern[B]):
    def rewrite(self, op: B, rewriter: Rewriter) -> None:
        rewriter.replace(op, rewriter.create(A, x=op.x))


class DropB(Pattern[B]):
    def rewrite(self, op: B, rewriter: Rewriter) -> None:
        rewriter.replace(op, op.x)


class MergeTwo(Pattern[B]):
    """b(a(x)) becomes one a."""

    def rewrite(self, op: B, rewriter: Rewriter) -> None:
        first = producer(op.x, A) or no_match("the input is not an a")
        if not has_one_use(op.x):
            no_match("the a has other users")
        rewriter.replace(op, rewriter.create(A, x=first.x))
        rewriter.erase(first)


def last_op(module: Any, back: int = 2) -> Any:
    block = module.main.regions[0].blocks[0]
    return view(list(block.operations)[-back])


# -- what it does -----------------------------------------------------------------------------------


def test_patterns_apply_until_none_fires() -> None:
    module = chain("a b a b")
    stats = apply_patterns(module, [AToB(), DropB()])
    assert names_in(module) == []
    assert stats.fired == {"AToB": 2, "DropB": 4}
    assert module.module.operation.verify()


def test_an_op_that_replaces_two_names_both() -> None:
    module = chain("a b")
    apply_patterns(module, [MergeTwo()])
    assert node_names(last_op(module).location) == ["n1", "n0"]


def test_unused_pure_ops_go_and_others_stay() -> None:
    module = parsed(
        '%0 = "toy.a"(%x) : (tensor<4xf32>) -> tensor<4xf32>\n'
        '%1 = "toy.b"(%0) : (tensor<4xf32>) -> tensor<4xf32>\n'
        '%2 = "toy.effect"(%x) : (tensor<4xf32>) -> tensor<4xf32>\n'
        "return %x : tensor<4xf32>"
    )
    stats = apply_patterns(module, [])
    assert names_in(module) == ["effect"]
    assert stats.removed == 2


def test_ops_in_regions_are_rewritten() -> None:
    module = parsed(
        '%0 = "toy.holder"(%x) ({\n^bb0(%i: tensor<4xf32>):\n'
        '%1 = "toy.a"(%i) : (tensor<4xf32>) -> tensor<4xf32>\n'
        '%2 = "toy.effect"(%1) : (tensor<4xf32>) -> tensor<4xf32>\n'
        '"toy.yield"() : () -> ()\n'
        "}) : (tensor<4xf32>) -> tensor<4xf32>\nreturn %0 : tensor<4xf32>"
    )
    assert apply_patterns(module, [AToB()]).fired == {"AToB": 1}


def test_erasing_an_op_with_regions_frees_the_values_they_used() -> None:
    module = parsed(
        '%0 = "toy.a"(%x) : (tensor<4xf32>) -> tensor<4xf32>\n'
        '%1 = "toy.holder"(%x) ({\n^bb0(%i: tensor<4xf32>):\n'
        '%2 = "toy.effect"(%0) : (tensor<4xf32>) -> tensor<4xf32>\n'
        '"toy.yield"() : () -> ()\n'
        "}) : (tensor<4xf32>) -> tensor<4xf32>\n"
        '%3 = "toy.b"(%0) : (tensor<4xf32>) -> tensor<4xf32>\nreturn %3 : tensor<4xf32>'
    )
    stats = apply_patterns(module, [MergeTwo()], explain=True)
    assert stats.fired == {"MergeTwo": 1}
    assert names_in(module) == ["a"]


def test_reasons_are_those_of_the_last_try_on_ops_that_are_left() -> None:
    module = chain("b b")
    stats = apply_patterns(module, [MergeTwo()], explain=True)
    assert stats.missed == [
        ("MergeTwo", "n0", "the input is not an a"),
        ("MergeTwo", "n1", "the input is not an a"),
    ]


def test_a_pattern_of_a_base_class_sees_all_its_ops() -> None:
    class Everything(Pattern[Toy]):
        def rewrite(self, op: Toy, rewriter: Rewriter) -> None:
            if op.NAME == "toy.effect":
                no_match("it is one already")
            rewriter.replace(op, rewriter.create(Effect, x=op.operands[0]))

    module = chain("a b a")
    apply_patterns(module, [Everything()])
    assert names_in(module) == ["effect"] * 3


def test_a_changed_operand_queues_its_op_again() -> None:
    class Bypass(Pattern[A]):
        def rewrite(self, op: A, rewriter: Rewriter) -> None:
            inner = producer(op.x, B) or no_match("no b")
            rewriter.set_operand(op, 0, inner.x)

    module = chain("b b b a")
    stats = apply_patterns(module, [Bypass()])
    assert names_in(module) == ["a"]
    assert stats.fired == {"Bypass": 3}


def test_changed_lists_the_ops_to_verify() -> None:
    module = chain("a b")
    stats = apply_patterns(module, [AToB()])
    assert [o.name for o in stats.changed] == ["toy.b"]


def test_what_a_pattern_creates_before_it_leaves_is_removed() -> None:
    class Thinks(Pattern[A]):
        def rewrite(self, op: A, rewriter: Rewriter) -> None:
            rewriter.create(Effect, x=op.x)
            no_match("on second thought")

    module = chain("a")
    stats = apply_patterns(module, [Thinks()], explain=True)
    assert names_in(module) == ["a"]
    assert stats.missed == [("Thinks", "n0", "on second thought")]


# -- types ------------------------------------------------------------------------------------------


def test_known_sizes_of_two_types_are_merged() -> None:
    parse = ir.Type.parse
    assert merge_types(parse("tensor<?x4xf32>"), parse("tensor<2x?xf32>")) == parse(
        "tensor<2x4xf32>"
    )
    for other in ("tensor<2x5xf32>", "tensor<2xf32>", "tensor<2x4xf16>"):
        assert merge_types(parse("tensor<?x4xf32>"), parse(other)) is None


def test_a_replacement_of_another_type_is_refused() -> None:
    class Wrong(Pattern[A]):
        def rewrite(self, op: A, rewriter: Rewriter) -> None:
            made = B.build({"x": op.x}, [ir.Type.parse("tensor<5xf32>")])
            rewriter.replace(op, made)

    with pytest.raises(
        CompileError, match=r"XC3004 .*Wrong.*tensor<4xf32> is replaced by tensor<5"
    ):
        apply_patterns(chain("a b"), [Wrong()])


# -- what it says to patterns that misbehave ---------------------------------------------------------


def failing(pattern: Pattern[Any], names: str = "a b") -> str:
    with pytest.raises(CompileError) as caught:
        apply_patterns(chain(names), [pattern])
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_an_exception_names_the_pattern_and_the_node() -> None:
    class Raises(Pattern[B]):
        def rewrite(self, op: B, rewriter: Rewriter) -> None:
            raise KeyError("what\nnow")

    assert failing(Raises()) == (
        "XC3004 the pattern Raises failed: KeyError: 'what\\nnow', at node 'n1'"
    )


def test_a_compile_error_of_a_pattern_gets_its_name_and_node() -> None:
    class Raises(Pattern[B]):
        def rewrite(self, op: B, rewriter: Rewriter) -> None:
            raise CompileError("XC2007", "no such thing")

    assert failing(Raises()) == "XC2007 no such thing (in the pattern Raises), at node 'n1'"


def test_a_pattern_that_returns_something_is_told_so() -> None:
    class Returns(Pattern[A]):
        def rewrite(self, op: A, rewriter: Rewriter) -> None:
            return rewriter.create(B, x=op.x)  # type: ignore[return-value]

    assert "the pattern Returns returned a B" in failing(Returns())


def test_a_replacement_that_is_no_value_is_an_error() -> None:
    class Five(Pattern[A]):
        def rewrite(self, op: A, rewriter: Rewriter) -> None:
            rewriter.replace(op, [5])  # type: ignore[list-item]

    assert failing(Five()).startswith("XC3004 the pattern Five failed: ")


def test_too_many_replacements_are_an_error() -> None:
    class Two(Pattern[A]):
        def rewrite(self, op: A, rewriter: Rewriter) -> None:
            rewriter.replace(op, [op.x, op.x])

    assert "toy.a has 1 results, 2 replacements were given" in failing(Two())


def test_erasing_an_op_in_use_is_an_error() -> None:
    class Erases(Pattern[A]):
        def rewrite(self, op: A, rewriter: Rewriter) -> None:
            rewriter.erase(op)

    assert "toy.a is still used and can't be erased" in failing(Erases())


def test_two_patterns_that_undo_each_other_are_named() -> None:
    with pytest.raises(CompileError) as caught:
        apply_patterns(chain("a b"), [AToB(), BToA(), MergeTwo()], limit=50)
    text = str(caught.value)
    assert text.startswith("XC3006 patterns keep firing after 50 rewrites: ")
    assert "AToB" in text
    assert "BToA" in text


def test_a_pattern_that_grows_the_graph_for_ever_is_named() -> None:
    class Grows(Pattern[A]):
        def rewrite(self, op: A, rewriter: Rewriter) -> None:
            rewriter.replace(op, rewriter.create(A, x=rewriter.create(A, x=op.x).y))

    assert "XC3006 patterns keep firing after 1040 rewrites: Grows" in failing(Grows())


def test_a_pattern_that_creates_ops_without_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrite, "MOST_CREATED", 100)

    class Creates(Pattern[A]):
        def rewrite(self, op: A, rewriter: Rewriter) -> None:
            while True:
                rewriter.create(B, x=op.x)

    assert failing(Creates()).startswith("XC3006 the pattern Creates has made 100 ops")


def test_no_match_after_a_change_is_an_error() -> None:
    class Late(Pattern[B]):
        def rewrite(self, op: B, rewriter: Rewriter) -> None:
            rewriter.replace(op, op.x)
            no_match("too late")

    assert "the pattern Late left by no_match after it had changed the graph" in failing(Late())


def test_no_change_and_no_reason_counts_as_no_match() -> None:
    class Idle(Pattern[A]):
        def rewrite(self, op: A, rewriter: Rewriter) -> None:
            rewriter.create(B, x=op.x)

    module = chain("a")
    stats = apply_patterns(module, [Idle()], explain=True)
    assert names_in(module) == ["a"]
    assert stats.missed == [("Idle", "n0", "it changed nothing and gave no reason")]


def test_an_interrupt_ends_a_pattern_that_loops() -> None:
    class Interrupted(Pattern[A]):
        def rewrite(self, op: A, rewriter: Rewriter) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        apply_patterns(chain("a"), [Interrupted()])


# -- stale handles ----------------------------------------------------------------------------------


@pytest.mark.parametrize("use", ["replace", "erase", "set_operand", "create", "before"])
def test_an_op_used_after_its_replacement_is_an_error_that_names_who_replaced_it(use: str) -> None:
    class Stale(Pattern[B]):
        def rewrite(self, op: B, rewriter: Rewriter) -> None:
            rewriter.replace(op, op.x)
            if use == "replace":
                rewriter.replace(op, op.x)
            elif use == "erase":
                rewriter.erase(op)
            elif use == "set_operand":
                rewriter.set_operand(op, 0, op.x)
            elif use == "create":
                rewriter.create(A, x=op.x)
            else:
                rewriter.before(op)

    text = failing(Stale())
    assert text == (
        "XC3007 the pattern Stale uses toy.b, which Stale has replaced or erased, at node 'n1'"
    )


def test_a_handle_kept_from_an_earlier_rewrite_names_the_pattern_that_replaced_it() -> None:
    class Keeps(Pattern[A]):
        kept: Any = None

        def rewrite(self, op: A, rewriter: Rewriter) -> None:
            if self.kept is not None:
                rewriter.replace(op, self.kept.y)
            Keeps.kept = op
            no_match("not yet")

    with pytest.raises(CompileError) as caught:
        apply_patterns(chain("a a b"), [Keeps(), AToB()])
    assert str(caught.value).startswith(
        "XC3007 the pattern Keeps uses a value of an op that AToB has replaced or erased"
    )


def test_the_operand_of_a_replaced_op_cannot_be_used_either() -> None:
    class UsesOperand(Pattern[B]):
        def rewrite(self, op: B, rewriter: Rewriter) -> None:
            inner = producer(op.x, A) or no_match("no a")
            rewriter.replace(inner, inner.x)
            rewriter.replace(op, inner.x)

    assert "uses a value of an op that UsesOperand has replaced or erased" in failing(UsesOperand())


def test_mlirs_own_erase_leaves_other_handles_valid() -> None:
    class ErasesByItself(Pattern[B]):
        def rewrite(self, op: B, rewriter: Rewriter) -> None:
            inner = producer(op.x, A) or no_match("no a")
            other = op.operands[0].owner
            rewriter.set_operand(op, 0, inner.x)
            inner.operation.erase()
            assert other.name == "toy.a"
            rewriter.erase(A(other))

    text = failing(ErasesByItself())
    assert text.startswith("XC3007 the pattern ErasesByItself uses toy.a, which ErasesByItself has")


def test_handles_stay_valid_after_the_driver_has_ended() -> None:
    module = chain("a b a b")
    handles = [view(o) for o in module.main.regions[0].blocks[0].operations][:-1]
    apply_patterns(module, [DropB(), AToB()])
    apply_patterns(module, [DropB()])
    assert names_in(module) == []
    assert [h.NAME for h in handles if h] == ["toy.a", "toy.b", "toy.a", "toy.b"]
    assert "toy.b" in str(handles[1])


def test_erase_frees_again_after_a_failure() -> None:
    class Raises(Pattern[A]):
        def rewrite(self, op: A, rewriter: Rewriter) -> None:
            raise KeyError

    failing(Raises())
    module = chain("a b")
    last = last_op(module)
    last.operation.results[0].replace_all_uses_with(last.x)
    last.operation.erase()
    with pytest.raises(RuntimeError, match="invalidated"):
        str(last.operation)


def test_another_thread_erases_as_always() -> None:
    def erase_in_thread() -> None:
        with context():
            other = chain("a b")
            last = last_op(other)
            last.operation.results[0].replace_all_uses_with(last.x)
            last.operation.erase()
            seen.append(names_in(other))
            with pytest.raises(RuntimeError, match="invalidated"):
                str(last.operation)
            seen.append(["done"])

    class Waits(Pattern[A]):
        def rewrite(self, op: A, rewriter: Rewriter) -> None:
            thread = threading.Thread(target=erase_in_thread)
            thread.start()
            thread.join()
            no_match("it only waits")

    seen: list[list[str]] = []
    apply_patterns(chain("a"), [Waits()])
    assert seen == [["a"], ["done"]]


# -- speed ------------------------------------------------------------------------------------------


def least_seconds(work: Any, times: int = 2) -> float:
    best = float("inf")
    for _ in range(times):
        prepared = work()
        started = time.perf_counter()
        prepared()
        best = min(best, time.perf_counter() - started)
    return best


@pytest.mark.bench
def test_five_thousand_rewrites_take_less_than_two_seconds() -> None:
    def prepare() -> Any:
        module = chain("a " * 5000)
        return lambda: apply_patterns(module, [AToB()])

    assert least_seconds(prepare) < 2


@pytest.mark.bench
def test_five_thousand_misses_take_less_than_six_tenths_of_a_second() -> None:
    def prepare() -> Any:
        module = chain("b " * 5000)
        return lambda: apply_patterns(module, [MergeTwo()])

    assert least_seconds(prepare) < 0.6


def test_pattern_without_root_is_told_what_to_write() -> None:
    class Rootless(Pattern):  # type: ignore[type-arg]
        pass

    with pytest.raises(TypeError, match=r"Rootless must subclass Pattern\[SomeOp\]"):
        apply_patterns(chain("a"), [Rootless()])
