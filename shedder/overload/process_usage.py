"""Usage of this process: CPU, writes, and memory against its limit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psutil

from shedder.overload.load import MachineReading

CGROUPS = Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 60  # Version 1 says "none" by a number near 2^63.


class MachineReader:
    """Reads /proc and the cgroup of this process; each look says what happened since the last.

    root: of the cgroup file systems. own: says which cgroup the process is in.
    """

    def __init__(self, root: Path = CGROUPS, own: Path = Path("/proc/self/cgroup")) -> None:
        self._process = psutil.Process()
        self._limit_bytes = memory_limit_bytes(root, own)
        self._cores = cores(root, own)
        self._at_s: float | None = None
        self._cpu_s = 0.0
        self._written = 0

    def read(self, at_s: float) -> MachineReading:
        """The numbers now.

        Args:
          at_s: of a clock that never goes back.
        """
        cpu_s, written = _cpu_s(self._process), _written(self._process)
        elapsed = 0.0 if self._at_s is None else at_s - self._at_s
        share = (cpu_s - self._cpu_s) / elapsed / self._cores if elapsed > 0 else 0.0
        rate = (written - self._written) / elapsed if elapsed > 0 else 0.0
        self._at_s, self._cpu_s, self._written = at_s, cpu_s, written
        memory = int(self._process.memory_info().rss)
        return MachineReading(share, max(rate, 0.0), memory, self._limit_bytes)


def memory_limit_bytes(root: Path, own: Path) -> int:
    """The least of the machine's memory and of what any cgroup above the process allows."""
    limits = [int(psutil.virtual_memory().total)]
    for controller, name in (("", "memory.max"), ("memory", "memory.limit_in_bytes")):
        found = _found(root, own, controller, name)
        limits += [int(text) for text in found if text.isdigit()]
    return min(limit for limit in limits if 0 < limit < _UNLIMITED)


def cores(root: Path, own: Path) -> float:
    """Return how many cores' worth of time the process may use: by affinity and by quota."""
    allowed = float(len(os.sched_getaffinity(0)))
    for text in _found(root, own, "", "cpu.max"):
        quota, _, period = text.partition(" ")
        if quota.isdigit() and period.isdigit() and int(period):
            allowed = min(allowed, int(quota) / int(period))
    return max(allowed, 0.01)


def _found(root: Path, own: Path, controller: str, name: str) -> Iterator[str]:
    """Return the contents of a control file in the process's cgroup and all above it.

    Args:
      root: as of `MachineReader`; so is own.
      controller: of version 1, whose hierarchy has the file; empty: that of version 2 has it.
      name: of the file.
    """
    try:
        lines = own.read_text().splitlines()
    except OSError:
        lines = []
    for line in [*lines, "0::/"]:
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controller not in controllers.split(","):
            continue
        top = root / controllers.split(",")[0]  # Version 2 has no controllers here.
        place = top / path.lstrip("/")
        for above in (place, *place.parents):
            if above == top.parent:
                break
            try:
                yield (above / name).read_text().strip()
            except OSError:
                continue


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _written(process: psutil.Process) -> int:
    try:
        return int(process.io_counters().write_bytes)
    except (psutil.Error, AttributeError, OSError):  # Not every system says.
        return 0
