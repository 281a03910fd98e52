"""Opens compiled libraries.

Loading a library runs the code in it: load only what you would run. What is checked here (format, hash,
version, machine, CPU features) protects from damage and mistakes, not from whoever made the file.
"""

from __future__ import annotations

import _ctypes
import itertools
import mmap
import os
import weakref

from xcompile.runtime import native_library
from xcompile.runtime.abi import Manifest
from xcompile.runtime.device import Device, DeviceKernel, read_kernels
from xcompile.runtime.device_executable import DeviceExecutable
from xcompile.runtime.devices import check_no_device, find_device
from xcompile.runtime.elf_image import MACHINES, SHARED_OBJECT, ElfImage, section_bytes
from xcompile.runtime.errors import RuntimeModelError, shorten
from xcompile.runtime.executable import Executable, ModelEntry
from xcompile.runtime.library_format import DEVICE_SECTION, verify

_loads = itertools.count()


def load(
    source: str | os.PathLike[str] | bytes | bytearray | memoryview,
    *,
    threads: int | None = None,
    pool: native_library.Pool | None = None,
    poison: bool = False,
    observed: bool = False,
    device: Device | str | None = None,
) -> Executable:
    """Opens a compiled library.

    Everything is checked before the system's loader sees the file. The code is unloaded when the last
    reference to the executable is gone.

    Args:
        source: the path of the library, or its content, which then touches no disk.
        threads: see `Executable`.
        pool: see `Executable`.
        poison: see `Executable`.
        observed: see `Executable`.
        device: what runs the kernels of a model that is for a GPU, see `devices.find_device`; by default the first GPU.

    Raises:
        RuntimeModelError: XC7002 when the file cannot be read, is no compiled model or was changed, XC7003 when
            it was compiled for another machine, CPU or version, XC5008 when there is no GPU for it.
    """
    descriptor = _open(source)
    try:
        manifest, kernels = _check(descriptor)
        library = LoadedLibrary(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    prefix = manifest.prefix
    entry = ModelEntry(
        prepare=library.address(f"{prefix}_prepare"),
        run=library.address(f"{prefix}_run"),
        init=library.address(f"{prefix}_init"),
        keep_alive=library,
    )
    weights = library.address(f"{prefix}_weights")
    if kernels is not None:
        return DeviceExecutable(
            entry, manifest, weights, find_device(device), kernels, poison=poison
        )
    check_no_device(device)
    model = Executable(
        entry, manifest, weights, threads=threads, pool=pool, poison=poison, observed=observed
    )
    if manifest.prepared_bytes:  # what other weights were prepared from is not read again
        native_library.release_pages(weights, manifest.weights_bytes)
    return model


def read_manifest(source: str | os.PathLike[str] | bytes | bytearray | memoryview) -> Manifest:
    """What a library says of itself, for any machine and without loading it.

    Raises:
        RuntimeModelError: XC7002, XC7003 as for `load`, but for the machine and its CPU.
    """
    descriptor = _open(source)
    try:
        return _verify(descriptor)[2]
    finally:
        os.close(descriptor)


class LoadedLibrary:
    """A shared library in this process, none of whose names others can see.

    It is opened through its descriptor, by a name never used before: the loader remembers libraries by name, and
    would give the old one for a path, or for the number of a descriptor, under which it ever found one.

    Args:
        descriptor: of the open file; owned by this object once it exists.
    """

    def __init__(self, descriptor: int) -> None:
        try:
            handle = _ctypes.dlopen(_new_name(descriptor), os.RTLD_LOCAL | os.RTLD_NOW)
        except OSError as error:
            what = f"the system cannot load the library ({shorten(str(error), 200)})"
            raise RuntimeModelError("XC7002", what) from None
        self._handle = handle
        weakref.finalize(self, _unload, handle, descriptor).atexit = False

    def address(self, name: str) -> int:
        """The address of an exported function or object."""
        return _ctypes.dlsym(self._handle, name)


def _new_name(descriptor: int) -> str:
    """A path of the open file that no other call returns: a count, as steps that lead nowhere."""
    steps = "".join(".//" if bit == "1" else "./" for bit in f"{next(_loads):b}")
    return f"/proc/self/fd/{steps}{descriptor}"


def _unload(handle: int, descriptor: int) -> None:
    _ctypes.dlclose(handle)
    os.close(descriptor)


def _open(source: str | os.PathLike[str] | bytes | bytearray | memoryview) -> int:
    """A descriptor of the file, or of one in memory with the content."""
    try:
        if isinstance(source, str | os.PathLike):
            return os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        content = memoryview(source).cast("B")
        descriptor = os.memfd_create("xcompile-model", os.MFD_CLOEXEC)
    except (OSError, TypeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        name = f" '{source}'" if isinstance(source, str | os.PathLike) else ""
        raise RuntimeModelError("XC7002", f"the library{name} cannot be read: {reason}") from None
    try:
        while content:
            content = content[os.write(descriptor, content) :]
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _verify(descriptor: int) -> tuple[memoryview, ElfImage, Manifest]:
    """The content of the file, which is closed when the last view is gone, also those in a traceback."""
    try:
        content = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # a folder, a pipe, an empty file
        raise RuntimeModelError("XC7002", f"the library cannot be read ({error})") from None
    view = memoryview(content)
    return view, *verify(view)


def _check(descriptor: int) -> tuple[Manifest, tuple[DeviceKernel, ...] | None]:
    """The manifest, and the kernels if the model is for a GPU."""
    content, image, manifest = _verify(descriptor)
    architecture = MACHINES.get(image.machine, f"machine {image.machine}")
    if image.kind != SHARED_OBJECT:
        raise RuntimeModelError("XC7002", "the file is not a shared library")
    if architecture != native_library.host_architecture():
        raise RuntimeModelError(
            "XC7003",
            f"the library is for {architecture}, this is {native_library.host_architecture()}",
        )
    missing = [name for name in manifest.features if not native_library.cpu_has(name)]
    if missing:
        raise RuntimeModelError(
            "XC7003",
            f"the library was compiled for '{manifest.target}' and needs the CPU features "
            f"{shorten(', '.join(missing), 200)}, which this machine lacks",
            help="compile it for a target this machine has",
        )
    section = image.sections.get(DEVICE_SECTION)
    return manifest, read_kernels(section_bytes(content, section)) if section else None
