"""Programs as JSON and back, by the types of their fields: a Dim is its text, one of several classes has its name."""

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

from xcompile.compiler.support.dims import Dim, parse


def to_json(value: Any) -> Any:
    """A dataclass of the rt level as dicts, lists, numbers and texts."""
    return _write(value, type(value))


def from_json(kind: Any, data: Any) -> Any:
    """What `to_json` wrote for a value of the type `kind`.

    Raises:
        KeyError, TypeError, ValueError: it did not write that.
    """
    return _read(kind, data)


def _write(value: Any, kind: Any) -> Any:
    if kind == Dim:
        return str(value)
    if isinstance(value, tuple):
        items = cast("tuple[Any, ...]", value)
        return [_write(v, k) for v, k in zip(items, _items(kind, len(items)), strict=True)]
    if not is_dataclass(value):
        return value
    written = {
        f.name: _write(getattr(value, f.name), _hints(type(value))[f.name]) for f in fields(value)
    }
    return written if kind is type(value) else {"step": type(value).__name__, **written}


def _read(kind: Any, data: Any) -> Any:
    if kind == Dim:
        return parse(data)
    if get_origin(kind) is tuple:
        return tuple(_read(k, d) for k, d in zip(_items(kind, len(data)), data, strict=True))
    if get_origin(kind) in (Union, types.UnionType):
        choices = {c.__name__: c for c in get_args(kind) if c is not types.NoneType}
        if data is None:
            return None
        return _read(
            choices[data["step"]] if "step" in data else next(iter(choices.values())), data
        )
    if not is_dataclass(kind):
        return data
    hints = _hints(cast("type[Any]", kind))
    given = {f.name: _read(hints[f.name], data[f.name]) for f in fields(kind)}
    return cast("Any", kind)(**given)


def _items(kind: Any, count: int) -> list[Any]:
    arguments = get_args(kind)
    return [arguments[0]] * count if arguments[-1] is Ellipsis else list(arguments)


@cache
def _hints(kind: type[Any]) -> Mapping[str, Any]:
    return get_type_hints(kind)
