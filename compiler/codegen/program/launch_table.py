"""What the launches of a run are, for those who measure them: in memory, and beside the code of a saved library."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from xcompile.compiler.codegen.program.json_form import from_json, to_json
from xcompile.compiler.codegen.program.program import Program, bind
from xcompile.compiler.support.dims import Dim
from xcompile.compiler.support.errors import CompileError
from xcompile.runtime.elf_image import read_elf, section_bytes
from xcompile.runtime.library_format import LAUNCHES_SECTION


@dataclass(frozen=True)
class LaunchFacts:
    """One launch of the program.

    Attributes:
        node: the model nodes that it computes.
        family: the kernel's family.
        symbol: the kernel; its task is `{symbol}_task`.
        flops: floating-point operations.
        bytes: bytes of operands and results, each once.
    """

    node: str
    family: str
    symbol: str
    flops: Dim
    bytes: Dim


@dataclass(frozen=True)
class LaunchTable:
    """All launches of a program, in the order of its text.

    Attributes:
        inputs: the Dims of each input, over the program's symbols.
        definitions: further symbols, each with its meaning over input sizes and earlier ones.
        launches: what they are.
    """

    inputs: tuple[tuple[Dim, ...], ...]
    definitions: tuple[tuple[str, Dim], ...]
    launches: tuple[LaunchFacts, ...]

    @classmethod
    def of(cls, program: Program, families: Mapping[str, str]) -> Self:
        """The table of a program; `families` are those of the kernels' symbols."""
        launches = [
            LaunchFacts(s.node, families.get(s.symbol, ""), s.symbol, s.flops, s.bytes)
            for s in program.launches
        ]
        return cls(program.inputs, program.definitions, tuple(launches))

    @classmethod
    def from_library(cls, data: memoryview) -> Self:
        """The table in the bytes of a saved library.

        Raises:
            CompileError: XC7002 when there is none.
            RuntimeModelError: XC7002 when the bytes are no library.
        """
        section = read_elf(data).sections.get(LAUNCHES_SECTION)
        try:
            if section is not None and section.size:
                return from_json(cls, json.loads(bytes(section_bytes(data, section))))
        except (ValueError, KeyError, TypeError) as error:
            raise _no_table() from error
        raise _no_table()

    @property
    def symbols(self) -> tuple[str, ...]:
        """The kernels, each once."""
        return tuple(dict.fromkeys(launch.symbol for launch in self.launches))

    def sizes(self, shapes: Sequence[Sequence[int]]) -> dict[str, int]:
        """The value of each symbol that does not depend on data, from the shapes of the inputs."""
        return bind(self.inputs, self.definitions, shapes)

    def to_bytes(self) -> bytes:
        """The table as JSON."""
        return json.dumps(to_json(self), separators=(",", ":")).encode()


def _no_table() -> CompileError:
    return CompileError(
        "XC7002", "the library does not say what its launches are",
        help="compile the model again, or profile the ONNX model",
    )  # fmt: skip
