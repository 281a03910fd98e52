"""Samples that are image files: decoded, resized, cropped and scaled as `--preprocess` says."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from xcompile.compiler.calibration.data import Preprocessing, open_samples
from xcompile.compiler.cli.main import execute
from xcompile.compiler.quantize.table import CalibrationTable
from xcompile.compiler.support.errors import CompileError
from xcompile.runtime.abi import TensorSpec

INPUT = (TensorSpec("x", "float32", ("N", "3", "4", "6")),)
DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


def pixels(height: int, width: int) -> np.ndarray:
    """Every pixel another color; neighbours are close, so that JPEG keeps them."""
    y, x = np.mgrid[0:height, 0:width]
    return np.stack([20 + 8 * y, 30 + 7 * x, 200 - 5 * (x + y)], axis=-1).astype(np.uint8)


def only(folder: Path, text: str) -> np.ndarray:
    (sample,) = open_samples(folder, INPUT, Preprocessing.parse(text)).samples
    return sample[0]


def test_a_png_is_its_pixels(tmp_path: Path) -> None:
    image = pixels(4, 6)
    Image.fromarray(image).save(tmp_path / "a.png")
    found = only(tmp_path, "scale=1/255,mean=0.5:0.25:0,std=0.5:1:2")
    assert (found.dtype, found.shape) == (np.float32, (1, 3, 4, 6))
    expected = (image / 255 - [0.5, 0.25, 0]) / [0.5, 1, 2]
    np.testing.assert_allclose(found[0].transpose(1, 2, 0), expected, atol=1e-6)


def test_colors_may_be_turned_around_and_stand_last(tmp_path: Path) -> None:
    image = pixels(4, 6)
    Image.fromarray(image).save(tmp_path / "a.png")
    found = only(tmp_path, "scale=1,color=bgr,layout=nhwc")
    np.testing.assert_array_equal(found[0], image[..., ::-1].astype(np.float32))


def test_a_jpeg_is_close_to_its_pixels_and_a_grey_one_has_three_equal_colors(
    tmp_path: Path,
) -> None:
    image = pixels(16, 16)
    Image.fromarray(image).save(tmp_path / "a.jpg", quality=95)
    found = only(tmp_path, "scale=1")
    assert np.abs(found[0].transpose(1, 2, 0) - image).max() <= 12
    Image.fromarray(image[..., 0]).save(tmp_path / "a.jpg", quality=95)
    grey = only(tmp_path, "scale=1")
    np.testing.assert_array_equal(grey[0, 0], grey[0, 2])


def test_images_are_resized_by_their_shorter_side_and_cropped_in_the_middle(tmp_path: Path) -> None:
    halves = np.zeros((20, 40, 3), np.uint8)
    halves[:, 20:] = 200
    Image.fromarray(halves).save(tmp_path / "a.png")
    found = only(tmp_path, "resize=10,crop=4x6,scale=1")
    assert found.shape == (1, 3, 4, 6)
    np.testing.assert_array_equal(
        found[0, 0, 0], [0, 0, found[0, 0, 0, 2], 200 - found[0, 0, 0, 2], 200, 200]
    )
    whole = only(tmp_path, "resize=4x6,scale=1")
    assert whole.shape == (1, 3, 4, 6)


def test_transparent_and_palette_images_are_read_as_colors(tmp_path: Path) -> None:
    image = Image.fromarray(pixels(4, 6))
    image.convert("RGBA").save(tmp_path / "a.png")
    np.testing.assert_array_equal(only(tmp_path, "scale=1")[0, 1, 0], pixels(4, 6)[0, :, 1])
    image.convert("P", palette=Image.Palette.ADAPTIVE).save(tmp_path / "a.png")
    assert np.abs(only(tmp_path, "scale=1")[0].transpose(1, 2, 0) - pixels(4, 6)).max() <= 8


@pytest.mark.parametrize("name", ["a.png", "a.jpg"])
def test_a_broken_image_is_named(tmp_path: Path, name: str) -> None:
    Image.fromarray(pixels(32, 32)).save(tmp_path / name)
    data = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(data[: len(data) // 2])
    with pytest.raises(CompileError, match=rf"XC6009 the image .*{name} cannot be read"):
        only(tmp_path, "")
    (tmp_path / name).write_bytes(b"no image")
    with pytest.raises(CompileError, match=rf"XC6009 the image .*{name} cannot be read"):
        only(tmp_path, "")


def test_a_folder_of_images_calibrates_like_the_arrays_in_them(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (20, 8, 8), dtype=np.uint8)
    (tmp_path / "images").mkdir()
    for place, image in enumerate(images):
        Image.fromarray(image).save(tmp_path / "images" / f"{place:02}.png")
    np.savez(tmp_path / "arrays.npz", images=(images[:, np.newaxis] / 16).astype(np.float32))
    texts: list[str] = []
    for source in ("images", "arrays.npz"):
        table = tmp_path / "table.json"
        words = [str(DIGITS), "--target=cpu-int8", f"--calibrate={tmp_path / source}"]
        words += [f"--calibration-table={table}", "--preprocess=scale=1/16,color=grey"]
        assert execute([*words, "-o", str(tmp_path / "digits.so")]) == 0
        texts.append(CalibrationTable.load(table).to_text())
    assert texts[0] == texts[1]
