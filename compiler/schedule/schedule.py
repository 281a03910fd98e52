"""What all schedules share: they are frozen dataclasses, written as JSON, refused with a reason.

A kernel family declares a problem (what is computed) and a schedule (how); both are frozen dataclasses whose
fields are integers, floats, strings, booleans, None, tuples of these, or dataclasses of the same kind.
"""

import dataclasses
import json
import types
import typing
from typing import Any, Protocol, TypeVar

from xcompile.compiler.support.errors import CompileError

T = TypeVar("T")

UNITS_A_CORE = 4
"""Heuristics cut a kernel's work into this many units a core, as far as its tiles allow."""

LONGEST_SUM = 512
"""Heuristics cut longer sums into parts, where no cache asks for shorter ones: their errors grow with the terms."""


class TargetNumbers(Protocol):
    """What schedules ask of a target: numbers and features, never its name."""

    @property
    def vector_registers(self) -> int: ...
    @property
    def fma_ports(self) -> int: ...
    @property
    def l1d(self) -> int: ...
    @property
    def l2(self) -> int: ...
    @property
    def cores(self) -> int: ...
    @property
    def memory_operands(self) -> bool: ...
    def lanes(self, bits: int) -> int: ...
    def has(self, feature: str) -> bool: ...


class ScheduleError(CompileError):
    """A schedule is not legal for its problem and target; the message says why (XC4007)."""

    def __init__(self, message: str, **context: str | None) -> None:
        super().__init__("XC4007", message, **context)
        self.args = (message,)


def to_json(value: Any) -> str:
    """The canonical JSON text of a schedule or problem: equal values have equal texts."""
    return json.dumps(dataclasses.asdict(value), sort_keys=True, separators=(",", ":"))


def from_json(kind: type[T], text: str) -> T:
    """The value of dataclass `kind` that `to_json` wrote.

    Raises:
        ScheduleError: the text is no JSON object, a field is unknown or missing, or has another type.
    """
    try:
        fields = json.loads(text)
    except json.JSONDecodeError as error:
        raise ScheduleError(f"{kind.__name__} is not JSON: {error}") from error
    return _decode(kind, fields, kind.__name__)


def _decode(kind: Any, value: Any, where: str) -> Any:
    """`value`, as JSON gives it, as a value of the annotation `kind`."""
    origin = typing.get_origin(kind)
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(kind, value, where)
    if origin in (typing.Union, types.UnionType):
        for choice in typing.get_args(kind):
            try:
                return _decode(choice, value, where)
            except ScheduleError:
                continue
    elif origin is tuple and isinstance(value, list):
        return _decode_tuple(typing.get_args(kind), typing.cast("list[Any]", value), where)
    elif type(value) is kind or (origin is typing.Literal and value in typing.get_args(kind)):
        return value
    raise ScheduleError(f"{where} cannot be {value!r}")


def _decode_dataclass(kind: Any, value: Any, where: str) -> Any:
    hints = typing.get_type_hints(kind)
    names = {field.name for field in dataclasses.fields(kind)}
    if not isinstance(value, dict) or set(typing.cast("dict[Any, Any]", value)) != names:
        raise ScheduleError(f"{where} needs the fields {', '.join(sorted(names))}, got {value!r}")
    return kind(**{name: _decode(hints[name], value[name], f"{where}.{name}") for name in names})


def _decode_tuple(kinds: tuple[Any, ...], value: list[Any], where: str) -> tuple[Any, ...]:
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        kinds = (kinds[0],) * len(value)
    if len(kinds) != len(value):
        raise ScheduleError(f"{where} needs {len(kinds)} values, got {value!r}")
    return tuple(
        _decode(k, v, f"{where}[{i}]") for i, (k, v) in enumerate(zip(kinds, value, strict=True))
    )
