"""`xcompile targets`: what a model can be compiled for."""

from typing import Annotated

import typer

from xcompile.compiler.cli.console import table


def targets(
    *,
    features: Annotated[
        bool, typer.Option("--features", help="Print the instruction sets too.")
    ] = False,
) -> None:
    """List the targets, and whether this machine runs their code."""
    from xcompile.compiler.target.host import host_target
    from xcompile.compiler.target.registry import MIXED, PRECISIONS, targets

    host = host_target()
    rows: list[tuple[str, ...]] = []
    for name, target in targets().items():
        row = (
            name,
            target.arch,
            f"{target.vector_bits} bits × {target.vector_registers}",
            *(_cache_text(size) for size in (target.l1d, target.l2, target.l3)),
            "yes" if target.runs_on(host) else "no",
        )
        rows.append((*row, " ".join(sorted(target.features))) if features else row)
    header = ("target", "arch", "vectors", "L1d", "L2", "L3", "runs here")
    print(table((*header, "features") if features else header, rows))
    print(f"\nprecisions: {', '.join((*PRECISIONS, MIXED))} (as in {host.name}-{PRECISIONS[0]})")


def _cache_text(size: int) -> str:
    if size == 0:
        return "-"
    return f"{size >> 20} MiB" if size % (1 << 20) == 0 else f"{size >> 10} KiB"
