"""The precisions w4 and w8: weights of the digits network and of MiniLM in a few bits, by target name and per node."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import xcompile
from tests.e2e.networks import Network, reference
from tests.e2e.test_quantized_digits import MODEL, accuracy, compiled, digits
from xcompile.compiler.precisions import share
from xcompile.compiler.quantize.weights import quantize_weights

assert digits  # a fixture


@pytest.mark.parametrize(("precision", "saved"), [("w8", 38_336), ("w4", 41_664)])
def test_digits_lose_nothing_and_weights_are_small(
    digits: tuple[Any, Any], precision: str, saved: int, tmp_path: Path
) -> None:
    """512 by 10 weights, packed for 16 columns: 32,768 bytes are 8,192 and 256 of scales, or 4,096 and 1,024.

    4,752 weights of convolutions: 19,008 bytes are 4,752, 192 of scales, and 48 of alignment.
    """
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
        ("conv1", "w8"),
        ("conv2", "w8"),
        ("dense", "w4"),
    ]
    assert [row.why for row in rows] == ["", "", ""]


CONVOLUTIONS = {
    "tails": {"x": (2, 3, 9, 11), "w": (7, 3, 3, 3), "pads": [1, 1, 1, 1]},
    "one by one": {"x": (1, 48, 5, 7), "w": (33, 48, 1, 1)},
    "steps": {"x": (1, 20, 13, 18), "w": (40, 20, 3, 5), "strides": [2, 3], "pads": [2, 1, 0, 2]},
    "groups": {"x": (1, 32, 6, 6), "w": (64, 8, 3, 3), "group": 4, "dilations": [2, 1]},
    "a line": {"x": (3, 5, 40), "w": (17, 5, 9), "strides": [2]},
    "a volume": {"x": (1, 4, 5, 6, 7), "w": (9, 4, 2, 2, 3)},
}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("target", ["x86-avx2", "x86-avx512"])
def test_convolutions_multiply_codes_of_8_bits(target: str, name: str, bias: bool) -> None:
    """Against a float32 convolution with what the codes stand for; a byte a weight is kept."""
    case = dict(CONVOLUTIONS[name])
    x_shape, w_shape = case.pop("x"), case.pop("w")
    rng = np.random.default_rng(len(name))
    filters = rng.standard_normal(w_shape).astype(np.float32)
    offsets = rng.standard_normal(w_shape[0]).astype(np.float32)

    def model(weights: np.ndarray) -> Any:
        n = Network()
        more = [n.constant(offsets)] if bias else []
        y = n("Relu", n("Conv", "x", n.constant(weights), *more, **case))
        sizes = ["n", x_shape[1], *[f"d{axis}" for axis in range(len(x_shape) - 2)]]
        return n.model({"x": ("FLOAT", sizes)}, {y: ("FLOAT", [*"abcde"][: len(x_shape)])})

    made = compiled(model(filters), f"{target}-w8")
    assert {row.arithmetic for row in made.precisions()} == {"w8"}
    lanes = 48  # channels are padded to a whole panel, at most
    assert (
        len(made.artifact.weights) <= filters.size // len(filters) * (len(filters) + lanes) + 2_048
    )

    codes, scales = quantize_weights(filters.reshape(len(filters), -1))
    numbers = (codes * scales[:, None]).astype(np.float32).reshape(w_shape)
    x = rng.standard_normal(x_shape).astype(np.float32)
    (want,) = reference(model(numbers), {"x": x})
    (got,) = made.run([x]).values()
    np.testing.assert_allclose(got, want, rtol=0, atol=4e-6 * np.abs(want).max())


def test_transposed_and_depthwise_convolutions_say_why_they_keep_their_weights() -> None:
    n = Network()
    y = n("Conv", n("ConvTranspose", "x", n.weight(4, 8, 2, 2)), n.weight(8, 1, 3, 3), group=8)
    model = n.model({"x": ("FLOAT", [1, 4, 9, 9])}, {y: ("FLOAT", [1, 8, 8, 8])})
    rows = compiled(model, "cpu-w8").precisions()
    assert [row.arithmetic for row in rows] == ["float32", "float32"]
    assert rows[0].why == "transposed convolutions keep float32 weights"
    assert rows[1].why == "the weights of a depthwise convolution are few"


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
