"""Random quantized models: within one step of what they mean in float, and the same bytes on every instruction set."""

import numpy as np
import pytest

from tests.e2e.compiled_node import shared_pool
from tests.property.random_qdq import Model, model
from xcompile.compiler.api import compile as compile_model
from xcompile.compiler.target.host import host_target
from xcompile.compiler.target.registry import targets

ISAS = ("x86-avx2", "x86-avx512", "x86-vnni")


def run(drawn: Model, target: str = "cpu") -> np.ndarray:
    compiled = compile_model(drawn.proto, target=target, pool=shared_pool(), threads=1)
    return compiled.run([drawn.x])["y"]


def check_steps(seed: int) -> None:
    """Every element is at most one step off, and all but a few that lie between two integers are equal."""
    drawn = model(seed)
    steps = np.rint((run(drawn).astype(np.float64) - drawn.y) / drawn.scale)
    assert np.abs(steps).max() <= 1
    assert np.count_nonzero(steps) <= max(1, 0.01 * steps.size)


@pytest.mark.parametrize("seed", range(20))
def test_a_random_model_is_within_one_step_of_its_float_meaning(seed):
    check_steps(seed)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(20, 100))
def test_more_random_models_are_within_one_step_of_their_float_meaning(seed):
    check_steps(seed)


def check_bytes(seed: int) -> None:
    runnable = [name for name in ISAS if targets()[name].runs_on(host_target())]
    if len(runnable) < 2:
        pytest.skip("this machine runs one of the instruction sets")
    drawn = model(seed)
    first, *others = (run(drawn, name).tobytes() for name in runnable)
    assert all(other == first for other in others)


@pytest.mark.parametrize("seed", range(2))
def test_every_instruction_set_gives_the_same_bytes(seed):
    check_bytes(seed)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(2, 40))
def test_every_instruction_set_gives_the_same_bytes_for_more_models(seed):
    check_bytes(seed)
