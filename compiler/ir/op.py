"""How operations are declared: data, constraints and meaning in one class.

    nn = Dialect("nn")

    @nn.op("matmul")
    class MatMul(Op):
        '''`a @ b` on the last two axes.'''

        a: Operand
        b: Operand
        y: Result

A field is an `Operand`, an `Operand | None` (optional), `Operands` (variadic), the same for
`Result` and `Results`, a `Region`, or an attribute: `int`, `float`, `bool`, `str`, tuples of these,
each also `| None`. Attributes with a default are left out of the IR when they have it, so equal ops
are equal text.

An `Op` instance is a *view*: it holds the MLIR operation and reads it each time.
`Cls.of(operation)` gives the view of an operation or None; `view(operation)` finds the class.
`compiler/ir/verifier.py` checks counts and attributes; `verify` says what declarations can't.
"""

import ctypes
import importlib.util
import sys
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self, TypeVar

from torch_mlir import dialects, ir

from xcompile.compiler.ir.regions import Body

Value = ir.Value
Operand = Annotated[ir.Value, "operand"]
Operands = Annotated[Sequence[ir.Value], "operands"]
Result = Annotated[ir.Value, "result"]
Results = Annotated[Sequence[ir.Value], "results"]
Region = Annotated[ir.Region, "region"]

_MISSING = object()

_POINTER_OF = ctypes.pythonapi.PyCapsule_GetPointer
_POINTER_OF.restype = ctypes.c_void_p
_POINTER_OF.argtypes = [ctypes.py_object, ctypes.c_char_p]
_CAPSULE = f"{ir.__name__.split('.')[0]}.ir.Operation._CAPIPtr".encode()


def identity(operation: ir.Operation | ir.OpView) -> int:
    """A number that an operation keeps while it lives.

    MLIR's own hash of an operation is that of its name, operands and attributes: it changes with them, so
    operations that are changed can't be keys.
    """
    return _POINTER_OF(operation.operation._CAPIPtr, _CAPSULE)


@dataclass(frozen=True)
class Field:
    """One declared field. `kind`: operand, result, region or attribute; `many`: single, optional or variadic."""

    name: str
    kind: str
    many: str
    type: Any = None
    default: Any = _MISSING

    @property
    def required(self) -> bool:
        return self.default is _MISSING


class Op:
    """Base of all op views; see the module's docstring."""

    NAME: ClassVar[str] = ""
    FIELDS: ClassVar[tuple[Field, ...]] = ()
    PURE: ClassVar[bool] = True
    """No effect but its results: may be removed when unused and merged with equals."""

    def __init__(self, operation: ir.Operation) -> None:
        self.operation = operation

    # -- reading ------------------------------------------------------------------------------

    @classmethod
    def of(cls, operation: ir.Operation | ir.OpView | None) -> Self | None:
        """The view of `operation`, or None when it is another op (or None)."""
        if operation is None:
            return None
        operation = operation.operation
        return cls(operation) if operation.name == cls.NAME else None

    @property
    def location(self) -> ir.Location:
        return self.operation.location

    @property
    def operands(self) -> list[ir.Value]:
        """All operands there are, flat."""
        return list(self.operation.operands)

    @property
    def results(self) -> list[ir.Value]:
        return list(self.operation.results)

    def attributes(self) -> dict[str, Any]:
        """All attribute fields by name, defaults filled in."""
        return {f.name: getattr(self, f.name) for f in self.FIELDS if f.kind == "attribute"}

    def operand_fields(self) -> dict[str, Any]:
        """All operand fields by name: a value, None, or a list of values."""
        return {f.name: getattr(self, f.name) for f in self.FIELDS if f.kind == "operand"}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Op) and self.operation == other.operation

    def __hash__(self) -> int:
        return identity(self.operation)

    def __str__(self) -> str:
        return str(self.operation)

    # -- meaning, overridden by ops -----------------------------------------------------------

    def verify(self) -> None:
        """Check what the declaration can't say; raise `CompileError`."""

    # -- making -------------------------------------------------------------------------------

    @classmethod
    def build(
        cls,
        fields: dict[str, Any],
        result_types: Sequence[ir.Type],
        *,
        loc: ir.Location | None = None,
        bodies: Sequence[Body] = (),
    ) -> Self:
        """Create the operation at the current insertion point from named operands and attributes.

        Args:
            fields: operands and attributes by name.
            result_types: of all results, flat.
            loc: the model nodes; the current location when None.
            bodies: what becomes of the regions, in order; regions without are empty.
        """
        unknown = fields.keys() - {f.name for f in cls.FIELDS}
        if unknown:
            raise TypeError(f"{cls.NAME} has no field {', '.join(sorted(unknown))}")
        operands: list[ir.Value] = []
        segments: list[int] = []
        attributes: dict[str, ir.Attribute] = {}
        for field in cls.FIELDS:
            given = fields.get(field.name, _MISSING)
            if field.kind == "operand":
                values = _as_values(field, given, cls.NAME)
                operands += values
                segments.append(len(values))
            elif field.kind == "attribute":
                if given is _MISSING and field.required:
                    raise TypeError(f"{cls.NAME} needs the attribute '{field.name}'")
                if given is not _MISSING and not (given is None and field.default is None):
                    attribute = encode(given, field.type)
                    if field.required or not _is_default(attribute, field):
                        attributes[field.name] = attribute
        if sum(f.kind == "operand" and f.many != "single" for f in cls.FIELDS) > 1:
            attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get(segments)
        operation = ir.Operation.create(
            cls.NAME,
            results=list(result_types),
            operands=operands,
            attributes=attributes,
            loc=loc,
            regions=sum(f.kind == "region" for f in cls.FIELDS),
        )
        for region, body in zip(operation.regions, bodies, strict=False):
            body.move_to(region)
        return cls(operation)


