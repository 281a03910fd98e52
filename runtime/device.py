"""Models whose kernels run on a device with memory of its own: the kernels, and who launches them.

The entry functions of such a model are ordinary host code. Where those of a CPU's model call `xc_parallel_for` with the
task of a kernel, these pass a *descriptor*, two int64: the number of the kernel and how many 8-byte slots its record
has. `xc_context.launch` is a function that reads it, and gives the slots, the scratch and the extent to the device.
Negative numbers mean what else host code asks of a device whose memory it cannot reach: see `COPY` and those after it.
"""

from __future__ import annotations

import ctypes
import json
import struct
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Protocol, cast

import numpy as np
import numpy.typing as npt

from xcompile.runtime.errors import RuntimeModelError

COPY: Final = -1
"""The number of the descriptor that means: copy memory of the device. Its record is target, source and bytes."""

FETCH: Final = -2
"""Copy from the device to memory of the host, after what was launched before; a record as of `COPY`."""

PUT: Final = -3
"""Copy from memory of the host to the device; a record as of `COPY`."""

ALLOCATE: Final = -4
"""Take memory of the device until the next run. Its record is where in the host its address goes, 0 when there is
none, and bytes."""

FREE: Final = -5
"""Give memory that `ALLOCATE` took back: its address."""

FAILED: Final = -6
"""Say whether the run has failed. Its record is where in the host an int64 that is 0 or 1 goes."""

HOST_STEPS: Final = {COPY: 3, FETCH: 3, PUT: 3, ALLOCATE: 2, FREE: 1, FAILED: 1}
"""How many slots their records have."""

PTX: Final = "ptx"
"""The kind of code that a driver compiles for what it finds; other kinds are names of architectures."""

Bytes = npt.NDArray[np.uint8]
LaunchFunction: Final = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p,
    ctypes.c_int64, ctypes.c_int64, ctypes.c_int64,
)  # fmt: skip
"""The type of `xc_context.launch`."""

_MAX_JSON_BYTES: Final = 64 << 20


@dataclass(frozen=True)
class DeviceKernel:
    """A kernel of a device.

    Attributes:
        symbol: the name of its entry point.
        parameters: 8-byte slots of its record: buffers without the scratch, then sizes.
        buffers: how many of them are buffers.
        scratch: bytes of scratch memory of each thread of a launch.
        threads: of a block.
        units: parallel units that a block does.
        shared: bytes of dynamic shared memory of a block.
        blocks: of a launch at most.
        code: by kind, see `PTX`; empty where only the launch is described.
    """

    symbol: str
    parameters: int
    buffers: int
    scratch: int
    threads: int
    units: int
    shared: int
    blocks: int
    code: Mapping[str, bytes] = field(default_factory=dict[str, bytes], repr=False)


class Device(Protocol):
    """What runs kernels. Work is done in the order in which it is asked for; addresses are those of its memory."""

    @property
    def name(self) -> str:
        """What it is, for people."""
        ...

    def allocate(self, size: int) -> int:
        """The address of new memory of `size` > 0 bytes, at a multiple of 256."""
        ...

    def free(self, address: int) -> None:
        """Give memory back."""
        ...

    def copy_in(self, target: int, source: Bytes) -> None:
        """Copy bytes of the host to the device."""
        ...

    def copy_out(self, target: Bytes, source: int) -> None:
        """Copy bytes of the device to the host, after what was launched before."""
        ...

    def copy(self, target: int, source: int, size: int) -> None:
        """Copy bytes within the device; the two may overlap."""
        ...

    def load(self, kernel: DeviceKernel) -> Any:
        """Make a kernel ready; the answer is what `launch` takes."""
        ...

    def launch(
        self, function: Any, kernel: DeviceKernel, blocks: int, values: Sequence[int]
    ) -> None:
        """Launch a kernel.

        Args:
            function: what `load` answered.
            kernel: the kernel.
            blocks: of the grid, which has one dimension.
            values: the parameters, 8 bytes each.
        """
        ...

    def synchronize(self) -> None:
        """Wait for all that was launched."""
        ...


class DeviceMemory:
    """Memory of a device, given back when nothing refers to it."""

    def __init__(self, device: Device, size: int) -> None:
        self.capacity = size
        self.address = device.allocate(max(size, 1))
        weakref.finalize(self, device.free, self.address).atexit = False


