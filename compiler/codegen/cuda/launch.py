"""How the blocks of a GPU share the parallel units of a kernel."""

from dataclasses import dataclass

from xcompile.compiler.codegen.cpu.builder import Builder, Index, Signature, Value
from xcompile.compiler.codegen.cpu.family import Kernel
from xcompile.compiler.codegen.job import EmittedKernel
from xcompile.compiler.target.device import MOST_BLOCKS

EXTENT: Value = "%extent"
"""The last parameter of a kernel: how many parallel units there are."""


@dataclass(frozen=True)
class LaunchShape:
    """The grid of a launch: one dimension of `ceildiv(extent, units)` blocks, which kernels unflatten themselves.

    Attributes:
        threads: of a block.
        units: parallel units that a block does.
        shared: bytes of dynamic shared memory of a block, besides what the kernel declares.
        blocks: at most so many blocks are launched; where there are more units, each block goes on to those that lie
            a grid further.
    """

    threads: int
    units: int
    shared: int = 0
    blocks: int = MOST_BLOCKS


@dataclass(frozen=True)
class DeviceSignature(Signature):
    """The parameters of a kernel of a GPU: as on a CPU, but for the extent in place of a part of it."""

    end: Value = EXTENT

    def text(self) -> str:
        """The parameters as MLIR text."""
        return super().text().replace("%begin: index, %end: index", f"{EXTENT}: index")


def signature_of(kernel: Kernel, *, scratch: bool = False) -> DeviceSignature:
    """The parameters of a kernel function of a GPU; `scratch` is memory of all threads of the launch."""
    plain = kernel.signature(scratch=scratch)
    return DeviceSignature(plain.buffers, plain.sizes, plain.scratch)


def special_register(b: Builder, name: str) -> Value:
    """A special register ("tid.x", "ctaid.x", "ntid.x", "nctaid.x", "laneid") as an i32."""
    return b.op(f'llvm.call_intrinsic "llvm.nvvm.read.ptx.sreg.{name}"() : () -> i32')


def wide(b: Builder, value: Value) -> Index:
    """A non-negative i32 as an index."""
    return b.op(f"arith.index_castui {value} : i32 to index")


def thread_number(b: Builder) -> Index:
    """The number of this thread among all of the launch; neighbours within a warp have neighbouring numbers."""
    block, size, thread = (
        wide(b, special_register(b, name)) for name in ("ctaid.x", "ntid.x", "tid.x")
    )
    return b.add(b.mul(block, size), thread)


def thread_count(b: Builder) -> Index:
    """How many threads the launch has."""
    blocks, size = (wide(b, special_register(b, name)) for name in ("nctaid.x", "ntid.x"))
    return b.mul(blocks, size)


def emitted(b: Builder, symbol: str, signature: Signature, shape: LaunchShape) -> EmittedKernel:
    """What `b` wrote, as an emitter's answer."""
    return EmittedKernel(
        b.function(symbol, signature),
        symbol,
        len(signature.buffers),
        signature.sizes,
        signature.scratch,
        threads=shape.threads,
    )
