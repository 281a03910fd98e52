"""The ops of ONNX that the importer takes, from its table and from ONNX's own."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import onnx.defs

from xcompile.frontends.onnx.reader import NEWEST_OPSET, OLDEST_OPSET
from xcompile.frontends.onnx.registry import find_converter, load_converters
from xcompile.frontends.onnx.schemas import ONNX_NAMES

_CONTROL = {"If"}
"""Ops of the default domain that are converted without an entry in the table."""


@dataclass(frozen=True)
class Operator:
    """What is known of one op without a model.

    Attributes:
        domain: "" is the default one.
        name: the op type.
        first: the oldest opset of the domain in which it is taken.
        last: the newest.
        dtypes: the element types of its first operand (or of its result) that are taken, by their short text.
        defined: whether there is no converter, but a definition by simpler ops.
    """

    domain: str
    name: str
    first: int
    last: int
    dtypes: tuple[str, ...]
    defined: bool


def operators() -> list[Operator]:
    """Every op that is taken in some opset, ordered by domain and name."""
    load_converters()
    versions: dict[tuple[str, str], list[Any]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        versions.setdefault((schema.domain, schema.name), []).append(schema)
    found = [_operator(*key, schemas) for key, schemas in sorted(versions.items())]
    return [operator for operator in found if operator is not None]


def _operator(domain: str, name: str, schemas: Sequence[Any]) -> Operator | None:
    newest = NEWEST_OPSET if not domain else max(s.since_version for s in schemas)
    oldest = OLDEST_OPSET if not domain else 1
    taken = [v for v in range(oldest, newest + 1) if _is_taken(domain, name, v, schemas)]
    if not taken:
        return None
    schema = _schema_at(schemas, taken[-1])
    return Operator(
        domain,
        name,
        taken[0],
        taken[-1],
        _dtypes(schema),
        name not in _CONTROL and find_converter(domain, name, taken[-1]) is None,
    )


def _schema_at(schemas: Sequence[Any], version: int) -> Any:
    return max(
        (s for s in schemas if s.since_version <= version),
        key=lambda s: s.since_version,
        default=None,
    )


def _is_taken(domain: str, name: str, version: int, schemas: Sequence[Any]) -> bool:
    schema = _schema_at(schemas, version)
    if schema is None or schema.deprecated:
        return False
    if not domain and name in _CONTROL:
        return True
    if find_converter(domain, name, version) is not None:
        return True
    return bool(schema.has_function or schema.has_context_dependent_function)


def _dtypes(schema: Any) -> tuple[str, ...]:
    formal = (schema.inputs or schema.outputs)[0]
    given = {t.removeprefix("optional(").removeprefix("seq(") for t in formal.types}
    return tuple(
        name
        for name, text in ONNX_NAMES.items()
        if any(t.startswith(f"tensor({text})") for t in given)
    )
