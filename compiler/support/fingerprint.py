"""A digest of all code that decides what machine code comes out: part of every cache key."""

import hashlib
import importlib.util
import platform
from functools import cache
from importlib import metadata
from pathlib import Path

import xcompile

_FOLDERS = (
    "compiler/codegen",
    "compiler/ir",
    "compiler/schedule",
    "compiler/support",
    "compiler/target",
    "dialects",
)
_DISTRIBUTIONS = ("torch-mlir", "llvmlite", "numpy", "ml_dtypes")


@cache
def code_fingerprint() -> str:
    """Return the digest, in hexadecimal, of our sources and of the versions of what they stand on."""
    root = Path(xcompile.__file__).parent
    digest = hashlib.sha256()
    for folder in _FOLDERS:
        digest.update(folder_digest(root / folder))
    for name in _DISTRIBUTIONS:
        digest.update(f"{name} {metadata.version(name)}\n".encode())
    digest.update(platform.python_version().encode())
    return digest.hexdigest()


@cache
def package_fingerprint(module: str) -> str:
    """Return a digest of the sources of the top-level package that a module belongs to, "" if there is none."""
    top_level = module.partition(".")[0]
    try:
        spec = importlib.util.find_spec(top_level)
    except ValueError:  # a module without a specification, such as __main__ of a script
        return ""
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        return ""
    if spec.submodule_search_locations:
        return folder_digest(Path(spec.origin).parent).hex()
    return hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()


def folder_digest(folder: Path) -> bytes:
    """Return a digest of the names and bytes of the Python files in `folder` and below."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py"), key=lambda path: path.relative_to(folder).as_posix()):
        digest.update(f"{path.relative_to(folder).as_posix()}\n".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.digest()
