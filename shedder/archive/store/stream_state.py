"""A stream as the store holds it: its entry, its runs, its tail."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from shedder.archive.catalog.run_annotations import Quarantine, Scans
from shedder.archive.metadata.catalog_entries import Rolled, RollupEntry, Run, StreamEntry
from shedder.archive.metadata.deleted_positions import Deleted, Deletion
from shedder.archive.metadata.position_gaps import PositionRange
from shedder.archive.store.tail import Tail
from shedder.cql.binding.parse import parse
from shedder.cql.binding.rollup_definition import Rollup, rollup_of
from shedder.cql.statements.statement import Select


@dataclass(slots=True, eq=False)
class StreamState:
    """What the store knows of a stream. cutting: held while a run is written;
    deleting: while rows are being looked for that shall go.

    quarantined: by first position, the runs that are damaged; they are among `runs`, too. scans: by
    first position, how runs of a lazy stream were scanned. rewriting: held while a run is written
    anew. deleted: by first position, rows that are read no more; marked_us: and since when (us) a
    run has any. deletions: all there ever were.
    emptied_position: below it lie all runs that were purged to nothing. indexes: columns that have
    a value index. indexes_to_be: how many are making one of a column. rollups: by id. unrolled:
    first positions of runs that were read where a lazy rollup would have answered, each with its
    id. rolled_scans: by first position and rollup, how runs that have partial aggregates of a lazy
    one were scanned since. scrubbed: by first position, when a scrub in the background found the
    run whole. backfilled: rows that came in by backfills, ever.
    holes: positions that were lost with damaged bytes of the log, as recovery found them.
    """

    entry: StreamEntry
    runs: list[Run]
    quarantined: dict[int, Quarantine] = field(default_factory=dict)
    scans: dict[int, Scans] = field(default_factory=dict)
    rewriting: threading.Lock = field(default_factory=threading.Lock)
    deleted: dict[int, Deleted] = field(default_factory=dict)
    marked_us: dict[int, int] = field(default_factory=dict)
    scrubbed: dict[int, int] = field(default_factory=dict)
    deletions: list[Deletion] = field(default_factory=list)
    emptied_position: int = 0
    backfilled: int = 0
    holes: tuple[PositionRange, ...] = ()
    indexes: tuple[str, ...] = ()
    indexes_to_be: Counter[str] = field(default_factory=Counter)
    rollups: dict[int, tuple[RollupEntry, Rollup]] = field(default_factory=dict)
    unrolled: set[tuple[int, int]] = field(default_factory=set)
    rolled_scans: dict[int, dict[int, Scans]] = field(default_factory=dict)
    tail: Tail = field(default_factory=Tail)
    cutting: threading.Lock = field(default_factory=threading.Lock)
    deleting: threading.Lock = field(default_factory=threading.Lock)

    @property
    def covered(self) -> int:
        """All tuples below this position are in a run, or were removed from one, or with it."""
        in_runs = self.runs[-1].end_position if self.runs else 0
        return max(in_runs, self.emptied_position, self.entry.retained_position)

    def replace_entry(self, entry: StreamEntry) -> None:
        """Take the entry that the catalog has now."""
        self.entry = entry

    def note_emptied(self, end_position: int) -> None:
        """Note that a run that ended at this position was purged of all of its rows."""
        self.emptied_position = max(self.emptied_position, end_position)

    def note_backfilled(self, rows: int) -> None:
        """Count rows that came in by a backfill."""
        self.backfilled += rows

    def note_holes(self, holes: tuple[PositionRange, ...]) -> None:
        """Note the positions that were lost with damaged bytes of the log."""
        self.holes = holes

    def add_backfilled(self, runs: Sequence[Run]) -> None:
        """Add the runs of a backfill in the order of position."""
        self.runs = sorted([*runs, *self.runs], key=lambda run: run.first_position)
        self.note_backfilled(sum(run.rows for run in runs))

    def drop_runs(self, runs: Sequence[Run]) -> None:
        """Drop runs, and all that is noted of them."""
        dropped = {run.first_position for run in runs}
        self.runs = [run for run in self.runs if run.first_position not in dropped]
        for run in runs:
            self.forget(run)

    def forget(self, run: Run) -> None:
        """Forget all that is noted of a run which goes, or whose rows change."""
        self.forget_file(run)
        self.rolled_scans.pop(run.first_position, None)
        self.deleted.pop(run.first_position, None)
        self.marked_us.pop(run.first_position, None)

    def forget_file(self, run: Run) -> None:
        """Forget what is noted of a run's file, which another file with the same rows replaces."""
        self.quarantined.pop(run.first_position, None)
        self.scans.pop(run.first_position, None)
        self.scrubbed.pop(run.first_position, None)

    def add_index(self, column: str) -> None:
        """Give a column a value index."""
        self.indexes = (*self.indexes, column)

    def drop_index(self, column: str) -> None:
        """Take a column's value index away."""
        self.indexes = tuple(name for name in self.indexes if name != column)

    def begin_index(self, column: str) -> None:
        """Count one more caller that makes an index of a column."""
        self.indexes_to_be[column] += 1

    def end_index(self, column: str) -> None:
        """Count one caller less that makes an index of a column."""
        self.indexes_to_be[column] -= 1
        self.indexes_to_be += Counter()  # Removes columns whose count is 0.

    def want_rolled(self, rollup_id: int, runs: Sequence[Run]) -> None:
        """Note runs that were read where a lazy rollup would have answered."""
        self.unrolled |= {(run.first_position, rollup_id) for run in runs}

    def drop_rollup(self, rollup_id: int) -> list[Rolled]:
        """Drop a rollup and its partial aggregates; returns these."""
        self.rollups.pop(rollup_id, None)
        self.unrolled = {each for each in self.unrolled if each[1] != rollup_id}
        dropped = [each for run in self.runs for each in run.rolled if each.rollup_id == rollup_id]
        for at, run in enumerate(self.runs):
            kept = tuple(each for each in run.rolled if each.rollup_id != rollup_id)
            self.runs[at] = replace(run, rolled=kept)
        return dropped

    def readable(self, run: Run) -> bool:
        """Return whether a run is whole, as far as is known."""
        return run.first_position not in self.quarantined

    def recover_marked_us(self) -> None:
        """Since when runs have deleted rows, as far back as it may be: that is stored nowhere."""
        for run in self.runs:
            if run.first_position in self.deleted:
                overlapping = (d for d in self.deletions if d.overlaps(run.low_us, run.high_us + 1))
                self.marked_us[run.first_position] = min(d.deleted_us for d in overlapping)

    def recover_rollup(self, entry: RollupEntry) -> None:
        """Add a rollup of the catalog."""
        select = parse(entry.text)
        assert isinstance(select, Select)
        self.rollups[entry.id] = (entry, rollup_of(select, self.entry.schema))

    @property
    def wanted_indexes(self) -> tuple[str, ...]:
        """The columns of which files of indexes are kept."""
        return (*self.indexes, *(name for name in self.indexes_to_be if name not in self.indexes))

    @property
    def end_position(self) -> int:
        """The position that the next tuple gets."""
        pieces = self.tail.pieces
        return max(self.covered, pieces[-1].end_position if pieces else 0)
