"""Weights by content: constants in the IR name them, this store holds them once.

An `nn.const` carries `#nn.weight<"sha256…">`; equal bytes of equal shape and dtype are equal
attributes, so merging equal constants is ordinary CSE and text carries no data.
"""

import hashlib

import numpy as np
from torch_mlir import ir

from xcompile.compiler.ir.dtypes import name_of


class WeightStore:
    """Read-only arrays by their digest. Arrays are held as given (also memory-mapped ones), never copied twice."""

    def __init__(self) -> None:
        self._arrays: dict[str, np.ndarray] = {}

    def add(self, array: np.ndarray) -> str:
        """Keep `array` (made C-contiguous and native-endian) and return its digest, 64 hexadecimal digits."""
        native = np.ascontiguousarray(array).reshape(array.shape)
        native = native.astype(native.dtype.newbyteorder("="), copy=False)
        head = f"{name_of(native.dtype)}{list(native.shape)}".encode()
        digest = hashlib.sha256(head)
        digest.update(native.reshape(-1).view(np.uint8).data if native.size else b"")
        key = digest.hexdigest()
        if key not in self._arrays:
            view = native.view()
            view.flags.writeable = False
            self._arrays[key] = view
        return key

    def get(self, key: str) -> np.ndarray:
        """The array of a digest; KeyError when the store does not hold it."""
        return self._arrays[key]

    def __contains__(self, key: str) -> bool:
        return key in self._arrays

    def __len__(self) -> int:
        return len(self._arrays)


def weight_attribute(key: str) -> ir.Attribute:
    """`#nn.weight<"key">` in the current context."""
    return ir.Attribute.parse(f'#nn.weight<"{key}">')


def weight_key(attribute: ir.Attribute) -> str | None:
    """The digest that a `#nn.weight` attribute names; None for any other attribute."""
    text = str(attribute)
    return text[12:-2] if text.startswith('#nn.weight<"') else None
