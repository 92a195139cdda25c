"""A file system on which power can fail, and whose calls can fail, at any moment.

It passes every call on to real files, and keeps beside them what would be on the disk: which
sectors were synced, which names. `crash_into` then makes one of the directories that a power loss
may leave: each unsynced sector there or not, sizes between old and new, unsynced names undone from
the end. SQLite does not write through here; its files are taken as they are (it syncs every
commit).
"""

from __future__ import annotations

import errno
import itertools
import os
import random
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from shedder.archive.files.file_system import Bytes, OsFiles, OsWriteFile, ReadFile, WriteFile
from tests.scale import scaled
from tests.seeds import seed

SECTOR = 512


def moments(every: int, name: str, first: int = 0) -> Iterator[int]:
    """Return the numbers of the calls that are to fail; in a nightly run, all from `first` on.

    A per-change run takes one of `every` calls; the seed of the run decides the first one.
    """
    step = scaled(every, 1)
    return itertools.count(first + seed(name) % step, step)


class PowerFailed(Exception):
    """Not an OSError: no code under test may handle it."""


@dataclass(eq=False)
class Inode:
    """A file's content in the cache is the real file; this is the rest."""

    size: int = 0
    durable: bytearray = field(default_factory=bytearray)
    dirty: dict[int, bytes] = field(default_factory=dict)  # sector number -> content
    shrunk: bool = False

    def write(self, offset: int, data: bytes) -> None:
        end = offset + len(data)
        for sector in range(offset // SECTOR, (end + SECTOR - 1) // SECTOR):
            start = sector * SECTOR
            old = bytearray(self.sector(sector))
            first, last = max(start, offset), min(start + SECTOR, end)
            old[first - start : last - start] = data[first - offset : last - offset]
            self.dirty[sector] = bytes(old)
        self.size = max(self.size, end)

    def sector(self, number: int) -> bytes:
        """What the cache holds; clean sectors that never got to the disk read as lost here."""
        found = self.dirty.get(number)
        if found is None:
            found = bytes(self.durable[number * SECTOR : (number + 1) * SECTOR])
        return found.ljust(SECTOR, b"\0")

    def truncate(self, size: int) -> None:
        self.shrunk = self.shrunk or size < self.size
        self.size = size
        last = size // SECTOR
        if size % SECTOR:
            kept = self.sector(last)[: size % SECTOR].ljust(SECTOR, b"\0")
            self.dirty[last] = kept
            last += 1
        for sector in [number for number in self.dirty if number >= last]:
            del self.dirty[sector]

    def sync(self) -> None:
        self.durable = self.merged(self.dirty, self.size)
        self.dirty.clear()
        self.shrunk = False

    def merged(self, sectors: dict[int, bytes], size: int) -> bytearray:
        content = bytearray(self.durable[:size].ljust(size, b"\0"))
        for number, data in sectors.items():
            start = number * SECTOR
            content[start : start + SECTOR] = data
        return content[:size].ljust(size, b"\0")

    def after_crash(self, chance: random.Random) -> bytes:
        if (self.shrunk or self.dirty or self.size != len(self.durable)) and chance.random() < 0.2:
            return bytes(self.durable)
        low, high = sorted((len(self.durable), self.size))
        size = chance.choice([low, high, high, chance.randint(low, high)])
        share = chance.choice([0.0, 0.5, 1.0, 1.0])
        kept = {number: data for number, data in self.dirty.items() if chance.random() < share}
        return bytes(self.merged(kept, size))


class _WriteFile:
    def __init__(self, files: PowerFiles, path: Path, real: WriteFile, inode: Inode) -> None:
        self._files, self._path, self._real, self._inode = files, path, real, inode

    @property
    def size(self) -> int:
        return self._real.size

    def write(self, parts: Sequence[Bytes]) -> None:
        data = b"".join(bytes(memoryview(part)) for part in parts)
        error = self._files.step("write")
        if error is not None:  # some of it got there
            half = data[: len(data) // 2]
            offset = self._real.size
            self._real.overwrite(offset, half)
            self._inode.write(offset, half)
            raise error
        self._inode.write(self._real.size, data)
        self._real.write([data])

    def overwrite(self, offset: int, data: Bytes) -> None:
        self._files.check("overwrite")
        self._inode.write(offset, bytes(memoryview(data)))
        self._real.overwrite(offset, data)

    def truncate(self, size: int) -> None:
        self._files.check("truncate")
        self._inode.truncate(size)
        self._real.truncate(size)

    def sync(self) -> None:
        error = self._files.step("sync")
        if error is not None:  # as Linux: the pages stay in the cache and count as clean
            self._inode.dirty.clear()
            raise error
        self._inode.sync()

    def close(self) -> None:
        self._real.close()


class PowerFiles(OsFiles):
    """Real files below root, and beside them what a disk would hold.

    power_at: power fails at this call, counted from 0 (never when None). fail_at: this call fails
    with `error`; with `forever`, every later one of its kind too.
    """

    def __init__(
        self,
        root: Path,
        *,
        power_at: int | None = None,
        fail_at: int | None = None,
        error: int = 0,
        forever: bool = False,
    ) -> None:
        self.root = root
        self.calls = 0
        self.failed: str | None = None
        self._power_at, self._fail_at = power_at, fail_at
        self._error, self._forever = error, forever
        self._dark = False
        self._fail_kind: str | None = None
        self._inodes: dict[Path, Inode] = {}
        self._durable: dict[Path, Inode] = {}
        self._changes: list[tuple[Path, dict[Path, Inode | None]]] = []
        for path in root.rglob("*"):
            if path.is_file() and not path.name.startswith("catalog.sqlite"):
                data = path.read_bytes()
                self._inodes[path] = Inode(len(data), bytearray(data))
        self._durable = dict(self._inodes)

    def step(self, kind: str) -> OSError | None:
        """Count a call; the error it has to fail with, if any."""
        if self._dark or self.calls == self._power_at:
            self._dark = True
            raise PowerFailed
        self.calls += 1
        hit = self.calls - 1 == self._fail_at or (self._forever and kind == self.failed)
        if hit or kind == self._fail_kind:
            self._fail_kind = None
            self.failed = kind
            return OSError(self._error, os.strerror(self._error))
        return None

    def fail_next(self, kind: str, error: int = errno.EIO) -> None:
        """Let the next call of a kind fail."""
        self._fail_kind, self._error = kind, error

    def fail_in(self, calls: int, error: int) -> None:
        """Let the call fail that follows `calls` more calls."""
        self._fail_at, self._error = self.calls + calls, error

    def heal(self) -> None:
        """Cancel failures that have not happened yet."""
        self._fail_at = self._fail_kind = None

    def power_in(self, calls: int) -> None:
        """Let power fail after so many calls more."""
        self._power_at = self.calls + calls

    def forget_unsynced(self) -> None:
        """Mark unsynced pages as clean without writing them, as Linux does when an fsync fails.

        The pages stay in the cache.
        """
        for inode in self._durable.values():
            inode.dirty.clear()

    def check(self, kind: str) -> None:
        error = self.step(kind)
        if error is not None:
            raise error

    def create(self, path: Path) -> WriteFile:
        self.check("create")
        real = super().create(path)
        self._change(path.parent, {path: Inode()})
        return _WriteFile(self, path, real, self._inodes[path])

    def append(self, path: Path) -> WriteFile:
        self.check("append")
        return _WriteFile(self, path, OsWriteFile(path, os.O_RDWR), self._inodes[path])

    def reuse(self, path: Path) -> WriteFile:
        self.check("reuse")
        return _WriteFile(self, path, OsWriteFile(path, os.O_RDWR, size=0), self._inodes[path])

    def open(self, path: Path) -> ReadFile:
        self.check("open")
        return super().open(path)

    def rename(self, source: Path, target: Path) -> None:
        self.check("rename")
        super().rename(source, target)
        moved = [p for p in self._inodes if p == source or p.is_relative_to(source)]
        change: dict[Path, Inode | None] = dict.fromkeys(moved)
        for path in moved:  # of a directory, all that is in it
            change[target / path.relative_to(source)] = self._inodes[path]
        inside = [item for item in self._changes if item[0].is_relative_to(source)]
        self._changes = [item for item in self._changes if item not in inside]  # Never durable.
        self._change(target.parent, change)

    def link(self, source: Path, target: Path) -> None:
        self.check("link")
        super().link(source, target)
        self._change(target.parent, {target: self._inodes[source]})

    def unlink(self, path: Path) -> None:
        self.check("unlink")
        super().unlink(path)
        self._change(path.parent, {path: None})

    def make_directory(self, path: Path) -> None:
        self.check("make_directory")
        super().make_directory(path)

    def sync_directory(self, path: Path) -> None:
        self.check("sync_directory")
        for parent, change in self._changes:
            if parent == path:
                self._apply(self._durable, change)
        self._changes = [item for item in self._changes if item[0] != path]

    def crash_into(self, target: Path, seed: int) -> None:
        """Make a directory that a power loss at this moment may leave behind."""
        chance = random.Random(seed)
        shutil.copytree(self.root, target, ignore=self._only_catalog)
        names = dict(self._durable)
        parents = dict.fromkeys(parent for parent, _ in self._changes)
        for parent in parents:  # each directory's changes survive as a prefix
            changes = [change for other, change in self._changes if other == parent]
            for change in changes[: chance.randint(0, len(changes))]:
                self._apply(names, change)
        for path, inode in names.items():
            place = target / path.relative_to(self.root)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(inode.after_crash(chance))

    def _only_catalog(self, directory: str, names: list[str]) -> list[str]:
        return [
            name
            for name in names
            if (path := Path(directory) / name).is_file()
            and (path in self._inodes or not name.startswith("catalog.sqlite"))
        ]

    def _change(self, parent: Path, change: dict[Path, Inode | None]) -> None:
        self._changes.append((parent, change))
        self._apply(self._inodes, change)

    def _apply(self, names: dict[Path, Inode], change: dict[Path, Inode | None]) -> None:
        for path, inode in change.items():
            if inode is None:
                names.pop(path, None)
            else:
                names[path] = inode
