"""Which device runs a model."""

from __future__ import annotations

import importlib
import re
from typing import Final, cast

from xcompile.runtime.device import Device
from xcompile.runtime.errors import RuntimeModelError, shorten

EMULATE: Final = "emulate"
"""The device that is the interpreter of PTX."""

_EMULATED_DEVICE: Final = ("xcompile.compiler.ptx.device", "EmulatedDevice")
"""A part of the compiler, which need not be installed where models run."""


def find_device(device: Device | str | None) -> Device:
    """The device that is meant.

    Args:
        device: one itself, or its name: "cuda" is the first GPU, "cuda:1" the second, "emulate" the interpreter of PTX;
            None is the first GPU.

    Raises:
        RuntimeModelError: XC5008, there is no such device, or no driver for it.
    """
    if device is not None and not isinstance(device, str):
        return device
    if device == EMULATE:
        return _emulated()
    number = re.fullmatch(r"cuda(?::(\d{1,4}))?", "cuda" if device is None else device)
    if number is None:
        raise RuntimeModelError(
            "XC5008", f"there is no device '{shorten(device or '')}'",
            help=f"the devices are cuda, cuda:1, …, and {EMULATE}",
        )  # fmt: skip
    from xcompile.runtime.cuda import open_gpu

    return open_gpu(int(number[1] or 0))


def _emulated() -> Device:
    module, name = _EMULATED_DEVICE
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise
        raise RuntimeModelError(
            "XC5008", "the emulation of GPUs is a part of the compiler, which is not installed",
            help="pip install xcompile",
        ) from None  # fmt: skip
    return cast("Device", getattr(found, name)())


def check_no_device(device: object) -> None:
    """Raise where a device is given for a model of a CPU.

    Raises:
        RuntimeModelError: XC5008.
    """
    if device is not None:
        raise RuntimeModelError(
            "XC5008", "the model was compiled for a CPU, so no device can run it",
            help="compile it for a target such as cuda",
        )  # fmt: skip
