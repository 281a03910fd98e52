"""A toy dialect: ops whose results have the type of the first operand."""

from torch_mlir import ir

from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Dialect, Op, Operand, Operands, Region, Result
from xcompile.compiler.support.errors import CompileError

toy = Dialect("toy")
TENSOR = "tensor<4xf32>"


class Toy(Op):
    @classmethod
    def create(cls, *, loc: ir.Location | None = None, **fields: object) -> "Toy":
        first = next(v for v in fields.values() if isinstance(v, ir.Value))
        return cls.build(fields, [first.type], loc=loc)


@toy.op("a")
class A(Toy):
    x: Operand
    y: Result
    alpha: float = 0.0
    axes: tuple[int, ...] = ()
    name: str | None = None


@toy.op("b")
class B(Toy):
    x: Operand
    y: Result


@toy.op("pair")
class Pair(Toy):
    x: Operand
    bias: Operand | None
    y: Result
    label: str


@toy.op("two_optional")
class TwoOptional(Toy):
    x: Operand
    low: Operand | None
    high: Operand | None
    y: Result


@toy.op("many")
class Many(Toy):
    x: Operand
    rest: Operands
    last: Operand
    y: Result
    flags: tuple[bool, ...] = ()


@toy.op("effect", pure=False)
class Effect(Toy):
    x: Operand
    y: Result


@toy.op("holder")
class Holder(Toy):
    x: Operand
    body: Region
    y: Result


@toy.op("yield", pure=False)
class Yield(Op):
    values: Operands


@toy.op("picky")
class Picky(Toy):
    """Does not verify: with `how` "error" it says so, else its verifier has a fault."""

    x: Operand
    y: Result
    how: str = "error"

    def verify(self) -> None:
        if self.how == "error":
            raise CompileError("XC2007", "too picky")
        raise ZeroDivisionError("a fault in the verifier")


def chain(names: str) -> Module:
    """A module whose `@main` applies the ops `names` one after another, at nodes n0, n1, …"""
    lines, last = [], "%x"
    for i, name in enumerate(names.split()):
        lines.append(f'%{i} = "toy.{name}"({last}) : ({TENSOR}) -> {TENSOR} loc("n{i}")')
        last = f"%{i}"
    lines.append(f"return {last} : {TENSOR}")
    return parsed("\n".join(lines))


def parsed(body: str) -> Module:
    """A module whose `@main(%x)` has the body."""
    text = f"func.func @main(%x: {TENSOR}) -> {TENSOR} {{\n{body}\n}}"
    return Module(ir.Module.parse(text))


def names_in(module: Module) -> list[str]:
    """The ops of `@main` in order, without their dialects and the return."""
    block = module.main.regions[0].blocks[0]
    return [o.operation.name.partition(".")[2] for o in block.operations][:-1]
