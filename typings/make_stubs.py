"""Writes the stubs of the MLIR bindings anew: run it after moving the pin of `torch-mlir`.

Needs the package `nanobind`, whose generator does the work: `python typings/make_stubs.py`. The stubs under
`torch_mlir/dialects/` are written by hand and list what we call.
"""

import importlib
import re
from pathlib import Path

from nanobind.stubgen import main as stubgen

HERE = Path(__file__).parent / "torch_mlir"


def make(name: str) -> None:
    """Writes the stub of `torch_mlir.<name>`."""
    path = HERE / f"{name}.pyi"
    path.parent.mkdir(exist_ok=True)
    stubgen(["-q", "-D", "-P", "-m", f"torch_mlir._mlir_libs._mlir.{name}", "-o", str(path)])
    text = path.read_text()
    text = text.replace("import _mlir.ir\n", "")
    prefix = "" if name == "ir" else "torch_mlir.ir."
    text = re.sub(r"(torch_mlir\._mlir_libs\.)?\b_mlir\.ir\.", prefix, text)
    text = text.replace("torch_mlir._mlir_libs._mlir.ir", "torch_mlir.ir")
    text = text.replace('TypeVar("_T", bound=Type)', 'TypeVar("_T", bound=Type, default=Type)')
    text = text.replace("Self, TypeVar, overload", "Self, overload")
    text = text.replace("Buffer, CapsuleType", "Buffer, CapsuleType, TypeVar")
    text = re.sub(r"(def get_asm\(.*) -> object", r"\1 -> str", text)  # bytes only when binary=True
    text = text.replace("    def __getitem__(self, key, /): ...\n\n", "")  # as in Sequence
    text = text.replace("__len__(self, /): ...", "__len__(self, /) -> int: ...")
    text = text.replace("set_type(self, type: _T): ...", "set_type(self, type: _T) -> None: ...")
    text = text.replace("locations(self) -> list[object]", "locations(self) -> list[Location]")
    path.write_text(text)


if __name__ == "__main__":
    for module in ("ir", "passmanager", "rewrite"):
        importlib.import_module(f"torch_mlir.{module}")
    bindings = importlib.import_module("torch_mlir._mlir_libs._mlir.ir")
    vars(bindings)["Context"] = vars(bindings).pop(
        "_Context"
    )  # which the wheel hides behind a subclass
    for module in ("ir", "passmanager", "rewrite"):
        make(module)
