"""Runs kernels of other instruction sets: AArch64 in qemu, AVX-512 with VNNI in Bochs."""

import ctypes
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

import bench.native
from tests.foreign.image import Image
from tests.foreign.machines import Machine, link_shared, machine_for, require, shared_libc
from xcompile.compiler.target.host import host_target
from xcompile.compiler.target.target import Target

_GUARD = b"\xff" * 128
"""Stands around the memory of each array: NaN, and -1. No kernel may write there."""


@dataclass(frozen=True)
class KernelCall:
    """A call of a kernel.

    Attributes:
        code: its object file.
        arguments: arrays of the buffers, then sizes, begin and end.
        symbol: its name.
    """

    code: bytes
    arguments: Sequence[np.ndarray | int]
    symbol: str = "kernel"


def machine_of(target: Target) -> Machine:
    """The machine for a target; the test that asks is skipped where it is not installed (in CI it fails).

    Raises:
        ValueError: no emulator has the target's instructions.
    """
    machine = machine_for(target)
    if machine is None:
        raise ValueError(f"no emulator runs {target.name}")
    require(machine)
    return machine


def run_kernel(
    target: Target, code: bytes, arguments: Sequence[np.ndarray | int], symbol: str = "kernel"
) -> None:
    """Call one kernel once; see `run_kernels`."""
    run_kernels(target, [KernelCall(code, arguments, symbol)])


def run_kernels(target: Target, calls: Sequence[KernelCall]) -> None:
    """Call kernels one after the other in one machine; they read and write the arrays as a call here would.

    Addresses keep their remainder by 64, and arrays that share memory here share it there.

    Args:
        target: what they were compiled for.
        calls: the calls.

    Raises:
        MachineError: the code crashed or took too long.
        AssertionError: a kernel wrote outside its arrays.
    """
    machine = machine_of(target)
    image = Image()
    libc = image.load(shared_libc(target.arch))
    blocks = _blocks(a for c in calls for a in c.arguments if isinstance(a, np.ndarray))
    for block in blocks:
        data = _GUARD + ctypes.string_at(block.begin, block.end - block.begin) + _GUARD
        block.there = image.place(data, offset=block.begin - len(_GUARD)) + len(_GUARD)
        image.ranges.append((block.there - len(_GUARD), len(data)))
    libraries: dict[bytes, dict[str, int]] = {}
    for call in calls:
        if call.code not in libraries:
            libraries[call.code] = image.load(link_shared([call.code], target.arch), libc)
        arguments = [a if isinstance(a, int) else _there(blocks, a) for a in call.arguments]
        image.call(libraries[call.code][call.symbol], *arguments)
    _, parts = machine.run(image)
    for block, part in zip(blocks, parts, strict=True):
        data = part[len(_GUARD) : -len(_GUARD)]
        assert part == _GUARD + data + _GUARD, "a kernel wrote outside its arrays"
        if data != ctypes.string_at(block.begin, len(data)):
            ctypes.memmove(block.begin, data, len(data))


def call_elsewhere(target: Target, code: bytes, arguments: Sequence[np.ndarray | int]) -> bool:
    """Call `kernel` if it is for a target that this host is not; returns whether it is. For `bench.native.foreign`."""
    if target.runs_on(host_target()):
        return False
    run_kernel(target, code, arguments)
    return True


@contextmanager
def one_machine(target: Target) -> Iterator[None]:
    """Calls of `bench.native.NativeKernel` inside are made when the block ends, in one machine, also for this host."""
    calls: list[KernelCall] = []

    def keep(called: Target, code: bytes, arguments: Sequence[np.ndarray | int]) -> bool:
        assert called == target
        calls.append(KernelCall(code, arguments))
        return True

    before, bench.native.foreign = bench.native.foreign, keep
    try:
        yield
    finally:
        bench.native.foreign = before
    run_kernels(target, calls)


@dataclass
class _Block:
    """Memory of arrays, from `begin` to `end` here, from `there` on in the machine."""

    begin: int
    end: int
    there: int = 0


def _blocks(arrays: Iterable[np.ndarray]) -> list[_Block]:
    """The memory of arrays, each byte once, in the order of addresses."""
    found: list[_Block] = []
    for begin, end in sorted({_span(array) for array in arrays}):
        if found and begin < found[-1].end:
            found[-1].end = max(found[-1].end, end)
        else:
            found.append(_Block(begin, end))
    return found


def _span(array: np.ndarray) -> tuple[int, int]:
    """The addresses of an array whose strides are not negative."""
    begin = array.ctypes.data
    if not array.size:
        return begin, begin
    last = sum((n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True))
    return begin, begin + last + array.itemsize


def _there(blocks: Sequence[_Block], array: np.ndarray) -> int:
    begin, end = _span(array)
    block = next(b for b in blocks if b.begin <= begin and end <= b.end)
    return block.there + begin - block.begin
