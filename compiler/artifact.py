"""What a compile makes: objects, packed weights, a manifest. It is loaded in memory or linked into a library."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from xcompile.compiler.codegen.cuda.assembler import AssemblyFacts
from xcompile.compiler.codegen.link import link_library
from xcompile.compiler.codegen.loader import LoadedObjects
from xcompile.compiler.codegen.program.launch_table import LaunchTable
from xcompile.compiler.codegen.program.program import Program
from xcompile.compiler.support.errors import CompileError
from xcompile.runtime import native_library
from xcompile.runtime.abi import Manifest
from xcompile.runtime.device import Device, DeviceKernel, write_kernels
from xcompile.runtime.device_executable import DeviceExecutable
from xcompile.runtime.devices import check_no_device, find_device
from xcompile.runtime.executable import Executable, ModelEntry


@dataclass(frozen=True)
class KernelFacts:
    """What reports say of a kernel.

    Attributes:
        family: the kind of emitter that made it: "conv", "winograd", "map".
        schedule: its schedule in words.
        arithmetic: what its products are of: "int8", "float32", …; "" when it has none.
        stores: the types of its results in memory: "uint8", "float32, int64".
        form: the instruction of its products, "" when it has none; see `ProductForm`.
        products: vector instructions of its products, as text over its own symbols.
        steps: vector instructions of everything else, likewise.
    """

    family: str
    schedule: str
    arithmetic: str = ""
    stores: str = ""
    form: str = ""
    products: str = "0"
    steps: str = "0"


@dataclass(frozen=True)
class NodeStatement:
    """What a node of the model computes in, decided when it was compiled.

    Attributes:
        node: its name; "" for what the compiler added before any node, such as the quantization of an input.
        kind: what the model calls its op, "Conv".
        ops: the ops of the nn level that it became, "conv_integer + cast + mul"; "" when none is left.
        arithmetic: "int8", "float32", "int64", …; "none" when nothing is left to compute.
        stores: the types of the results of its kernels in memory, "uint8"; "" when it has no kernel.
        why: the reason.
    """

    node: str
    kind: str
    ops: str
    arithmetic: str
    stores: str
    why: str


@dataclass(frozen=True)
class Artifact:
    """A compiled model, not yet loaded.

    Attributes:
        manifest: what callers must know.
        objects: object files by name: one a kernel of a CPU, and the entry functions.
        weights: the packed constants.
        program: the rt level, for reports.
        architecture: of the machine it is for, "x86_64" or "aarch64".
        kernels: of the symbols in the program's steps.
        explanations: what the passes that were asked say of themselves, a line each.
        kept_float: model nodes whose products are not of what the model was compiled for, and why.
        statements: what each model node computes in, and why.
        device_code: the code of each kernel of a GPU by its symbol, and by its kind: "ptx", or an architecture whose
            machine code it is.
        assembly: what is known of that machine code, by symbol and architecture; empty without an assembler.
    """

    manifest: Manifest
    objects: Mapping[str, bytes]
    weights: bytes | memoryview
    program: Program
    architecture: str
    kernels: Mapping[str, KernelFacts] = field(default_factory=dict[str, KernelFacts])
    explanations: tuple[str, ...] = ()
    kept_float: tuple[tuple[str, str], ...] = ()
    statements: tuple[NodeStatement, ...] = ()
    device_code: Mapping[str, Mapping[str, bytes]] = field(
        default_factory=dict[str, Mapping[str, bytes]]
    )
    assembly: Mapping[str, Mapping[str, AssemblyFacts]] = field(
        default_factory=dict[str, Mapping[str, AssemblyFacts]]
    )

    def save(self, path: Path) -> None:
        """Link the model into a shared library.

        Raises:
            CompileError: XC7xxx when it cannot be linked or written.
        """
        link_library(
            path,
            list(self.objects.values()),
            self.manifest,
            self.weights,
            architecture=self.architecture,
            launches=self.launch_table.to_bytes(),
            device=write_kernels(self.device_kernels) if self.program.on_device else b"",
        )

    @property
    def device_kernels(self) -> tuple[DeviceKernel, ...]:
        """The kernels of a GPU by their numbers; none for a CPU."""
        return tuple(
            replace(kernel, code=self.device_code[kernel.symbol]) for kernel in self.program.device
        )

    @property
    def launch_table(self) -> LaunchTable:
        """What the launches of a run are."""
        families = {symbol: facts.family for symbol, facts in self.kernels.items()}
        return LaunchTable.of(self.program, families)

    def load(
        self,
        *,
        threads: int | None = None,
        poison: bool = False,
        device: Device | str | None = None,
    ) -> Executable:
        """Load the model into this process.

        Args:
            threads: the most parts that a kernel of a CPU is split into.
            poison: see `Executable`.
            device: what runs the kernels of a model that is for a GPU, see `find_device`; by default the first GPU.

        Raises:
            CompileError: XC6007 when it was compiled for a machine that this one is not.
            RuntimeModelError: XC5008 when there is no GPU for it.
        """
        entry, _ = self.link(native_library.symbols())
        if not self.program.on_device:
            check_no_device(device)
            return Executable(entry, self.manifest, self.weights, threads=threads, poison=poison)
        found = find_device(device)
        kernels = self.device_kernels
        return DeviceExecutable(entry, self.manifest, self.weights, found, kernels, poison=poison)

    def link(
        self, imports: Mapping[str, int], exports: Iterable[str] = ()
    ) -> tuple[ModelEntry, LoadedObjects]:
        """The model's functions in this process, and its code.

        Args:
            imports: addresses of the functions of the runtime that the model calls.
            exports: further names whose addresses will be asked for.

        Raises:
            CompileError: XC6007 when it was compiled for a machine that this one is not.
        """
        self._check_host()
        prefix = self.manifest.prefix
        names = {part: f"{prefix}_{part}" for part in ("prepare", "run", "init")}
        loaded = LoadedObjects(list(self.objects.values()), imports, [*names.values(), *exports])
        addresses = {part: loaded.address(name) for part, name in names.items()}
        return ModelEntry(**addresses, keep_alive=loaded), loaded

    def _check_host(self) -> None:
        features = [name for name in self.manifest.features if not native_library.cpu_has(name)]
        if self.architecture != native_library.host_architecture():
            needs = f"code for {self.architecture}"
        elif features:
            needs = f"code for {', '.join(features)}"
        else:
            return
        raise CompileError(
            "XC6007",
            f"this machine cannot run {needs}, which the target '{self.manifest.target}' means",
            help="save the model and load the library there, or compile for the target 'cpu'",
        )
