"""The files of runs: verified before use, kept while they are read, removed after the last read."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Final

import pyarrow as pa

from shedder.archive.encoding.run_writer import RunPlace
from shedder.archive.files.durable_marks import DurableMarks
from shedder.archive.files.file_system import Files, unused
from shedder.archive.layouts.block_coalescing import SmallBlocks
from shedder.archive.layouts.blocks import Block, Wanted, read_blocks, read_groups
from shedder.archive.layouts.checksummed_file import Footers
from shedder.archive.layouts.file_handle_cache import OpenFiles, opened
from shedder.archive.metadata.catalog_entries import Run
from shedder.archive.runs.run_format import verify_file, verify_run
from shedder.archive.tasks.progress import ProgressCallback, no_progress
from shedder.errors import CorruptData, StorageFailed

AHEAD_ROWS: Final = 2_048  # Rows of each run that are read before the first query asks for them.


class RunFiles:
    """What is below `runs/` in a data directory. Any thread may call it.

    verify: compare each file's checksum with the catalog's before its first use. marks: of the
    directory; they are durable before a file goes that a commit has replaced.

    A file that a commit has replaced goes in two steps. `retire` notes its name under the store's
    lock; `remove_retired` makes the marks durable and unlinks it, outside that lock.
    """

    def __init__(
        self, files: Files, directory: Path, *, verify: bool, marks: DurableMarks | None = None
    ) -> None:
        self._files = files
        self._directory = directory
        self._root = directory / "runs"
        self._verify = verify
        self._marks = marks
        self._lock = threading.RLock()  # a snapshot may be collected, and unpin, at any moment
        self._pins: Counter[str] = Counter()
        self._retired: set[str] = set()  # The marks of their commits may not be durable yet.
        self._doomed: set[str] = set()  # They may go, and are pinned or kept.
        self._verified: set[str] = set()
        self._keepers = 0
        self._footers = Footers()
        self._open = OpenFiles()
        self._small = SmallBlocks()
        self._path = lru_cache(1024)(self._root.joinpath)  # Of each run in each scan.

    def place(self, on_progress: ProgressCallback = no_progress) -> RunPlace:
        """Return a place for new runs below `runs/`."""
        return RunPlace(self._files, self._directory, on_progress)

    def verify(self, run: Run, on_progress: Callable[[int], None] | None = None) -> None:
        """Read a run's file against its checksum, whether it was verified before or not.

        Raises:
          CorruptData, StorageFailed.
        """
        verify_run(self._files, self._directory, run, on_progress)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """No file is removed meanwhile."""
        with self._lock:
            self._keepers += 1
        try:
            yield
        finally:
            with self._lock:
                self._keepers -= 1
                if not self._keepers:
                    self._unlink(sorted(self._doomed))

    def recover(self, runs: Sequence[Run]) -> tuple[tuple[str, ...], tuple[Run, ...]]:
        """Compare the files below `runs/` with some runs; nothing is changed.

        Returns:
          the Parquet files of none of the runs, and the runs whose file is missing or has the
          wrong size.
        """
        root = self._root
        sizes = {
            f"{folder}/{name}": (root / folder / name).stat().st_size
            for folder in self._files.names(root)
            if (root / folder).is_dir()
            for name in self._files.names(root / folder)
            if name.endswith(".parquet")
        }
        orphans = tuple(sorted(sizes.keys() - {name for run in runs for name in run.files}))
        missing = tuple(run for run in runs if sizes.get(run.file, -1) != run.size_bytes)
        return orphans, missing

    def sync_marks(self) -> bool:
        """Make the catalog's mark durable; False: replaced files must not be removed."""
        return self._marks is None or self._marks.sync()

    def trust(self, run: Run) -> None:
        """This process has just written the file."""
        self._verified.update(run.files)

    def trust_name(self, name: str) -> None:
        """This process has just written the file of this name."""
        self._verified.add(name)

    def verified(
        self, runs: Iterable[Run], on_progress: Callable[[int], None] | None = None
    ) -> tuple[Path, ...]:
        """Return the files of runs; on_progress: as in `verify_run`.

        Raises:
          CorruptData: one is damaged or missing.
          StorageFailed: one cannot be read.
        """
        paths = []
        for run in runs:
            if self._verify and run.file not in self._verified:
                verify_run(self._files, self._directory, run, on_progress)
                self._verified.add(run.file)
            paths.append(self._root / run.file)
        return tuple(paths)

    def read_blocks(
        self,
        run: Run,
        numbers: Sequence[int],
        wanted: Wanted,
        on_progress: ProgressCallback = no_progress,
    ) -> Iterator[Block]:
        """See Snapshot.read_blocks. A file of version 1 is verified as a whole before."""
        if run.footer is None:
            self.verified((run,))
        stored_bytes = partial(self._stored_bytes, run, wanted)
        are_small = SmallBlocks.fit(run, numbers, wanted)
        if are_small and (known := self._small.find(run, numbers, wanted, stored_bytes)):
            return iter(known)
        kept = self._footers, on_progress, self._open
        blocks = read_blocks(self._files, self._path(run.file), run, numbers, wanted, *kept)
        return self._small.keeping(wanted, blocks, stored_bytes) if are_small else blocks

    def _stored_bytes(self, run: Run, wanted: Wanted, number: int) -> int:
        """What a block's wanted columns take in the file; 0 in one of version 1."""
        footer = self._footers.find(run)
        stretches = [] if footer is None else footer.stretches([number], wanted.read)
        return sum(size for _, size in stretches)

    def open_ahead(self, run: Run) -> None:
        """Open a run's file for partial reads, and read its smallest blocks, with which most
        queries begin. A damaged file is found then.
        """
        if not run.is_dealt or run.footer is None:
            return
        path, numbers, rows = self._path(run.file), [], 0
        for number in run.small_blocks.tolist():
            rows += int(run.block_sizes[number])
            if rows > AHEAD_ROWS:
                break
            numbers.append(number)
        with suppress(CorruptData, StorageFailed):
            with opened(self._files, path, run, self._footers, self._open) as (_, checked):
                assert checked.footer is not None
                names = tuple(checked.footer.schema.names)
            wanted = Wanted(names[0], names)
            kept = self._footers, no_progress, self._open
            for block in read_blocks(self._files, path, run, numbers, wanted, *kept):
                self._small.hold_whole(block)

    def distrust(self, run: Run) -> None:
        """A part of the file was found to be damaged: verify it before its next use."""
        self._footers.forget()
        self._open.forget(run.file)
        self._small.forget(run.file)
        self._verified.discard(run.file)

    def damaged(
        self, runs: Iterable[Run], on_progress: Callable[[int], None] | None = None
    ) -> list[tuple[Run, str]]:
        """Those of some runs whose files are not what they were, and what is wrong.

        Raises:
          StorageFailed: one cannot be read, which is no proof of damage.
        """
        found = []
        for run in runs:
            try:
                self.verified((run,), on_progress)
            except CorruptData as error:
                found.append((run, str(error)))
        return found

    def set_aside(self, run: Run) -> bool:
        """Keep what is left of a damaged file in quarantine/; False when that does not work."""
        self._verified.discard(run.file)
        self._open.forget(run.file)
        self._small.forget(run.file)
        aside = self._aside(run)
        try:
            if aside.exists() and not aside.samefile(self._root / run.file):
                self._files.rename(aside, unused(self._files, aside))  # Of an older run, perhaps.
            if not aside.exists():
                self._files.link(self._root / run.file, aside)
                self._files.sync_directory(aside.parent)
        except OSError:  # It is gone, or must stay where it is; no query reads it there.
            return False
        return True

    def take_back(self, run: Run, on_progress: Callable[[int], None] | None = None) -> None:
        """Give a file that was set aside its name back, if it is whole and the name is free.

        Raises:
          StorageFailed: it cannot be read, or not be put back.
        """
        name, aside = self._root / run.file, self._aside(run)
        self.unretire([run.file])  # What is there by now may be a good copy.
        if name.exists() or not aside.exists():
            return
        with suppress(CorruptData):
            verify_file(self._files, aside, run, on_progress)
            try:
                self._files.link(aside, name)
                self._files.sync_directory(name.parent)
                self._files.unlink(aside)
            except OSError as error:
                raise StorageFailed(f"cannot put {aside} back: {error}") from error

    def _aside(self, run: Run) -> Path:
        return self._directory / "quarantine" / run.file.replace("/", "-")

    def read_groups(
        self, run: Run, groups: Sequence[int] | None, wanted: Wanted
    ) -> Iterator[pa.Table]:
        """See Snapshot.read_groups. A file of version 1 is verified as a whole before."""
        if run.footer is None:
            self.verified((run,))
        return read_groups(self._files, self._root / run.file, run, groups, wanted)

    def close(self) -> None:
        """Close all open files; a later read opens its file again."""
        self._open.forget()

    def pin(self, names: Sequence[str]) -> None:
        """Keep files until they are unpinned as often."""
        with self._lock:
            self._pins.update(names)

    @property
    def pinned(self) -> frozenset[str]:
        """The files that are pinned now; a removed file stays until it is unpinned."""
        with self._lock:
            return frozenset(+self._pins)

    def unpin(self, names: Sequence[str]) -> None:
        """Let go of files; those that were removed meanwhile go now."""
        with self._lock:
            self._pins.subtract(names)
            free = [name for name in names if self._pins[name] <= 0]
            for name in free:
                del self._pins[name]
            self._unlink([name for name in free if name in self._doomed])

    def retire(self, names: Iterable[str]) -> None:
        """Note files that a commit has replaced; `remove_retired` removes them.

        It costs no fsync: call it under the lock of that commit. Until then no other file can get
        one of the names: new files get names that are free, and the files of a backfill `unretire`.
        """
        with self._lock:
            self._retired.update(name for name in names if (self._root / name).exists())

    def unretire(self, names: Iterable[str]) -> None:
        """Do not remove files of these names: each name is given anew, or its file was mended."""
        with self._lock:
            for name in names:
                self._retired.discard(name)
                self._doomed.discard(name)

    def remove_retired(self) -> None:
        """Unlink retired files once the marks are durable, now or after the last reader.

        It calls fsync: no lock of the store is held. After a failed fsync the names stay retired
        for the next call; a restart removes their files as orphans.
        """
        with self._lock:
            names = sorted(self._retired)
        if names and self.sync_marks():
            with self._lock:
                names = [name for name in names if name in self._retired]
                self._retired.difference_update(names)
                self._unlink(names)

    def discard(self, names: Iterable[str]) -> None:
        """Unlink files that no commit has named, now or after the last reader."""
        with self._lock:
            self._unlink(names)

    def _unlink(self, names: Iterable[str]) -> None:
        """Unlink files, but doom those that are read. The lock is held."""
        for name in names:
            if self._keepers or self._pins[name] > 0:
                if (self._root / name).exists():
                    self._doomed.add(name)  # Else the name is free, for one that is made anew.
                continue
            del self._pins[name]
            self._doomed.discard(name)
            self._verified.discard(name)
            self._open.forget(name)
            self._small.forget(name)
            with suppress(OSError):  # an orphan then, which the next start removes
                self._files.unlink(self._root / name)
