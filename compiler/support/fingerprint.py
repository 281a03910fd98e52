"""Digests of all code that decides what comes out of a compile: part of every cache key."""

import hashlib
import importlib.util
import platform
from collections.abc import Collection
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
PLUGIN_PREFIX = "xcompile_plugin_"
"""How the names of modules loaded by path begin; a digest of the content follows."""

PASSES_GROUP = "xcompile.passes"
"""The entry points by which installed packages bring passes."""

_extensions: dict[str, None] = {}


@cache
def code_fingerprint() -> str:
    """Return the digest, in hexadecimal, of what makes code of kernels: our sources and what they stand on."""
    root = Path(xcompile.__file__).parent
    digest = hashlib.sha256()
    for folder in _FOLDERS:
        digest.update(folder_digest(root / folder))
    for name in _DISTRIBUTIONS:
        digest.update(f"{name} {metadata.version(name)}\n".encode())
    digest.update(platform.python_version().encode())
    return digest.hexdigest()


@cache
def compiler_fingerprint() -> str:
    """Return the digest, in hexadecimal, of what makes an artifact of a model: the whole package, and ONNX."""
    root = Path(xcompile.__file__).parent
    digest = hashlib.sha256(code_fingerprint().encode())
    for folder in ("compiler", "frontends", "passes", "runtime"):
        digest.update(folder_digest(root / folder))
    digest.update(f"{xcompile.__version__} {metadata.version('onnx')}".encode())
    return digest.hexdigest()


def note_extension(module: str) -> None:
    """Record that a module took part in compiles from now on, by a pass or a converter of its own."""
    if not module.startswith("xcompile."):
        _extensions.setdefault(module)


def extension_modules() -> list[str]:
    """The modules, other than our own, that have taken part in compiles; see `note_extension`."""
    return list(_extensions)


def extensions_fingerprint(known: Collection[str]) -> str | None:
    """Return a digest of the code of others that takes part in compiles, without the modules in `known`.

    That is what has registered itself, and the passes of installed packages, which are found when a pipeline names
    them. None when the source of some module is not at hand: what it does can't be part of a key then.
    """
    points = sorted(metadata.entry_points(group=PASSES_GROUP), key=lambda point: point.name)
    digest = hashlib.sha256("".join(f"{p.name} {p.value}\n" for p in points).encode())
    for module in sorted({p.module for p in points} | (_extensions.keys() - known)):
        content = module if is_plugin(module) else package_fingerprint(module)
        if not content:
            return None
        digest.update(f"{module} {content}\n".encode())
    return digest.hexdigest()


def is_plugin(module: str) -> bool:
    """Whether a module is a file loaded by path, whose name has a digest of its content."""
    return module.startswith(PLUGIN_PREFIX)


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