def _is_default(attribute: ir.Attribute, field: Field) -> bool:
    """Compares as attributes: 0.0 and -0.0 differ, a list and a tuple do not."""
    return field.default is not None and attribute == encode(field.default, field.type)


def _as_values(field: Field, given: Any, op: str) -> list[ir.Value]:
    if given is _MISSING or given is None:
        if field.many == "single":
            raise TypeError(f"{op} needs the operand '{field.name}'")
        return []
    return list(given) if field.many == "variadic" else [given]


# -- attributes: Python values <-> MLIR attributes ------------------------------------------------


def encode(value: Any, kind: Any) -> ir.Attribute:
    """The MLIR attribute of a Python value of the declared type."""
    if isinstance(value, ir.Attribute):
        return value
    if kind is bool:
        return ir.BoolAttr.get(bool(value))
    if kind is int:
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), int(value))
    if kind is float:
        return ir.FloatAttr.get(ir.F64Type.get(), float(value))
    if kind is str:
        return ir.StringAttr.get(value)
    if kind is ir.Attribute or typing.get_origin(kind) is not tuple:
        raise TypeError(f"no attribute is declared as {kind}")
    item = typing.get_args(kind)[0]
    if item is int:
        return ir.DenseI64ArrayAttr.get([int(v) for v in value])
    if item is float:
        return ir.DenseF64ArrayAttr.get([float(v) for v in value])
    return ir.ArrayAttr.get([encode(v, item) for v in value])


def decode(attribute: ir.Attribute, kind: Any) -> Any:
    """The Python value of an MLIR attribute of the declared type."""
    if kind is ir.Attribute:
        return attribute
    if kind is bool:
        return ir.BoolAttr(attribute).value
    if kind is int:
        return ir.IntegerAttr(attribute).value
    if kind is float:
        return ir.FloatAttr(attribute).value
    if kind is str:
        return ir.StringAttr(attribute).value
    item = typing.get_args(kind)[0]
    if item is int:
        return tuple(ir.DenseI64ArrayAttr(attribute))
    if item is float:
        return tuple(ir.DenseF64ArrayAttr(attribute))
    return tuple(decode(a, item) for a in ir.ArrayAttr(attribute))


# -- declaration ----------------------------------------------------------------------------------

T = TypeVar("T", bound=type[Op])


class Dialect:
    """A named set of ops."""

    _all: ClassVar[dict[str, "Dialect"]] = {}

    def __init__(self, name: str) -> None:
        self.name = name
        self.ops: dict[str, type[Op]] = {}
        if name in Dialect._all:
            raise ValueError(f"the dialect '{name}' is declared twice")
        Dialect._all[name] = self
        _provide_bindings(name)

    @staticmethod
    def names() -> frozenset[str]:
        """The names of all dialects declared so far."""
        return frozenset(Dialect._all)

    @staticmethod
    def declared() -> list["Dialect"]:
        """All dialects declared so far, in order."""
        return list(Dialect._all.values())

    def op(self, name: str, *, pure: bool = True) -> Callable[[T], T]:
        """Class decorator: declare the op `{dialect}.{name}`."""

        def declare(cls: T) -> T:
            full = f"{self.name}.{name}"
            if name in self.ops:
                raise ValueError(f"the op '{full}' is declared twice")
            cls.NAME, cls.PURE, cls.FIELDS = full, pure, _fields(cls)
            _install_readers(cls)
            self.ops[name] = cls
            _VIEWS[full] = cls
            return cls

        return declare


