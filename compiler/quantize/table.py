"""The calibration table: what samples have shown of a model's tensors, as readable JSON."""

import json
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Self, cast

from xcompile.compiler.quantize.observers import Range
from xcompile.compiler.support.errors import CompileError

_FORMAT, _VERSION = "xcompile calibration table", 1
_MOST_POWER = 60


@dataclass(frozen=True)
class Observed:
    """What is known of a tensor.

    Attributes:
        range: the numbers that it is quantized for.
        means: of its channels; empty where nobody asks for them.
    """

    range: Range
    means: tuple[float, ...] = ()


@dataclass(frozen=True)
class CalibrationTable:
    """The ranges of a model's tensors.

    Attributes:
        model: the model's name.
        digest: of the model's weights and interface (`names.digest_of`): the table serves no other model.
        observer: how the ranges were chosen.
        samples: how many there were.
        tensors: by the model's names of them (`names.tensor_names`).
        keep_float: globs of nodes that stay in floating point.
        equalized: whether channels between convolutions were equalized first.
        smooth: for tensors by name, the base-2 logarithms of what their channels are divided by first (`smooth.py`).
        rounded: for products by the tensors that they give, which weights are not the nearest integer (`rounding.py`).
    """

    model: str
    digest: str
    observer: str
    samples: int
    tensors: Mapping[str, Observed] = field(default_factory=dict[str, Observed])
    keep_float: tuple[str, ...] = ()
    equalized: bool = False
    smooth: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    rounded: Mapping[str, str] = field(default_factory=dict[str, str])

    def to_text(self) -> str:
        """The table as JSON, a line a tensor; `from_text` reads it."""
        head: dict[str, Any] = {
            "format": _FORMAT,
            "version": _VERSION,
            "model": self.model,
            "digest": self.digest,
            "observer": self.observer,
            "samples": self.samples,
            "keep_float": list(self.keep_float),
            "equalized": self.equalized,
        }
        if self.smooth:
            head["smooth"] = {name: list(powers) for name, powers in self.smooth.items()}
        if self.rounded:
            head["rounded"] = dict(self.rounded)
        lines = [f"  {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
        tensors = [f"    {json.dumps(n)}: {_text_of(seen)}" for n, seen in self.tensors.items()]
        body = ",\n".join(tensors)
        return "\n".join(["{", *lines, '  "tensors": {', body, "  }", "}", ""])

    @classmethod
    def from_text(cls, text: str, *, source: str = "the calibration table") -> Self:
        """Read a table.

        Args:
            text: JSON.
            source: what errors call it.

        Raises:
            CompileError: XC6009, it is not a calibration table, or a range is not one.
        """
        try:
            fields = json.loads(text)
            if fields["format"] != _FORMAT or fields["version"] != _VERSION:
                raise ValueError(f"it is not a {_FORMAT} of version {_VERSION}")
            return cls(
                model=_string(fields["model"]),
                digest=_string(fields["digest"]),
                observer=_string(fields["observer"]),
                samples=int(fields["samples"]),
                tensors={_string(n): _observed(n, seen) for n, seen in fields["tensors"].items()},
                keep_float=tuple(_string(glob) for glob in fields["keep_float"]),
                equalized=fields.get("equalized", False) is True,
                smooth={_string(n): _powers(n, p) for n, p in fields.get("smooth", {}).items()},
                rounded={_string(n): _string(t) for n, t in fields.get("rounded", {}).items()},
            )
        except KeyError as error:
            raise CompileError("XC6009", f"{source} cannot be used: {error} is missing") from error
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise CompileError("XC6009", f"{source} cannot be used: {error}") from error

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read the table of a file.

        Raises:
            CompileError: XC6009, the file cannot be read or holds no table.
        """
        path = path_of(path)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text"
            raise CompileError("XC6009", f"the calibration table {path}: {why}") from error
        return cls.from_text(text, source=f"the calibration table {path}")

    def save(self, path: str | PathLike[str]) -> None:
        """Write the table; the file appears whole or stays as it was.

        Raises:
            CompileError: XC6009, it cannot be written.
        """
        write_whole(path_of(path), self.to_text().encode())


def path_of(given: object) -> Path:
    """A path that a caller gave, as text or as a path.

    Raises:
        CompileError: XC6009, it is neither.
    """
    if not isinstance(given, str | PathLike):
        raise CompileError("XC6009", f"a file has a path, not {type(given).__name__}")
    return Path(cast("str | PathLike[str]", given))


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that appears whole or stays as it was.

    Raises:
        CompileError: XC6009, it cannot be written.
    """
    try:
        with tempfile.TemporaryDirectory(prefix=".xcompile-", dir=path.parent) as folder:
            made = Path(folder) / path.name
            made.write_bytes(data)
            made.replace(path)
    except OSError as error:
        raise CompileError("XC6009", f"{path} cannot be written: {error.strerror}") from error


def _text_of(seen: Observed) -> str:
    fields: dict[str, Any] = {"low": seen.range.low, "high": seen.range.high}
    if seen.means:
        fields["means"] = [float(f"{mean:.9g}") for mean in seen.means]
    return json.dumps(fields)


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    return value


def _powers(name: str, powers: Sequence[Any]) -> tuple[int, ...]:
    found = tuple(int(power) for power in powers)
    if not all(-_MOST_POWER <= power <= _MOST_POWER for power in found):
        raise ValueError(
            f"a factor of '{name}' is not between 2^-{_MOST_POWER} and 2^{_MOST_POWER}"
        )
    return found


def _observed(name: str, fields: Mapping[str, Any]) -> Observed:
    low, high = float(fields["low"]), float(fields["high"])
    if not -math.inf < low <= 0 <= high < math.inf:
        raise ValueError(f"the range of '{name}' goes from {low} to {high}; 0 lies in every range")
    means: Sequence[Any] = fields.get("means", ())
    if not all(math.isfinite(float(mean)) for mean in means):
        raise ValueError(f"a mean of '{name}' is not finite")
    return Observed(Range(low, high), tuple(float(mean) for mean in means))
