"""Passes and converters that packages and programs bring: whether another process can have them too.

A pass that an installed package names in its entry points, or that a program registers from a module, can be
imported by name in any process. One that is defined in a script, a notebook or a function lives in its process only.
"""

import logging
import re
import sys
from dataclasses import dataclass
from functools import cache
from types import ModuleType

from xcompile.compiler.ir.passes import PASS_REGISTRY
from xcompile.compiler.pipelines import PIPELINES
from xcompile.compiler.support.fingerprint import extension_modules, is_plugin

_LOG = logging.getLogger("xcompile")


@dataclass(frozen=True)
class Foreign:
    """What a process has to import to have the passes and converters of this one.

    Attributes:
        passes: "module:Class" of each pass that a pipeline names, by the pass's name.
        modules: modules with passes or converters.
        bound: why passes cannot be had in another process, a sentence each, by the pass's name.
    """

    passes: dict[str, str]
    modules: tuple[str, ...]
    bound: dict[str, str]

    def warn(self) -> None:
        """Log, once in a process, which passes run unprotected."""
        for sentence in self.bound.values():
            _warn_once(sentence)


def foreign_code(pipeline: str, edits: str) -> Foreign | None:
    """What others have brought, if a pipeline names a pass of theirs; None otherwise.

    Args:
        pipeline: pipeline text; that of the target when empty.
        edits: edits of the pipeline.
    """
    words = set(re.findall(r"[\w.-]+", " ".join((pipeline, edits, *PIPELINES.values()))))
    words |= {word.lstrip("-") for word in words}
    found = {n: where for n, where in PASS_REGISTRY.foreign(words).items() if not _is_file(where)}
    if not found:
        return None
    modules = tuple(m for m in extension_modules() if not is_plugin(m))
    bound: dict[str, str] = {}
    for name, where in found.items():
        lost = next((m for m in (where.partition(":")[0], *modules) if not _importable(m)), None)
        if lost or not _is_reachable(where):
            place = f"the module {lost}" if lost else "a function"
            bound[name] = (
                f"the pass '{name}' runs in this process, where a crash or an endless loop is yours too: {place} "
                "cannot be imported in another"
            )
    return Foreign(found, modules, bound)


def _is_file(where: str) -> bool:
    """Whether a pass came with a file that is loaded."""
    return is_plugin(where.partition(":")[0])


def _is_reachable(where: str) -> bool:
    """Whether a class is an attribute of its module, or will be when that is imported."""
    module, _, attribute = where.partition(":")
    return module not in sys.modules or hasattr(sys.modules[module], attribute)


def _importable(name: str) -> bool:
    """Whether another process with the same path finds the module that this one has by the name."""
    module = sys.modules.get(name)
    if module is None:
        return True  # an entry point; what is wrong with it is said when it is imported
    spec = module.__spec__
    if spec is None or spec.name != name or not spec.has_location:
        return False
    parent: ModuleType | None = sys.modules.get(name.rpartition(".")[0])
    path = getattr(parent, "__path__", None)
    finders = (finder.find_spec(name, path) for finder in sys.meta_path)
    found = next((spec for spec in finders if spec is not None), None)
    return found is not None and found.origin == spec.origin


@cache
def _warn_once(sentence: str) -> None:
    _LOG.warning(sentence)
