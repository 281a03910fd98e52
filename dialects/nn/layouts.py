"""The text of layouts in tensor types."""

import re

from xcompile.compiler.ir.mlir import ir


def block_of(tensor: ir.Type) -> int:
    """Channels in a block of a tensor type's layout; 0 for row-major.

    Raises:
        ValueError: the type's encoding is no layout.
    """
    encoding = ir.RankedTensorType(tensor).encoding
    if encoding is None:
        return 0
    found = re.fullmatch(r'#nn\.layout<"NC[DHW]*(\d+)c">', str(encoding))
    if found is None:
        raise ValueError(f"no layout is written {encoding}")
    return int(found[1])
