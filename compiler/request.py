"""What to compile for and how, as plain values; and the part of a cache key that says so."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from xcompile.compiler.codegen.cuda.assembler import find_assembler
from xcompile.compiler.support.fingerprint import compiler_fingerprint, extensions_fingerprint
from xcompile.compiler.support.options import VERIFY_NUMERICS, Options
from xcompile.compiler.support.plugins import plugin_module_name
from xcompile.compiler.support.precision_map import ALL_FLOAT, PrecisionMap
from xcompile.compiler.target.target import Target

if TYPE_CHECKING:
    from xcompile.compiler.ir.passes import Instrument

Progress = Callable[[str, int, int], None]
"""Called with what is being done ("import", "passes", "kernels"), how many are done, and of how many."""

_READERS = ("nn-insert-quantization{", "nn-smooth-activations{")
"""Options of these passes name a file."""


@dataclass(frozen=True)
class Request:
    """What to compile for, and how.

    Attributes:
        target: the machine.
        pipeline: pipeline text; the default of target and precision when empty.
        passes: edits of the pipeline, see `compiler.ir.pipeline`.
        prefix: of the model's symbols.
        explain: passes that should say why they did not fire.
        load: Python files that add passes; workers load them too.
        options: everything else.
        overridable: inputs with an initializer that a run may replace.
        instruments: who watches the passes, besides verification.
        precisions: of the model and parts of it; the default pipeline has their passes.
        calibration: the calibration table as JSON text; empty when there is none.
    """

    target: Target
    pipeline: str = ""
    passes: str = ""
    prefix: str = "model"
    explain: frozenset[str] = frozenset()
    load: tuple[str, ...] = ()
    options: Options = field(default_factory=Options)
    overridable: tuple[str, ...] = ()
    instruments: tuple["Instrument", ...] = ()
    precisions: PrecisionMap = ALL_FLOAT
    calibration: str = ""

    def key(self) -> str | None:
        """Canonical text of all that decides, beside the model, what is made; None when that is not known.

        It is not known when passes or converters of this process come from code whose source is not at hand (a
        notebook), when a file to load cannot be read, or when the pipeline itself names a calibration table. With
        instruments there is no key: they want to see passes run.
        """
        watched = self.instruments or self.options[VERIFY_NUMERICS]
        if watched or type(self.target) is not Target:
            return None
        if any(reader in text for reader in _READERS for text in (self.pipeline, self.passes)):
            return None
        try:
            plugins = [hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in self.load]
        except OSError:
            return None
        extensions = extensions_fingerprint({plugin_module_name(Path(path)) for path in self.load})
        if extensions is None:
            return None
        assembler = find_assembler() if self.target.device is not None else None
        described = {
            "assembler": assembler.version if assembler is not None else None,
            "calibration": hashlib.sha256(self.calibration.encode()).hexdigest(),
            "compiler": compiler_fingerprint(),
            "explain": sorted(self.explain),
            "extensions": extensions,
            "load": plugins,
            "options": self.options.code_key(),
            "overridable": sorted(self.overridable),
            "passes": self.passes,
            "pipeline": self.pipeline,
            "precisions": self.precisions.to_json(),
            "prefix": self.prefix,
            "target": self.target.to_json(),
        }
        return json.dumps(described, sort_keys=True)