class Launcher:
    """Launches the kernels of one model on a device.

    Attributes:
        function: what stands in `xc_context.launch`; it must live as long as contexts name it.
    """

    def __init__(self, device: Device, kernels: Sequence[DeviceKernel]) -> None:
        self._device = device
        self._kernels = kernels
        self._loaded: dict[int, Any] = {}
        self._failures: dict[int, BaseException] = {}
        self._heaps: dict[int, dict[int, DeviceMemory]] = {}
        self._steps = {
            COPY: self._copy,
            FETCH: self._fetch,
            PUT: self._put,
            ALLOCATE: self._allocate,
            FREE: self._free,
        }
        self.function = LaunchFunction(self._called)

    @property
    def address(self) -> int:
        """The address of the function."""
        return cast("int", ctypes.cast(self.function, ctypes.c_void_p).value)

    def take_failure(self, context: int) -> BaseException | None:
        """What went wrong in the run of a context since it was last asked."""
        return self._failures.pop(context, None)

    def begin(self, context: int) -> None:
        """Give back what the run of a context before this one took."""
        self._heaps.pop(context, None)

    def _called(
        self, context: int, descriptor: int, record: int, extent: int, grain: int, scratch: int
    ) -> None:
        """Native code cannot be unwound: the first failure is kept, and nothing more is launched in this run."""
        del grain
        number, slots = (ctypes.c_int64 * 2).from_address(descriptor)
        values = list((ctypes.c_uint64 * slots).from_address(record))
        if number == FAILED:
            ctypes.c_int64.from_address(values[0]).value = context in self._failures
            return
        if number == ALLOCATE:
            ctypes.c_int64.from_address(values[0]).value = 0
        elif number == FETCH:
            ctypes.memset(values[0], 0, values[2])
        if context in self._failures:
            return
        try:
            if number in self._steps:
                self._steps[number](context, values)
            elif extent > 0:
                self._launch(number, values, extent, scratch)
        except BaseException as error:  # noqa: BLE001 - it is raised when the run is over
            self._failures[context] = error

    def _copy(self, context: int, values: Sequence[int]) -> None:
        del context
        target, source, size = values
        if size:
            self._device.copy(target, source, size)

    def _fetch(self, context: int, values: Sequence[int]) -> None:
        del context
        target, source, size = values
        self._device.copy_out(bytes_at(target, size), source)
        self._device.synchronize()

    def _put(self, context: int, values: Sequence[int]) -> None:
        del context
        target, source, size = values
        self._device.copy_in(target, bytes_at(source, size))

    def _allocate(self, context: int, values: Sequence[int]) -> None:
        target, size = values
        memory = DeviceMemory(self._device, size)
        self._heaps.setdefault(context, {})[memory.address] = memory
        ctypes.c_uint64.from_address(target).value = memory.address

    def _free(self, context: int, values: Sequence[int]) -> None:
        self._heaps.get(context, {}).pop(values[0], None)

    def _launch(self, number: int, values: list[int], extent: int, scratch: int) -> None:
        kernel = self._kernels[number]
        if number not in self._loaded:
            self._loaded[number] = self._device.load(kernel)
        blocks = min(-(-extent // kernel.units), kernel.blocks)
        if scratch:
            memory = DeviceMemory(self._device, blocks * kernel.threads * scratch)
            values.insert(kernel.buffers, memory.address)
            self._device.launch(self._loaded[number], kernel, blocks, [*values, extent])
            self._device.synchronize()
        else:
            self._device.launch(self._loaded[number], kernel, blocks, [*values, extent])


def bytes_at(address: int, size: int) -> Bytes:
    """Memory of the host as an array."""
    memory: Any = (ctypes.c_uint8 * size).from_address(address)
    return np.frombuffer(memory, np.uint8)


def write_kernels(kernels: Sequence[DeviceKernel]) -> bytes:
    """The kernels of a model as bytes; `read_kernels` reads them."""
    described = [
        {**asdict(k), "code": [[kind, len(data)] for kind, data in k.code.items()]} for k in kernels
    ]
    text = json.dumps(described, sort_keys=True, separators=(",", ":")).encode()
    codes = (data for k in kernels for data in k.code.values())
    return b"".join([struct.pack("<Q", len(text)), text, *codes])


def read_kernels(data: memoryview) -> tuple[DeviceKernel, ...]:
    """What `write_kernels` wrote.

    Raises:
        RuntimeModelError: XC7002, it is something else.
    """
    try:
        (length,) = struct.unpack_from("<Q", data)
        if length > _MAX_JSON_BYTES:
            raise ValueError("it is too long")
        at = 8 + length
        kernels: list[DeviceKernel] = []
        for fields in json.loads(bytes(data[8:at])):
            code: dict[str, bytes] = {}
            for kind, size in fields["code"]:
                code[kind] = bytes(data[at : at + size])
                at += size
            fields["code"] = code
            kernels.append(DeviceKernel(**fields))
        if at != len(data):
            raise ValueError("it has another length")
    except (ValueError, KeyError, TypeError, struct.error) as error:
        raise RuntimeModelError(
            "XC7002", f"the kernels in the library cannot be read: {error}"
        ) from None
    return tuple(kernels)
