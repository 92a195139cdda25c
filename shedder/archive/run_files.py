"""The files of runs: verified before use, kept while they are read, removed when nobody does."""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import pyarrow as pa

from shedder.archive.entries import Run
from shedder.archive.files import Files
from shedder.archive.runs import verify_run


class RunFiles:
    """What is below `runs/` in a data directory. Any thread may call it.

    verify: compare each file's checksum with the catalog's before its first use.
    """

    def __init__(self, files: Files, directory: Path, *, verify: bool) -> None:
        self._files = files
        self._directory = directory
        self._verify = verify
        self._lock = threading.RLock()  # a snapshot may be collected, and unpin, at any moment
        self._pins: Counter[str] = Counter()
        self._doomed: set[str] = set()
        self._verified: set[str] = set()

    def recover(self, runs: Sequence[Run]) -> tuple[tuple[str, ...], tuple[Run, ...]]:
        """Remove files that are of no run.

        Returns:
          their names, and the runs whose file is missing or has the wrong size.
        """
        root = self._directory / "runs"
        sizes = {
            f"{folder}/{name}": (root / folder / name).stat().st_size
            for folder in self._files.names(root)
            for name in self._files.names(root / folder)
            if name.endswith(".parquet")
        }
        orphans = tuple(sorted(sizes.keys() - {run.file for run in runs}))
        for name in orphans:
            self._files.unlink(root / name)
        missing = tuple(run for run in runs if sizes.get(run.file, -1) != run.size_bytes)
        return orphans, missing

    def trust(self, run: Run) -> None:
        """This process has just written the file."""
        self._verified.add(run.file)

    def verified(self, runs: Iterable[Run]) -> tuple[Path, ...]:
        """The files of runs.

        Raises:
          CorruptData: one is damaged or missing.
          StorageFailed: one cannot be read.
        """
        paths = []
        for run in runs:
            if self._verify and run.file not in self._verified:
                verify_run(self._files, self._directory, run)
                self._verified.add(run.file)
            paths.append(self._directory / "runs" / run.file)
        return tuple(paths)

    def pin(self, names: Sequence[str]) -> None:
        """Keep files until they are unpinned as often."""
        with self._lock:
            self._pins.update(names)

    def unpin(self, names: Sequence[str]) -> None:
        """Let go of files; those that were removed meanwhile go now."""
        with self._lock:
            self._pins.subtract(names)
            free = [name for name in names if self._pins[name] <= 0]
            for name in free:
                del self._pins[name]
            self.remove([name for name in free if name in self._doomed])

    def remove(self, names: Iterable[str]) -> None:
        """Unlink files that no run names any more, now or when nobody reads them."""
        with self._lock:
            for name in names:
                if self._pins[name] > 0:
                    self._doomed.add(name)
                    continue
                del self._pins[name]
                self._doomed.discard(name)
                self._verified.discard(name)
                with suppress(OSError):  # an orphan then, which the next start removes
                    self._files.unlink(self._directory / "runs" / name)


@dataclass(slots=True, eq=False, weakref_slot=True)
class Snapshot:
    """A stream as it was at one moment: files, and the tail that is in none of them.

    Taking one is quick: no file is read. The files stay on disk until `release`, or until the
    snapshot is forgotten.
    runs: pruned by time, in order of position. tail: batches in order, not pruned;
    tail_positions: of their first rows. end_position: the position after the last tuple.
    """

    runs: tuple[Run, ...]
    tail: tuple[pa.RecordBatch, ...]
    tail_positions: tuple[int, ...]
    end_position: int
    files: RunFiles
    _finalizer: weakref.finalize[..., Snapshot] = field(init=False)

    def __post_init__(self) -> None:
        """Keep the files of the runs on disk."""
        names = [run.file for run in self.runs]
        self.files.pin(names)
        self._finalizer = weakref.finalize(self, self.files.unpin, names)
        self._finalizer.atexit = False

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files of the runs; each one's checksum is verified before its first use.

        That reads whole files, about 2 GB/s from the page cache: not for the apply thread.

        Raises:
          CorruptData: a file is damaged or missing.
          StorageFailed: a file cannot be read.
        """
        return self.files.verified(self.runs)

    def release(self) -> None:
        """Let retention delete the files."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
