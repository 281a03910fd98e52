"""The options that several commands share, and compiling with them."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xcompile.compiler.cli.console import progress_bar
from xcompile.compiler.support.errors import CompileError

if TYPE_CHECKING:
    from xcompile.compiler.model import CompiledModel
    from xcompile.runtime.executable import Executable

Threads = Annotated[
    int | None, typer.Option(help="Threads to run on; all that the process may use by default.")
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        metavar="NAME=VALUE",
        help="An input: NAME=FILE.npy, NAME=random:1x3x224x224, or FILE.npz with all of them. "
        "NAME= may be left out for the only input.",
    ),
]
Target = Annotated[
    str, typer.Option(help="DEVICE[-ISA][-PRECISION]; `xcompile targets` lists them.")
]
Arch = Annotated[
    list[str] | None,
    typer.Option(
        metavar="sm_NN,…", help="GPU architectures of a cuda target; PTX is made for the oldest."
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        metavar="cuda|cuda:N|emulate",
        help="What runs a model that is for a GPU: the first one (the default), another, or the interpreter of PTX.",
    ),
]
Passes = Annotated[
    str,
    typer.Option(
        metavar="EDITS", help="Edits of the pipeline: +after(PASS):NEW;-PASS;PASS{OPTION=VALUE}"
    ),
]
Pipeline = Annotated[str, typer.Option(help="A whole pipeline instead of the target's.")]
Load = Annotated[
    list[Path] | None, typer.Option(metavar="FILE.py", help="A file with passes of your own.")
]
VerifyNumerics = Annotated[
    bool,
    typer.Option(
        "--verify-numerics",
        help="Compare by the numpy reference, after every pass, what it changed; name the first wrong one.",
    ),
]
Winograd = Annotated[
    str | None,
    typer.Option(
        metavar="off|f2|f4|auto",
        help="Winograd's algorithm for 3×3 convolutions: f2 errs by 1e-6, f4 by 1e-5 of the largest output.",
    ),
]
Fallback = Annotated[
    str | None,
    typer.Option(
        metavar="onnxruntime",
        help="Who runs the ops that are not supported; such a model cannot be saved.",
    ),
]
Overridable = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="An input with an initializer that a run may replace; it is a constant otherwise.",
    ),
]
CalibrationTable = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.json",
        help="The calibration table of a float model for an int8 target; --calibrate writes it.",
    ),
]
KeepFloat = Annotated[
    list[str] | None,
    typer.Option(metavar="GLOB", help="Nodes that stay in floating point in an int8 model."),
]
Precision = Annotated[
    list[str] | None,
    typer.Option(
        metavar="GLOB=NAME",
        help="Compute nodes or tensors in another precision than the target's; the last that fits holds.",
    ),
]
Jobs = Annotated[int | None, typer.Option(help="Processes that compile kernels.")]
Cache = Annotated[
    Path | None, typer.Option(help="The folder that keeps compiled kernels between runs.")
]


@dataclass(frozen=True)
class Compilation:
    """How a model is to be compiled; the fields are arguments of `xcompile.compile`."""

    target: str = "cpu"
    threads: int | None = None
    passes: str = ""
    pipeline: str = ""
    load: Sequence[Path] = ()
    explain: Sequence[str] = ()
    winograd: str | None = None
    jobs: int | None = None
    cache: Path | None = None
    prefix: str = "model"
    verify_numerics: bool = False
    fallback: str | None = None
    overridable: Sequence[str] = ()
    calibration_table: Any = None
    keep_float: Sequence[str] = ()
    precision: Sequence[str] = ()
    arch: Sequence[str] = ()
    device: str | None = None

    def precisions(self) -> dict[str, str]:
        """The precision of each glob, in the order in which they were given last."""
        chosen: dict[str, str] = {}
        for text in self.precision:
            glob, equals, name = text.rpartition("=")
            if not equals:
                raise CompileError(
                    "XC6005", f"--precision is '{text}'", help="GLOB=NAME, such as 'layer3/*=fp32'"
                )
            chosen.pop(glob, None)
            chosen[glob] = name
        return chosen

    def chooses_precision(self) -> bool:
        """Whether a part of the model is asked to be in another precision than float32."""
        from xcompile.compiler.support.precision_map import FLOAT
        from xcompile.compiler.target.registry import parse_target

        return {parse_target(self.target)[1], *self.precisions().values()} != {FLOAT}

    def edits(self) -> str:
        """The edits of the pipeline, `winograd` included."""
        if self.winograd is None:
            return self.passes
        if self.winograd not in ("off", "f2", "f4", "auto"):
            raise CompileError(
                "XC6005", f"--winograd is '{self.winograd}'", help="off, f2, f4 or auto"
            )
        return f"{self.passes};nn-choose-winograd{{mode={self.winograd}}}"

    def arguments(self) -> dict[str, Any]:
        """The arguments of `xcompile.compile` besides the model."""
        verify = self.verify_numerics or None  # the variable counts where the flag is not given
        given = {"jobs": self.jobs, "cache": self.cache, "verify-numerics": verify}
        return {
            "target": self.target,
            "threads": self.threads,
            "passes": self.edits(),
            "pipeline": self.pipeline,
            "load": self.load,
            "explain": self.explain,
            "prefix": self.prefix,
            "overridable": self.overridable,
            "precisions": self.precisions(),
            "calibration_table": self.calibration_table,
            "keep_float": self.keep_float,
            "arch": self.arch,
            "options": {name: value for name, value in given.items() if value is not None},
        }

    def compile(self, model: Path) -> "CompiledModel":
        """Compile a model, with a progress bar on a terminal."""
        from xcompile.compiler.api import compile as compile_model

        with progress_bar() as progress:
            made = compile_model(
                model,
                progress=progress,
                fallback=self.fallback,
                device=self.device,
                **self.arguments(),
            )
        if self.fallback is not None:
            print(made.report(), file=sys.stderr)
        return made

    def open(self, model: Path) -> "Executable":
        """A model ready to run: loaded when it is a compiled library, else compiled."""
        if is_library(model):
            from xcompile.runtime.library import load

            return load(model, threads=self.threads, device=self.device)
        return self.compile(model).executable


def is_library(model: Path) -> bool:
    """Whether the file is a compiled library; a file that cannot be read is not."""
    try:
        with model.open("rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False
