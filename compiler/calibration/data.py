"""Samples to calibrate with: arrays of a file, files of a folder, images, or what a function gives."""

import importlib
import itertools
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.support.plugins import load_plugin
from xcompile.runtime.abi import TensorSpec

_IMAGES: Final = frozenset({".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".webp"})


@dataclass(frozen=True)
class Samples:
    """Samples, in the form that `Calibrator.observe` takes.

    Attributes:
        samples: one after another.
        total: how many there are; 0 when that is not known.
    """

    samples: Iterable[Any]
    total: int = 0


@dataclass(frozen=True)
class Preprocessing:
    """How an image becomes an input: resized, cropped, scaled, normalized, its axes ordered.

    Attributes:
        resize: the shorter side in pixels, or (height, width); None leaves the size.
        crop: (height, width) of the middle that is kept; None keeps all.
        scale: what pixels of 0 … 255 are multiplied by.
        mean: of each channel, taken off after scaling.
        std: of each channel, divided by then.
        layout: "nchw" or "nhwc".
        color: "rgb", "bgr" or "grey".
    """

    resize: tuple[int, ...] | None = None
    crop: tuple[int, ...] | None = None
    scale: float = 1 / 255
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    layout: str = "nchw"
    color: str = "rgb"

    @classmethod
    def parse(cls, text: str) -> "Preprocessing":
        """Read "resize=256,crop=224x224,scale=1/255,mean=0.48:0.45:0.4,std=0.22:0.22:0.22,layout=nchw,color=rgb".

        Raises:
            CompileError: XC6005, a part is not one of these.
        """
        made = cls()
        for part in filter(None, text.split(",")):
            name, _, value = part.partition("=")
            try:
                made = replace(made, **{name: _READERS[name](value)})
            except (KeyError, ValueError, ZeroDivisionError) as error:
                raise CompileError(
                    "XC6005", f"'{part}' says nothing of preprocessing",
                    help="write resize=256,crop=224x224,scale=1/255,mean=0.5:0.5:0.5,std=1:1:1,layout=nchw,color=rgb",
                ) from error  # fmt: skip
        return made

    def array(self, path: Path) -> np.ndarray:
        """The image of a file as float32 with a batch axis of 1.

        Raises:
            CompileError: XC6009, no reader of images is installed or it cannot read the file.
        """
        try:
            reader: Any = importlib.import_module("PIL.Image")
        except ImportError as error:
            raise CompileError(
                "XC6009", "reading images needs the package pillow",
                help="pip install pillow, or give arrays (.npy, .npz)",
            ) from error  # fmt: skip
        try:
            with reader.open(path) as opened:
                image = opened.convert("L" if self.color == "grey" else "RGB")
        except (OSError, ValueError) as error:
            raise CompileError("XC6009", f"the image {path} cannot be read: {error}") from error
        return self.of_pixels(np.asarray(image.resize(self._size(image.size), reader.BILINEAR)))

    def of_pixels(self, pixels: np.ndarray) -> np.ndarray:
        """The input of resized pixels, uint8 [h, w] or [h, w, 3] in the order red, green, blue.

        Raises:
            CompileError: XC6009, the image is smaller than what is to be kept of it.
        """
        pixels = pixels.reshape(*pixels.shape[:2], -1)
        if self.crop is not None:
            if any(have < want for have, want in zip(pixels.shape, self.crop, strict=False)):
                have, want = ("x".join(map(str, size)) for size in (pixels.shape[:2], self.crop))
                raise CompileError(
                    "XC6009", f"an image of {have} pixels has no middle of {want}",
                    help="resize images to at least the size that is kept, such as resize=256,crop=224",
                )  # fmt: skip
            top, left = (
                (have - want) // 2 for have, want in zip(pixels.shape, self.crop, strict=False)
            )
            pixels = pixels[top : top + self.crop[0], left : left + self.crop[1]]
        if self.color == "bgr":
            pixels = pixels[..., ::-1]
        numbers = (pixels * np.float64(self.scale) - np.array(self.mean)) / np.array(self.std)
        ordered = numbers.transpose(2, 0, 1) if self.layout == "nchw" else numbers
        return np.ascontiguousarray(ordered[np.newaxis], np.float32)

    def _size(self, size: tuple[int, int]) -> tuple[int, int]:
        """Width and height after resizing."""
        width, height = size
        if self.resize is None:
            return width, height
        if len(self.resize) == 2:
            return self.resize[1], self.resize[0]
        factor = self.resize[0] / min(width, height)
        return round(width * factor), round(height * factor)


def open_samples(
    source: Any, inputs: Sequence[TensorSpec], preprocessing: Preprocessing | None = None
) -> Samples:
    """The samples of a source.

    Args:
        source: a path of an .npz file (arrays by the inputs' names, samples along their first axis), of a folder of
            .npy files (a sample each, of the only input), .npz files (a sample each) or images, or "FILE.py:FUNCTION",
            which gives samples; or an iterable of samples, or a function that gives one.
        inputs: of the model.
        preprocessing: of images.

    Raises:
        CompileError: XC6009, the source cannot be read or has nothing for an input.
    """
    if callable(source):
        return _called(source, "the function")
    if not isinstance(source, str | Path):
        if not isinstance(source, Iterable):
            raise CompileError("XC6009", f"samples come from no {type(source).__name__}")
        return Samples(source, len(source) if isinstance(source, Sequence | np.ndarray) else 0)
    text = str(source)
    file, colon, name = text.rpartition(":")
    if colon and file.endswith(".py"):
        return _called(function_of(file, name), text)
    path = Path(text)
    if path.is_dir():
        return _folder(path, inputs, preprocessing or Preprocessing())
    if path.suffix == ".npz":
        return _archive(path, inputs)
    if path.suffix == ".npy" and len(inputs) == 1:
        return _along_first_axis({inputs[0].name: _array(path)}, inputs, path)
    raise CompileError(
        "XC6009", f"'{text}' is no source of samples",
        help="an .npz file, a folder of .npy files or images, or FILE.py:FUNCTION",
    )  # fmt: skip


def function_of(file: str, name: str) -> Callable[..., Any]:
    """A function of a Python file.

    Raises:
        CompileError: XC3009 the file cannot be loaded, XC6009 it has no such function.
    """
    found = getattr(load_plugin(Path(file)), name, None)
    if not callable(found):
        raise CompileError("XC6009", f"{file} has no function '{name}'")
    return found


def _called(function: Callable[..., Any], what: str) -> Samples:
    given = function()
    if not isinstance(given, Iterable):
        raise CompileError("XC6009", f"{what} gives no samples but {type(given).__name__}")
    return Samples(given, len(given) if isinstance(given, Sequence | np.ndarray) else 0)


def _array(path: Path) -> np.ndarray:
    try:
        loaded = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise CompileError("XC6009", f"the array file {path} cannot be read: {error}") from error
    if not isinstance(loaded, np.ndarray):
        raise CompileError("XC6009", f"the array file {path} is an archive")
    return loaded


def _arrays(path: Path, inputs: Sequence[TensorSpec]) -> dict[str, np.ndarray]:
    """The arrays of an archive by the inputs' names; the only array of the only input may have any name."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            found = {str(name): archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise CompileError("XC6009", f"the array file {path} cannot be read: {error}") from error
    if len(inputs) == 1 and len(found) == 1:
        return {inputs[0].name: next(iter(found.values()))}
    missing = [spec.name for spec in inputs if spec.name not in found]
    if missing:
        raise CompileError(
            "XC6009", f"{path} has no array for the input '{missing[0]}'",
            help=f"it has {', '.join(found) or 'none'}",
        )  # fmt: skip
    return {spec.name: found[spec.name] for spec in inputs}


def _archive(path: Path, inputs: Sequence[TensorSpec]) -> Samples:
    return _along_first_axis(_arrays(path, inputs), inputs, path)


def _along_first_axis(
    arrays: dict[str, np.ndarray], inputs: Sequence[TensorSpec], path: Path
) -> Samples:
    """One sample after another: as many rows as the input's first size, or one where that is open."""
    counts = {spec.name: _sample_count(arrays[spec.name], spec, path) for spec in inputs}
    if len(set(counts.values())) > 1:
        said = ", ".join(f"{count} for '{name}'" for name, count in counts.items())
        raise CompileError("XC6009", f"{path} has samples in different numbers: {said}")
    total = next(iter(counts.values()), 0)

    def samples() -> Iterator[dict[str, np.ndarray]]:
        for i in range(total):
            yield {spec.name: _sample(arrays[spec.name], spec, i) for spec in inputs}

    return Samples(samples(), total)


def _rows(spec: TensorSpec) -> int:
    return spec.static_dims[0] or 1 if spec.static_dims else 1


def _sample_count(array: np.ndarray, spec: TensorSpec, path: Path) -> int:
    rank = len(spec.static_dims)
    if array.ndim == rank + 1:
        return len(array)
    if array.ndim != rank or not rank:
        raise CompileError(
            "XC6009",
            f"{path}: the array for '{spec.name}' has {array.ndim} axes; the input is {spec}",
        )
    return len(array) // _rows(spec)


def _sample(array: np.ndarray, spec: TensorSpec, i: int) -> np.ndarray:
    if array.ndim == len(spec.static_dims) + 1:
        return array[i]
    rows = _rows(spec)
    return array[i * rows : (i + 1) * rows]


def _folder(path: Path, inputs: Sequence[TensorSpec], preprocessing: Preprocessing) -> Samples:
    files = sorted(p for p in path.iterdir() if p.suffix.lower() in {".npy", ".npz"} | _IMAGES)
    if not files:
        raise CompileError("XC6009", f"the folder {path} has no .npy, .npz or image files")
    if len(inputs) != 1 and any(p.suffix.lower() != ".npz" for p in files):
        raise CompileError(
            "XC6009", f"the model has {len(inputs)} inputs, and a file of {path} is for one",
            help="write each sample as an .npz file with all inputs",
        )  # fmt: skip

    def samples() -> Iterator[Any]:
        for file in files:
            if file.suffix.lower() == ".npz":
                yield _arrays(file, inputs)
            elif file.suffix.lower() == ".npy":
                array = _array(file)
                short = array.ndim + 1 == len(inputs[0].static_dims)
                yield [array[np.newaxis] if short else array]
            else:
                yield [preprocessing.array(file)]

    return Samples(samples(), len(files))


def skipped(samples: Samples, count: int) -> Samples:
    """The samples without the first ones."""
    return Samples(itertools.islice(samples.samples, count, None), max(samples.total - count, 0))


def _sizes(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"[1-9]\d{0,5}(x[1-9]\d{0,5})?", text, re.ASCII):
        raise ValueError(text)
    return tuple(map(int, text.split("x")))


def _two_sizes(text: str) -> tuple[int, ...]:
    sizes = _sizes(text)
    return sizes * (3 - len(sizes))


def _number(text: str) -> float:
    top, slash, bottom = text.partition("/")
    return float(top) / float(bottom) if slash else float(top)


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(map(_number, text.split(":")))


def _one_of(*words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in words:
            raise ValueError(text)
        return text

    return read


_READERS: Final[dict[str, Callable[[str], Any]]] = {
    "resize": _sizes,
    "crop": _two_sizes,
    "scale": _number,
    "mean": _numbers,
    "std": _numbers,
    "layout": _one_of("nchw", "nhwc"),
    "color": _one_of("rgb", "bgr", "grey"),
}
