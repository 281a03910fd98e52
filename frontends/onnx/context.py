"""What a converter sees of the node that it converts."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.op import Value
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.base import NnOp, dtype_of, numpy_dtype, rank_of
from xcompile.dialects.nn.reshape import Reshape
from xcompile.frontends.onnx.attributes import decode
from xcompile.frontends.onnx.graph import ABSENT, Node, Subgraph
from xcompile.frontends.onnx.sequences import AnySequence, Known

if TYPE_CHECKING:
    from xcompile.frontends.onnx.scope import Scope

Made = TypeVar("Made", bound=NnOp)
Done = TypeVar("Done")
_REQUIRED = object()


class NodeContext:
    """One node: its inputs as values of the IR, its attributes as Python values, and the way to
    make
    ops in its name.
    """

    def __init__(self, node: Node, scope: "Scope") -> None:
        self._node = node
        self._scope = scope
        self._values = scope.values
        self._location = ir.Location.name(node.name)

    @property
    def node(self) -> Node:
        """The node of the flat graph."""
        return self._node

    @property
    def scope(self) -> "Scope":
        """What converts the nodes of the graph."""
        return self._scope

    @property
    def name(self) -> str:
        """The model's name for the node, or the op type and the position."""
        return self._node.name

    @property
    def op_type(self) -> str:
        return self._node.op

    @property
    def opset(self) -> int:
        """The version of the node's domain."""
        return self._node.opset

    @property
    def location(self) -> ir.Location:
        return self._location

    # -- inputs and outputs ---------------------------------------------------------------------

    @property
    def input_count(self) -> int:
        """The number of inputs listed, omitted ones included."""
        return len(self._node.inputs)

    @property
    def outputs(self) -> int:
        """The number of outputs listed, omitted ones included."""
        return len(self._node.outputs)

    def has_output(self, index: int) -> bool:
        return index < self.outputs and self._node.outputs[index] != ABSENT

    def has_input(self, index: int) -> bool:
        return index < self.input_count and self._node.inputs[index] != ABSENT

    def input(self, index: int) -> Value:
        """The value of an input; CompileError XC1011 when it is omitted."""
        if not self.has_input(index):
            raise self.error("XC1011", f"input {index} of {self.op_type} is missing")
        return self._values.value(self._node.inputs[index], self._location)

    def optional(self, index: int) -> Value | None:
        """The value of an input, None when it is omitted."""
        return self.input(index) if self.has_input(index) else None

    def is_sequence(self, index: int) -> bool:
        """Whether an input is a sequence of tensors."""
        return self.has_input(index) and self._values.sequence(self._node.inputs[index]) is not None

    def sequence(self, index: int) -> AnySequence:
        """An input that is a sequence; CompileError XC2002 when it is none."""
        found = self._values.sequence(self._node.inputs[index]) if self.has_input(index) else None
        if found is None:
            raise self.error("XC2002", f"input {index} of {self.op_type} is no known sequence")
        return found

    def any_input(self, index: int) -> Known:
        """An input, which may be a sequence."""
        return self.sequence(index) if self.is_sequence(index) else self.input(index)

    def inputs(self) -> list[Value]:
        """All inputs of a variadic op; CompileError XC1011 when one is omitted."""
        return [self.input(i) for i in range(self.input_count)]

    def const(self, index: int) -> np.ndarray | None:
        """The elements of an input that is a constant, else None (also when it is omitted). Read only."""
        return self._values.array(self._node.inputs[index]) if self.has_input(index) else None

    def const_ints(self, index: int) -> tuple[int, ...] | None:
        """The elements of a constant integer vector or scalar, else None."""
        array = self.const(index)
        return None if array is None else tuple(int(v) for v in array.reshape(-1))

    def dtype(self, index: int) -> str:
        return dtype_of(self.input(index))

    def rank(self, index: int) -> int:
        return rank_of(self.input(index))

    def axis(self, axis: int, rank: int) -> int:
        """A possibly negative axis, normalized; CompileError XC2006 when it is out of range."""
        if not -rank <= axis < rank:
            raise self.error(
                "XC2006", f"axis {axis} of {self.op_type} is out of range for rank {rank}"
            )
        return axis % rank

    # -- attributes -----------------------------------------------------------------------------

    @cached_property
    def attrs(self) -> Mapping[str, Any]:
        """All attributes that the node gives, as Python values: see `attributes.decode`."""
        external = self._values.external
        return {name: decode(a, external, self.name) for name, a in self._node.attributes.items()}

    def attr(self, name: str, default: Any = _REQUIRED) -> Any:
        """An attribute, or the default; CompileError XC1010 when it is missing without a default.

        Types need no check: those of the default domain have been compared with the op's definition.
        """
        value = self.attrs.get(name, default)
        if value is _REQUIRED:
            raise self.error("XC1010", f"{self.op_type} needs the attribute '{name}'")
        return value

    # -- graphs inside the node -------------------------------------------------------------------

    def body(self, name: str) -> Subgraph:
        """The graph that an attribute holds; CompileError XC1010 when there is none."""
        if name not in self._node.bodies:
            raise self.error("XC1010", f"{self.op_type} needs the attribute '{name}'")
        return self._node.bodies[name]

    def run_body(self, name: str, arguments: Sequence[Known]) -> list[Known]:
        """Make the ops of a graph inside the node, for the values of its inputs; the values of its outputs."""
        return self._scope.run_subgraph(self.body(name), arguments, self._location)

    def tensor(self, value: Known, what: str) -> Value:
        """A value that must be a tensor; CompileError XC1012 when it is a sequence."""
        if isinstance(value, Value):
            return value
        raise self.error("XC1012", f"{what} is a sequence; a tensor is needed")

    # -- making ---------------------------------------------------------------------------------

    def make(self, cls: type[Made], **fields: Any) -> Made:
        """Create an op with the node's location."""
        return cls.create(loc=self._location, **fields)

    def constant(self, array: np.ndarray) -> Value:
        """A constant value."""
        return self._values.constant(np.asarray(array), self._location)

    def one_element(self, value: Value) -> Value:
        """A tensor of one element as a scalar; its size is checked when the model runs if it is not known."""
        if rank_of(value) == 0:
            return value
        return self.make(Reshape, x=value, shape=self.constant(np.zeros(0, np.int64))).y

    def scalar(self, value: float, like: Value) -> Value:
        """A constant of rank 0 with the element type of another value."""
        return self.constant(np.array(value).astype(numpy_dtype(like)))

    def guarded(self, action: Callable[[], Done]) -> Done:
        """The result of `action`, whose `CompileError` names this node if it names none."""
        try:
            return action()
        except CompileError as error:
            error.node = error.node or self.name
            raise

    def error(self, code: str, message: str, *, help: str | None = None) -> CompileError:
        """An error about this node, to be raised."""
        return CompileError(code, message, node=self.name, help=help)
