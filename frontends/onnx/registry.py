"""The table of ONNX ops that the importer knows, and what a converter sees of its node.

    @onnx_op("MatMul", since=1)
    def matmul(node: NodeContext) -> list[Value]:
        return [node.make(MatMul, a=node.input(0), b=node.input(1)).y]

`since` is the opset from which on this converter is the right one; a later entry of the same op
takes over from its own `since`.
"""

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from xcompile.compiler.support.fingerprint import note_extension
from xcompile.frontends.onnx.reader import canonical_domain
from xcompile.frontends.onnx.sequences import Known

if TYPE_CHECKING:
    from xcompile.frontends.onnx.context import NodeContext

Converter = Callable[["NodeContext"], Sequence[Known | None]]

_TABLE: dict[tuple[str, str], dict[int, Converter]] = {}


Given = TypeVar("Given", bound=Converter)


def onnx_op(name: str, *, since: int = 1, domain: str = "") -> Callable[[Given], Given]:
    """Decorator: the function converts the op `name` of `domain` from opset `since` on."""

    def register(convert: Given) -> Given:
        versions = _TABLE.setdefault((canonical_domain(domain), name), {})
        if since in versions:
            raise ValueError(f"a converter of {name} since {since} is registered twice")
        note_extension(convert.__module__)
        versions[since] = convert
        return convert

    return register


@cache
def load_converters() -> None:
    """Import every `ops_*` module of this package, which fills the table."""
    package = importlib.import_module("xcompile.frontends.onnx")
    for info in pkgutil.iter_modules(package.__path__):
        if info.name.startswith("ops_"):
            importlib.import_module(f"{package.__name__}.{info.name}")


def find_converter(domain: str, name: str, opset: int) -> Converter | None:
    """The converter for an op at an opset; None when the table has none."""
    versions = _TABLE.get((domain, name), {})
    since = max((v for v in versions if v <= opset), default=None)
    return None if since is None else versions[since]


def close_names(domain: str, name: str) -> list[str]:
    """Known ops of similar name, best first; the same name in another domain or opset counts."""
    if (domain, name) in _TABLE:
        return [f"{name} since opset {min(_TABLE[domain, name])}"]
    others = [d for d, n in _TABLE if n == name]
    if others:
        return [f"{name} of the domain '{others[0] or 'ai.onnx'}'"]
    return difflib.get_close_matches(name, [n for d, n in _TABLE if d == domain], n=2, cutoff=0.7)
