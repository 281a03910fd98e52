from collections.abc import Callable, Sequence

from torch_mlir.ir import (
    ArrayAttr,
    Block,
    BlockArgumentList,
    FlatSymbolRefAttr,
    FunctionType,
    InsertionPoint,
    Location,
    OpView,
    Region,
    StringAttr,
    Type,
    TypeAttr,
    Value,
)

class FuncOp(OpView):
    def __init__(
        self,
        name: str,
        type: FunctionType | tuple[Sequence[Type], Sequence[Type]],
        *,
        visibility: str | None = None,
        body_builder: Callable[[FuncOp], None] | None = None,
        loc: Location | None = None,
        ip: InsertionPoint | None = None,
    ) -> None: ...
    @property
    def sym_name(self) -> StringAttr: ...
    @property
    def name(self) -> StringAttr: ...  # type: ignore[override]
    @property
    def function_type(self) -> TypeAttr: ...
    @property
    def type(self) -> FunctionType: ...
    @property
    def is_external(self) -> bool: ...
    @property
    def body(self) -> Region: ...
    @property
    def entry_block(self) -> Block: ...
    @property
    def arguments(self) -> BlockArgumentList: ...
    @property
    def arg_attrs(self) -> ArrayAttr: ...
    @arg_attrs.setter
    def arg_attrs(self, attribute: ArrayAttr | list[ArrayAttr]) -> None: ...
    @property
    def result_attrs(self) -> ArrayAttr: ...
    @result_attrs.setter
    def result_attrs(self, attribute: ArrayAttr) -> None: ...
    def add_entry_block(self, arg_locs: Sequence[Location] | None = None) -> Block: ...

class ReturnOp(OpView):
    def __init__(
        self,
        operands_: Sequence[Value],
        *,
        loc: Location | None = None,
        ip: InsertionPoint | None = None,
    ) -> None: ...

class CallOp(OpView):
    def __init__(
        self,
        calleeOrResults: FuncOp | Sequence[Type],
        argumentsOrCallee: Sequence[Value] | FlatSymbolRefAttr | str,
        arguments: Sequence[Value] | None = None,
        *,
        loc: Location | None = None,
        ip: InsertionPoint | None = None,
    ) -> None: ...
    @property
    def callee(self) -> FlatSymbolRefAttr: ...
