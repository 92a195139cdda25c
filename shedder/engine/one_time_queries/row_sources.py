"""Sources of rows: a stream as one scan of a plan reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.archive.archive_store import Store
from shedder.archive.exact.relation import ExactRelation, Without
from shedder.archive.layouts.blocks import Wanted
from shedder.archive.metadata.catalog_entries import Run
from shedder.archive.store.snapshot import Snapshot
from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.evaluate import evaluate, true_rows
from shedder.cql.expressions.expression import Call, Expression, Op
from shedder.cql.plans.logical_plan import Scan
from shedder.cql.sql.exact_query import POSITION
from shedder.cql.statements.bound_query import StreamSchema
from shedder.engine.one_time_queries.index_source import LookedUp, Lookup, WantedRows, planned
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
    where: a condition that all rows that the plan needs meet, by the stream's own names; None: none
      is known.
    found: rows that a value index has found, of runs that need no other reading.
    """

    stream_id: int
    scan: Scan
    schema: StreamSchema
    window: Span
    span: Span
    snapshot: Snapshot
    stretch: TimeRange
    outside: int
    is_ordered: bool
    where: Expression | None = None
    found: LookedUp = field(default_factory=LookedUp)

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
    def done(self) -> frozenset[int]:
        """The first positions of runs whose files are not read."""
        return self.not_needed | self.found.done

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
        """The rows of the tail that are in the span and meet the condition."""
        for batch in self.snapshot.tail:
            rows = self._kept(batch)
            if rows.num_rows:
                yield rows

    def _kept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        kept = self.span.holds(self._times_us(batch))
        if self.where is not None:
            kept = kept & true_rows(evaluate(self.where, batch))
        return batch if kept.all() else batch.filter(pa.array(kept))

    def tail_times_us(self) -> NDArray[np.int64]:
        """The event times of the rows of the tail that are in the span."""
        times = [self._times_us(batch) for batch in self.tail()]
        return np.concatenate([np.empty(0, np.int64), *times])

    def relation(self, name: str, columns: Sequence[str], tail: RowSource | None) -> ExactRelation:
        """All rows that the plan needs as a relation, and perhaps others; ordered with positions.

        Args:
          name: of the relation.
          columns: of the relation, by the stream's own names.
          tail: whose rows of the tail are in the relation, those of this source or more; None: no
            rows of the tail.

        Raises:
          CorruptData: a file is damaged or missing. StorageFailed: it cannot be read.
        """
        selection = self.snapshot.selection(self.done)
        schema = self._schema_of(columns)
        names = [*schema.names, *[POSITION] * self.is_ordered]
        more = [batch.select(names) for batch in self.found.rows]
        whole: Iterable[pa.RecordBatch] = ()
        positions: Sequence[int] = ()
        if tail is not None and not self.is_ordered:
            whole = tail.tail()
        elif tail is not None and tail.where is None:  # Positions follow each other.
            whole, positions = self.snapshot.tail, self.snapshot.tail_positions
        elif tail is not None:
            more += [batch.select(names) for batch in tail.placed_tail()]
        return ExactRelation(
            name,
            schema,
            files=selection.ordered,
            dealt=selection.dealt,
            tail=[batch.select(schema.names) for batch in whole],
            tail_positions=positions if self.is_ordered else None,
            more=more,
            without=Without(selection.marked, selection.deleted),
        )

    def placed_tail(self) -> Iterator[pa.RecordBatch]:
        """The rows of `tail`, with their positions."""
        for first, batch in zip(self.snapshot.tail_positions, self.snapshot.tail, strict=True):
            positions = pa.array(np.arange(first, first + batch.num_rows))
            rows = self._kept(batch.append_column(POSITION, positions))
            if rows.num_rows:
                yield rows

    def lookup(self, store: Store, check: Callable[[], None]) -> Lookup | None:
        """Return how a value index finds the rows of runs; None: no index is of use.

        check: as of `WantedRows`.
        """
        wanted = WantedRows(
            self.schema, self.where, self.snapshot, check, self.span, self.not_needed
        )
        return planned(store, self.stream_id, wanted)

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
        return self._schema_of(self.columns)

    def _schema_of(self, columns: Sequence[str]) -> pa.Schema:
        stored = arrow_schema(self.schema)
        return pa.schema([stored.field(name) for name in columns])

    def _times_us(self, batch: pa.RecordBatch) -> NDArray[np.int64]:
        return Frame(batch, self.schema.time_column).times_us

    def _is_needed(self, run: Run) -> bool:
        return run.overlaps(self.span.start_us, self.span.end_us)


def hull(spans: Iterable[Span]) -> Span:
    """The shortest span that holds all of these."""
    known = list(spans)
    starts_us = [span.start_us for span in known if span.start_us is not None]
    ends_us = [span.end_us for span in known if span.end_us is not None]
    return Span(
        min(starts_us) if len(starts_us) == len(known) else None,
        max(ends_us) if len(ends_us) == len(known) else None,
    )


def either(conditions: Sequence[Expression | None]) -> Expression | None:
    """A condition that rows meet which meet one of these; None: all rows do."""
    found: Expression | None = None
    for each in dict.fromkeys(conditions):
        if each is None:
            return None
        found = each if found is None else Call(Op.OR, (found, each), ColumnType.BOOLEAN)
    return found


def _first(rows: _Rows, needed: int) -> _Rows:
    """The first rows; needed may be more than an int64 holds: LIMIT and OFFSET are added."""
    return rows.slice(0, min(needed, rows.num_rows))
