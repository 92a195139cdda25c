"""A disk in virtual time, on which the process may die at any call."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from shedder.archive.files.file_system import Bytes, OsFiles, ReadFile, WriteFile
from shedder.simulation.scenario import ScenarioMachine, Stall


class Died(BaseException):
    """The process is no more. Not an Exception: nothing of it may handle this."""


class VirtualDisk(OsFiles):
    """Real files; every call that changes one is counted, and the process may die before it."""

    def __init__(self) -> None:
        self.calls = 0
        self._dies_at: int | None = None

    def die_after(self, calls: int | None) -> None:
        """So many more calls are done (None: all)."""
        self._dies_at = None if calls is None else self.calls + calls

    def note(self) -> None:
        """A call comes.

        Raises:
          Died: it does not happen any more.
        """
        if self._dies_at is not None and self.calls >= self._dies_at:
            raise Died
        self.calls += 1

    def create(self, path: Path) -> WriteFile:
        """As on any disk."""
        self.note()
        return _WrittenFile(self, super().create(path))

    def append(self, path: Path) -> WriteFile:
        """As on any disk."""
        self.note()
        return _WrittenFile(self, super().append(path))

    def reuse(self, path: Path) -> WriteFile:
        """As on any disk."""
        self.note()
        return _WrittenFile(self, super().reuse(path))

    def open(self, path: Path) -> ReadFile:
        """As on any disk; reading changes nothing."""
        return super().open(path)

    def rename(self, source: Path, target: Path) -> None:
        """As on any disk."""
        self.note()
        super().rename(source, target)

    def link(self, source: Path, target: Path) -> None:
        """As on any disk."""
        self.note()
        super().link(source, target)

    def unlink(self, path: Path) -> None:
        """As on any disk."""
        self.note()
        super().unlink(path)


class _WrittenFile:
    """A file whose writes are counted; one that dies has written the first half."""

    def __init__(self, disk: VirtualDisk, file: WriteFile) -> None:
        self._disk = disk
        self._file = file

    @property
    def size(self) -> int:
        return self._file.size

    def write(self, parts: Sequence[Bytes]) -> None:
        try:
            self._disk.note()
        except Died:
            data = b"".join(bytes(memoryview(part)) for part in parts)
            self._file.write([data[: len(data) // 2]])
            raise
        self._file.write(parts)

    def overwrite(self, offset: int, data: Bytes) -> None:
        self._disk.note()
        self._file.overwrite(offset, data)

    def truncate(self, size: int) -> None:
        self._disk.note()
        self._file.truncate(size)

    def sync(self) -> None:
        self._disk.note()
        self._file.sync()

    def close(self) -> None:
        self._file.close()


def image(source: Path, target: Path) -> None:
    """Copy a directory as a start after a kill finds it: all written bytes, open files included."""
    shutil.copytree(source, target, copy_function=_copy)


def _copy(source: str, target: str) -> None:
    """Runs never change, so that a second name is enough; all else is copied."""
    if source.endswith(".parquet"):
        os.link(source, target)
    else:
        shutil.copy2(source, target)


def write_us(machine: ScenarioMachine, size_bytes: int) -> int:
    """Return how long a group of records takes, one fsync at its end."""
    moved_s = machine.scale * size_bytes / machine.disk_bytes_per_s
    return round(1e3 * machine.fsync_ms + 1e6 * moved_s)


def ready_us(stalls: Sequence[Stall], at_us: int, takes_us: int) -> int:
    """Return the end of work that begins now, with the stalls on its way."""
    done = at_us + takes_us
    for stall in sorted(stalls, key=lambda each: each.at_s):
        begins, lasts = round(1e6 * stall.at_s), round(1e6 * stall.for_s)
        if begins < done and begins + lasts > at_us:
            done += begins + lasts - max(begins, at_us)
    return done
