"""Runs passes on IR text: what `opt` does and what the text tests call."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from xcompile import passes as _passes  # registers the passes
from xcompile.compiler.ir.context import context
from xcompile.compiler.ir.instruments import PrintIR, Verify
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.passes import Instrument, PassContext
from xcompile.compiler.ir.pipeline import parse_pipeline
from xcompile.compiler.ir.runner import run_pipeline
from xcompile.compiler.ir.text import parse_module
from xcompile.compiler.ir.verifier import verify_module
from xcompile.compiler.isolation import Follow, following, run_isolated
from xcompile.compiler.numerics.check import VerifyNumerics
from xcompile.compiler.pipelines import PIPELINES
from xcompile.compiler.target.target import Target
from xcompile.dialects import nn as _nn  # declares the ops

assert _passes.PASSES and _nn.__path__

SPLIT = "// -----"
"""A line of this separates modules of one file."""


def optimize(
    text: str,
    pipeline: str,
    target: Target,
    *,
    explain: frozenset[str] = frozenset(),
    locations: bool = False,
    instruments: Sequence[Instrument] | None = None,
) -> str:
    """Run a pipeline on each module of a text.

    Args:
        text: one module or several, separated by lines `// -----`.
        pipeline: pipeline text; nothing runs when it is empty.
        target: the machine the passes may ask about.
        explain: passes whose rewrites and missed rewrites are added behind the module, as comments.
        locations: print the model nodes of the ops.
        instruments: who watches; verification of everything after each pass when None.

    Returns:
        The modules, separated as they were.

    Raises:
        CompileError: the text or the pipeline is wrong, or a pass fails.
    """
    with context():
        parts = [
            optimize_module(
                parse_module(part), pipeline, target, explain=explain, locations=locations, instruments=instruments
            )
            for part in text.split(f"\n{SPLIT}\n")
        ]  # fmt: skip
    return f"\n{SPLIT}\n".join(parts) + "\n"


def optimize_module(
    module: Module,
    pipeline: str,
    target: Target,
    *,
    explain: frozenset[str] = frozenset(),
    locations: bool = False,
    instruments: Sequence[Instrument] | None = None,
) -> str:
    """Run a pipeline on a module, which is changed; the arguments and errors are those of `optimize`.

    Returns:
        The module's text and the explanations, without a line break at the end.
    """
    watching = [Verify(each=True)] if instruments is None else instruments
    state = PassContext(target, explain, instruments=watching)
    with module.context, ir.Location.unknown():
        verify_module(module)
        if pipeline:
            run_pipeline(module, parse_pipeline(pipeline, PIPELINES), state)
        lines = [module.text(locations=locations).rstrip()]
    for pass_name, stats in state.stats:
        if not state.wants_reasons(pass_name):
            continue
        lines += [f"// {name} fired at {node}" for name, node in stats.fired_at]
        lines += [f"// {name} missed {node}: {why}" for name, node, why in stats.missed]
    return "\n".join(lines)


@dataclass(frozen=True)
class OptRequest:
    """What the command `opt` is to do.

    Attributes:
        text: MLIR text; that of `model` when None.
        model: the path of an ONNX model.
        pipeline: pipeline text; nothing runs when it is empty.
        target: the machine the passes may ask about.
        explain: see `optimize`.
        locations: see `optimize`.
        print_changes: print the text after each pass that changed it.
        verify_numerics: compare after each pass, by the numpy reference, what it changed.
    """

    text: str | None
    model: str
    pipeline: str
    target: Target
    explain: tuple[str, ...] = ()
    locations: bool = False
    print_changes: bool = False
    verify_numerics: bool = False

    def run(self, instruments: Sequence[Instrument] = ()) -> str:
        """The text after the passes; errors are those of `optimize`."""
        from xcompile.frontends.onnx.importer import import_onnx

        changes: list[Instrument] = [PrintIR("after-change")] if self.print_changes else []
        if self.verify_numerics:
            changes.append(VerifyNumerics())
        settings: dict[str, Any] = {
            "explain": frozenset(self.explain),
            "locations": self.locations,
            "instruments": [Verify(each=True), *instruments, *changes],
        }
        if self.text is not None:
            return optimize(self.text, self.pipeline, self.target, **settings)
        module = import_onnx(self.model)
        return optimize_module(module, self.pipeline, self.target, **settings) + "\n"

    def run_isolated(self, load: Sequence[str], seconds: float) -> str:
        """The same in another process, in which the files `load` are executed first.

        Raises:
            CompileError: see `isolation.run_isolated`.
        """
        payload = {**asdict(self), "target": self.target.to_json()}
        with tempfile.TemporaryDirectory(prefix="xcompile-") as scratch:
            answer = run_isolated(
                "xcompile.compiler.opt:run_payload", payload, Path(scratch),
                target=self.target, load=load, seconds=seconds,
            )  # fmt: skip
            return answer["text"]


def run_payload(payload: Mapping[str, Any]) -> dict[str, str]:
    """The other process's side of `OptRequest.run_isolated`."""
    fields = dict(payload)
    folder = Path(fields.pop("folder"))
    fields["target"] = Target.from_json(fields["target"])
    with following(folder) as printed:
        text = OptRequest(**fields).run([Follow(folder)])
    return {"text": text, "printed": printed.getvalue()}
