"""Sizes: canonical form, and agreement with integers for all values of the symbols."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xcompile.compiler.support.dims import (
    DimTooComplexError,
    Expr,
    bounds,
    broadcast_dims,
    ceildiv,
    estimate,
    evaluate,
    floordiv,
    known_nonnegative,
    known_positive,
    maximum,
    minimum,
    parse,
    product,
    substitute,
    symbol,
    symbols_of,
)

a, b, n, m = symbol("a"), symbol("b"), symbol("n"), symbol("m")


def test_equal_sums_and_products_are_equal_values_with_equal_hash_and_text():
    left, right = (n + 1) * (m + 2), m * n + m + 2 * n + 2
    assert left == right and hash(left) == hash(right) and str(left) == "m*n + m + 2*n + 2"


def test_constant_results_are_plain_integers():
    for value, expected in ((n - n, 0), (n * 0, 0), ((n + 5) - n, 5), (n // n, 1), (n % 1, 0)):
        assert type(value) is int and value == expected


def test_exact_quotients_cancel():
    assert (2 * n) // 2 == n
    assert (a * n + b * a) // a == n + b
    assert (n * m + n + m + 1) // (m + 1) == n + 1
    assert (6 * n + 4) // 2 == 3 * n + 2
    assert (a * b * n) // (a * m) == (b * n) // m


def test_quotients_with_a_remainder_take_one_form():
    assert (n - 1) // 2 + 1 == (n + 1) // 2 == ceildiv(n, 2)
    assert str((5 * n + 3) // 2) == "((n + 1)//2) + 2*n + 1"
    assert (2 * n + 1) // 4 == n // 2
    assert (n // 2) // 3 == n // 6
    assert ((n + 1) // 2 + 1) // 2 == (n + 3) // 4
    assert (n * b - 1) // b == n - 1
    assert ceildiv(n * b, b) == n


def test_remainders_are_what_the_quotient_leaves():
    assert (4 * n + 3) % 4 == 3
    assert evaluate(n % 3, {"n": 8}) == 2
    assert n % 3 == n - 3 * (n // 3)


def test_minimum_and_maximum_drop_what_cannot_win():
    assert minimum(n + 2, n) == n
    assert maximum(n, 0) == n
    assert maximum(n + 1, 1, n) == n + 1
    assert minimum(3, minimum(n, 5)) == minimum(n, 3)
    assert str(minimum(n, m, n)) == "min(m, n)"


def test_broadcast_follows_numpy():
    assert broadcast_dims(1, n) == n and broadcast_dims(n, n) == n
    assert broadcast_dims(7, n) == 7 and broadcast_dims(n + 2, m) == n + 2
    pair = broadcast_dims(n, m)
    assert str(pair) == "broadcast(m, n)"
    assert evaluate(pair, {"n": 1, "m": 0}) == 0
    assert evaluate(pair, {"n": 4, "m": 1}) == evaluate(pair, {"n": 4, "m": 4}) == 4
    with pytest.raises(ValueError, match="2 and 3"):
        evaluate(pair, {"n": 2, "m": 3})
    with pytest.raises(ValueError, match="2 and 3"):
        broadcast_dims(2, 3)
    assert broadcast_dims(pair, n) == pair and broadcast_dims(pair, 5) == 5


def test_signs_that_are_known():
    for size in (n, n // 2, maximum(n, 10) - n, n - minimum(n, m), n - n // 2, n * m + 1):
        assert known_nonnegative(size)
    for size in (n * 2 + 1, maximum(n, 1), (n + 2) // 2 * 2 - n, 1):
        assert known_positive(size)
    for size in (n - 1, n - (n + 1) // 2 * 2, minimum(n, m) - n, -1):
        assert not known_nonnegative(size)
    assert not known_positive(n)


def test_symbols_come_in_the_order_of_the_text():
    assert symbols_of(m * n + ceildiv(b, 2) + n) == ("m", "n", "b")
    assert symbols_of(4) == ()


def test_substitution_simplifies():
    assert substitute((n + 1) // 2 + m, {"n": 2 * a + 1}) == a + m + 1
    assert substitute(broadcast_dims(n, m), {"m": 1}) == n
    assert substitute(n * m, {"n": 3, "m": 4}) == 12
    assert product([2, n, 3]) == 6 * n and product([]) == 1


@pytest.mark.parametrize(
    "name", ["batch", "x.1", "a + -b", 'q"uote', "None", "λ", "1", "über größe", "\n", "😀", "\\"]
)
def test_any_name_survives_text(name: str):
    value = symbol(name) * 2 - 1
    assert parse(str(value)) == value and symbols_of(value) == (name,)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1.5",
        "n n",
        "foo(n, m)",
        "min(n)",
        "n/2",
        "n//0",
        "True",
        "n" * 9000,
        "(" * 500,
        "n**2",
        "a.b",
    ],
)
def test_text_that_is_no_size_is_refused(text: str):
    with pytest.raises(ValueError, match="is not a size"):
        parse(text)


def test_growth_is_bounded():
    with pytest.raises(DimTooComplexError):
        value = n
        for i in range(100):
            value = maximum(value // 3 + symbol(f"s{i}"), value * value)
    with pytest.raises(DimTooComplexError):
        wide = sum((symbol(f"x{i}") for i in range(60)), start=n)
        wide * wide


def test_nesting_is_bounded_and_what_is_allowed_survives_text():
    value, made = n, []
    with pytest.raises(DimTooComplexError):
        for i in range(100):
            value = maximum(minimum(value, symbol(f"s{i}")), symbol(f"t{i}") + 1)
            made.append(value)
    assert len(made) > 15
    assert parse(str(made[-1])) == made[-1]


def test_division_by_zero_is_an_error_at_once_or_at_evaluation():
    with pytest.raises(ZeroDivisionError):
        floordiv(n, 0)
    with pytest.raises(ZeroDivisionError):
        evaluate(floordiv(m, n), {"n": 0, "m": 3})


LEAVES = st.one_of(st.integers(-9, 9), st.sampled_from(["a", "b", "n"]))
TREES = st.recursive(
    LEAVES,
    lambda inner: st.tuples(
        st.sampled_from(["+", "-", "*", "//", "%", "ceil", "min", "max"]), inner, inner
    ),
    max_leaves=10,
)


def build(tree, env):
    """The size of a tree, or its integer when `env` says the symbols' values; None where a divisor is not positive."""
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return symbol(tree) if env is None else env[tree]
    kind, left, right = tree[0], build(tree[1], env), build(tree[2], env)
    if left is None or right is None:
        return None
    if kind in ("//", "%", "ceil"):
        if isinstance(right, int) and right <= 0:
            return None
        if isinstance(right, Expr) and not known_nonnegative(right):
            return None
    return {
        "+": lambda: left + right,
        "-": lambda: left - right,
        "*": lambda: left * right,
        "//": lambda: left // right,
        "%": lambda: left % right,
        "ceil": lambda: ceildiv(left, right),
        "min": lambda: minimum(left, right),
        "max": lambda: maximum(left, right),
    }[kind]()


@settings(max_examples=400, deadline=None)
@given(TREES, st.integers(0, 7), st.integers(0, 7), st.integers(0, 7))
def test_a_size_evaluates_to_what_integers_give_and_survives_text(tree, x, y, z):
    env = {"a": x, "b": y, "n": z}
    try:
        size = build(tree, None)
    except DimTooComplexError:
        return
    expected = build(tree, env)
    if size is None or expected is None:
        return
    assert evaluate(size, env) == expected
    low, high = bounds(size)
    assert low <= expected <= high
    assert expected >= 0 or not known_nonnegative(size)
    assert expected >= 1 or not known_positive(size)
    assert parse(str(size)) == size
    assert substitute(size, {}) == size
    assert substitute(size, env) == expected


def test_an_estimate_takes_sizes_that_do_not_fit():
    assert estimate(broadcast_dims(n, m), {"n": 3, "m": 5}) == 5
    assert estimate(floordiv(n, m), {"n": 7, "m": 0}) == 7
    assert estimate(n * 2 + m, {"n": 3, "m": 5}) == evaluate(n * 2 + m, {"n": 3, "m": 5}) == 11
