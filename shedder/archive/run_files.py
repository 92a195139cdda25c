"""The files of runs: verified before use, kept while they are read, removed when nobody does."""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.archive.deletions import Deleted
from shedder.archive.entries import Run
from shedder.archive.files import Files
from shedder.archive.holes import Stretch
from shedder.archive.layouts.blocks import Block, Wanted, read_blocks, read_groups
from shedder.archive.layouts.checked_file import Footers
from shedder.archive.layouts.open_files import OpenFiles, opened
from shedder.archive.layouts.parts import Part
from shedder.archive.layouts.shells import read_shells
from shedder.archive.layouts.small_blocks import SmallBlocks
from shedder.archive.progress import Told, nobody
from shedder.archive.runs import verify_file, verify_run
from shedder.cql.render import LIVE, POSITION
from shedder.errors import CorruptData, StorageFailed

AHEAD_ROWS: Final = 2_048  # Of each run, which are read before somebody asks.


class RunFiles:
    """What is below `runs/` in a data directory. Any thread may call it.

    verify: compare each file's checksum with the catalog's before its first use.
    """

    def __init__(self, files: Files, directory: Path, *, verify: bool) -> None:
        self._files = files
        self._directory = directory
        self._root = directory / "runs"
        self._verify = verify
        self._lock = threading.RLock()  # a snapshot may be collected, and unpin, at any moment
        self._pins: Counter[str] = Counter()
        self._doomed: set[str] = set()
        self._verified: set[str] = set()
        self._keepers = 0
        self._footers = Footers()
        self._open = OpenFiles()
        self._small = SmallBlocks()
        self._path = lru_cache(1024)(self._root.joinpath)  # Of each run in each scan.

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
                    self.remove(sorted(self._doomed))

    def recover(self, runs: Sequence[Run]) -> tuple[tuple[str, ...], tuple[Run, ...]]:
        """Remove files that are of no run.

        Returns:
          their names, and the runs whose file is missing or has the wrong size.
        """
        root = self._root
        sizes = {
            f"{folder}/{name}": (root / folder / name).stat().st_size
            for folder in self._files.names(root)
            for name in self._files.names(root / folder)
            if name.endswith(".parquet")
        }
        orphans = tuple(sorted(sizes.keys() - {name for run in runs for name in run.files}))
        for name in orphans:
            self._files.unlink(root / name)
        missing = tuple(run for run in runs if sizes.get(run.file, -1) != run.size_bytes)
        return orphans, missing

    def trust(self, run: Run) -> None:
        """This process has just written the file."""
        self._verified.update(run.files)

    def trust_name(self, name: str) -> None:
        """This process has just written the file of this name."""
        self._verified.add(name)

    def verified(
        self, runs: Iterable[Run], told: Callable[[int], None] | None = None
    ) -> tuple[Path, ...]:
        """The files of runs; told as in `verify_run`.

        Raises:
          CorruptData: one is damaged or missing.
          StorageFailed: one cannot be read.
        """
        paths = []
        for run in runs:
            if self._verify and run.file not in self._verified:
                verify_run(self._files, self._directory, run, told)
                self._verified.add(run.file)
            paths.append(self._root / run.file)
        return tuple(paths)

    def read_blocks(
        self, run: Run, numbers: Sequence[int], wanted: Wanted, told: Told = nobody
    ) -> Iterator[Block]:
        """See Snapshot.read_blocks. A file of version 1 is verified as a whole before."""
        if run.footer is None:
            self.verified((run,))
        stored_bytes = partial(self._stored_bytes, run, wanted)
        are_small = SmallBlocks.fit(run, numbers, wanted)
        if are_small and (known := self._small.find(run, numbers, wanted, stored_bytes)):
            return iter(known)
        kept = self._footers, told, self._open
        blocks = read_blocks(self._files, self._path(run.file), run, numbers, wanted, *kept)
        return self._small.keeping(wanted, blocks, stored_bytes) if are_small else blocks

    def _stored_bytes(self, run: Run, wanted: Wanted, number: int) -> int:
        """What a block's wanted columns take in the file; 0 in one of version 1."""
        footer = self._footers.find(run)
        stretches = [] if footer is None else footer.stretches([number], wanted.read)
        return sum(size for _, size in stretches)

    def open_ahead(self, run: Run) -> None:
        """Open a run's file for who asks for a part of it, and read its smallest blocks, which
        most questions begin with; what is wrong with it is found then."""
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
            kept = self._footers, nobody, self._open
            for block in read_blocks(self._files, path, run, numbers, wanted, *kept):
                self._small.hold_whole(block)

    def distrust(self, run: Run) -> None:
        """A part of the file was found to be damaged: verify it before its next use."""
        self._footers.forget()
        self._open.forget(run.file)
        self._small.forget(run.file)
        self._verified.discard(run.file)

    def damaged(
        self, runs: Iterable[Run], told: Callable[[int], None] | None = None
    ) -> list[tuple[Run, str]]:
        """Those of some runs whose files are not what they were, and what is wrong.

        Raises:
          StorageFailed: one cannot be read, which is no proof of damage.
        """
        found = []
        for run in runs:
            try:
                self.verified((run,), told)
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
            if not aside.exists():
                self._files.link(self._root / run.file, aside)
                self._files.sync_directory(aside.parent)
        except OSError:  # It is gone, or must stay where it is: nobody reads it there, either.
            return False
        return True

    def take_back(self, run: Run, told: Callable[[int], None] | None = None) -> None:
        """Give a file that was set aside its name back, if it is whole and the name is free.

        Raises:
          StorageFailed: it cannot be read, or not be put back.
        """
        name, aside = self._root / run.file, self._aside(run)
        if name.exists() or not aside.exists():
            return
        with suppress(CorruptData):
            verify_file(self._files, aside, run, told)
            try:
                self._files.link(aside, name)
                self._files.sync_directory(name.parent)
                self._files.unlink(aside)
            except OSError as error:
                raise StorageFailed(f"cannot put {aside} back: {error}") from error

    def _aside(self, run: Run) -> Path:
        return self._directory / "quarantine" / run.file.replace("/", "-")

    def read_groups(self, run: Run, groups: Sequence[int], wanted: Wanted) -> Iterator[pa.Table]:
        """Some row groups of a run. A file of version 1 is verified as a whole before."""
        if run.footer is None:
            self.verified((run,))
        return read_groups(self._files, self._root / run.file, run, groups, wanted)

    def close(self) -> None:
        """Close what is open; who reads afterwards opens it again."""
        self._open.forget()

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


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """Files of runs that are read as a whole; each one's checksum was verified.

    ordered: a row's place tells its position. dealt: POSITION is a column. marked:
    those of both in which rows are deleted. deleted: the positions of these, int64, in order.
    """

    ordered: tuple[Path, ...]
    dealt: tuple[Path, ...]
    marked: tuple[Path, ...]
    deleted: NDArray[np.int64]


