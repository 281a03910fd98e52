"""Where the code generator and the runtime meet: the context, element types and the manifest.

The C side of the same facts is `runtime/native/xcompile_rt.h`; a test compares the two.
"""

from __future__ import annotations

import ctypes
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final, TypeVar, cast

from xcompile.runtime.errors import RuntimeModelError, one_line, shorten

ABI_VERSION: Final = 2
ALIGNMENT: Final = 64
"""Bytes: the arena, scratch, prepared data and weights start at multiples of it."""
MAX_THREADS: Final = 256
MAX_TENSORS: Final = 4096
"""Inputs, and outputs, that a model may have."""
MAX_RANK: Final = 64
"""Axes of an input or output."""
MAX_NAME: Final = 1 << 16
"""Characters of the name of an input or output."""


class Context(ctypes.Structure):
    """`xc_context`: what generated code can reach. Its address is the first argument of `P_run`."""

    _fields_ = (
        ("size", ctypes.c_uint64),
        ("weights", ctypes.c_void_p),
        ("prepared", ctypes.c_void_p),
        ("arena", ctypes.c_void_p),
        ("scratch", ctypes.c_void_p),
        ("buffers", ctypes.c_void_p),
        ("pool", ctypes.c_void_p),
        ("threads", ctypes.c_int64),
        ("heap", ctypes.c_void_p),
        ("launch", ctypes.c_void_p),
    )


PrepareFunction: Final = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
"""`int64_t P_prepare(const int64_t *input_dims, int64_t *table)`."""
RunFunction: Final = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
"""`int32_t P_run(xc_context *ctx, const int64_t *table)`."""
InitFunction: Final = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
"""`int32_t P_init(xc_context *ctx)`."""

DTYPE_CODES: Final[Mapping[str, int]] = {
    "bool": 0x608,
    "int2": 0x002,
    "int4": 0x004,
    "int8": 0x008,
    "int16": 0x010,
    "int32": 0x020,
    "int64": 0x040,
    "uint2": 0x102,
    "uint4": 0x104,
    "uint8": 0x108,
    "uint16": 0x110,
    "uint32": 0x120,
    "uint64": 0x140,
    "float16": 0x210,
    "float32": 0x220,
    "float64": 0x240,
    "bfloat16": 0x410,
    "float8_e4m3fn": 0xA08,
    "float8_e4m3fnuz": 0xB08,
    "float8_e5m2": 0xC08,
    "float8_e5m2fnuz": 0xD08,
    "float8_e8m0fnu": 0xE08,
    "float4_e2m1fn": 0x1104,
}
"""Element types by name, with the code of the C interface: DLPack's type code × 256 + bits. An element of 2 or
4 bits takes a byte of its own."""

T = TypeVar("T")

_MAX_JSON_BYTES = 16 << 20
_MAX_BYTES = 1 << 46
_MAX_LIST = 1 << 16
_MAX_SLOTS = 1 << 24
_PREFIX = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_STATIC = re.compile(r"0|[1-9][0-9]{0,18}")


@dataclass(frozen=True)
class TensorSpec:
    """What the signature says of one input or output.

    Attributes:
        name: its name in the model: any text, never used as a symbol or a path.
        dtype: a key of `DTYPE_CODES`.
        dims: its sizes as text: a decimal number when static, a symbol or an expression when not.
    """

    name: str
    dtype: str
    dims: tuple[str, ...]

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.dims)

    @property
    def static_dims(self) -> tuple[int | None, ...]:
        """The sizes, None for one that is known at run time only."""
        return tuple(int(dim) if _STATIC.fullmatch(dim) else None for dim in self.dims)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(self.dims)}]"


