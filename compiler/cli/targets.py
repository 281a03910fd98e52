"""`xcompile targets`: what a model can be compiled for."""

from typing import TYPE_CHECKING, Annotated

import typer

from xcompile.compiler.cli.console import table

if TYPE_CHECKING:
    from xcompile.compiler.target.target import Target


def targets(
    *,
    features: Annotated[
        bool, typer.Option("--features", help="Print the instruction sets too.")
    ] = False,
) -> None:
    """List the targets, and whether this machine runs their code."""
    from xcompile.compiler.target.device import ARCHITECTURES
    from xcompile.compiler.target.host import host_target
    from xcompile.compiler.target.registry import CUDA, MIXED, PRECISIONS, targets

    host = host_target()
    rows: list[tuple[str, ...]] = []
    for name, target in targets().items():
        row = (name, target.arch, *_description(target), "yes" if target.runs_on(host) else "no")
        if target.device is not None:
            row = (name, ",".join(target.device.architectures), *["-"] * 4, "on a GPU")
        rows.append((*row, " ".join(sorted(target.features))) if features else row)
    header = ("target", "arch", "vectors", "L1d", "L2", "L3", "runs here")
    print(table((*header, "features") if features else header, rows))
    print(f"\nprecisions: {', '.join((*PRECISIONS, MIXED))} (as in {host.name}-{PRECISIONS[0]})")
    print(f"--arch of {CUDA}: {', '.join(ARCHITECTURES)}")


def _description(target: "Target") -> tuple[str, ...]:
    """Vectors and caches."""
    caches = (_cache_text(size) for size in (target.l1d, target.l2, target.l3))
    return f"{target.vector_bits} bits × {target.vector_registers}", *caches


def _cache_text(size: int) -> str:
    if size == 0:
        return "-"
    return f"{size >> 20} MiB" if size % (1 << 20) == 0 else f"{size >> 10} KiB"
