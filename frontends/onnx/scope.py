"""Converts the nodes of graphs, in order; branches whose results differ in rank are kept apart as long as they must.

The rank of a tensor is part of its type, but a branch of an ONNX If may give another rank than the other one: a model
that squeezes an axis when its size is 1 does so. What depends on such a result is converted in both branches, until
all that is still needed has one rank; there the branches end. So is what depends on a sequence that has another length
in each branch, to the end of the graph: there, and where only a run knows one of the lengths, it is packed. Where an
output of the model still differs at the end, its declared rank decides. The nodes of a branch that is known to run,
which constants, sizes and ranks often decide, are converted as if they stood in place of the If. A branch in which an
op is wrong, such as one that needs another rank, becomes an error of the running model.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext

from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Value
from xcompile.compiler.ir.regions import Body
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.base import dtype_of, rank_of
from xcompile.dialects.nn.control import Fail, If, Yield
from xcompile.dialects.nn.shapes import LocalSizes
from xcompile.frontends.onnx.context import NodeContext
from xcompile.frontends.onnx.conversion import convert_node
from xcompile.frontends.onnx.graph import ABSENT, Graph, Node, Subgraph
from xcompile.frontends.onnx.packed import Packing
from xcompile.frontends.onnx.places import Fork, Place, form
from xcompile.frontends.onnx.schemas import check_dtypes
from xcompile.frontends.onnx.sequences import (
    Known,
    OtherRank,
    PackedSequence,
    TensorSequence,
    made_of,
    tensors_of,
)
from xcompile.frontends.onnx.undecided import how_to_decide
from xcompile.frontends.onnx.values import Values

MOST_COPIES = 10_000
"""Nodes that may be converted once more because branches differ in rank."""


class Scope:
    """Converts the nodes of one flat graph and of the graphs inside them.

    Args:
        values: the graph's values.
        read: the values that something reads.
    """

    def __init__(self, values: Values, read: Container[int]) -> None:
        self.values = values
        self._read = read
        self._place = Place()
        self._copies = 0
        self.made: Mapping[int, Known] = {}
        """The values that `run` made last, without those in branches and bodies."""
        self.open_axes: dict[object, dict[int, set[int]]] = {}
        """Axes of carried values that were found to change, by the loop's node; see `ops_control`."""
        self.element_ranks: dict[object, tuple[int, ...]] = {}
        """Ranks of the tensors of sequences that a loop carries, by the loop's node; see `carried`."""

    @staticmethod
    def of(graph: Graph, values: Values) -> "Scope":
        """The scope of a whole graph."""
        read = {v for node in graph.all_nodes() for v in node.inputs}
        read |= {v for node in graph.all_nodes() for b in node.bodies.values() for v in b.outputs}
        return Scope(values, read | {number for number, _ in graph.outputs})

    def inner(self, graph: Graph) -> "Scope":
        """The scope of another graph, whose ops are made in the same module."""
        return Scope.of(graph, self.values.inner(graph))

    def discard(self, operation: ir.Operation) -> None:
        """Drop an op, or the holder of a body, that is not needed; handles to what is in it stay valid."""
        self.values.module.graveyard.bury(operation, "the importer")

    def is_read(self, number: int) -> bool:
        """Whether a node or an output reads the value."""
        return number != ABSENT and number in self._read

    def run(
        self,
        nodes: Sequence[Node],
        outputs: Sequence[int],
        loc: ir.Location,
        ranks: Mapping[int, int] | None = None,
    ) -> list[Known]:
        """Convert nodes at the insertion point; the values of `outputs`.

        Args:
            nodes: in executable order.
            outputs: what is wanted of them.
            loc: of constants that are outputs.
            ranks: the ranks of outputs that are declared. Where branches still differ in rank at the end, one that
                gives another rank becomes an error of the running model, unless all do.

        Raises:
            CompileError: a node is wrong or not supported, or the rank of an output depends on data (XC2010).
        """
        place = Place(outer=self._place)
        with self._at(place):
            self._convert(place, nodes, outputs)
            if place.fork is not None:
                self._pack(place.fork, outputs, lists=True)
                self._join(place, lambda number: number in outputs)
            if place.fork is not None and ranks:
                self._keep_declared(place.fork, ranks)
                self._join(place, lambda number: number in outputs)
            if place.fork is not None:
                raise _undecided(place.fork, self.values.module)
            self.made = place.values
            return [self.values.known(number, loc) for number in outputs]

    def run_subgraph(
        self, graph: Subgraph, arguments: Sequence[Known], loc: ir.Location
    ) -> list[Known]:
        """Convert the graph inside a node at the insertion point, for the values of its inputs; those of its outputs.

        Raises:
            CompileError: XC1011 the number of inputs does not fit, and what `run` raises.
        """
        needed = [number for number, default in graph.inputs if not default]
        every = [number for number, _ in graph.inputs]
        numbers = needed if len(needed) == len(arguments) else every
        if len(numbers) != len(arguments):
            raise CompileError(
                "XC1011",
                f"the graph '{graph.name}' has {len(every)} inputs; it gets {len(arguments)}",
            )
        for number, value in zip(numbers, arguments, strict=True):
            self.values.define(number, value)
        return self.run(graph.nodes, graph.outputs, loc)

    # -- in order -------------------------------------------------------------------------------

    @contextmanager
    def _at(self, place: Place) -> Iterator[None]:
        """Convert at the end of a place, where its values and those around it are known."""
        before, self._place = self._place, place
        layers: list[dict[int, Known]] = []
        each: Place | None = place
        while each is not None:
            layers.append(each.values)
            each = each.outer
        try:
            with place.body or nullcontext(), self.values.layered(layers[::-1]):
                yield
        finally:
            self._place = before

    def _convert(self, place: Place, nodes: Sequence[Node], outputs: Sequence[int]) -> None:
        """Convert nodes at a place, and end branches there as soon as their needed values agree in rank."""
        last = {number: i for i, node in enumerate(nodes) for number in node.reads}
        last.update(dict.fromkeys(outputs, len(nodes)))
        for position, node in enumerate(nodes):
            self._step(place, node)
            self._join(place, lambda number, now=position: last.get(number, -1) > now)

    def _step(self, place: Place, node: Node) -> None:
        """Convert a node at a place, or in the branches there whose values it reads."""
        if place.fork is not None and any(map(place.fork.has, node.reads)):
            self._step_in_branches(place.fork, node)
        else:
            with self._at(place):
                if node.op == "If" and not node.domain:
                    self._branch(place, node)
                else:
                    convert_node(node, self)

    def _step_in_branches(self, fork: Fork, node: Node) -> None:
        self._copies += 1
        if self._copies > MOST_COPIES:
            raise CompileError(
                "XC1013",
                f"the branches differ in rank, and keeping them apart copies {MOST_COPIES} nodes",
                node=fork.node.name,
            )
        self._in_branches(fork, lambda side: self._step(side, node))

    def _in_branches(self, fork: Fork, action: Callable[[Place], None]) -> None:
        """Do something in both branches; one in which that contradicts an op's definition is wrong from then on."""
        for side in fork.sides:
            if side.wrong is None:
                try:
                    action(side)
                except CompileError as error:
                    if not error.code.startswith("XC2") or isinstance(error, OtherRank):
                        raise
                    error.node = error.node or fork.node.name
                    side.wrong, side.fork = error, None
        first, second = (side.wrong for side in fork.sides)
        if first is not None and second is not None:
            raise first

    # -- branches -------------------------------------------------------------------------------

    def _branch(self, place: Place, node: Node) -> None:
        """Convert an If at a place."""
        context = NodeContext(node, self)
        check_dtypes(node, [context.dtype(0)])
        branches = [node.bodies["then_branch"], node.bodies["else_branch"]]
        for branch in branches:
            if branch.inputs and not all(default for _, default in branch.inputs):
                raise context.error("XC1011", f"the graph '{branch.name}' has inputs")
            if len(branch.outputs) != len(node.outputs):
                counts = f"{len(branch.outputs)} outputs, the node {len(node.outputs)}"
                raise context.error("XC1011", f"the graph '{branch.name}' has {counts}")
        decided = _decided(context)
        if decided is not None:
            self._follow(place, branches[0 if decided else 1], node)
            return
        cond = context.one_element(context.input(0))
        fork = Fork(node, cond, (Place(Body(), place), Place(Body(), place)))
        of_side = dict(zip(map(id, fork.sides), branches, strict=True))
        self._in_branches(fork, lambda side: self._follow(side, of_side[id(side)], node))
        wanted = [number for number in node.outputs if self.is_read(number)]
        self._pack(fork, wanted)
        if self._agree(fork, wanted):
            self._build(place, fork, wanted)
        elif place.fork is None:
            place.fork = fork
        else:
            self._discard(fork)
            self._step_in_branches(place.fork, node)

    def _discard(self, fork: Fork) -> None:
        for side in fork.sides:
            if side.body is not None:
                self.discard(side.body.holder)

    def _follow(self, place: Place, branch: Subgraph, node: Node) -> None:
        """Convert the nodes of a branch at a place; its outputs are the node's there."""
        self._convert(place, branch.nodes, branch.outputs)
        location = ir.Location.name(node.name)
        for source, number in zip(branch.outputs, node.outputs, strict=True):
            if self.is_read(number):
                self._bind(place, source, number, location)

    def _bind(self, place: Place, source: int, number: int, loc: ir.Location) -> None:
        """Give a value another number, where it was made."""
        if place.fork is not None and place.fork.has(source):
            for side in place.fork.sides:
                if side.wrong is None:
                    self._bind(side, source, number, loc)
        else:
            with self._at(place):
                self.values.define(number, self.values.known(source, loc))

    def _agree(self, fork: Fork, numbers: Sequence[int]) -> bool:
        """Whether values are tensors, or sequences of as many, that have the same rank in all branches.

        They must have the same dtype.
        """
        return all(self._agree_on(fork, self._in_leaves(fork, number)) for number in numbers)

    def _agree_on(self, fork: Fork, found: Sequence[Known]) -> bool:
        for same in zip(*map(tensors_of, found), strict=False):
            dtypes = sorted(set(map(dtype_of, same)))
            if len(dtypes) > 1:
                message = f"the branches give {' and '.join(dtypes)} for one result"
                raise CompileError("XC2002", message, node=fork.node.name)
        return len(set(map(form, found))) == 1

    def _in_leaves(self, fork: Fork, number: int) -> list[Known]:
        """What a value is in each branch."""
        location, found = ir.Location.name(fork.node.name), list[Known]()
        for leaf in (leaf for side in fork.sides for leaf in side.leaves()):
            with self._at(leaf):
                found.append(self.values.known(number, location))
        return found

    def _pack(self, fork: Fork, numbers: Sequence[int], *, lists: bool = False) -> None:
        """Make sequences values of one kind where a branch gives one whose length only a run knows.

        Args:
            fork: the branches.
            numbers: the values.
            lists: also where each branch gives a list, of another length.
        """
        leaves = [leaf for side in fork.sides for leaf in side.leaves()]
        for number in numbers:
            found = self._in_leaves(fork, number)
            sequences = [v for v in found if isinstance(v, TensorSequence | PackedSequence)]
            if len(sequences) < len(found) or len(set(map(form, found))) < 2:
                continue
            if not lists and not any(isinstance(v, PackedSequence) for v in found):
                continue
            packing = Packing(NodeContext(fork.node, self))
            rank = packing.common_rank(sequences)
            for leaf, sequence in zip(leaves, sequences, strict=True):
                with self._at(leaf):
                    self.values.define(number, packing.packed(sequence, rank))

    def _join(self, place: Place, needed: Callable[[int], bool]) -> None:
        """End the branches at a place, or those inside them, when all that is needed has one rank."""
        fork = place.fork
        if fork is None:
            return
        made = {number: None for side in fork.sides for number in side.numbers()}
        wanted = [number for number in made if needed(number)]
        self._pack(fork, wanted)
        if self._agree(fork, wanted):
            place.fork = None
            with self._at(place):
                self._build(place, fork, wanted)
        else:
            for side in fork.sides:
                if side.wrong is None:
                    self._join(side, needed)

    def _keep_declared(self, fork: Fork, ranks: Mapping[int, int]) -> None:
        """Give up the branches in which an output has another rank than the declared one, unless all have."""

        def check(side: Place) -> None:
            if side.fork is not None:
                self._in_branches(side.fork, check)
                return
            with self._at(side):
                for number, rank in ranks.items():
                    value = self.values.known(number, ir.Location.unknown())
                    found = rank_of(value) if isinstance(value, Value) else "a sequence"
                    if found != rank:
                        raise CompileError(
                            "XC2003", f"the model declares an output of rank {rank}, which is {found} here"
                        )  # fmt: skip

        try:
            self._in_branches(fork, check)
        except CompileError as error:
            raise _undecided(fork, self.values.module) from error

    def _build(self, place: Place, fork: Fork, numbers: Sequence[int]) -> None:
        """Make the If of a fork at the end of a place; its results are the values of `numbers`."""
        if not numbers:
            self._discard(fork)
            return
        location, forms = ir.Location.name(fork.node.name), list[Known]()
        for side in fork.sides:
            if side.wrong is not None:
                self._fail(side, location)
                continue
            inner, side.fork = side.fork, None
            with self._at(side):
                if inner is not None:
                    self._build(side, inner, [n for n in numbers if inner.has(n)])
                given = [self.values.known(number, location) for number in numbers]
                tensors = [tensor for value in given for tensor in tensors_of(value)]
                Yield.build({"values": tensors}, [], loc=location)
            forms = given
        bodies = [side.body for side in fork.sides if side.body is not None]
        results = iter(If.make(fork.cond, *bodies, loc=location).results)
        place.values.update((n, made_of(results, f)) for n, f in zip(numbers, forms, strict=True))

    def _fail(self, side: Place, loc: ir.Location) -> None:
        """Replace the body of a wrong branch by its error."""
        assert side.wrong is not None and side.body is not None
        self.discard(side.body.holder)
        side.body = Body(loc=loc)
        with side.body:
            where = f" (node '{side.wrong.node}')" if side.wrong.node else ""
            Fail.build({"text": side.wrong.message + where}, [], loc=loc)


def _undecided(fork: Fork, module: Module) -> CompileError:
    """The error of branches that still differ at the end of a graph."""
    return CompileError(
        "XC2010",
        "the branches differ in the rank of a result that ends a graph, or it is a sequence: it would depend on data",
        node=fork.node.name,
        help=how_to_decide(module, fork.cond),
    )


def _decided(context: NodeContext) -> bool | None:
    """Whether the condition of an If holds, when that is known."""
    constant = context.const(0)
    if constant is not None:
        return bool(constant.reshape(-1)[0]) if constant.size == 1 else None
    value = context.input(0)
    content = LocalSizes().content(value) if rank_of(value) < 2 else None
    if content is None or len(content) != 1 or not isinstance(content[0], int):
        return None
    return bool(content[0])
