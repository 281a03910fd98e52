"""Products with weights whose blocks have scales: nn.matmul_blocked, the form in which kernels take them."""

from collections.abc import Sequence

import numpy as np

from xcompile.compiler.ir.dtypes import bits_of, is_integer
from xcompile.compiler.ir.op import Operand
from xcompile.compiler.support.dims import ceildiv
from xcompile.dialects.nn.base import Shape, Sizes, dtype_of, nn, rank_of
from xcompile.dialects.nn.matmul import MatrixProduct
from xcompile.dialects.nn.numeric import rounded


@nn.op("matmul_blocked")
class MatMulBlocked(MatrixProduct):
    """`a @ ((b - zero_point)·scale)`, where each scale serves `block` elements of a column of `b`.

    `a` and the result are float32, `b` is a matrix of integers of up to 8 bits [k, n], `scale` (float32 or float16)
    and `zero_point` (of b's type; 0 where missing) are [k / block rounded up, n]; with `transpose_b` all three have
    their axes swapped. `nn.matmul` of a `nn.dequantize` of constants is made this by nn-fuse-blocked-weights.
    """

    scale: Operand
    zero_point: Operand | None
    block: int

    def verify(self) -> None:
        super().verify()
        dtype = dtype_of(self.b)
        if dtype_of(self.a) != "f32":
            raise self.error(
                "XC2002", f"a product with blocks of weights is of f32, not {dtype_of(self.a)}"
            )
        if not is_integer(dtype) or bits_of(dtype) > 8:
            raise self.error("XC2002", f"weights in blocks have up to 8 bits, not {dtype}")
        if dtype_of(self.scale) not in ("f32", "f16"):
            raise self.error(
                "XC2002", f"scales of blocks are f32 or f16, not {dtype_of(self.scale)}"
            )
        if self.zero_point is not None and dtype_of(self.zero_point) != dtype:
            raise self.error("XC2002", f"the zero point is {dtype}, as the weights")
        of_blocks = [v for v in (self.b, self.scale, self.zero_point) if v is not None]
        if any(rank_of(v) != 2 for v in of_blocks) or self.transpose_a:
            raise self.error(
                "XC2003", "weights in blocks are a matrix, and what they multiply is not transposed"
            )
        if self.block < 1:
            raise self.error("XC2007", f"the block size is {self.block}")

    def dtypes(self) -> Sequence[str]:
        return ["f32"]

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        axis = 1 if self.transpose_b else 0
        shape = list(sizes.shape(self.b))
        shape[axis] = ceildiv(shape[axis], self.block)
        for value in (self.scale, self.zero_point):
            if value is not None:
                for given, wanted in zip(sizes.shape(value), shape, strict=True):
                    sizes.equal(given, wanted, "sizes of scales and blocks of weights")
        return super().infer(sizes)

    def reference(
        self, a: np.ndarray, b: np.ndarray, scale: np.ndarray, zero_point: np.ndarray | None
    ) -> np.ndarray:
        axis = 1 if self.transpose_b else 0
        places = np.arange(b.shape[axis]) // self.block
        wide = b.astype(np.float64)
        if zero_point is not None:
            wide = wide - zero_point.astype(np.float64).take(places, axis)
        weights = wide * scale.astype(np.float64).take(places, axis)
        return rounded(self.sums(a.astype(np.float64), weights), a.dtype)