def _provide_bindings(dialect: str) -> None:
    """Let MLIR find Python bindings of the dialect: without, it looks for the file each time it makes a handle."""
    name = f"{dialects.__name__}.{dialect}"
    if importlib.util.find_spec(name) is None:
        sys.modules[name] = types.ModuleType(
            name, "An empty module; the ops are declared in Python."
        )


_VIEWS: dict[str, type[Op]] = {}


def view(operation: ir.Operation | ir.OpView) -> Op | None:
    """The view of an operation of any of our dialects, else None."""
    cls = _VIEWS.get(operation.operation.name)
    return cls(operation.operation) if cls else None


def op_class(name: str) -> type[Op] | None:
    """The class of an op by its full name ("nn.conv")."""
    return _VIEWS.get(name)


_KINDS = {
    "operand": ("operand", "single"),
    "operands": ("operand", "variadic"),
    "result": ("result", "single"),
    "results": ("result", "variadic"),
    "region": ("region", "single"),
}


def _fields(cls: type[Op]) -> tuple[Field, ...]:
    found: list[Field] = []
    for name, hint in typing.get_type_hints(cls, include_extras=True).items():
        if typing.get_origin(hint) is ClassVar or hint is ClassVar or name == "operation":
            continue
        default = _default(cls, name)
        optional = typing.get_origin(hint) in (typing.Union, types.UnionType)
        if optional:
            inner = [a for a in typing.get_args(hint) if a is not type(None)]
            hint = inner[0]
        mark = getattr(hint, "__metadata__", (None,))[0]
        if mark in _KINDS:
            kind, many = _KINDS[mark]
            found.append(Field(name, kind, "optional" if optional else many))
        else:
            found.append(Field(name, "attribute", "single", hint, default))
    return tuple(found)


def _default(cls: type[Op], name: str) -> Any:
    """The declared default; where the class extends a declared op, its base's reader stands in the way."""
    found = getattr(cls, name, _MISSING)
    if isinstance(found, property):
        return next((f.default for f in cls.FIELDS if f.name == name), _MISSING)
    return found


def _install_readers(cls: type[Op]) -> None:
    """Turn each field into a property that reads the operation."""
    operands = [f for f in cls.FIELDS if f.kind == "operand"]
    results = [f for f in cls.FIELDS if f.kind == "result"]
    regions = [f for f in cls.FIELDS if f.kind == "region"]
    for group, source in ((operands, "operands"), (results, "results")):
        for position, field in enumerate(group):
            setattr(cls, field.name, property(_value_reader(group, position, source)))
    for position, field in enumerate(regions):
        setattr(cls, field.name, property(lambda self, p=position: self.operation.regions[p]))
    for field in cls.FIELDS:
        if field.kind == "attribute":
            setattr(cls, field.name, property(_attribute_reader(field)))


def _value_reader(group: list[Field], position: int, source: str) -> Callable[[Op], Any]:
    field = group[position]
    variable = [i for i, f in enumerate(group) if f.many != "single"]

    def read(self: Op) -> Any:
        values = getattr(self.operation, source)
        if len(variable) <= 1:
            extra = len(values) - (len(group) - len(variable))
            start = position + (extra - 1 if variable and position > variable[0] else 0)
            count = extra if field.many != "single" else 1
        else:
            name = "operandSegmentSizes" if source == "operands" else "resultSegmentSizes"
            segments = list(ir.DenseI32ArrayAttr(self.operation.attributes[name]))
            start, count = sum(segments[:position]), segments[position]
        if field.many == "variadic":
            return [values[i] for i in range(start, start + count)]
        return values[start] if count else None

    return read


def _attribute_reader(field: Field) -> Callable[[Op], Any]:
    def read(self: Op) -> Any:
        attributes = self.operation.attributes
        if field.name in attributes:
            return decode(attributes[field.name], field.type)
        return None if field.required else field.default

    return read
