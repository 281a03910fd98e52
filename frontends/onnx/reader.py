"""From a path, bytes or a ModelProto to a model that the importer may walk without fear.

Files come from anywhere. Protobuf's parser bounds what bytes can do; what it accepts is checked
here for versions and nesting, always iteratively. `onnx.checker` and onnx's shape inference are not
used: they are native code that a hostile model can crash.
"""

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from xcompile.compiler.support.errors import CompileError

OLDEST_OPSET = 6
NEWEST_OPSET = onnx.defs.onnx_opset_version()
MAX_NESTING = 32
"""Graphs inside graphs: the limit that protobuf's own limit of 100 messages implies."""

MAX_FILE_BYTES = 2**31 - 1
"""What a protobuf message can be; larger models keep their weights in external data."""

DEFAULT_DOMAIN = ""
_DEFAULT_DOMAIN_NAMES = ("", "ai.onnx")


@dataclass(frozen=True)
class Source:
    """A parsed model.

    Attributes:
        model: the message.
        folder: where external data lies; None when the model has no folder (bytes).
        name: the model's name, for reports.
    """

    model: onnx.ModelProto
    folder: Path | None
    name: str


def canonical_domain(domain: str) -> str:
    """The domain, with "" for both spellings of the default one."""
    return DEFAULT_DOMAIN if domain in _DEFAULT_DOMAIN_NAMES else domain


def read_model(source: "str | os.PathLike[str] | bytes | onnx.ModelProto") -> Source:
    """Parse and check versions and nesting.

    Raises:
        CompileError: XC1001 unreadable, XC1002 not ONNX, XC1003 corrupt, XC1007 versions, XC1013 limits.
    """
    if isinstance(source, onnx.ModelProto):
        return _checked(Source(source, None, source.graph.name or "model"))
    if isinstance(source, (bytes, bytearray, memoryview)):
        model = _parse(bytes(source), "the model")
        return _checked(Source(model, None, model.graph.name or "model"))
    if not isinstance(source, str | os.PathLike):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise CompileError(
            "XC1001", f"a model is a path, bytes or a ModelProto, not {type(source).__name__}"
        )
    path = Path(source)
    model = _parse(_read_file(path), f"'{path}'")
    return _checked(Source(model, path.parent, path.stem))


def _read_file(path: Path) -> bytes:
    try:
        with open(
            path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)
        ) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise CompileError("XC1001", f"'{path}' is not a regular file")
            if status.st_size > MAX_FILE_BYTES:
                raise CompileError(
                    "XC1013",
                    f"'{path}' has {status.st_size} bytes; an ONNX file has less than 2 GiB",
                    help="save the model with its weights as external data",
                )
            return file.read()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CompileError("XC1001", f"'{path}' cannot be read: {reason}") from error


def _parse(data: bytes, what: str) -> onnx.ModelProto:
    if not data:
        raise CompileError("XC1003", f"{what} is empty")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        raise CompileError(
            "XC1003",
            f"{what} is not an ONNX model, or is truncated or damaged (protobuf: {error})",
            help="it is a compiled library: xcompile.load opens it"
            if data.startswith(b"\x7fELF")
            else "fetch or export the model again",
        ) from error
    if not model.HasField("graph"):
        raise CompileError("XC1002", f"{what} holds no graph, so it is not an ONNX model")
    return model


def _checked(source: Source) -> Source:
    model = source.model
    if not 3 <= model.ir_version <= onnx.IR_VERSION:
        raise CompileError(
            "XC1007",
            f"the model has ONNX IR version {model.ir_version}; versions 3 to {onnx.IR_VERSION} are supported",
        )
    opsets(model.opset_import)
    check_messages(model)
    return source


def opsets(imports: "Iterable[onnx.OperatorSetIdProto]") -> dict[str, int]:
    """The opset version of each domain.

    Raises:
        CompileError: XC1007 when the default domain's version is out of range or a domain is imported twice.
    """
    versions: dict[str, int] = {}
    for entry in imports:
        domain = canonical_domain(entry.domain)
        if versions.setdefault(domain, entry.version) != entry.version:
            raise CompileError(
                "XC1007", f"the domain '{domain or 'ai.onnx'}' is imported with two versions"
            )
    version = versions.get(DEFAULT_DOMAIN)
    if version is not None and not OLDEST_OPSET <= version <= NEWEST_OPSET:
        raise CompileError(
            "XC1007",
            f"the model uses opset {version}; opsets {OLDEST_OPSET} to {NEWEST_OPSET} are supported",
            help="onnx.version_converter may convert it",
        )
    return versions


def check_messages(model: onnx.ModelProto) -> None:
    """Look at every part of a model once: texts must be UTF-8, graphs nested `MAX_NESTING` deep at most.

    Raises:
        CompileError: XC1003, XC1013.
    """
    stack: list[tuple[Message, int]] = [(model, 0)]
    while stack:
        message, depth = stack.pop()
        if isinstance(message, onnx.AttributeProto) and (message.HasField("g") or message.graphs):
            depth += 1
            if depth > MAX_NESTING:
                raise CompileError("XC1013", f"graphs are nested deeper than {MAX_NESTING} levels")
        for field, value in message.ListFields():
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                stack += [
                    (part, depth) for part in ([value] if isinstance(value, Message) else value)
                ]
            elif field.type == FieldDescriptor.TYPE_STRING:
                texts = [value] if isinstance(value, str | bytes) else value
                if not all(
                    isinstance(text, str) for text in texts
                ):  # bytes where the text is not UTF-8
                    raise CompileError(
                        "XC1003", f"the model is damaged: a {field.name} is not UTF-8 text"
                    )
