"""Verification: MLIR's own (counts of operands and results, SSA) and then what the op classes know."""

from collections.abc import Iterable, Sequence

from torch_mlir import ir

from xcompile.compiler.ir.location import describe
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Dialect, Field, Op, decode, view
from xcompile.compiler.ir.rewrite import walk
from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.support.trace import TRACE

_SEGMENTS = frozenset({"operandSegmentSizes", "resultSegmentSizes"})


def verify_module(module: Module, ops: Iterable[ir.Operation] | None = None) -> None:
    """Verify the structure of the whole module and the meaning of some ops.

    Args:
        module: any module of our dialects and `func`.
        ops: whose attributes and `verify` are checked; all when None.

    Raises:
        CompileError: XC2001, or the code of an op's own verifier; names the node.
    """
    try:
        module.module.operation.verify()
    except ir.MLIRError as error:
        raise _of_mlir(error) from None
    with module.context, ir.Location.unknown():
        for operation in walk(module) if ops is None else ops:
            op = view(operation)
            if op is not None:
                verify_op(op)
            elif operation.name.partition(".")[0] in Dialect.names():
                raise CompileError(
                    "XC2001",
                    f"there is no op '{operation.name}'",
                    node=describe(operation.location),
                )


def verify_op(op: Op) -> None:
    """Check an op's attributes against its declaration, and call its `verify`.

    Raises:
        CompileError: what is wrong, at which node.
    """
    node = describe(op.location)
    try:
        _check_attributes(op)
        _check_values(op, "operand", op.operation.operands, "operandSegmentSizes")
        _check_values(op, "result", op.operation.results, "resultSegmentSizes")
        if TRACE.active:
            TRACE.doing(f"the verifier of {op.NAME}", node)
        op.verify()
    except CompileError as error:
        error.node = error.node or node
        raise
    except Exception as error:
        raise CompileError(
            "XC2001",
            f"the verifier of {op.NAME} failed: {type(error).__name__}: {error}",
            node=node,
        ) from error


def _check_attributes(op: Op) -> None:
    attributes = op.operation.attributes
    declared = {f.name: f for f in op.FIELDS if f.kind == "attribute"}
    for name in attributes:
        if name not in declared and name not in _SEGMENTS and "." not in name:
            raise CompileError("XC2001", f"{op.NAME} has no attribute '{name}'")
    for name, field in declared.items():
        if name not in attributes:
            if field.required:
                raise CompileError("XC2001", f"{op.NAME} needs the attribute '{name}'")
            continue
        try:
            decode(attributes[name], field.type)
        except (ValueError, TypeError):
            raise CompileError(
                "XC2001", f"the attribute '{name}' of {op.NAME} can't be {attributes[name]}"
            ) from None


def _check_values(op: Op, kind: str, values: Sequence[ir.Value], segments: str) -> None:
    """Check the number of operands or results against the declaration."""
    fields = [f for f in op.FIELDS if f.kind == kind]
    variable = [f for f in fields if f.many != "single"]
    count, least = len(values), len(fields) - len(variable)
    if len(variable) > 1:
        _check_segments(op, kind, fields, count, segments)
    elif count < least or (count > least and not variable):
        raise CompileError("XC2001", f"{op.NAME} has {count} {kind}s, {least} are declared")
    elif variable and variable[0].many == "optional" and count > least + 1:
        raise CompileError(
            "XC2001", f"{op.NAME} has {count} {kind}s, at most {least + 1} are declared"
        )


def _check_segments(op: Op, kind: str, fields: Sequence[Field], count: int, segments: str) -> None:
    """Check the attribute that says which value belongs to which field."""
    most = {"single": (1, 1), "optional": (0, 1), "variadic": (0, count)}
    try:
        sizes = list(ir.DenseI32ArrayAttr(op.operation.attributes[segments]))
    except (KeyError, ValueError):
        raise CompileError("XC2001", f"{op.NAME} needs the attribute '{segments}'") from None
    fits = len(sizes) == len(fields) and sum(sizes) == count
    if not fits or any(
        not most[f.many][0] <= n <= most[f.many][1] for f, n in zip(fields, sizes, strict=True)
    ):
        raise CompileError(
            "XC2001", f"'{segments}' = {sizes} does not fit the {count} {kind}s of {op.NAME}"
        )


def _of_mlir(error: ir.MLIRError) -> CompileError:
    """MLIR's diagnostic as ours."""
    first = next(iter(error.error_diagnostics), None)
    if first is None:
        return CompileError("XC2001", str(error))
    return CompileError("XC2001", first.message, node=describe(first.location))
