"""xcompile: a compiler for machine-learning models.

import xcompile

model = xcompile.compile("model.onnx", target="cpu")
y = model(x)
model.save("model.so")
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_EXPORTS = {
    "CalibrationTable": "xcompile.compiler.quantize.table",
    "Calibrator": "xcompile.compiler.calibration.calibrator",
    "compile": "xcompile.compiler.api",
    "CompiledModel": "xcompile.compiler.model",
    "CompileError": "xcompile.compiler.support.errors",
    "Executable": "xcompile.runtime.executable",
    "RuntimeModelError": "xcompile.runtime.errors",
    "diff": "xcompile.compiler.diff.api",
    "diff_precision": "xcompile.compiler.diff.api",
    "load": "xcompile.runtime.library",
    "predict": "xcompile.compiler.prediction",
    "profile": "xcompile.compiler.profile",
    "profile_library": "xcompile.compiler.profile",
    "targets": "xcompile.compiler.target.registry",
}
"""What the package offers, and where it is; modules are imported at the first use (a deployed model
needs no compiler).
"""

_MODULES = {"zoo": "xcompile.frontends.onnx.zoo"}
"""The modules it offers under names of their own."""

__all__ = [
    "CalibrationTable",
    "Calibrator",
    "CompileError",
    "CompiledModel",
    "Executable",
    "RuntimeModelError",
    "compile",
    "diff",
    "diff_precision",
    "load",
    "predict",
    "profile",
    "profile_library",
    "targets",
    "zoo",
]

if TYPE_CHECKING:
    import xcompile.frontends.onnx.zoo as zoo
    from xcompile.compiler.api import compile
    from xcompile.compiler.calibration.calibrator import Calibrator
    from xcompile.compiler.diff.api import diff, diff_precision
    from xcompile.compiler.model import CompiledModel
    from xcompile.compiler.prediction import predict
    from xcompile.compiler.profile import profile, profile_library
    from xcompile.compiler.quantize.table import CalibrationTable
    from xcompile.compiler.support.errors import CompileError
    from xcompile.compiler.target.registry import targets
    from xcompile.runtime.errors import RuntimeModelError
    from xcompile.runtime.executable import Executable
    from xcompile.runtime.library import load


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS, *_MODULES})


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name not in _EXPORTS:
        raise AttributeError(f"module 'xcompile' has no attribute '{name}'")
    return getattr(importlib.import_module(_EXPORTS[name]), name)