@dataclass(slots=True, eq=False, weakref_slot=True)
class Snapshot:
    """A stream as it was at one moment: files, and the tail that is in none of them.

    Taking one is quick: no file is read. The files stay on disk until `release`, or until the
    snapshot is forgotten.
    runs: pruned by time, in order of position. missing: those that should be among them and are
    damaged: whoever answers from this has to say so. deleted: by first position of a run, its rows
    that are to be skipped. tail: batches in order, not pruned;
    tail_positions: of their first rows. end_position: the position after the last tuple.
    holes: positions that were lost with damaged bytes of the log; of them nothing else is known.
    """

    runs: tuple[Run, ...]
    missing: tuple[Run, ...]
    deleted: Mapping[int, Deleted]
    tail: tuple[pa.RecordBatch, ...]
    tail_positions: tuple[int, ...]
    end_position: int
    files: RunFiles
    holes: tuple[Stretch, ...] = ()
    _finalizer: weakref.finalize[..., Snapshot] = field(init=False)

    def __post_init__(self) -> None:
        """Keep the files of the runs on disk."""
        names = [name for run in (*self.runs, *self.missing) for name in run.files]
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

    def selection(self, done: Container[int] = frozenset()) -> Selection:
        """The files of all runs but those that are done with, by first position.

        Raises:
          CorruptData: a file is damaged or missing.
          StorageFailed: a file cannot be read.
        """
        runs = [run for run in self.runs if run.first_position not in done]
        marked = [run for run in runs if run.first_position in self.deleted]
        deleted = [self.deleted[run.first_position].positions(run) for run in marked]
        return Selection(
            ordered=self.files.verified(run for run in runs if not run.has_positions),
            dealt=self.files.verified(run for run in runs if run.has_positions),
            marked=self.files.verified(marked),
            deleted=np.concatenate([np.empty(0, np.int64), *deleted]),
        )

    def read_blocks(
        self, run: Run, numbers: Sequence[int], wanted: Wanted, told: Told = nobody
    ) -> Iterator[Block]:
        """Some of the blocks of one of the runs; of its file nothing else is read.

        Args:
          run: of `runs`.
          numbers: of blocks, in [0, run.blocks); any k of them are a simple random sample.
          wanted: which columns of them, which event times.
          told: called now and then; what it raises ends the reading.

        Yields:
          without the deleted rows, which count in `Block.rows` as if nobody wanted them; with them
          where the column LIVE is wanted, which tells them apart.

        Raises:
          CorruptData: the file is missing, or what was read of it fails its checksum.
          StorageFailed: it cannot be read.
        """
        return self._live_blocks(run, run, numbers, wanted, told)

    def read_shells(
        self,
        run: Run,
        numbers: Sequence[int],
        wanted: Wanted,
        seed: int,
        told: Told = nobody,
    ) -> Iterator[Block]:
        """Some shells of one of the runs, see layouts/shells.py.

        Raises:
          CorruptData, StorageFailed: as `read_blocks`.
        """

        def read(source: Run, of: Wanted) -> Iterator[Block]:
            return self._live_blocks(run, source, [0], of, told)

        return read_shells(read, run, numbers, wanted, seed)

    def read_part(self, part: Part, wanted: Wanted) -> Iterator[Block]:
        """What a layout gives of a run, see `part_of`; the run itself where a copy is damaged.

        Raises:
          CorruptData: a file is missing, or what was read of it fails its checksum.
          StorageFailed: it cannot be read.
        """
        run = part.run
        if part.copy is not None:
            with suppress(CorruptData):  # the scrub drops it
                return iter(list(self._live_blocks(run, part.source, part.blocks, wanted)))
            return self._live_blocks(run, run, [0], wanted)
        return self._live_blocks(run, run, part.blocks, wanted)

    def _live_blocks(
        self, run: Run, source: Run, numbers: Sequence[int], wanted: Wanted, told: Told = nobody
    ) -> Iterator[Block]:
        """Blocks of a run, or of a copy of it, without the rows that are deleted.

        With them where LIVE is wanted: then a block has as many rows as its run's dealing says.
        """
        deleted, marked = self.deleted.get(run.first_position), LIVE in wanted.columns
        stored = tuple(name for name in wanted.columns if name != LIVE)
        if deleted is None and not marked:
            yield from self.files.read_blocks(source, numbers, wanted, told)
            return
        gone = None if deleted is None else deleted.mask(run)
        more = replace(wanted, columns=tuple(dict.fromkeys((*stored, POSITION))))
        for block in self.files.read_blocks(source, numbers, more, told):
            table = block.table
            if gone is None:
                live = np.ones(table.num_rows, np.bool_)
            else:
                live = ~gone[table[POSITION].to_numpy() - run.first_position]
            if marked:
                table = table.append_column(LIVE, pa.array(live))
            else:
                table = table.filter(pa.array(live))
            yield replace(block, table=table.select(list(wanted.columns)))

    def read_groups(self, run: Run, groups: Sequence[int], wanted: Wanted) -> Iterator[pa.Table]:
        """Some row groups of one of the runs, without the rows that are deleted.

        Args:
          run: of `runs`.
          groups: numbers of row groups of its file.
          wanted: which columns of them, POSITION among them, and which event times.

        Raises:
          CorruptData: the file is missing, or what was read of it fails its checksum.
          StorageFailed: it cannot be read.
        """
        deleted = self.deleted.get(run.first_position)
        gone = None if deleted is None else deleted.mask(run)
        for table in self.files.read_groups(run, groups, wanted):
            if gone is None:
                yield table
            else:
                at = table[POSITION].to_numpy() - run.first_position
                yield table.filter(pa.array(~gone[at]))

    def without_damage(
        self,
        told: Callable[[int], None] | None = None,
        done: Container[int] = frozenset(),
    ) -> list[tuple[Run, str]]:
        """Verify the files of runs; those that are damaged become `missing`, and are returned.

        Args:
          told: called with the bytes that were read, every few; what it raises ends the reading.
          done: first positions of runs that need not be verified.

        Raises:
          StorageFailed: a file cannot be read.
        """
        runs = [run for run in self.runs if run.first_position not in done]
        damaged = self.files.damaged(runs, told)
        bad = {run.first_position for run, _ in damaged}
        self.missing = (*self.missing, *(run for run, _ in damaged))
        self.runs = tuple(run for run in self.runs if run.first_position not in bad)
        return damaged

    def release(self) -> None:
        """Let retention delete the files."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
