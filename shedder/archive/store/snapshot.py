"""A stream's archive at one moment: which runs, without which rows, and the tail behind them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.archive.layouts.blocks import Block, Wanted
from shedder.archive.layouts.nested_copies import read_shells
from shedder.archive.metadata.catalog_entries import Run
from shedder.archive.metadata.deleted_positions import Deleted
from shedder.archive.metadata.position_gaps import PositionRange
from shedder.archive.runs.run_file_cache import RunFiles
from shedder.archive.tasks.progress import ProgressCallback, no_progress
from shedder.cql.sql.exact_query import LIVE, POSITION


@dataclass(frozen=True, slots=True, eq=False)
class SelectedRuns:
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
    """A stream at one moment: its runs' files, and the tail that is in no file.

    A snapshot is quick, because it reads no file. The files stay on disk until `release`, or until
    the snapshot is garbage.

    runs: pruned by time, in order of position.
    missing: damaged runs that belong to `runs`; an answer from this snapshot has to name them.
    deleted: by first position of a run, the rows to skip.
    tail: batches in order, not pruned.
    tail_positions: positions of their first rows.
    end_position: position after the last tuple.
    holes: positions that were lost with damaged bytes of the log; nothing else is known of them.
    """

    runs: tuple[Run, ...]
    missing: tuple[Run, ...]
    deleted: Mapping[int, Deleted]
    tail: tuple[pa.RecordBatch, ...]
    tail_positions: tuple[int, ...]
    end_position: int
    files: RunFiles
    holes: tuple[PositionRange, ...] = ()
    _finalizer: weakref.finalize[..., Snapshot] = field(init=False)

    def __post_init__(self) -> None:
        """Keep the files of the runs on disk."""
        names = [name for run in (*self.runs, *self.missing) for name in run.files]
        self.files.pin(names)
        self._finalizer = weakref.finalize(self, self.files.unpin, names)
        self._finalizer.atexit = False

    def selection(self, done: Container[int] = frozenset()) -> SelectedRuns:
        """The files of all runs but those that are done with, by first position.

        Raises:
          CorruptData: a file is damaged or missing.
          StorageFailed: a file cannot be read.
        """
        runs = [run for run in self.runs if run.first_position not in done]
        marked = [run for run in runs if run.first_position in self.deleted]
        deleted = [self.deleted[run.first_position].positions(run) for run in marked]
        return SelectedRuns(
            ordered=self.files.verified(run for run in runs if not run.has_positions),
            dealt=self.files.verified(run for run in runs if run.has_positions),
            marked=self.files.verified(marked),
            deleted=np.concatenate([np.empty(0, np.int64), *deleted]),
        )

    def read_blocks(
        self,
        run: Run,
        numbers: Sequence[int],
        wanted: Wanted,
        on_progress: ProgressCallback = no_progress,
    ) -> Iterator[Block]:
        """Yield some blocks of one run; nothing else of its file is read.

        Args:
          run: one of `runs`.
          numbers: numbers of blocks, in [0, run.blocks); any k of them are a simple random sample.
          wanted: columns and event times to read.
          on_progress: called repeatedly; what it raises ends the reading.

        Yields:
          Blocks without the deleted rows, which count in `Block.rows` like rows outside `wanted`.
          If the column LIVE is wanted, blocks with the deleted rows, and LIVE tells them apart.

        Raises:
          CorruptData: the file is missing, or what was read of it fails its checksum.
          StorageFailed: it cannot be read.
        """
        return self._live_blocks(run, run, numbers, wanted, on_progress)

    def read_shells(
        self,
        run: Run,
        numbers: Sequence[int],
        wanted: Wanted,
        seed: int,
        on_progress: ProgressCallback = no_progress,
    ) -> Iterator[Block]:
        """Read some shells of one of the runs (see layouts/nested_copies.py).

        Raises:
          CorruptData, StorageFailed: as `read_blocks`.
        """

        def read(source: Run, of: Wanted) -> Iterator[Block]:
            return self._live_blocks(run, source, [0], of, on_progress)

        return read_shells(read, run, numbers, wanted, seed)

    def _live_blocks(
        self,
        run: Run,
        source: Run,
        numbers: Sequence[int],
        wanted: Wanted,
        on_progress: ProgressCallback = no_progress,
    ) -> Iterator[Block]:
        """Blocks of a run, or of a copy of it, without the rows that are deleted.

        With them where LIVE is wanted: then a block has as many rows as its run's dealing says.
        """
        deleted, marked = self.deleted.get(run.first_position), LIVE in wanted.columns
        stored = tuple(name for name in wanted.columns if name != LIVE)
        if deleted is None and not marked:
            yield from self.files.read_blocks(source, numbers, wanted, on_progress)
            return
        gone = None if deleted is None else deleted.mask(run)
        more = replace(wanted, columns=tuple(dict.fromkeys((*stored, POSITION))))
        for block in self.files.read_blocks(source, numbers, more, on_progress):
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

    def read_groups(
        self, run: Run, groups: Sequence[int] | None, wanted: Wanted
    ) -> Iterator[pa.Table]:
        """Some row groups of one of the runs, without the rows that are deleted.

        Args:
          run: of `runs`.
          groups: numbers of row groups of its file; None: all, each read when it is taken.
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
        on_progress: Callable[[int], None] | None = None,
        done: Container[int] = frozenset(),
    ) -> list[tuple[Run, str]]:
        """Verify the files of runs; those that are damaged become `missing`, and are returned.

        Args:
          on_progress: called with the bytes that were read, every few; what it raises ends the
            reading.
          done: first positions of runs that need not be verified.

        Raises:
          StorageFailed: a file cannot be read.
        """
        runs = [run for run in self.runs if run.first_position not in done]
        damaged = self.files.damaged(runs, on_progress)
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
