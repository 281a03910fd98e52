"""What is asked of a worker process and what it answers: plain values, importable without MLIR or LLVM."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from xcompile.compiler.target.device import DEVICE_TRIPLE, Device
from xcompile.compiler.target.target import Target


@dataclass(frozen=True)
class MachineSpec:
    """The machine that object code is made for, in LLVM's words.

    Attributes:
        triple: such as "x86_64-unknown-linux-gnu".
        cpu: LLVM's name of the processor to schedule for, "" for the architecture's generic one.
        features: such as "+avx2,+fma,-avx512f".
    """

    triple: str
    cpu: str = ""
    features: str = ""

    @classmethod
    def of(cls, target: Target) -> "MachineSpec":
        """The target in LLVM's words."""
        return cls(target.triple, target.llvm_cpu(), target.llvm_features())

    @classmethod
    def of_device(cls, device: Device) -> "MachineSpec":
        """A GPU in LLVM's words: the oldest architecture, and the version of PTX that it takes."""
        return cls(DEVICE_TRIPLE, device.oldest.name, f"+ptx{device.oldest.ptx}")

    @property
    def is_device(self) -> bool:
        """Whether the code is PTX for a GPU."""
        return self.triple == DEVICE_TRIPLE

    @property
    def has_avx512(self) -> bool:
        """Whether the machine has 512-bit vectors on x86."""
        return "+avx512f" in self.features.split(",")


@dataclass(frozen=True)
class EmittedKernel:
    """What an emitter makes of a kernel: a module of the loops level with one function.

    Attributes:
        text: the module; see "The native boundary" in docs/architecture.md.
        symbol: the function's name.
        buffers: how many of its parameters are buffers, the scratch included.
        sizes: how many sizes follow them.
        scratch: whether the last buffer is the scratch.
        metadata: what the caller wants to know besides (JSON values), such as the extent and the scratch bytes.
        threads: of a block, for a kernel of a GPU.
    """

    text: str
    symbol: str
    buffers: int
    sizes: int
    scratch: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    threads: int = 0


@dataclass(frozen=True)
class EmittedModule:
    """A module of plain functions, to be compiled as it is, such as the host entry.

    Attributes:
        text: the module, in upstream's dialects.
        metadata: what the caller wants to know besides (JSON values).
    """

    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Job:
    """One call of an emitter in a worker, and the compilation of what it returns.

    Attributes:
        emitter: "package.module:function". It is called with `payload` and returns an `EmittedKernel`, an
            `EmittedModule`, or a dict of JSON values, which is the answer itself (nothing is compiled).
        payload: the emitter's argument, JSON values.
        machine: what to compile for.
        kernel: the kernel's name, for errors.
        nodes: the names of the model nodes it came from, for errors.
        listing: whether to answer with the emitted text and the assembly too.
        load: Python files to execute first, once in each worker (see `support.plugins`).
    """

    emitter: str
    payload: Mapping[str, Any]
    machine: MachineSpec
    kernel: str = ""
    nodes: tuple[str, ...] = ()
    listing: bool = False
    load: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The job as a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "Job":
        """The job that `to_json` described."""
        changed = dict(fields)
        changed["machine"] = MachineSpec(**fields["machine"])
        changed["nodes"] = tuple(fields["nodes"])
        changed["load"] = tuple(fields["load"])
        return cls(**changed)

    def identity(self) -> str:
        """Canonical JSON of all that the answer depends on: names for errors are left out."""
        described = self.to_json()
        del described["kernel"], described["nodes"]
        return json.dumps(described, sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True)
class JobResult:
    """A worker's answer to a job.

    Attributes:
        code: the object file, or the PTX text of a kernel of a GPU; empty when there was nothing to compile.
        metadata: what the emitter returned besides the text, as JSON gives it back (tuples are lists).
        text: the emitted module, if the job asked for a listing.
        assembly: the same for the assembly.
        seconds: time spent, by phase: "emit", "lower", "compile". Empty when it came from the cache.
    """

    code: bytes
    metadata: Mapping[str, Any]
    text: str | None = None
    assembly: str | None = None
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])
