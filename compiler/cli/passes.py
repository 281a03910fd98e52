"""`xcompile passes`: what passes there are, and what they do."""

import inspect
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Annotated

import typer

from xcompile.compiler.cli import options
from xcompile.compiler.cli.console import table

if TYPE_CHECKING:
    from xcompile.compiler.ir.passes import Pass


def passes(
    name: Annotated[str | None, typer.Argument(help="Describe this pass.")] = None,
    *,
    load: options.Load = None,
) -> None:
    """List the passes and the pipelines, or describe one pass."""
    from xcompile import passes as _passes  # registers the passes
    from xcompile.compiler.ir.passes import PASS_REGISTRY
    from xcompile.compiler.pipelines import PIPELINES
    from xcompile.compiler.support.plugins import load_plugin

    assert _passes.PASSES
    for path in load or ():
        load_plugin(path)
    if name is not None:
        print(_description(PASS_REGISTRY.get(name)))
        return
    print(table((), [(n, _sentence(PASS_REGISTRY.get(n))) for n in PASS_REGISTRY.names()]))
    print()
    for pipeline, text in PIPELINES.items():
        print(f"@{pipeline} = {text}")


def _sentence(found: type) -> str:
    """The first sentence of the documentation of a pass or pattern."""
    first = (inspect.getdoc(found) or "").split("\n\n")[0]
    return " ".join(first.split()).partition("; see")[0].rstrip(".")


def _description(found: "type[Pass]") -> str:
    """The pass's documentation, its module's when that says more, its patterns and its options."""
    module = inspect.getmodule(found)
    docs = [inspect.getdoc(found) or ""]
    text = inspect.getdoc(module) if module is not None else None
    if text and text.startswith(found.NAME):
        text = text.removeprefix(f"{found.NAME}: ")
        docs.insert(0, text[:1].upper() + text[1:])
    lines = [found.NAME, "", "\n\n".join(docs), ""]
    for pattern in getattr(found, "PATTERNS", ()):
        lines.append(f"pattern {pattern.__name__}: {_sentence(pattern)}")
    for option in fields(found):
        kind = getattr(option.type, "__name__", str(option.type))
        default = "needed" if option.default is MISSING else f"{option.default} by default"
        lines.append(f"option {option.name.replace('_', '-')}: {kind}, {default}")
    return "\n".join(lines).rstrip()
