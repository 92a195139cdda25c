"""A stream as the store holds it: its entry, its runs, its tail."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field

from shedder.archive.catalog.run_annotations import Quarantine, Scans
from shedder.archive.metadata.catalog_entries import RollupEntry, Run, StreamEntry
from shedder.archive.metadata.deleted_positions import Deleted, Deletion
from shedder.archive.metadata.position_gaps import Stretch
from shedder.archive.store.tail import Tail
from shedder.cql.binding.rollup_definition import Rollup


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
    holes: tuple[Stretch, ...] = ()
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

    def readable(self, run: Run) -> bool:
        """Whether a run is whole, as far as is known."""
        return run.first_position not in self.quarantined

    def recover_marked_us(self) -> None:
        """Since when runs have deleted rows, as far back as it may be: that is stored nowhere."""
        for run in self.runs:
            if run.first_position in self.deleted:
                overlapping = (d for d in self.deletions if d.overlaps(run.low_us, run.high_us + 1))
                self.marked_us[run.first_position] = min(d.deleted_us for d in overlapping)

    @property
    def wanted_indexes(self) -> tuple[str, ...]:
        """The columns of which files of indexes are kept."""
        return (*self.indexes, *(name for name in self.indexes_to_be if name not in self.indexes))

    @property
    def end_position(self) -> int:
        """The position that the next tuple gets."""
        pieces = self.tail.pieces
        return max(self.covered, pieces[-1].end_position if pieces else 0)
