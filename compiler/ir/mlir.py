"""The door to MLIR: other packages take the bindings from here, never from `torch_mlir`.

Only types, attributes, values and locations are meant to pass it. Contexts come from
`xcompile.compiler.ir.context`; ops are built and rewritten through `op` and `rewrite`.
"""

from torch_mlir import ir
from torch_mlir.dialects import func

__all__ = ["func", "ir"]
