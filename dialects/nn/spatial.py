"""Windows over the spatial axes: what convolutions and pools have in common.

Tensors are [N, C, spatial…]. Pads are ONNX's: all begins, then all ends; a negative pad crops.
"""

from collections.abc import Sequence

import numpy as np

from xcompile.compiler.support.dims import Dim, ceildiv, minimum
from xcompile.compiler.support.errors import CompileError

AUTO_PADS = ("notset", "same_upper", "same_lower")


def check_window(
    rank: int,
    *,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    auto_pad: str,
    kernel: Sequence[Dim] | None = None,
) -> None:
    """Check that the attributes of a window fit `rank` spatial axes.

    Raises:
        CompileError: XC2007.
    """
    if auto_pad not in AUTO_PADS:
        raise CompileError("XC2007", f"auto_pad is '{auto_pad}', not one of {', '.join(AUTO_PADS)}")
    lengths: dict[str, tuple[Sequence[Dim], int]] = {
        "strides": (strides, rank),
        "dilations": (dilations, rank),
        "pads": (pads, 2 * rank),
    }
    if kernel is not None:
        lengths["kernel"] = (kernel, rank)
    for name, (values, length) in lengths.items():
        if len(values) != length:
            raise CompileError(
                "XC2007", f"{name} has {len(values)} elements; {rank} spatial axes need {length}"
            )
        if name != "pads" and any(isinstance(v, int) and v < 1 for v in values):
            raise CompileError("XC2007", f"{name} is {tuple(values)}; each must be at least 1")
    if any(isinstance(v, int) and abs(v) > 2**31 for values, _ in lengths.values() for v in values):
        raise CompileError("XC2007", "a stride, pad, dilation or kernel size is over 2**31")


def output_size(
    size: Dim,
    kernel: Dim,
    *,
    stride: int,
    dilation: int,
    pads: tuple[int, int],
    auto_pad: str = "notset",
    ceil: bool = False,
) -> Dim:
    """The number of windows along one axis.

    In ceil mode a last window may reach over the end padding, but must start inside the input or
    its begin padding. A window that is larger than the axis by less than a stride leaves no
    windows, by ONNX's formula: the result is empty.

    Raises:
        CompileError: XC2008 when the formula gives a negative number.
    """
    if auto_pad != "notset":
        return ceildiv(size, stride)
    begin, end = pads
    room = size + begin + end - ((kernel - 1) * dilation + 1)
    if ceil:
        count = minimum(ceildiv(room, stride) + 1, ceildiv(size + begin, stride))
    else:
        count = room // stride + 1
    if isinstance(count, int) and count < 0:
        raise CompileError(
            "XC2008",
            f"a window of {kernel} (dilation {dilation}) does not fit an axis of {size} padded by {pads}",
        )
    return count


def same_pads(
    size: int, kernel: int, *, stride: int, dilation: int, upper: bool
) -> tuple[int, int]:
    """Begin and end pads with which there are ceil(size / stride) windows; the odd one goes to the
    end
    when `upper`.
    """
    total = max((-(-size // stride) - 1) * stride + (kernel - 1) * dilation + 1 - size, 0)
    small = total // 2
    return (small, total - small) if upper else (total - small, small)


def resolve_pads(
    sizes: Sequence[int],
    kernel: Sequence[int],
    *,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    auto_pad: str,
) -> list[tuple[int, int]]:
    """Begin and end pad of each spatial axis, `auto_pad` resolved."""
    rank = len(sizes)
    if auto_pad == "notset":
        return [(pads[i], pads[rank + i]) for i in range(rank)]
    upper = auto_pad == "same_upper"
    return [
        same_pads(n, k, stride=s, dilation=d, upper=upper)
        for n, k, s, d in zip(sizes, kernel, strides, dilations, strict=True)
    ]


def pad_or_crop(x: np.ndarray, pads: Sequence[tuple[int, int]], value: object) -> np.ndarray:
    """Pad the trailing axes by `pads` (begin and end each) with a constant; negative pads crop."""
    lead = x.ndim - len(pads)
    crops = tuple(
        slice(max(-b, 0), n - max(-e, 0)) for n, (b, e) in zip(x.shape[lead:], pads, strict=True)
    )
    widths = [(0, 0)] * lead + [(max(b, 0), max(e, 0)) for b, e in pads]
    return np.pad(x[(slice(None),) * lead + crops], widths, constant_values=value)  # type: ignore[arg-type]


def windows(
    x: np.ndarray,
    kernel: Sequence[int],
    *,
    strides: Sequence[int],
    dilations: Sequence[int],
    counts: Sequence[int],
) -> np.ndarray:
    """A read-only view [N, C, windows…, kernel…] of a padded array; `counts` windows along each axis."""
    rank = len(kernel)
    if 0 in counts:  # the window may be larger than the axis
        return np.zeros((*x.shape[: x.ndim - rank], *counts, *kernel), x.dtype)
    axes = tuple(range(x.ndim - rank, x.ndim))
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    view = np.lib.stride_tricks.sliding_window_view(x, extents, axis=axes)
    starts = tuple(
        slice(0, (c - 1) * s + 1 if c else 0, s) for c, s in zip(counts, strides, strict=True)
    )
    inner = tuple(slice(None, None, d) for d in dilations)
    return view[(slice(None),) * (x.ndim - rank) + starts + inner]
