"""Regions: blocks of ops inside an op, which may use every value that is there before the op.

body = Body([tensor], loc)
with body:
    ...                                   # build ops; body.arguments are the block's
made = SomeOp.build(fields, types, bodies=[body])
"""

from collections.abc import Iterator, Sequence

from torch_mlir import ir


class Body:
    """A block in the making, which becomes a region of an op when that is built.

    Entered as a context, it is where ops are made. Blocks come before the op that holds them, since its results are
    known only then: until then the block stands in `holder`, an op at the insertion point.
    """

    def __init__(self, types: Sequence[ir.Type] = (), loc: ir.Location | None = None) -> None:
        location = loc or ir.Location.unknown()
        self.holder = ir.Operation.create("builtin.holder", regions=1, loc=location)
        self.block: ir.Block = self.holder.regions[0].blocks.append(
            *types, arg_locs=[location] * len(types)
        )
        self._entered: list[ir.InsertionPoint] = []

    @property
    def arguments(self) -> list[ir.Value]:
        """The block's arguments."""
        return list(self.block.arguments)

    def __enter__(self) -> "Body":
        point = ir.InsertionPoint(self.block)
        point.__enter__()
        self._entered.append(point)
        return self

    def __exit__(self, *exception: object) -> None:
        self._entered.pop().__exit__(*exception)

    def move_to(self, region: ir.Region) -> None:
        """Make the block the only one of an empty region; the holder is gone."""
        self.block.append_to(region)
        self.holder.erase()


def blocks_of(operation: ir.Operation) -> Iterator[ir.Block]:
    """The blocks of an op's regions, in order; not those of ops inside."""
    for region in operation.regions:
        yield from region.blocks


def nested(operation: ir.Operation) -> list[ir.Operation]:
    """Every op in an op's regions, at any depth, in the order of the text."""
    found: list[ir.Operation] = []
    pending = [operation]
    while pending:
        current = pending.pop()
        found.append(current)
        inside = [o.operation for b in blocks_of(current) for o in b.operations]
        pending += reversed(inside)
    return found[1:]


def captures(operation: ir.Operation) -> list[ir.Value]:
    """The values from outside that ops in an op's regions use, each once, in the order of use."""
    if not len(operation.regions):
        return []
    inside = nested(operation)
    made: set[ir.Value] = {a for b in blocks_of(operation) for a in b.arguments}
    for each in inside:
        made.update(each.results)
        made.update(a for b in blocks_of(each) for a in b.arguments)
    used = dict.fromkeys(v for each in inside for v in each.operands)
    return [v for v in used if v not in made]


def uses_of(operation: ir.Operation) -> list[ir.Value]:
    """The values that an op needs to be there: its operands, and what its regions capture."""
    return [*operation.operands, *captures(operation)]


def parent(operation: ir.Operation) -> ir.Operation | None:
    """The op in whose region an op is; None for one without."""
    found = operation.parent
    return None if found is None else found.operation
