"""Fused attention against float64, on every vector width that this host runs."""

import re

import numpy as np
import pytest

from bench.fused_attention import CompiledAttention
from bench.matmul import DTYPES
from bench.native import STACK_STORES, runnable_targets
from xcompile.compiler.schedule.attention import AttentionProblem as Problem
from xcompile.compiler.schedule.attention import AttentionSchedule as Schedule
from xcompile.compiler.target.target import Target

TARGETS = [pytest.param(t, id=f"{t.lanes(32)} lanes") for t in runnable_targets()]
INF = np.inf


def reference(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None, scale: float
) -> np.ndarray:
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) * scale + (0 if mask is None else mask)
    power = np.exp(scores - scores.max(-1, keepdims=True))
    return power / power.sum(-1, keepdims=True) @ v


def heads(shape: tuple[int, int, int, int], seed: int, dtype: str = "f32") -> np.ndarray:
    """[batch, head, length, depth] of an array that lies as [batch, length, head, depth]."""
    n, h, s, d = shape
    memory = np.random.default_rng(seed).standard_normal((n, s, h, d)).astype(DTYPES[dtype])
    return memory.transpose(0, 2, 1, 3)


def strides(x: np.ndarray) -> tuple[int, ...]:
    return tuple(s // x.itemsize for s in x.strides)


def check(
    target: Target,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    mask: np.ndarray | None = None,
    *,
    threads: int = 1,
    schedule: Schedule | None = None,
) -> None:
    dtype = "f32" if q.dtype == np.float32 else "f64"
    scale = q.shape[-1] ** -0.5
    batch = q.shape[:-2]
    k, v = (np.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (k, v))
    if mask is not None:
        mask = np.broadcast_to(mask, (*batch, q.shape[-2], k.shape[-2]))
    problem = Problem(
        q.shape[-2], k.shape[-2], q.shape[-1], v.shape[-1], batch, strides(q), strides(k), strides(v),
        None if mask is None else strides(mask), scale, "nan", dtype,
    )  # fmt: skip
    compiled = CompiledAttention(problem, target, (), schedule)
    got = compiled(q, k, v, mask, threads=threads)
    tolerance = 3e-6 if dtype == "f32" else 1e-14
    np.testing.assert_allclose(got, reference(q, k, v, mask, scale), rtol=0, atol=tolerance * 5)
    if threads > 1:
        np.testing.assert_array_equal(got, compiled(q, k, v, mask))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("queries", "keys", "depth", "value_depth"),
    [(128, 128, 32, 32), (1, 77, 64, 64), (13, 5, 7, 9), (50, 300, 24, 40), (3, 1, 1, 1)],
)
def test_heads_of_any_size(
    target: Target, queries: int, keys: int, depth: int, value_depth: int
) -> None:
    q, k, v = (
        heads((2, 3, s, d), seed)
        for seed, (s, d) in enumerate(((queries, depth), (keys, depth), (keys, value_depth)))
    )
    check(target, q, k, v, threads=4)


@pytest.mark.parametrize("target", TARGETS)
def test_many_blocks_of_keys(target: Target) -> None:
    q, k, v = (heads((1, 2, s, 16), seed) for seed, s in enumerate((20, 150, 150)))
    k = k * 4  # maxima that move from block to block
    check(target, q, k, v, schedule=Schedule(2, 5, 3, 16, 4))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [(2, 1, 1, 40), (1, 1, 21, 40), (2, 3, 21, 40)])
def test_additive_masks_broadcast(target: Target, shape: tuple[int, ...]) -> None:
    q, k, v = (heads((2, 3, s, 12), seed) for seed, s in enumerate((21, 40, 40)))
    mask = np.random.default_rng(9).standard_normal(shape).astype(np.float32)
    mask[..., 33:] = -INF
    check(target, q, k, v, mask)
    check(target, q, k, v, mask, schedule=Schedule(1, 4, 4, 16, 4))


@pytest.mark.parametrize("target", TARGETS)
def test_heads_may_share_keys_and_values(target: Target) -> None:
    q, k, v = heads((2, 6, 10, 8), 0), heads((2, 1, 17, 8), 1), heads((2, 1, 17, 8), 2)
    check(target, q, k, v)


def test_double_precision() -> None:
    q, k, v = (heads((1, 2, s, 20), seed, "f64") for seed, s in enumerate((9, 30, 30)))
    check(runnable_targets()[-1], q, k, v)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("block", [8, 64])
def test_one_kernel_serves_all_lengths(target: Target, block: int) -> None:
    problem = Problem("d1", "d2", 12, 20, ("d0",), None, None, None, (0, None, None), 0.5)
    schedule = Schedule(2, 4, 4, block, 4)
    compiled = CompiledAttention(problem, target, ("d0", "d1", "d2"), schedule)
    for batch, queries, keys in ((1, 1, 1), (3, 17, 64), (2, 40, 65), (0, 3, 3)):
        random = np.random.default_rng(queries)
        q, k, v, mask = (
            random.standard_normal(s).astype(np.float32)
            for s in ((batch, queries, 12), (batch, keys, 12), (batch, keys, 20), (queries, keys))
        )
        sizes = {"d0": batch, "d1": queries, "d2": keys}
        got = compiled(q, k, v, mask, sizes, threads=2)
        np.testing.assert_allclose(got, reference(q, k, v, mask, 0.5), rtol=0, atol=1e-5)


@pytest.mark.parametrize("block", [8, 64])
@pytest.mark.parametrize(("rule", "expected"), [("nan", np.nan), ("zero", 0.0)])
def test_a_query_without_keys_follows_the_rule(rule: str, expected: float, block: int) -> None:
    problem = Problem(2, 20, 4, 4, (), None, None, None, (20, 1), 1.0, rule)  # type: ignore[arg-type]
    target = runnable_targets()[-1]
    compiled = CompiledAttention(problem, target, (), Schedule(1, 4, 4, block, 4))
    q, k, v = (heads((1, 1, s, 4), seed)[0, 0].copy() for seed, s in enumerate((2, 20, 20)))
    mask = np.zeros((2, 20), np.float32)
    mask[1] = -INF
    got = compiled(q, k, v, mask)
    np.testing.assert_array_equal(got[1], np.full(4, expected))
    np.testing.assert_allclose(got[0], reference(q, k, v, None, 1.0)[0], atol=1e-5)


@pytest.mark.parametrize("target", TARGETS)
def test_the_innermost_loops_do_not_spill_at_the_size_of_minilm(target: Target) -> None:
    natural = (128 * 384, 32, 384, 1)
    problem = Problem(
        128, 128, 32, 32, (1, 12), natural, natural, natural, (128, 0, 0, 1), 32**-0.5
    )
    compiled = CompiledAttention(problem, target)
    assert compiled.kernel.calls == []
    jumps = r"^\S+:.*$|^\s+(?:j\w+|b\.\w+|cbn?z)\s.*$"
    blocks = re.split(jumps, compiled.kernel.listing, flags=re.MULTILINE)
    inner = [block for block in blocks if len(re.findall("vfmadd|fmla", block)) >= 64]
    assert len(inner) >= 2
    assert not any(re.search(STACK_STORES, block) for block in inner)
