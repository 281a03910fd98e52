"""A compiled model whose kernels run on a device."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import cast

import numpy as np

from xcompile.runtime import native_library
from xcompile.runtime.abi import Context, InitFunction, Manifest
from xcompile.runtime.arena import AlignedMemory, Arena
from xcompile.runtime.arrays import AnyArray
from xcompile.runtime.device import Device, DeviceKernel, DeviceMemory, Launcher, bytes_at
from xcompile.runtime.errors import RuntimeModelError
from xcompile.runtime.executable import Executable, Frame, ModelEntry, Plan


class DeviceExecutable(Executable):
    """A model on a device: inputs are copied there, outputs back.

    Args:
        entry: the native functions.
        manifest: what the compiler said of the model.
        weights: the packed constants, see `Executable`.
        device: what runs the kernels.
        kernels: of the model, by their numbers.
        poison: fill the working memory with 0xFF before each run, to find reads of unset memory.

    Raises:
        RuntimeModelError: as `Executable`; XC5009 when the device fails.
    """

    def __init__(
        self,
        entry: ModelEntry,
        manifest: Manifest,
        weights: memoryview | bytes | bytearray | AnyArray | int,
        device: Device,
        kernels: Sequence[DeviceKernel],
        *,
        poison: bool = False,
    ) -> None:
        self.device = device
        self._launcher = Launcher(device, kernels)
        self._memory = DeviceMemory(device, manifest.weights_bytes)
        self._computed = DeviceMemory(device, manifest.prepared_bytes)
        super().__init__(entry, manifest, weights, threads=1, poison=poison)

    def _initialize(self) -> None:
        if self.manifest.weights_bytes:
            source = bytes_at(self._weights_address, self.manifest.weights_bytes)
            self.device.copy_in(self._memory.address, source)
        context = self._context()
        address = ctypes.addressof(context)
        status = InitFunction(self.entry.init)(address)
        self._raise_failure(address)
        if status:
            raise RuntimeModelError("XC5006", f"initialization: {self._check_text(status)}")

    def _context(self) -> Context:
        context = super()._context()
        context.weights = self._memory.address
        context.prepared = self._computed.address
        context.launch = self._launcher.address
        return context

    def _run_in_frame(
        self,
        addresses: list[int],
        plan: Plan,
        arena: Arena | None,
        results: list[AnyArray | None],
    ) -> None:
        if arena is not None:
            raise RuntimeModelError(
                "XC5007", "an arena is memory of the host, and the model runs on a device"
            )
        try:
            frame = cast("_DeviceFrame", self._frames.pop())
        except IndexError:
            frame = _DeviceFrame(self._context(), len(addresses), self.device, self._scratch_bytes)
        try:
            if frame.plan is not plan:
                frame.use_plan(plan)
            if self._poison:
                self.device.copy_in(frame.arena.address, np.full(plan.arena_bytes, 0xFF, np.uint8))
            self._launcher.begin(frame.address)
            count = len(plan.input_bytes)
            for address, memory, size in zip(
                addresses[:count], frame.tensors[:count], plan.input_bytes, strict=True
            ):
                if size:
                    self.device.copy_in(memory.address, bytes_at(address, size))
            status = self._run(frame.address, plan.table_address)
            self._raise_failure(frame.address)
            if status:
                raise RuntimeModelError("XC5006", self._check_text(status))
            if plan.late:
                self._take_late(frame, frame.memory, plan, results)
            late = set(plan.late)
            for number, memory in enumerate(frame.tensors[count:]):
                result = results[number]
                if result is not None and number not in late:
                    self._fetch(result, memory.address)
            self.device.synchronize()
        finally:
            self._frames.append(frame)

    def _fetch(self, array: AnyArray, source: int) -> None:
        if array.nbytes:
            self.device.copy_out(array.reshape(-1).view(np.uint8), source)

    def _raise_failure(self, context: int) -> None:
        """Raise what a launch of the run that is over raised."""
        failure = self._launcher.take_failure(context)
        if failure is not None:
            raise failure


class _DeviceFrame(Frame):
    """What one run needs for itself, with memory of the device for the arena, the inputs and the outputs.

    What depends on data lies in memory of the host, which code calls scratch.
    """

    __slots__ = ("_device", "arena", "tensors")

    def __init__(
        self, context: Context, buffer_count: int, device: Device, host_bytes: int
    ) -> None:
        super().__init__(context, buffer_count, native_library.Heap(poisoned=False))
        self._device = device
        self.memory = AlignedMemory(host_bytes)
        context.scratch = self.memory.address
        self.arena = DeviceMemory(device, 0)
        self.tensors: list[DeviceMemory] = []

    def use_plan(self, plan: Plan) -> None:
        """Make memory for the sizes of a plan."""
        if self.arena.capacity < plan.arena_bytes:
            self.arena = DeviceMemory(self._device, plan.arena_bytes)
        sizes = [*plan.input_bytes, *plan.output_bytes]
        self.tensors = [DeviceMemory(self._device, size) for size in sizes]
        self.context.arena = self.arena.address
        self.buffers[: len(sizes)] = [memory.address for memory in self.tensors]
        self.plan = plan
