"""What the compiler knows about a machine: data, no behaviour.

Passes, schedules and emitters never ask what a target is called. They ask for features
(`target.has("avx512vnni")`) and for numbers: vector bits, registers, caches, cores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.target.device import Device

CACHE_LINE = 64
"""Bytes of a cache line of every CPU there is code for."""

PORTABLE = "portable"
"""The feature of targets whose kernels stand for another machine's; see `Target.portable`."""

_DEVICE_BLOCK = 16
"""Channels of a block on a GPU: those of 8 bits are what one access moves, those of 16 one step of a product."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A machine to compile for: a CPU, or a GPU and the CPU beside it that starts its kernels.

    Attributes:
        name: how users call it; it decides nothing.
        triple: LLVM's target triple, "x86_64-unknown-linux-gnu".
        features: instruction sets by LLVM's names ("avx2", "avx512vnni", "dotprod"), each with those it implies.
        vector_bits: the width of a vector register that emitters use.
        vector_registers: how many such registers there are.
        fma_ports: vector multiply-adds of the full width that a core starts in a cycle.
        l1d: bytes of a core's first-level data cache.
        l2: bytes of a core's second-level cache.
        l3: bytes of the last-level cache, shared by the cores; 0 when there is none.
        cores: how many threads a model is expected to run on.
        device: the GPU that kernels run on; everything else then describes the CPU beside it. None: the CPU itself.
    """

    name: str
    triple: str
    features: frozenset[str]
    vector_bits: int
    vector_registers: int
    fma_ports: int
    l1d: int
    l2: int
    l3: int
    cores: int
    device: Device | None = None

    @property
    def arch(self) -> str:
        """The architecture, "x86_64" or "aarch64"."""
        return self.triple.split("-")[0]

    @property
    def memory_operands(self) -> bool:
        """Whether a multiply-add takes an operand from memory, which then needs no register."""
        return self.arch == "x86_64"

    def has(self, feature: str) -> bool:
        """Whether the machine has an instruction set, by LLVM's name."""
        return feature in self.features

    def lanes(self, bits: int) -> int:
        """How many elements of `bits` bits fill a vector register."""
        return self.vector_bits // bits

    @property
    def channel_block(self) -> int:
        """Channels that lie together in blocked images: a vector of 32-bit elements, or what suits the GPU."""
        return _DEVICE_BLOCK if self.device is not None else self.lanes(32)

    def llvm_features(self) -> str:
        """The features as LLVM's target machine takes them, sorted: "+avx,+avx2,+fma"."""
        return ",".join(f"+{feature}" for feature in sorted(self.instruction_sets))

    def llvm_cpu(self) -> str:
        """LLVM's name of the baseline CPU, to which the features are added."""
        return "x86-64" if self.arch == "x86_64" else "generic"

    def runs_on(self, host: Target) -> bool:
        """Whether code for this target runs on the CPU that `host` describes; code for a GPU does not."""
        return (
            self.device is None
            and self.arch == host.arch
            and self.instruction_sets <= host.features
        )

    @property
    def instruction_sets(self) -> frozenset[str]:
        """The features that code for this target may use, without those that it expands."""
        return frozenset(name for name in self.features if not name.startswith(PORTABLE))

    def portable(self, machine: Target) -> Target:
        """A target whose kernels are this one's, with each instruction written in ordinary vector code of `machine`.

        So any machine runs the kernels of any CPU target, slowly; its feature "portable-dotprod" says that they are
        written as for machines with dotprod. It has the machine's registers, as many as its vectors leave.
        """
        registers = machine.vector_registers * machine.vector_bits // self.vector_bits
        stands_for = {f"{PORTABLE}-{name}" for name in self.features}
        return replace(
            self,
            name=f"{self.name}-{PORTABLE}",
            triple=machine.triple,
            features=machine.features | stands_for | {PORTABLE},
            vector_registers=min(self.vector_registers, machine.vector_registers, registers),
        )

    def to_json(self) -> dict[str, Any]:
        """The target as a JSON object; `from_json` reads it back."""
        device = None if self.device is None else self.device.to_json()
        return {**asdict(self), "features": sorted(self.features), "device": device}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Target:
        """The target that `to_json` described.

        Raises:
            CompileError: XC6005, a field is missing, unknown or has the wrong type.
        """
        known = {field.name: field.type for field in fields(cls)}
        if values.keys() != known.keys():
            wrong = ", ".join(sorted(values.keys() ^ known.keys()))
            raise CompileError("XC6005", f"a target has missing or unknown fields: {wrong}")
        kinds: dict[str, type] = {"str": str, "int": int, "frozenset[str]": list}
        for name, kind in known.items():
            if name != "device" and type(values[name]) is not kinds[str(kind)]:
                raise CompileError("XC6005", f"the target's field '{name}' is not of type {kind}")
        if not all(isinstance(feature, str) for feature in values["features"]):
            raise CompileError("XC6005", "the target's features are not all texts")
        decoded: dict[str, Any] = {**values, "features": frozenset(values["features"])}
        if values["device"] is not None:
            decoded["device"] = Device.from_json(values["device"])
        return cls(**decoded)
