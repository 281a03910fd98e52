"""A context for tests of the IR."""

from collections.abc import Iterator

import pytest
from torch_mlir import ir

from tests.unit.ir import toy
from xcompile.compiler.ir.context import context
from xcompile.compiler.ir.passes import PassContext
from xcompile.compiler.target.registry import targets

assert toy.toy.ops


@pytest.fixture(autouse=True)
def mlir() -> Iterator[ir.Context]:
    with context() as made:
        yield made


@pytest.fixture
def pass_context() -> PassContext:
    return PassContext(targets()["x86-avx2"])
