"""Loads a user's Python file (`--load FILE`) the same way in the user's process and in workers."""

import hashlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.support.fingerprint import PLUGIN_PREFIX


def is_plugin(module: str) -> bool:
    """Whether a module of this name was loaded from a user's file."""
    return module.startswith(PLUGIN_PREFIX)


def plugin_module_name(path: Path) -> str:
    """Return the name under which the file is imported: the same in every process for one path and content.

    An edited file is another module, so a worker or a notebook that has loaded the old one does not use it.

    Raises:
        CompileError: XC3009, the file cannot be read.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CompileError("XC3009", f"{path} cannot be read: {error.strerror}") from error
    digest = hashlib.sha256(str(path.resolve()).encode() + b"\0" + content).hexdigest()[:16]
    return f"{PLUGIN_PREFIX}{digest}_{path.stem}"


def load_plugin(path: Path) -> ModuleType:
    """Execute the file as a module, once in each process and content, and return the module.

    Raises:
        CompileError: XC3009, the file is missing or fails.
    """
    name = plugin_module_name(path)
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise CompileError("XC3009", f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        # Not by the loader: it takes a cached file's word for a source of the same second and length.
        exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
    except Exception as error:
        del sys.modules[name]
        message = f"{path} cannot be loaded: {type(error).__name__}: {error}"
        raise CompileError("XC3009", message) from error
    return module
