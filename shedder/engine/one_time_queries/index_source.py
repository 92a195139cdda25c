"""Value indexes as a source of one-time queries: few row groups instead of all files."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.archive.archive_store import Store
from shedder.archive.indexes.value_index import Ranges, keys_of
from shedder.archive.layouts.blocks import Wanted
from shedder.archive.metadata.catalog_entries import Run
from shedder.archive.store.snapshot import Snapshot
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.evaluate import evaluate, true_rows
from shedder.cql.expressions.expression import Expression
from shedder.cql.expressions.predicate_ranges import ValueRange, value_ranges_of
from shedder.cql.sql.exact_query import POSITION
from shedder.cql.statements.bound_query import StreamSchema
from shedder.engine.one_time_queries.rollup_source import SMALL_SHARE
from shedder.errors import CorruptData
from shedder.queries.one_time.plan import PlanStep, Source
from shedder.streams.windows import Span

GROUPS_SHARE = 1 / 16
"""More of a run's row groups than this are read faster as a whole, by DuckDB's threads."""
ROWS_MAX = 1 << 20  # That are looked up; what is left then is read as a whole.
BYTES_MAX = 1 << 26  # Of these rows: they are held in memory, and sent to the exact worker.

_ENDS = (-(1 << 63), (1 << 63) - 1)


@dataclass(frozen=True, slots=True, eq=False)
class LookedUp:
    """Rows that value indexes have found, and the runs that need no other scan.

    rows: rows that WHERE keeps, of `columns` and POSITION.
    done: runs whose rows are complete, by first position; no scan reads them.
    read: tuples that were read to find the rows.
    """

    rows: tuple[pa.RecordBatch, ...] = ()
    done: frozenset[int] = frozenset()
    read: int = 0
    column: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class WantedRows:
    """Rows of a stream that a question wants.

    where: a condition that all of them meet, by the stream's own names; None: none is known.
    snapshot: the archive; the asker releases it. span: event times of the rows.
    check: raises if the question has been given up.
    not_needed: first positions of runs that have none of them.
    """

    schema: StreamSchema
    where: Expression | None
    snapshot: Snapshot
    check: Callable[[], None]
    span: Span = field(default_factory=lambda: Span(None, None))
    not_needed: Container[int] = frozenset()

    @property
    def runs(self) -> list[Run]:
        """The runs that may have some."""
        return [run for run in self.snapshot.runs if run.first_position not in self.not_needed]


def usable(store: Store, stream: int, wanted: WantedRows) -> tuple[str, Ranges] | None:
    """The column whose index is asked for rows, and for which keys; None: none is of use."""
    indexed = store.indexes.columns(stream)
    if not indexed:
        return None
    said = {name: s for name, s in value_ranges_of(wanted.where).items() if name in indexed}
    if not said:
        return None
    name = min(said, key=lambda name: (any(s.low != s.high for s in said[name]), name))
    types = {column.name: column.type for column in wanted.schema.columns}
    return name, _ranges(said[name], types[name])


@dataclass(frozen=True, slots=True, eq=False)
class Lookup:
    """How a question is answered by an index: which row groups are read of runs.

    groups: by first position, of the runs of which little is read; others are read as a whole.
    """

    column: str
    groups: Mapping[int, NDArray[np.uint16]]
    wanted: WantedRows

    @property
    def read(self) -> int:
        """Tuples of runs that are read, about."""
        of_runs = ((run, self.groups.get(run.first_position)) for run in self.wanted.runs)
        return sum(
            run.rows if groups is None else run.rows * len(groups) // run.blocks
            for run, groups in of_runs
        )

    @property
    def is_small(self) -> bool:
        """Return whether the index is better, whatever the target: a small part lacks rare rows."""
        return self.read <= SMALL_SHARE * sum(run.rows for run in self.wanted.runs)

    @property
    def text(self) -> str:
        """What is left out."""
        rows = sum(run.rows for run in self.wanted.runs)
        return f"{self.column}: about {self.read:,} of {rows:,} tuples in runs are read"

    @property
    def step(self) -> PlanStep:
        """As a step of a plan."""
        reason = "what WHERE keeps is in few row groups, which it names"
        tail = sum(batch.num_rows for batch in self.wanted.snapshot.tail)
        return PlanStep(Source.INDEX, self.column, reason, self.read + tail, self.text)


def planned(store: Store, stream: int, wanted: WantedRows) -> Lookup | None:
    """What the index says of a condition; None: no index leaves out any of a run.

    store, stream: whose indexes.
    """
    use = usable(store, stream, wanted)
    if use is None:
        return None
    name, ranges = use
    found: dict[int, NDArray[np.uint16]] = {}
    for run in wanted.runs:
        wanted.check()
        groups = store.indexes.look_up(run, name, ranges)
        if groups is not None and _is_little(run, len(groups)):
            found[run.first_position] = groups
    return Lookup(name, found, wanted) if found else None


def look_up(lookup: Lookup | None, columns: Sequence[str]) -> LookedUp:
    """Read what WHERE keeps of those runs whose index says that little of them is needed.

    A run with damaged row groups is left to the full scan, which reports the damage.

    Args:
      lookup: see `planned`.
      columns: that are wanted, those of the condition among them.

    Raises:
      StorageFailed: a run cannot be read.
    """
    if lookup is None:
        return LookedUp()
    wanted, where, span = lookup.wanted, lookup.wanted.where, lookup.wanted.span
    assert where is not None  # Else no index is of use.
    names = tuple(dict.fromkeys((*columns, POSITION)))
    blocks = Wanted(wanted.schema.time_column, names, span.start_us, span.end_us)
    kept: list[pa.RecordBatch] = []
    done: set[int] = set()
    rows = read = size_bytes = 0
    for run in wanted.runs:
        wanted.check()
        groups = lookup.groups.get(run.first_position)
        if groups is None or rows > ROWS_MAX or size_bytes > BYTES_MAX:
            continue
        try:
            numbers = [int(group) for group in groups]
            for table in wanted.snapshot.read_groups(run, numbers, blocks):
                read += table.num_rows
                for batch in table.to_batches():
                    found = batch.filter(pa.array(true_rows(evaluate(where, batch))))
                    if found.num_rows:
                        kept.append(found)
                        rows += found.num_rows
                        size_bytes += found.nbytes
        except CorruptData:
            kept = [batch for batch in kept if not _is_of(run, batch)]
            continue
        done.add(run.first_position)
    return LookedUp(tuple(kept), frozenset(done), read, lookup.column)


def _is_little(run: Run, groups: int) -> bool:
    """Return whether so many row groups are few; a run in order of position has only large ones."""
    return not groups or (run.is_dealt and groups <= GROUPS_SHARE * run.blocks)


def _is_of(run: Run, batch: pa.RecordBatch) -> bool:
    first = batch.column(POSITION)[0].as_py()
    return bool(run.first_position <= first < run.end_position)


def _ranges(ranges: Sequence[ValueRange], kind: ColumnType) -> Ranges:
    return [(_key(each.low, kind, _ENDS[0]), _key(each.high, kind, _ENDS[1])) for each in ranges]


def _key(value: float | str | None, kind: ColumnType, end: int) -> int:
    """The key of a constant, which need not fit the column."""
    if value is None:
        return end
    if kind in (ColumnType.INTEGER, ColumnType.BIGINT, ColumnType.TIMESTAMP, ColumnType.DATE):
        return int(np.clip(value, *_ENDS)) if isinstance(value, float) else int(value)
    return int(keys_of(pa.array([value], kind.arrow), kind)[0])
