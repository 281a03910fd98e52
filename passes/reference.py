"""Prints docs/passes.md: every pass with its options, its patterns and what it does."""

import inspect
from dataclasses import MISSING, fields

from xcompile.compiler.ir.passes import PASS_REGISTRY, Pass, PatternPass
from xcompile.passes import PASSES


def summary(cls: type) -> str:
    """The first paragraph of a class's docstring, on one line."""
    text = " ".join((inspect.getdoc(cls) or "").split("\n\n")[0].split())
    return text.replace("; see the module's docstring", "")


def options(cls: type[Pass]) -> str:
    """The options as pipeline text with their defaults: `growth=1.0`."""
    found: list[str] = []
    for field in fields(cls):
        default = "" if field.default is MISSING else f"={str(field.default).lower()}"
        found.append(f"`{field.name.replace('_', '-')}{default}`")
    return ", ".join(found) or "none"


def passes_page() -> str:
    """The text of docs/passes.md."""
    lines = [
        "# Passes",
        "",
        "Printed by `python -m xcompile.passes.reference > docs/passes.md`; a test compares.",
        "How to write one: [writing_a_pass.md](writing_a_pass.md).",
        "",
        "| pass | options | what it does |",
        "|---|---|---|",
    ]
    classes = {name: PASS_REGISTRY.get(name) for name in sorted(PASSES)}
    lines += [f"| `{name}` | {options(cls)} | {summary(cls)} |" for name, cls in classes.items()]
    lines += ["", "## Patterns", "", "| pass | pattern | what it rewrites |", "|---|---|---|"]
    for name, cls in classes.items():
        if issubclass(cls, PatternPass):
            for pattern in cls.PATTERNS:
                lines.append(f"| `{name}` | {pattern.__name__} | {summary(pattern)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(passes_page(), end="")
