"""Passes, patterns and verifiers that misbehave, each in its own way; loaded into a compile as a user's file."""

import ctypes
import os
import sys
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Dialect, Op, Operand, Result
from xcompile.compiler.ir.passes import PASS_REGISTRY, Pass, PassContext, PatternPass
from xcompile.compiler.ir.rewrite import Pattern, Rewriter, no_match
from xcompile.dialects.nn.conv import Conv
from xcompile.passes.common.constants import array_of, constant

hostile = Dialect("hostile")


def misbehave(how: str) -> None:
    if how == "raise":
        raise ZeroDivisionError("no such\nthing")
    if how == "exit":
        sys.exit("goodbye")
    if how == "exit-at-once":
        os._exit(7)
    if how == "loop":
        while True:
            pass
    if how == "segfault":
        ctypes.string_at(1)
    if how == "abort":
        os.abort()
    if how == "memory":
        kept = []
        while True:
            kept.append(np.empty(1 << 26))
    if how == "recurse":
        misbehave(how)
    if how == "print":
        for _ in range(20_000):
            print("all work and no play" * 10)
        raise ValueError("that was a lot")


@hostile.op("moody")
class Moody(Op):
    """Its verifier misbehaves."""

    x: Operand
    y: Result
    how: str

    def verify(self) -> None:
        misbehave(self.how)


@PASS_REGISTRY.register
@dataclass(frozen=True)
class HostilePass(Pass):
    """Misbehave in the pass itself."""

    NAME: ClassVar[str] = "hostile-pass"

    how: str = ""

    def run(self, module: Module, context: PassContext) -> None:
        print("about to", self.how)
        if self.how == "no-module":
            module.module = "no module"  # type: ignore[assignment]
        if self.how == "no-main":
            module.main.operation.erase()
        misbehave(self.how)


class Misbehave(Pattern[Conv]):
    """Misbehaves at the second convolution."""

    def __init__(self, how: str) -> None:
        self._how = how

    def rewrite(self, op: Conv, rewriter: Rewriter) -> None:
        if "conv2" in str(op.location):
            misbehave(self._how)


class MakeMoody(Pattern[Conv]):
    """Makes an op with a verifier that misbehaves, of the second convolution."""

    def __init__(self, how: str) -> None:
        self._how = how

    def rewrite(self, op: Conv, rewriter: Rewriter) -> None:
        if "conv2" in str(op.location):
            with rewriter.here():
                made = Moody.build({"x": op.x, "how": self._how}, [op.y.type], loc=op.location)
            rewriter.note(made.operation)
            rewriter.replace(op, made)


@dataclass(frozen=True)
class _Hostile(PatternPass):
    how: str = ""

    def patterns(self, context: PassContext) -> list[Pattern]:
        return [make(self.how) for make in self.PATTERNS]


@PASS_REGISTRY.register
@dataclass(frozen=True)
class HostilePattern(_Hostile):
    """Misbehave in a pattern."""

    NAME: ClassVar[str] = "hostile-pattern"
    PATTERNS: ClassVar = (Misbehave,)


@PASS_REGISTRY.register
@dataclass(frozen=True)
class HostileVerifier(_Hostile):
    """Misbehave in the verifier of an op."""

    NAME: ClassVar[str] = "hostile-verifier"
    PATTERNS: ClassVar = (MakeMoody,)


class Mistaken(Pattern[Conv]):
    """Makes a mistake at the second convolution."""

    def __init__(self, how: str) -> None:
        self._how = how

    def rewrite(self, op: Conv, rewriter: Rewriter) -> None:
        if "conv2" not in str(op.location):
            no_match("it is not the second")
        if self._how == "garbage":
            return 7  # type: ignore[return-value]
        made = rewriter.create(Conv, **op.operand_fields(), **op.attributes())
        rewriter.replace(op, made)
        if self._how == "gone":
            rewriter.replace(op, made)
        return None


@PASS_REGISTRY.register
@dataclass(frozen=True)
class MistakenPattern(_Hostile):
    """Make a mistake in a pattern."""

    NAME: ClassVar[str] = "mistaken-pattern"
    PATTERNS: ClassVar = (Mistaken,)

    def __post_init__(self) -> None:
        if self.how == "refuse":
            raise ValueError("not that way")


class Doubles(Pattern[Conv]):
    """Doubles the weights of a convolution whose name is in no set yet."""

    def __init__(self) -> None:
        self._done: set[str] = set()

    def rewrite(self, op: Conv, rewriter: Rewriter) -> None:
        name = str(op.location)
        if name in self._done:
            no_match("it is done")
        self._done.add(name)
        weights = constant(rewriter, array_of(rewriter, op.w, "the weights") * 2)
        fields = op.operand_fields() | op.attributes() | {"w": weights}
        rewriter.replace(op, rewriter.create(Conv, **fields))


@PASS_REGISTRY.register
@dataclass(frozen=True)
class DoubleWeights(PatternPass):
    """A pass that reads weights and makes new ones."""

    NAME: ClassVar[str] = "double-weights"
    PATTERNS: ClassVar = (Doubles,)
