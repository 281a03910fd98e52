"""Recording of the launches of models that were loaded for it: `profile.c`, as Python sees it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xcompile.runtime import native_library
from xcompile.runtime.errors import RuntimeModelError

EVENT: Final = np.dtype(
    [(name, np.int64) for name in ("task", "launch", "part", "thread", "start", "stop", "cpu")]
)
"""One event: the address of a kernel's task, the number of its launch, the part (-1 for a launch as its
caller sees it), a number for the thread, and in nanoseconds start, stop, and the time that the thread worked.
"""

_LOCK = threading.Lock()


def record(run: Callable[[], object], capacity: int = 1 << 16) -> NDArray[np.void]:
    """The events of a call, in the order of their ends.

    Args:
        run: runs an `Executable` that is `observed`; others are not seen.
        capacity: how many events there may be.

    Raises:
        RuntimeModelError: XC5006 there were more.
    """
    events = np.zeros(capacity, EVENT)
    with _LOCK:
        native_library.record_launches(events.ctypes.data, capacity)
        try:
            run()
            count = native_library.recorded_events()
        finally:
            native_library.record_launches(None, 0)
    if count > capacity:
        raise RuntimeModelError("XC5006", f"a run has {count} events; {capacity} can be recorded")
    return events[:count]
