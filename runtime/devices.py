"""Which device runs a model, where nobody names one."""

from __future__ import annotations

from xcompile.runtime.device import Device
from xcompile.runtime.errors import RuntimeModelError


def default_device() -> Device:
    """The first GPU of this machine.

    Raises:
        RuntimeModelError: XC5008, there is none, or no driver for it.
    """
    from xcompile.runtime.cuda import open_gpu

    return open_gpu()


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
