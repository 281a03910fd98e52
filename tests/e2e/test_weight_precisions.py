"""The precisions w4 and w8: weights of the digits network and of MiniLM in a few bits, by target name and per node."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import xcompile
from tests.e2e.networks import Network
from tests.e2e.test_quantized_digits import MODEL, accuracy, compiled, digits
from xcompile.compiler.precisions import share

assert digits  # a fixture


@pytest.mark.parametrize(("precision", "saved"), [("w8", 24_320), ("w4", 27_648)])
def test_digits_lose_nothing_and_the_dense_layer_is_small(
    digits: tuple[Any, Any], precision: str, saved: int, tmp_path: Path
) -> None:
    """512 by 10 weights, packed for 16 columns: 32,768 bytes are 8,192 and 256 of scales, or 4,096 and 1,024."""
    plain, small = compiled(MODEL, "x86-avx2"), compiled(MODEL, f"x86-avx2-{precision}")
    assert accuracy(small, digits) >= 98.3
    assert len(plain.artifact.weights) - len(small.artifact.weights) == saved
    small.save(tmp_path / "digits.so")
    loaded = xcompile.load(tmp_path / "digits.so")
    images = digits[1].images[:5]
    np.testing.assert_array_equal(loaded.run([images])["scores"], small.run([images])["scores"])


def test_the_products_are_told_with_their_weights(digits: tuple[Any, Any]) -> None:
    rows = compiled(MODEL, "cpu-w4").precisions()
    assert [(row.nodes.split(" ")[0], row.arithmetic) for row in rows] == [
        ("conv1", "float32"),
        ("conv2", "float32"),
        ("dense", "w4"),
    ]
    assert "keep float32 weights" in rows[0].why
    assert rows[2].why == ""


def test_a_node_may_be_kept_or_chosen() -> None:
    kept = compiled(MODEL, "cpu-w4", keep_float=["dense"]).precisions()[-1]
    assert (kept.arithmetic, kept.why) == ("float32", "kept in floating point by 'dense'")
    chosen = compiled(MODEL, "cpu", precisions={"dense": "w8"}).precisions()
    assert [row.arithmetic for row in chosen] == ["float32", "float32", "w8"]
    assert chosen[0].why == ""


@pytest.mark.parametrize("precision", ["w8", "w4"])
@pytest.mark.parametrize("target", ["x86-avx2", "x86-avx512"])
def test_a_row_has_one_order_of_sums_in_up_to_4_rows_and_another_in_more(
    target: str, precision: str
) -> None:
    """Few rows multiply packed weights in registers, more unpack them for a float32 contraction."""
    n = Network()
    y = n("MatMul", "x", n.weight(200, 48))
    model = n.model({"x": ("FLOAT", ["rows", 200])}, {y: ("FLOAT", ["rows", 48])})
    made = compiled(model, f"{target}-{precision}")
    x = np.random.default_rng(0).standard_normal((33, 200)).astype(np.float32)
    first = {rows: made.run([x[:rows]])[y][0] for rows in (1, 2, 3, 4, 5, 8, 33)}
    assert len({first[rows].tobytes() for rows in (1, 2, 3, 4)}) == 1
    assert len({first[rows].tobytes() for rows in (5, 8, 33)}) == 1
    few_roundings = 2**-20 * np.abs(first[1]).max()
    np.testing.assert_allclose(first[1], first[5], rtol=0, atol=few_roundings)


@pytest.mark.full
@pytest.mark.parametrize(
    ("precision", "most_megabytes", "least_cosine"), [("w8", 18, 0.997), ("w4", 16, 0.98)]
)
def test_minilm_in_a_quarter_of_the_bytes(
    precision: str, most_megabytes: float, least_cosine: float, tmp_path: Path
) -> None:
    """Of 69.1 MB in float32; the table of words, 47 MB, has 8 bits at either precision."""
    from bench import corpus
    from bench.entries import ENTRIES

    path, feeds = corpus.model("minilm"), ENTRIES["minilm"](1)
    plain, small = xcompile.compile(path, "cpu"), xcompile.compile(path, f"cpu-{precision}")
    small.save(tmp_path / "minilm.so")
    assert (tmp_path / "minilm.so").stat().st_size < most_megabytes * 1e6
    assert share(small.precisions(), precision) > 0.9
    want, got = (np.asarray(list(m.run(feeds).values())[2], np.float64) for m in (plain, small))
    lengths = np.linalg.norm(want, axis=-1) * np.linalg.norm(got, axis=-1)
    assert ((want * got).sum(axis=-1) / lengths).mean() > least_cosine
