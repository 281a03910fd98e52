"""The k greatest or least elements along an axis."""

from collections.abc import Sequence

import numpy as np

from xcompile.compiler.ir.op import Operand, Result
from xcompile.compiler.support.dims import known_nonnegative, minimum
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.base import NnOp, Shape, Sizes, dtype_of, nn, rank_of
from xcompile.dialects.nn.reshape import known_elements


@nn.op("topk")
class TopK(NnOp):
    """The `k` (int64, one element) greatest elements along `axis`, in descending order, and their
    places; the least with `largest` off.

    Of equal elements those with the lower place come first. NaN counts as greatest. Results that
    need not be sorted are. ONNX TopK.
    """

    x: Operand
    k: Operand
    axis: int
    largest: bool = True
    sorted: bool = True
    values: Result
    indices: Result

    def dtypes(self) -> Sequence[str]:
        return [dtype_of(self.x), "i64"]

    def verify(self) -> None:
        if not 0 <= self.axis < rank_of(self.x):
            raise self.error(
                "XC2006", f"axis {self.axis} is out of range for rank {rank_of(self.x)}"
            )
        if rank_of(self.k) > 1:
            raise self.error("XC2003", f"the k of topk has rank {rank_of(self.k)}")

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        shape = list(sizes.shape(self.x))
        content = known_elements(self, sizes, self.k, 1)
        if len(content) != 1:
            raise self.error("XC2004", f"the k of topk has {len(content)} elements, not 1")
        k, size = content[0], shape[self.axis]
        if isinstance(k, int) and (k < 0 or (isinstance(size, int) and k > size)):
            raise self.error("XC2007", f"topk of {k} elements from an axis of {size}")
        if not known_nonnegative(size - k):
            what = f"topk of {k} elements from an axis of {size}"
            sizes.equal(minimum(size - k, 0), 0, what)
        shape[self.axis] = sizes.define(k, "topk")
        return [tuple(shape), tuple(shape)]

    def reference(self, x: np.ndarray, k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        count = int(k.reshape(-1)[0])
        if not 0 <= count <= x.shape[self.axis]:
            raise CompileError(
                "XC2011", f"topk of {count} elements from an axis of {x.shape[self.axis]}"
            )
        if self.largest:
            order = np.flip(
                np.argsort(np.flip(x, self.axis), axis=self.axis, kind="stable"), self.axis
            )
            order = x.shape[self.axis] - 1 - order
        else:
            order = np.argsort(x, axis=self.axis, kind="stable")
        order = np.take(order, np.arange(count), axis=self.axis)
        return np.take_along_axis(x, order, axis=self.axis), order.astype(np.int64)