@dataclass(frozen=True)
class Default:
    """What an input is when a run leaves it out.

    Attributes:
        input: the input's name.
        offset: where its elements lie in the weights, in bytes: a multiple of `ALIGNMENT`.
        shape: its sizes.
    """

    input: str
    offset: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Manifest:
    """What a caller must know of a compiled model; a library carries it as JSON.

    Attributes:
        prefix: of the model's symbols, a C identifier.
        inputs: the inputs in order.
        outputs: the outputs in order.
        table_slots: int64 slots of the table that `P_prepare` fills.
        weights_bytes: length of the packed constants.
        prepared_bytes: length of what `P_init` computes from them; 0 when it computes nothing.
        scratch_stride: bytes of scratch one part of a launch gets.
        target: the target the code was compiled for.
        features: CPU features the code uses, by LLVM's names.
        checks: what it means that check i fails.
        defaults: the inputs that a run may leave out, the last ones.
        provenance: versions and options that made this, for people and reports.
        abi: the version of this contract.
    """

    prefix: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    table_slots: int
    weights_bytes: int
    prepared_bytes: int = 0
    scratch_stride: int = 0
    target: str = ""
    features: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    defaults: tuple[Default, ...] = ()
    provenance: Mapping[str, str] = field(default_factory=lambda: cast("Mapping[str, str]", {}))
    abi: int = ABI_VERSION

    @property
    def required(self) -> tuple[TensorSpec, ...]:
        """The inputs that every run needs."""
        return self.inputs[: len(self.inputs) - len(self.defaults)]

    def to_json(self) -> str:
        """The manifest as JSON, the same text for equal manifests."""
        return json.dumps(asdict(self), ensure_ascii=False, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: bytes | str) -> Manifest:
        """Reads what `to_json` wrote and checks everything about it, whatever the bytes are.

        Raises:
            RuntimeModelError: XC7002 when it is not a manifest, XC7003 when it is one of another version.
        """
        return _manifest(_parse(text))

    def describe(self) -> str:
        """The inputs and outputs for people: `(x: float32[N, 4]) -> (y: float32[N])`."""
        inputs, outputs = (
            ", ".join(f"{one_line(shorten(spec.name))}: {spec}" for spec in specs)
            for specs in (self.inputs, self.outputs)
        )
        return f"({inputs}) -> ({outputs})"

    def signature(self) -> bytes:
        """The part the C interface reads, as int64 words; `xcompile_rt.h` has the layout."""
        tensors = [*self.inputs, *self.outputs]
        words = [word for spec in tensors for word in _signature_words(spec)]
        header_words = 8
        header = [
            *(self.abi, len(self.inputs), len(self.outputs), self.table_slots),
            *(self.weights_bytes, self.prepared_bytes, self.scratch_stride),
            8 * (header_words + len(words)),
        ]
        names = "".join(f"{name}\0" for name in self.features).encode() + b"\0"
        return b"".join(word.to_bytes(8, "little", signed=True) for word in header + words) + names


def _signature_words(spec: TensorSpec) -> list[int]:
    dims = [-1 if dim is None else dim for dim in spec.static_dims]
    return [DTYPE_CODES[spec.dtype], spec.rank, *dims]


def is_prefix(text: str) -> bool:
    """Whether the text may start a model's symbols: a C identifier of at most 64 characters that does not
    make names of the runtime or of libc, such as `pthread_create`.
    """
    if not _PREFIX.fullmatch(text) or text == "xc" or text.startswith(("xc_", "pthread", "__")):
        return False
    return text not in {"sem", "timer", "mtx", "cnd", "tss", "thrd"}


def _refuse(what: str) -> RuntimeModelError:
    return RuntimeModelError("XC7002", f"the manifest is not valid: {what}")


