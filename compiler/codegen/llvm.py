"""The door to LLVM: from a module's text to an object file or PTX. Runs in worker processes only.

LLVM can end the process ("cannot select", a stack overflow, an assertion), so nothing here is called in the
user's process; see `compiler/worker.py`. Modules of CPUs come from emitters that leave nothing for the middle end, so
no pipeline of IR passes runs for them: the same speed was measured with and without, at a third of the compile time.
"""

import re
from functools import cache

import llvmlite.binding as llvm

from xcompile.compiler.codegen.job import MachineSpec
from xcompile.compiler.support.errors import CompileError

_DEFINE = re.compile(r"^(define [^\n]*?) \{$", re.MULTILINE)
_GROUP = 999_999  # a number that MLIR's own attribute groups do not reach


def compile_object(
    llvm_ir: str, target: MachineSpec, *, listing: bool = False
) -> tuple[bytes, str | None]:
    """Compile a module to an object file, and to assembly text when `listing` is set.

    The same text and target give the same bytes. Code is position independent and keeps libc and runtime
    symbols undefined. All functions get `nounwind` and, where the target has AVX-512, a preferred vector width of
    512 bits: processors whose tuning prefers 256 would split what the schedule has decided.

    Args:
        llvm_ir: a module as text of llvmlite's LLVM (see `llvm_text.downgrade`).
        target: the machine.
        listing: whether to return the assembly too.

    Raises:
        CompileError: XC4006, the module does not parse or verify, or there is no such target.
    """
    try:
        machine = _target(target.triple).create_target_machine(
            cpu=target.cpu,
            features=target.features,
            opt=3,
            reloc="pic",
            codemodel="default",
        )
        module = llvm.parse_assembly(_with_attributes(llvm_ir, target))
        module.triple = target.triple
        module.data_layout = str(machine.target_data)
        module.verify()
        assembly = machine.emit_assembly(module.clone()) if listing else None
        return machine.emit_object(module), assembly
    except RuntimeError as error:
        raise CompileError("XC4006", f"LLVM refused the module: {_first_line(error)}") from error


def compile_ptx(llvm_ir: str, target: MachineSpec) -> bytes:
    """Optimize a module of GPU kernels and write it as PTX text.

    Unlike on CPUs the middle end runs: kernels are written for one element, and what a thread repeats is left to it.
    Multiplications and additions are never contracted, so results are those of the CPU.

    Args:
        llvm_ir: a module as text of llvmlite's LLVM.
        target: the GPU.

    Raises:
        CompileError: XC4006, the module does not parse or verify, or there is no such target.
    """
    try:
        machine = _target(target.triple).create_target_machine(
            cpu=target.cpu, features=target.features, opt=3
        )
        module = llvm.parse_assembly(_with_attributes(llvm_ir, target))
        module.triple = target.triple
        module.data_layout = str(machine.target_data)
        module.verify()
        tuning = llvm.create_pipeline_tuning_options(speed_level=3)
        builder = llvm.create_pass_builder(machine, tuning)
        builder.getModulePassManager().run(module, builder)
        return machine.emit_assembly(module).encode()
    except RuntimeError as error:
        raise CompileError("XC4006", f"LLVM refused the module: {_first_line(error)}") from error


@cache
def _target(triple: str) -> llvm.Target:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(triple)


def _with_attributes(llvm_ir: str, target: MachineSpec) -> str:
    """Add our attributes to every function that the module defines."""
    attributes = "nounwind"
    if target.has_avx512:
        attributes += ' "prefer-vector-width"="512" "min-legal-vector-width"="512"'
    text, count = _DEFINE.subn(rf"\1 #{_GROUP} {{", llvm_ir)
    return f"{text}\nattributes #{_GROUP} = {{ {attributes} }}\n" if count else text


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), "no reason given")
