"""Sources of rows: a stream as one scan of a plan reads it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.archive.exact.relation import ExactRelation, Without
from shedder.archive.layouts.blocks import Wanted
from shedder.archive.metadata.catalog_entries import Run
from shedder.archive.store.snapshot import Snapshot
from shedder.cql.plans.logical_plan import Scan
from shedder.cql.sql.exact_query import POSITION
from shedder.cql.statements.bound_query import StreamSchema
from shedder.queries.one_time.plan import TimeRange
from shedder.streams.batches import arrow_schema
from shedder.streams.frame import Frame
from shedder.streams.windows import Span

_Rows = TypeVar("_Rows", pa.RecordBatch, pa.Table)


@dataclass(frozen=True, slots=True)
class GroupsRead:
    """Row groups that were read, and their rows of the span."""

    groups: int
    rows: int


@dataclass(frozen=True, slots=True, eq=False)
class RowSource:
    """A stream as one scan reads it.

    window: event times of the scan's window.
    span: event times that the plan needs, inside of the window.
    snapshot: runs and tail, pruned to a span that holds this one; the asker releases it.
    stretch: of the window, with what is known of tuples that are in no run.
    outside: runs of the stream that the snapshot leaves out.
    is_ordered: the plan's SQL reads event times and positions.
    """

    scan: Scan
    schema: StreamSchema
    window: Span
    span: Span
    snapshot: Snapshot
    stretch: TimeRange
    outside: int
    is_ordered: bool

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs that may have rows of the span."""
        return tuple(run for run in self.snapshot.runs if self._is_needed(run))

    @property
    def missing(self) -> tuple[Run, ...]:
        """Damaged runs that may have rows of the span."""
        return tuple(run for run in self.snapshot.missing if self._is_needed(run))

    @property
    def not_needed(self) -> frozenset[int]:
        """The first positions of runs without rows of the span."""
        runs = self.snapshot.runs
        return frozenset(run.first_position for run in runs if not self._is_needed(run))

    @property
    def pruned(self) -> int:
        """Runs of the stream that have no row of the span."""
        return self.outside + len(self.not_needed)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read, by the stream's own names: times, too, for span and order."""
        names = [c.name.removeprefix(f"{self.scan.alias}.") for c in self.scan.columns]
        reads_times = self.is_ordered or self.span != Span(None, None)
        return tuple(dict.fromkeys((*names, *[self.schema.time_column] * reads_times)))

    def live_rows(self, run: Run) -> int:
        """The tuples of a run that are not deleted."""
        deleted = self.snapshot.deleted.get(run.first_position)
        return run.rows if deleted is None else run.rows - deleted.rows

    def tail(self) -> Iterator[pa.RecordBatch]:
        """The rows of the tail that are in the span."""
        for batch in self.snapshot.tail:
            inside = self.span.holds(self._times_us(batch))
            rows = batch if inside.all() else batch.filter(pa.array(inside))
            if rows.num_rows:
                yield rows

    def tail_times_us(self) -> NDArray[np.int64]:
        """The event times of the rows of the tail that are in the span."""
        times = [self._times_us(batch) for batch in self.tail()]
        return np.concatenate([np.empty(0, np.int64), *times])

    def relation(self, name: str) -> ExactRelation:
        """All rows of the span as a relation, and perhaps others; ordered ones with positions.

        Raises:
          CorruptData: a file is damaged or missing. StorageFailed: it cannot be read.
        """
        selection = self.snapshot.selection(self.not_needed)
        tail = (
            self.snapshot.tail if self.is_ordered else self.tail()
        )  # Positions follow each other.
        return ExactRelation(
            name,
            self._schema,
            files=selection.ordered,
            dealt=selection.dealt,
            tail=[batch.select(self._schema.names) for batch in tail],
            tail_positions=self.snapshot.tail_positions if self.is_ordered else None,
            without=Without(selection.marked, selection.deleted),
        )

    def with_columns_of(self, other: RowSource) -> RowSource:
        """The source with the columns that another scan reads of the same rows, too."""
        named = {c.name.removeprefix(f"{other.scan.alias}."): c for c in other.scan.columns}
        more = tuple(
            replace(column, name=f"{self.scan.alias}.{name}")
            for name, column in named.items()
            if name not in self.columns
        )
        return replace(self, scan=replace(self.scan, columns=(*self.scan.columns, *more)))

    def first_rows(self, name: str, needed: int) -> tuple[ExactRelation, GroupsRead]:
        """Some rows of the span, if there are so many, and what was read of runs for them.

        Raises:
          CorruptData: what was read is damaged. StorageFailed: it cannot be read.
        """
        of_tail: list[pa.RecordBatch] = []
        of_runs: list[pa.RecordBatch] = []
        for batch in self.tail():
            if needed <= 0:
                break
            of_tail.append(_first(batch.select(self._schema.names), needed))
            needed -= of_tail[-1].num_rows
        groups = rows_read = 0
        for run in reversed(self.runs):
            if needed <= 0:
                break
            for table in self._groups(run):
                groups, rows_read = groups + 1, rows_read + table.num_rows
                rows = _first(table.select(self._schema.names), needed).cast(self._schema)
                of_runs += rows.to_batches()
                needed -= rows.num_rows
                if needed <= 0:
                    break
        relation = ExactRelation(name, self._schema, tail=of_tail, more=of_runs)
        return relation, GroupsRead(groups, rows_read)

    def _groups(self, run: Run) -> Iterator[pa.Table]:
        """The rows of the span of each row group of a run; a group is read when it is taken."""
        columns, span = tuple(self._schema.names), self.span
        if run.first_position in self.snapshot.deleted:
            columns = (*columns, POSITION)
        wanted = Wanted(self.schema.time_column, columns, span.start_us, span.end_us)
        return self.snapshot.read_groups(run, None, wanted)

    @property
    def _schema(self) -> pa.Schema:
        """Of the columns that the scan reads."""
        stored = arrow_schema(self.schema)
        return pa.schema([stored.field(name) for name in self.columns])

    def _times_us(self, batch: pa.RecordBatch) -> NDArray[np.int64]:
        return Frame(batch, self.schema.time_column).times_us

    def _is_needed(self, run: Run) -> bool:
        return run.overlaps(self.span.start_us, self.span.end_us)


def _first(rows: _Rows, needed: int) -> _Rows:
    """The first rows; needed may be more than an int64 holds: LIMIT and OFFSET are added."""
    return rows.slice(0, min(needed, rows.num_rows))
