"""Random numbers that follow from a seed and a place: the same for any number of threads, on every target."""

from collections.abc import Sequence

import numpy as np

from xcompile.compiler.ir.op import Operand, Result
from xcompile.dialects.nn.base import NnOp, Shape, Sizes, check_integers, nn
from xcompile.dialects.nn.reshape import known_elements

GOLDEN = 0x9E3779B97F4A7C15
FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
SHIFTS = (30, 27, 31)


def mixed(numbers: np.ndarray) -> np.ndarray:
    """The finalizer of SplitMix64 (Steele, Lea and Flood 2014): uint64 to uint64, one to one."""
    z = numbers.astype(np.uint64)
    for shift, factor in zip(SHIFTS, (*FACTORS, 1), strict=True):
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    return z


@nn.op("random_uniform")
class RandomUniform(NnOp):
    """Uniform numbers in [0, 1) in the shape that is given as int64.

    Element i, counted in row-major order, comes from the output i + 1 of the generator SplitMix64 that starts at
    `seed`: its upper 24 bits as float32, its upper 53 as float64.
    """

    shape: Operand
    y: Result
    seed: int
    dtype: str = "f32"

    def verify(self) -> None:
        check_integers(self, self.shape, "shape")
        if self.dtype not in ("f32", "f64"):
            raise self.error("XC2007", f"random numbers are f32 or f64, not {self.dtype}")

    def dtypes(self) -> Sequence[str]:
        return [self.dtype]

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        shape = known_elements(self, sizes, self.shape)
        if any(isinstance(d, int) and d < 0 for d in shape):
            raise self.error("XC2008", "a size is negative")
        return [shape]

    def reference(self, shape: np.ndarray) -> np.ndarray:
        sizes = [int(d) for d in shape]
        count = np.arange(1, int(np.prod(sizes, dtype=np.int64)) + 1, dtype=np.uint64)
        with np.errstate(over="ignore"):
            raw = mixed(np.uint64(self.seed % 2**64) + count * np.uint64(GOLDEN)).reshape(sizes)
        if self.dtype == "f32":
            return (raw >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)
        return (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53
