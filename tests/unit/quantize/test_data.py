"""Where samples come from: archives, folders, functions; images by a preprocessing that is a text."""

from pathlib import Path

import numpy as np
import pytest

from xcompile.compiler.calibration.data import Preprocessing, Samples, open_samples, skipped
from xcompile.compiler.support.errors import CompileError
from xcompile.runtime.abi import TensorSpec

IMAGE = (TensorSpec("x", "float32", ("N", "3", "2", "2")),)
PAIR = (TensorSpec("a", "int64", ("N", "5")), TensorSpec("b", "float32", ("2", "4")))


def shapes(samples: Samples) -> list[object]:
    return [
        {n: a.shape for n, a in sample.items()} if isinstance(sample, dict) else sample[0].shape
        for sample in samples.samples
    ]


def test_an_archive_has_samples_along_the_first_axis(tmp_path: Path) -> None:
    np.savez(tmp_path / "s.npz", anything=np.zeros((6, 3, 2, 2), np.float32))
    found = open_samples(tmp_path / "s.npz", IMAGE)
    assert found.total == 6
    assert shapes(found) == [{"x": (1, 3, 2, 2)}] * 6


def test_inputs_of_an_archive_go_together_by_their_sizes(tmp_path: Path) -> None:
    np.savez(tmp_path / "s.npz", a=np.zeros((3, 1, 5), np.int64), b=np.zeros((6, 4), np.float32))
    found = open_samples(str(tmp_path / "s.npz"), PAIR)
    assert shapes(found) == [{"a": (1, 5), "b": (2, 4)}] * 3


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": np.zeros((3, 5))}, "has no array for the input 'b' .*it has a"),
        (
            {"a": np.zeros((3, 5)), "b": np.zeros((8, 4))},
            "samples in different numbers: 3 for 'a', 4 for 'b'",
        ),
        ({"a": np.zeros(5), "b": np.zeros((8, 4))}, "the array for 'a' has 1 axes"),
    ],
)
def test_an_archive_that_does_not_fit_is_refused(
    tmp_path: Path, arrays: dict[str, np.ndarray], message: str
) -> None:
    np.savez(tmp_path / "s.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(CompileError, match=message):
        open_samples(tmp_path / "s.npz", PAIR)


def test_files_of_a_folder_are_samples_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name, value in (("b", 2), ("a", 1)):
        np.save(tmp_path / f"{name}.npy", np.full((3, 2, 2), value, np.float32))
    (tmp_path / "notes.txt").write_text("nothing")
    found = list(open_samples(tmp_path, IMAGE).samples)
    assert [float(sample[0].max()) for sample in found] == [1, 2]
    assert found[0][0].shape == (1, 3, 2, 2)
    with pytest.raises(CompileError, match=r"2 inputs.*\.npz file with all inputs"):
        open_samples(tmp_path, PAIR)


def test_a_function_of_a_file_gives_samples(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def samples():\n    return [1, 2, 3]\n\nnone = lambda: None\n")
    found = open_samples(f"{file}:samples", IMAGE)
    assert (list(found.samples), found.total) == ([1, 2, 3], 3)
    with pytest.raises(CompileError, match="has no function 'others'"):
        open_samples(f"{file}:others", IMAGE)
    with pytest.raises(CompileError, match="gives no samples but NoneType"):
        open_samples(f"{file}:none", IMAGE)


def test_other_sources_are_refused(tmp_path: Path) -> None:
    for wrong, message in (
        (tmp_path / "missing.npz", "cannot be read"),
        (tmp_path, "has no .npy, .npz or image files"),
        ("words", "'words' is no source of samples"),
        (3, "samples come from no int"),
    ):
        with pytest.raises(CompileError, match=message):
            open_samples(wrong, IMAGE)


def test_work_that_was_done_before_is_skipped() -> None:
    rest = skipped(Samples([1, 2, 3, 4], 4), 3)
    assert (list(rest.samples), rest.total) == ([4], 1)


def test_pixels_become_an_input_as_the_text_says() -> None:
    spec = Preprocessing.parse("crop=2x2,mean=0.5:0.25:0,std=0.5:1:2,color=bgr")
    pixels = np.zeros((4, 4, 3), np.uint8)
    pixels[1:3, 1:3] = (255, 51, 0)
    made = spec.of_pixels(pixels)
    assert made.dtype == np.float32
    assert made.shape == (1, 3, 2, 2)
    np.testing.assert_allclose(made[0, :, 0, 0], [-1, 0.2 - 0.25, 0.5], atol=1e-7)


def test_layout_scale_and_grey_are_options() -> None:
    spec = Preprocessing.parse("scale=1,layout=nhwc,color=grey")
    assert spec.of_pixels(np.full((2, 3), 7, np.uint8)).tolist() == [[[[7], [7], [7]]] * 2]
    assert Preprocessing.parse("resize=256,crop=224").crop == (224, 224)
    assert Preprocessing.parse("") == Preprocessing()


@pytest.mark.parametrize("shape", [(3, 9), (9, 3), (3, 3), (1, 4)])
def test_an_image_smaller_than_its_crop_is_refused(shape: tuple[int, int]) -> None:
    with pytest.raises(
        CompileError, match=rf"XC6009 an image of {shape[0]}x{shape[1]} pixels has no middle of 4x4"
    ):
        Preprocessing.parse("crop=4").of_pixels(np.zeros(shape, np.uint8))


@pytest.mark.parametrize(
    "wrong", ["size=3", "resize=0", "mean=a", "scale=1/0", "layout=abc", "crop"]
)
def test_a_wrong_preprocessing_is_refused(wrong: str) -> None:
    with pytest.raises(CompileError, match=r"XC6005 .* says nothing of preprocessing"):
        Preprocessing.parse(wrong)
