"""Inputs of products that are kept while samples stream by: the same few for any order of the samples.

Samples whose contents have the least digests are kept, and of each the same number of inputs of each product, at places
that the digest draws. So memory does not grow with the samples, and parts can be merged.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from xcompile.dialects.nn.spatial import pad_or_crop, resolve_pads

_SAMPLES = 64
_ROWS = 16
"""Inputs of each product that are kept of a sample."""

_DIGEST = 16


@dataclass(frozen=True)
class Window:
    """How the inputs of one product lie in the tensor that it reads.

    Attributes:
        tensor: its name.
        groups: of channels.
        kernel: sizes of a convolution's window; empty for a matrix product, which reads rows.
        strides: of the window.
        dilations: of the window.
        pads: zeros before and behind each of the tensor's sizes: all befores first.
        auto_pad: says what the padding is instead, see `nn.conv`.
    """

    tensor: str
    groups: int = 1
    kernel: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    auto_pad: str = "notset"

    def rows(self, array: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Some inputs of the product, drawn with replacement: float32 [rows, groups, terms].

        There are no rows when the array has no elements or the window fits nowhere.
        """
        none = np.empty((0, self.groups, 0), np.float32)
        if not array.size:
            return none
        if not self.kernel:
            flat = array.reshape(-1, array.shape[-1])
            return flat[random.integers(0, len(flat), _ROWS)][:, np.newaxis]
        around = resolve_pads(
            array.shape[2:],
            self.kernel,
            strides=self.strides,
            dilations=self.dilations,
            pads=self.pads,
            auto_pad=self.auto_pad,
        )
        padded = pad_or_crop(array, around, 0)
        reach = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]
        counts = [
            (size - r) // s + 1
            for size, r, s in zip(padded.shape[2:], reach, self.strides, strict=True)
        ]
        if min(counts) <= 0:
            return none
        made = np.empty((_ROWS, array.shape[1], *self.kernel), np.float32)
        for row in made:
            sample = int(random.integers(array.shape[0]))
            starts = [
                int(random.integers(c)) * s for c, s in zip(counts, self.strides, strict=True)
            ]
            taken = tuple(
                slice(start, start + r, d)
                for start, r, d in zip(starts, reach, self.dilations, strict=True)
            )
            row[...] = padded[(sample, slice(None), *taken)]
        return made.reshape(_ROWS, self.groups, -1)


class Sketch:
    """Some inputs of products.

    Args:
        windows: of the products, by the name of the tensor that each gives.
    """

    def __init__(self, windows: Mapping[str, Window]) -> None:
        self._windows = dict(windows)
        self._kept: dict[bytes, dict[str, np.ndarray]] = {}

    def add(self, inputs: Mapping[str, np.ndarray], tensors: Mapping[str, np.ndarray]) -> None:
        """Keep the sample if it belongs to the kept ones, and each product has an input in it.

        Args:
            inputs: of the model.
            tensors: what products read, by name.
        """
        digest = _digest(inputs)
        if digest in self._kept or not self._wanted(digest):
            return
        random = np.random.default_rng(int.from_bytes(digest, "little"))
        rows = {n: w.rows(tensors[w.tensor], random) for n, w in self._windows.items()}
        if all(map(len, rows.values())):
            self._keep(digest, rows)

    def merge(self, other: "Sketch") -> None:
        """Add what another one of the same products has kept."""
        for digest, rows in other._kept.items():
            self._keep(digest, rows)

    def rows(self, name: str) -> np.ndarray:
        """The inputs of a product that are kept: float32 [n, groups, terms]; n is 0 when nothing was added."""
        if not self._kept:
            return np.zeros((0, 1, 0), np.float32)
        return np.concatenate([self._kept[digest][name] for digest in sorted(self._kept)])

    def state(self) -> dict[str, np.ndarray]:
        """What is kept as arrays; `restore` reads them."""
        digests = sorted(self._kept)
        made = {"digests": np.frombuffer(b"".join(digests), np.uint8)}
        for place, name in enumerate(self._windows):
            if digests:
                made[str(place)] = np.stack([self._kept[digest][name] for digest in digests])
        return made

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Keep what `state` described, and nothing else."""
        whole = state["digests"].tobytes()
        digests = [whole[i : i + _DIGEST] for i in range(0, len(whole), _DIGEST)]
        self._kept = {
            digest: {name: state[str(i)][place] for i, name in enumerate(self._windows)}
            for place, digest in enumerate(digests)
        }

    def _wanted(self, digest: bytes) -> bool:
        return len(self._kept) < _SAMPLES or digest < max(self._kept)

    def _keep(self, digest: bytes, rows: dict[str, np.ndarray]) -> None:
        if digest in self._kept or not self._wanted(digest):
            return
        self._kept[digest] = rows
        if len(self._kept) > _SAMPLES:
            del self._kept[max(self._kept)]


def _digest(inputs: Mapping[str, np.ndarray]) -> bytes:
    made = hashlib.blake2b(digest_size=_DIGEST)
    for name in sorted(inputs):
        array = np.ascontiguousarray(inputs[name])
        made.update(f"{name}\0{array.dtype.str}\0{array.shape}\0".encode(errors="surrogatepass"))
        made.update(array.tobytes())
    return made.digest()