def _parse(text: bytes | str) -> dict[str, Any]:
    if len(text) > _MAX_JSON_BYTES:
        raise _refuse(f"it is longer than {_MAX_JSON_BYTES} bytes")
    try:
        decoded = text if isinstance(text, str) else str(text, "utf-8")
        value = json.loads(decoded, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise _refuse(f"it is not JSON ({shorten(str(error))})") from None
    if not isinstance(value, dict):
        raise _refuse("it is not a JSON object")
    return cast("dict[str, Any]", value)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key appears twice")
    return result


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _manifest(value: dict[str, Any]) -> Manifest:
    abi = _integer(value.get("abi"), "abi", (1 << 31) - 1)
    if abi != ABI_VERSION:
        raise RuntimeModelError(
            "XC7003",
            f"the model was compiled for version {abi} of the runtime's interface, this one is {ABI_VERSION}",
            help="compile the model again with this version of xcompile",
        )
    expected = {entry.name for entry in fields(Manifest)}
    if value.keys() != expected:
        raise _refuse(f"wrong keys: {shorten(', '.join(sorted(value.keys() ^ expected)))}")
    prefix = _text(value["prefix"], "prefix", 64)
    if not is_prefix(prefix):
        raise _refuse("prefix is not a C identifier, or a reserved one")
    manifest = Manifest(
        prefix=prefix,
        inputs=_specs(value["inputs"], "inputs"),
        outputs=_specs(value["outputs"], "outputs"),
        table_slots=_integer(value["table_slots"], "table_slots", _MAX_SLOTS),
        weights_bytes=_integer(value["weights_bytes"], "weights_bytes", _MAX_BYTES),
        prepared_bytes=_integer(value["prepared_bytes"], "prepared_bytes", _MAX_BYTES),
        scratch_stride=_integer(
            value["scratch_stride"], "scratch_stride", _MAX_BYTES // MAX_THREADS
        ),
        target=_text(value["target"], "target", 256),
        features=_feature_names(value["features"]),
        checks=_list(value["checks"], "checks", _MAX_LIST, lambda v, w: _text(v, w, 4096)),
        defaults=_list(value["defaults"], "defaults", MAX_TENSORS, _default),
        provenance=_texts_by_name(value["provenance"], "provenance"),
    )
    _check_defaults(manifest)
    if manifest.table_slots < 1 + sum(spec.rank for spec in manifest.outputs):
        raise _refuse("table_slots has no room for the sizes of the outputs")
    return manifest


def _specs(value: object, what: str) -> tuple[TensorSpec, ...]:
    specs = _list(value, what, MAX_TENSORS, _spec)
    if len({spec.name for spec in specs}) != len(specs):
        raise _refuse(f"a name appears twice in {what}")
    return specs


def _spec(value: object, what: str) -> TensorSpec:
    entry = _object(value, what)
    if entry.keys() != {"name", "dtype", "dims"}:
        raise _refuse(f"an entry of {what} has wrong keys")
    dtype = _text(entry["dtype"], f"dtype in {what}", 64)
    if dtype not in DTYPE_CODES:
        raise _refuse(f"unknown dtype '{dtype}' in {what}")
    dims = _list(entry["dims"], f"dims in {what}", MAX_RANK, _dim)
    return TensorSpec(_text(entry["name"], f"name in {what}", MAX_NAME), dtype, dims)


def _default(value: object, what: str) -> Default:
    entry = _object(value, what)
    if entry.keys() != {"input", "offset", "shape"}:
        raise _refuse(f"an entry of {what} has wrong keys")
    offset = _integer(entry["offset"], f"offset in {what}", _MAX_BYTES)
    shape = _list(
        entry["shape"], f"shape in {what}", MAX_RANK, lambda v, w: _integer(v, w, _MAX_BYTES)
    )
    return Default(_text(entry["input"], f"input in {what}", MAX_NAME), offset, shape)


def _check_defaults(manifest: Manifest) -> None:
    """Defaults are of the last inputs, and lie within the weights."""
    last = manifest.inputs[len(manifest.required) :]
    if [d.input for d in manifest.defaults] != [spec.name for spec in last]:
        raise _refuse("defaults are not those of the last inputs")
    for default, spec in zip(manifest.defaults, last, strict=True):
        size = max(1, (DTYPE_CODES[spec.dtype] & 0xFF) // 8) if spec.dtype != "bool" else 1
        for dim in default.shape:
            size *= dim
        if default.offset % ALIGNMENT or default.offset + size > manifest.weights_bytes:
            raise _refuse("a default does not lie in the weights")


def _dim(value: object, what: str) -> str:
    dim = _text(value, what, 4096)
    if not dim or (
        dim.lstrip("+-").isdigit() and not (_STATIC.fullmatch(dim) and int(dim) < 1 << 63)
    ):
        raise _refuse(f"{what}: '{shorten(dim)}' is not a size")
    return dim


def _feature_names(value: object) -> tuple[str, ...]:
    names = _list(value, "features", 512, lambda v, w: _text(v, w, 64))
    if not all(name and "\0" not in name for name in names):
        raise _refuse("features has an empty name")
    return names


def _list(value: object, what: str, most: int, read: Callable[[object, str], T]) -> tuple[T, ...]:
    if not isinstance(value, list):
        raise _refuse(f"{what} is not a list")
    entries = cast("list[object]", value)
    if len(entries) > most:
        raise _refuse(f"{what} has more than {most} entries")
    return tuple(read(entry, what) for entry in entries)


def _object(value: object, what: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise _refuse(f"{what} is not an object")
    return cast("dict[str, object]", value)


def _texts_by_name(value: object, what: str) -> dict[str, str]:
    entries = _object(value, what)
    if len(entries) > _MAX_LIST:
        raise _refuse(f"{what} has more than {_MAX_LIST} entries")
    return {_text(key, what, 256): _text(entry, what, 1 << 20) for key, entry in entries.items()}


def _text(value: object, what: str, most: int) -> str:
    if not isinstance(value, str) or len(value) > most:
        raise _refuse(f"{what} is not a text of at most {most} characters")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _refuse(f"{what} has half a character") from None
    return value


def _integer(value: object, what: str, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise _refuse(f"{what} is not an integer from 0 to {most}")
    return value
