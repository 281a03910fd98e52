"""Names of values: those of the model's tensors, as far as they still are values, else names made from them."""

import hashlib
from collections.abc import Collection, Mapping

from xcompile.compiler.ir.location import node_names
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Op, Value
from xcompile.compiler.ir.rewrite import walk
from xcompile.dialects.nn.const import Const


def tensor_names(module: Module, unnamed: Collection[str] = ()) -> dict[Value, str]:
    """A name for each value of `@main` that is no constant, none twice; results of the ops in `unnamed` have none.

    Inputs and outputs have the model's names. Any other value has that of the tensor that the last model node of its
    op's location gives; where several values claim one name the last has it, and the others are called `name#1`,
    `name#2`, … in order. Equal modules have equal names.
    """
    *body, terminator = module.main.regions[0].blocks[0].operations
    names: dict[Value, str] = {}
    taken = set[str]()

    def give(value: Value, name: str) -> None:
        count, free = 0, name
        while free in taken:
            count += 1
            free = f"{name}#{count}"
        names[value] = free
        taken.add(free)

    known = zip(module.main.regions[0].blocks[0].arguments, module.input_names(), strict=True)
    returned = zip(terminator.operation.operands, module.output_names(), strict=True)
    for value, name in (*known, *returned):
        if value not in names and Const.of(_owner(value)) is None:
            give(value, name)
    order = {node: place for place, node in enumerate(module.tensors)}
    claims: dict[str, list[Value]] = {}
    for place, operation in enumerate(body):
        if Const.of(operation.operation) is not None or operation.operation.name in unnamed:
            continue
        for index, value in enumerate(operation.operation.results):
            claim = _claim(module, operation.operation, index, order) or f"value{place}"
            claims.setdefault(claim, []).append(value)
    for claim, values in claims.items():
        for value in (values[-1], *values[:-1]):
            if value not in names:
                give(value, claim)
    return names


def op_names(op: Op, names: Mapping[Value, str]) -> list[str]:
    """What a `PrecisionMap` knows an op by: its model nodes, and the tensors that it gives.

    Args:
        op: of `@main`, or of a branch or loop in it.
        names: `tensor_names` of the module.
    """
    return [*node_names(op.location), *(names[v] for v in op.results if v in names)]


def digest_of(module: Module) -> str:
    """What a calibration table belongs to: the constants, inputs and outputs of a model as it was imported."""
    constants: set[str] = set()
    for operation in walk(module):
        made = Const.of(operation)
        if made is not None:
            constants.add(f"{made.value}{made.y.type}")
    parts = [*module.input_names(), *map(str, module.input_shapes()), *module.output_names()]
    text = "\0".join([*parts, *sorted(constants)])
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _owner(value: Value) -> ir.Operation | None:
    return None if isinstance(value.owner, ir.Block) else value.owner.operation


def _claim(
    module: Module, operation: ir.Operation, index: int, order: dict[str, int]
) -> str | None:
    """The name of the tensor that a result most probably is."""
    nodes = node_names(operation.location)
    known = [node for node in nodes if node in order]
    if not known:
        return nodes[-1] if nodes else None
    node = max(known, key=order.__getitem__)
    tensors = module.tensors[node]
    if len(tensors) == len(operation.results) or not tensors:
        return tensors[index] if tensors else node
    return tensors[-1]
