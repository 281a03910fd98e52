"""The dialects of the compiler; importing this package declares them all."""

from xcompile.dialects import kernel, nn

__all__ = ["kernel", "nn"]
