"""Runs compiled libraries for other instruction sets through their C interface, in the machines of `machines`."""

import struct
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tests.foreign.harness import machine_of
from tests.foreign.image import Image
from tests.foreign.machines import shared_libc
from xcompile.compiler.model import CompiledModel
from xcompile.compiler.target.host import host_target
from xcompile.compiler.target.registry import targets
from xcompile.compiler.target.target import Target
from xcompile.runtime import library_format
from xcompile.runtime.abi import DTYPE_CODES, Manifest
from xcompile.runtime.arrays import numpy_dtype
from xcompile.runtime.elf_image import read_elf, section_bytes


def run_model(
    target: Target,
    library: bytes,
    inputs: Sequence[np.ndarray],
    *,
    threads: int = 2,
    heap: int = 64 << 20,
    box: int = 1 << 20,
) -> list[np.ndarray]:
    """Run a compiled library through its C interface.

    Args:
        target: what it was compiled for.
        library: the file that `save` wrote.
        inputs: the inputs in order.
        threads: the parts that each kernel is split into, done one after the other.
        heap: bytes of memory that the model may allocate.
        box: bytes that the outputs take, each rounded up to 64.

    Returns:
        The outputs in order.

    Raises:
        MachineError: the code crashed or took too long.
        RuntimeError: the model ended with a status that is not 0.
    """
    machine = machine_of(target)
    image = Image(heap=heap)
    support = image.load(shared_libc(target.arch))
    model = image.load(library, support)
    manifest = _manifest(library)
    prefix = manifest.prefix
    names = ("create", "shapes", "run_model")
    functions = image.place(struct.pack("<3Q", *(model[f"{prefix}_{name}"] for name in names)))
    given = _Tensors(image, [(x.dtype.name, x.shape, x) for x in inputs])
    made = _Tensors(image, [(spec.dtype, (-1,) * spec.rank, None) for spec in manifest.outputs])
    out = image.place(bytes(box))
    image.ranges = [(made.dims, made.dims_bytes), (out, box)]
    image.call(
        support["run_model"], functions, threads, given.address, len(inputs), given.dims,
        made.address, len(manifest.outputs), made.dims, out, box,
    )  # fmt: skip
    (status,), (sizes, data) = machine.run(image)
    if status:
        raise RuntimeError(f"the model ended with status {status - (status >> 63 << 64)}")
    return _outputs(manifest, sizes, data)


def run_compiled(
    model: CompiledModel,
    inputs: Mapping[str, np.ndarray],
    *,
    heap: int = 64 << 20,
    box: int = 1 << 20,
) -> dict[str, np.ndarray]:
    """Save a model that was compiled for a foreign target and run the library; see `run_model`.

    Args:
        model: the model.
        inputs: the inputs by name.
        heap: bytes of memory that it may allocate.
        box: bytes that the outputs take, each rounded up to 64.
    """
    manifest = model.artifact.manifest
    target = targets()[manifest.target]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.so"
        model.save(path)
        library = path.read_bytes()
    arrays = [inputs[spec.name] for spec in manifest.inputs]
    found = run_model(target, library, arrays, heap=heap, box=box)
    return {spec.name: array for spec, array in zip(manifest.outputs, found, strict=True)}


def run_anywhere(
    model: CompiledModel, inputs: Mapping[str, np.ndarray]
) -> Mapping[str, np.ndarray]:
    """Run a model in this process, or where this host is not what it was compiled for, as `run_compiled` does."""
    host, needed = host_target(), frozenset(model.artifact.manifest.features)
    if model.artifact.architecture == host.arch and needed <= host.features:
        return model.executable.run(inputs)
    return run_compiled(model, inputs)


class _Tensors:
    """An array of `xc_tensor`, and the sizes of all of them one behind the other, in an image."""

    def __init__(
        self, image: Image, tensors: Sequence[tuple[str, tuple[int, ...], np.ndarray | None]]
    ) -> None:
        sizes = [size for _, shape, _ in tensors for size in shape]
        self.dims = image.place(struct.pack(f"<{len(sizes)}q", *sizes))
        self.dims_bytes = 8 * len(sizes)
        rows: list[bytes] = []
        at = self.dims
        for dtype, shape, array in tensors:
            data = image.place(np.ascontiguousarray(array).tobytes()) if array is not None else 0
            bytes_given = array.nbytes if array is not None else 0
            code = DTYPE_CODES[dtype]
            rows.append(struct.pack("<QQQQii", 40, data, bytes_given, at, len(shape), code))
            at += 8 * len(shape)
        self.address = image.place(b"".join(rows))


def _manifest(library: bytes) -> Manifest:
    """What a compiled library says of itself."""
    data = memoryview(library)
    section = section_bytes(data, read_elf(data).sections[library_format.SECTION])
    text = bytes(section[library_format.MANIFEST_AT :])
    return Manifest.from_json(text[: text.index(b"\0")])


def _outputs(manifest: Manifest, sizes: bytes, data: bytes) -> list[np.ndarray]:
    found: list[np.ndarray] = []
    dims = list(struct.unpack(f"<{len(sizes) // 8}q", sizes))
    at = 0
    for spec in manifest.outputs:
        shape = [dims.pop(0) for _ in range(spec.rank)]
        dtype = numpy_dtype(spec.dtype)
        count = int(np.prod(shape))
        found.append(np.frombuffer(data, dtype, count, at).reshape(shape))
        at += -(-count * dtype.itemsize // 64) * 64
    return found
