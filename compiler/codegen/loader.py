"""The door to LLVM's loader: object files into this process's memory. Makes no code.

Only linking happens here (LLJIT with JITLink), so a user's process can load a model without running
any of LLVM that a module's content could bring down.
"""

import itertools
import weakref
from collections.abc import Iterable, Mapping, Sequence

import llvmlite.binding as llvm

from xcompile.compiler.support.errors import CompileError

_counter = itertools.count()


class LoadedObjects:
    """Object files linked together in memory, until closed or collected.

    Addresses are valid as long as this object lives and is not closed. Loading 60 objects takes about 3 ms.

    Attributes:
        closed: whether the code has been unloaded.
    """

    def __init__(
        self,
        objects: Sequence[bytes],
        imports: Mapping[str, int],
        exports: Iterable[str],
    ) -> None:
        """Link `objects` and resolve what they leave undefined.

        Args:
            objects: object files of this host's format and architecture. They are trusted.
            imports: addresses of symbols that the objects use, by name; the process's own symbols
                (libc, libm) are found after these.
            exports: the names whose addresses will be asked for.

        Raises:
            CompileError: XC4008, an object is damaged, a symbol is missing or defined twice.
        """
        builder = llvm.JITLibraryBuilder()
        for data in objects:
            builder.add_object_img(data)
        for name, address in imports.items():
            builder.import_symbol(name, address)
        builder.add_current_process()
        names = sorted(set(exports))
        for name in names:
            builder.export_symbol(name)
        try:
            engine = _create_engine()
            library = builder.link(engine, f"objects{next(_counter)}")
        except RuntimeError as error:
            raise CompileError("XC4008", f"the object code cannot be loaded: {error}") from error
        self._addresses = {name: library[name] for name in names}
        self._unload = weakref.finalize(self, _close, library, engine)

    @property
    def closed(self) -> bool:
        return not self._unload.alive

    def address(self, symbol: str) -> int:
        """Return the address of an exported symbol.

        Raises:
            KeyError: the symbol is not among the exports.
            ValueError: the code has been unloaded.
        """
        if self.closed:
            raise ValueError(f"{symbol}: the code has been unloaded")
        return self._addresses[symbol]

    def close(self) -> None:
        """Unload the code; harmless when done twice. No function of it may be running."""
        self._unload()


def _create_engine() -> llvm.LLJIT:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.create_lljit_compiler(use_jit_link=True, suppress_errors=True)


def _close(library: llvm.ResourceTracker, engine: llvm.LLJIT) -> None:
    library.close()
    engine.close()
