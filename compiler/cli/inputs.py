"""Reads `--input`: files of arrays, or random ones."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xcompile.compiler.support.errors import CompileError

if TYPE_CHECKING:
    import numpy as np

    from xcompile.runtime.abi import TensorSpec

Arrays = dict[str, "np.ndarray[Any, Any]"]

_MOST_ELEMENTS = 1 << 34


def read_inputs(texts: Iterable[str], specs: Sequence["TensorSpec"]) -> Arrays:
    """The arrays that the texts of `--input` name.

    Args:
        texts: "NAME=FILE.npy", "NAME=random:1x3x8x8", "FILE.npz"; NAME= may be missing where there is one input.
        specs: the inputs of the model.

    Raises:
        CompileError: XC6006 a text is not one of these or names no input, XC7002 a file cannot be read.
    """
    known = {spec.name: spec for spec in specs}
    found: Arrays = {}
    for text in texts:
        name, value = _split(text, known)
        if name is None:
            found.update(_read_archive(Path(value)))
        elif value.startswith("random:"):
            found[name] = random_array(known[name], _sizes(value.removeprefix("random:")))
        else:
            found[name] = _read_array(Path(value))
    return found


def random_inputs(specs: Iterable["TensorSpec"], given: Arrays) -> Arrays:
    """The given arrays, and random ones for inputs that have none; sizes that the model leaves open are 1."""
    return {
        spec.name: given[spec.name]
        if spec.name in given
        else random_array(spec, tuple(1 if d is None else d for d in spec.static_dims))
        for spec in specs
    } | given


def random_array(spec: "TensorSpec", shape: tuple[int, ...]) -> "np.ndarray[Any, Any]":
    """The same random numbers each time: normal ones, or 0 and 1 for integers and booleans.

    0 and 1 are in the range of nearly every index, such as the number of a token.
    """
    import numpy as np

    from xcompile.runtime.arrays import numpy_dtype

    generator = np.random.default_rng(0)
    dtype = numpy_dtype(spec.dtype)
    if "float" in spec.dtype:
        return generator.standard_normal(shape, np.float32).astype(dtype)
    return generator.integers(0, 2, shape, np.int64).astype(dtype)


def _split(text: str, known: dict[str, "TensorSpec"]) -> tuple[str | None, str]:
    """The name of the input, None for an archive of several, and what it is to be."""
    for name in known:
        if text.startswith(f"{name}="):
            return name, text.removeprefix(f"{name}=")
    if text.endswith(".npz"):
        return None, text
    is_file = text.endswith(".npy") and ("=" not in text or Path(text).is_file())
    if len(known) == 1 and (text.startswith("random:") or is_file):
        return next(iter(known)), text
    raise CompileError(
        "XC6006",
        f"--input '{text}' names no input of the model",
        help=f"write NAME=FILE.npy or NAME=random:1x3x8x8; the inputs are {', '.join(known)}",
    )


def _sizes(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"(\d{1,12}(x\d{1,12})*)?", text, re.ASCII):
        raise CompileError(
            "XC6006", f"'random:{text}' is no shape", help="write sizes as random:1x3x8x8"
        )
    sizes = tuple(int(size) for size in text.split("x")) if text else ()
    elements = 1
    for size in sizes:
        elements *= size
    if elements > _MOST_ELEMENTS:
        raise CompileError("XC6006", f"'random:{text}' has {elements} elements, too many to make")
    return sizes


def _read_array(path: Path) -> "np.ndarray[Any, Any]":
    import numpy as np

    try:
        loaded = np.load(path, allow_pickle=False)
    except ValueError as error:  # numpy takes anything that it does not know for a pickle
        raise _unreadable(path, ValueError("not an array of numbers in numpy's format")) from error
    except (OSError, EOFError) as error:
        raise _unreadable(path, error) from error
    if not isinstance(loaded, np.ndarray):
        raise _unreadable(path, ValueError("an archive of several arrays; leave the name out"))
    return loaded


def _read_archive(path: Path) -> Arrays:
    import zipfile

    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> CompileError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return CompileError("XC6006", f"the array file {path} cannot be read: {reason}")
