"""From the loops level to LLVM IR, by upstream's passes. Runs in worker processes only.

This is the second door to MLIR (the first is `compiler/ir`). One context and one parsed pipeline serve a
whole process.
"""

import re
from functools import cache
from typing import Any

from torch_mlir import ir, passmanager
from torch_mlir.dialects import func
from torch_mlir.dialects import llvm as llvm_dialect

from xcompile.compiler.codegen import llvm_text
from xcompile.compiler.ir.context import new_context
from xcompile.compiler.support.errors import CompileError

MAX_NESTING = 256

# convert-vector-to-scf stands before the memref passes because it makes memref ops; the LLVM conversions stand
# before convert-func, which needs their types; the last two undo the copies the conversions leave.
_PIPELINE = (
    "canonicalize,cse,loop-invariant-code-motion,"
    "convert-vector-to-scf,expand-strided-metadata,lower-affine,convert-scf-to-cf,"
    "convert-vector-to-llvm,finalize-memref-to-llvm,convert-math-to-llvm,convert-ub-to-llvm,"
    "convert-index-to-llvm,convert-arith-to-llvm,"
    "convert-func-to-llvm{use-bare-ptr-memref-call-conv=true},convert-cf-to-llvm,"
    "reconcile-unrealized-casts,canonicalize,cse"
)


_DEVICE_INTRINSICS = {"@llvm.lrint.i32.f32(": "@llvm.nvvm.f2i.rn("}
"""Intrinsics for which LLVM has no code on a GPU, and those that do the same there."""
_DECLARED = re.compile(r"^declare [^\n]*?@([\w.$]+)\(", re.MULTILINE)
_BRACKET = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|->|>=|[(\[{<)\]}>]')
_OPENING = frozenset("([{<")
_CLOSING = frozenset(")]}>")


_context = cache(new_context)


def lower_kernel(text: str, symbol: str, *, buffers: int, sizes: int, scratch: bool) -> str:
    """Lower the module of one kernel and add the kernel's task.

    Args:
        text: a module with `func.func @symbol(buffers…, sizes…, begin, end)`: buffers `memref<1xT>`, the rest
            `index`, no results.
        symbol: the kernel's name; the task is called `<symbol>_task`.
        buffers: how many parameters are buffers, the scratch included.
        sizes: how many sizes follow them.
        scratch: whether the last buffer is the scratch.

    Returns:
        The text of an LLVM module, as llvmlite's LLVM reads it.

    Raises:
        CompileError: XC4004, the text does not parse, nests too deep, or the function is not as described;
            XC4005, an op has no lowering.
    """
    module = _parse(text)
    _check_signature(module, symbol, buffers, sizes, "begin", "end")
    return _lower(module) + _task(symbol, buffers - scratch, sizes, scratch)


def lower_device(text: str, symbol: str, *, buffers: int, sizes: int, threads: int) -> str:
    """Lower the module of one kernel of a GPU.

    Args:
        text: a module with `func.func @symbol(buffers…, sizes…, extent)`, as for `lower_kernel` but for the last
            parameter: the extent of the parallel axis.
        symbol: the kernel's name.
        buffers: how many parameters are buffers, the scratch included.
        sizes: how many sizes follow them.
        threads: of a block.

    Returns:
        The text of an LLVM module with an entry point that takes each parameter as 8 bytes.

    Raises:
        CompileError: as `lower_kernel`; XC4013, the kernel calls a function that no GPU has.
    """
    module = _parse(text)
    _check_signature(module, symbol, buffers, sizes, "the extent")
    lowered = _lower(module)
    for general, special in _DEVICE_INTRINSICS.items():
        lowered = lowered.replace(general, special)
    missing = [name for name in _DECLARED.findall(lowered) if not name.startswith("llvm.")]
    if missing:
        raise CompileError(
            "XC4013", f"the kernel calls {', '.join(missing)}, which there is not on a GPU"
        )
    head = f"define void @{symbol}("
    begin = lowered.index(head)
    end = lowered.index(" {\n", begin)
    entry = f'define ptx_kernel void @{symbol}({lowered[begin + len(head) : end]} "nvvm.maxntid"="{threads}"'
    return lowered[:begin] + entry + lowered[end:]


def lower_module(text: str) -> str:
    """Lower a module of any plain functions; `llvm` dialect ops may stand beside the others.

    Raises:
        CompileError: as `lower_kernel`.
    """
    return _lower(_parse(text))


