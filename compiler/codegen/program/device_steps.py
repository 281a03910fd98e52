"""What programs of a GPU may not do yet: host code cannot look at the memory of the device."""

from xcompile.compiler.codegen.program import program as rt
from xcompile.compiler.support.errors import CompileError

_OF_DATA = (rt.Read, rt.Define, rt.Check, rt.Allocate, rt.Give, rt.Store, rt.Append, rt.If, rt.Loop)


def check_device_steps(program: rt.Program) -> None:
    """Refuse a program whose host code reads what kernels have written.

    Raises:
        CompileError: XC4011.
    """
    for step in program.walk:
        if isinstance(step, _OF_DATA):
            what = type(step).__name__.lower()
            raise CompileError(
                "XC4011", f"a size, a branch or a loop depends on data ('{what}'), which targets of GPUs cannot do yet",
                help="compile this model for a CPU target",
            )  # fmt: skip
