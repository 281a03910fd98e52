"""Locations name model nodes: every op can say which nodes it came from."""

from collections.abc import Iterable

from torch_mlir import ir


def named(name: str) -> ir.Location:
    """The location of one model node, in the current context."""
    return ir.Location.name(name)


def node_names(location: ir.Location) -> list[str]:
    """The model nodes that a location names, in order, without repeats."""
    found: dict[str, None] = {}
    pending = [location]
    while pending:
        current = pending.pop()
        if isinstance(current, ir.NameLoc):
            found.setdefault(current.name_str)
        elif isinstance(current, ir.FusedLoc):
            pending += reversed(list(current.locations))
    return list(found)


def describe(location: ir.Location) -> str | None:
    """The node names for an error message: `Conv_17 + Relu_18`; None when no node is known."""
    return " + ".join(node_names(location)) or None


def fuse(locations: Iterable[ir.Location]) -> ir.Location:
    """One location that names every node of the given ones."""
    names: dict[str, None] = {}
    for location in locations:
        names.update(dict.fromkeys(node_names(location)))
    parts = [ir.Location.name(n) for n in names]
    if not parts:
        return ir.Location.unknown()
    return parts[0] if len(parts) == 1 else ir.Location.fused(parts)