def nesting_depth(text: str) -> int:
    """Return how deep brackets nest in `text`, not counting those in strings and comments.

    MLIR's parser calls itself once a level, so deep text overflows the stack and ends the process.
    """
    depth = deepest = 0
    for token in _BRACKET.findall(text):
        if token in _OPENING:
            depth += 1
            deepest = max(deepest, depth)
        elif token in _CLOSING:
            depth = max(depth - 1, 0)
    return deepest


def _parse(text: str) -> ir.Module:
    if nesting_depth(text) > MAX_NESTING:
        raise CompileError("XC4004", f"the emitted module nests deeper than {MAX_NESTING} levels")
    try:
        return ir.Module.parse(text, context=_context())
    except ir.MLIRError as error:
        raise CompileError(
            "XC4004", f"the emitted module is not valid: {_diagnostic(error)}"
        ) from error


def _lower(module: ir.Module) -> str:
    try:
        _pipeline().run(module.operation)
    except ir.MLIRError as error:
        raise CompileError("XC4005", f"lowering failed: {_diagnostic(error)}") from error
    _check_lowered(module)
    return llvm_text.downgrade(llvm_dialect.translate_module_to_llvmir(module.operation))


@cache
def _pipeline() -> passmanager.PassManager:
    manager = passmanager.PassManager.parse(f"builtin.module({_PIPELINE})", context=_context())
    manager.enable_verifier(False)  # between passes: takes 60 % of the time; the result is checked
    return manager


def _check_signature(module: ir.Module, symbol: str, buffers: int, sizes: int, *last: str) -> None:
    """Refuse a function which would be called with the wrong arguments; `last` are those behind the sizes."""
    for operation in module.body.operations:
        if not isinstance(operation, func.FuncOp) or operation.name.value != symbol:
            continue
        function = operation.type
        break
    else:
        raise CompileError("XC4004", f"the emitted module has no function @{symbol}")
    index = ir.IndexType.get(module.context)
    expected = len(function.inputs) == buffers + sizes + len(last) and not function.results
    expected = expected and all(_is_buffer(t) for t in function.inputs[:buffers])
    if not expected or any(t != index for t in function.inputs[buffers:]):
        raise CompileError(
            "XC4004",
            f"@{symbol} has type {function}, but {buffers} buffers (memref<1xT>), {sizes} sizes, "
            f"{' and '.join(last)} (index) were announced",
        )


def _is_buffer(candidate: ir.Type) -> bool:
    return isinstance(candidate, ir.MemRefType) and candidate.shape == [1]


def _check_lowered(module: ir.Module) -> None:
    """Translation ends the process when it meets an op of another dialect, so look first."""
    left: set[str] = set()

    def visit(operation: Any) -> ir.WalkResult:
        if not operation.name.startswith("llvm.") and operation.name != "builtin.module":
            left.add(operation.name)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    if left:
        raise CompileError(
            "XC4005",
            f"lowering left ops that are not LLVM's: {', '.join(sorted(left))}",
        )
    try:
        module.operation.verify()
    except ir.MLIRError as error:
        raise CompileError(
            "XC4005", f"the lowered module is not valid: {_diagnostic(error)}"
        ) from error


def _task(symbol: str, buffers: int, sizes: int, scratch: bool) -> str:
    """The function that `xc_parallel_for` calls: unpacks the record and calls the kernel."""
    lines = [f"\ndefine void @{symbol}_task(ptr %record, i64 %begin, i64 %end, ptr %scratch) {{"]
    arguments: list[str] = []
    for slot in range(buffers + sizes):
        kind = "ptr" if slot < buffers else "i64"
        lines.append(f"  %slot{slot} = getelementptr i64, ptr %record, i64 {slot}")
        lines.append(f"  %value{slot} = load {kind}, ptr %slot{slot}, align 8")
        arguments.append(f"{kind} %value{slot}")
    if scratch:
        arguments.insert(buffers, "ptr %scratch")
    arguments += ["i64 %begin", "i64 %end"]
    lines += [f"  call void @{symbol}({', '.join(arguments)})", "  ret void", "}", ""]
    return "\n".join(lines)


def _diagnostic(error: Exception) -> str:
    """The first error line of an MLIR diagnostic, without its internal buffer name."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    chosen = next(
        (line for line in lines if line.startswith("error:")),
        lines[-1] if lines else "",
    )
    return chosen.removeprefix("error: ").replace('"-":', "line ", 1)
