"""Priority of threads for the CPU: queries come before bulk work when cores are short.

Both calls act on the calling thread, and on the threads that it starts. They do nothing if the
operating system lacks the means: then only answers under load take longer.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
import threading

BULK = 5  # Niceness of applying: it goes on, but lets answers pass. The log does not wait for them:
# what it does is short, and every append that is not acknowledged yet stands behind it.
LATE = 5  # Niceness of runs and repairs. At 10, one that held the interpreter's lock lost its core.
SLICE_NS = 100_000  # The shortest that Linux takes.

_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}  # The system call's number.
_SCHED_ATTR = "=IIQiIQQQ"  # size, policy, flags, nice, priority, runtime, deadline, period
_LINUX = sys.platform == "linux"


def give_way(niceness: int) -> None:
    """Let other threads go first.

    Args:
      niceness: 0 to 19, over the process's own; 5 leaves a third of a contended core, 10 a tenth.
        A thread that gives way already, because the one that started it does, gives no less.
    """
    if _LINUX:
        thread = threading.get_native_id()
        wanted = min(19, os.getpriority(os.PRIO_PROCESS, os.getpid()) + niceness)
        if wanted > os.getpriority(os.PRIO_PROCESS, thread):
            os.setpriority(os.PRIO_PROCESS, thread, wanted)


def run_soon() -> bool:
    """Run for short slices, and in return soon after waking (EEVDF's slices, Linux 6.12).

    Without this, a thread that wakes beside a busy one waits for that one's slice to end, which a
    clock of 250 Hz notices after up to 4 ms. Its share of the cores stays what it was.

    Returns:
      Whether the system took it; older kernels take it and change nothing.
    """
    number = _SCHED_SETATTR.get(platform.machine())
    if not _LINUX or number is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return False
    niceness = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    size = struct.calcsize(_SCHED_ATTR)
    attributes = struct.pack(_SCHED_ATTR, size, os.SCHED_OTHER, 0, niceness, 0, SLICE_NS, 0, 0)
    return bool(ctypes.CDLL(None).syscall(number, 0, attributes, 0) == 0)
