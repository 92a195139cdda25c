"""Past of a row query: a new query reads that of its windows, a restored one that of its state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

import pyarrow as pa

from shedder.archive.metadata.catalog_entries import QueryEntry
from shedder.archive.store.scan import Live
from shedder.dataflow.tables.table_places import Reached
from shedder.engine.dataflow.followed_changes import FollowedChanges
from shedder.engine.dataflow.past import restore
from shedder.engine.dataflow.past_replay import PastStretch, replay
from shedder.engine.dataflow.row_input import RowInput, Scan
from shedder.engine.dataflow.row_query import RowQuery
from shedder.engine.dataflow.row_state import RowState
from shedder.engine.dataflow.row_writer import RowWriter
from shedder.engine.dataflow.standing_plan import StandingPlan
from shedder.engine.engine_state import EngineState
from shedder.engine.rebuild.row_query_factory import (
    RowParameters,
    new_row_query,
    new_writer,
    statistics_of,
    table_rows,
)
from shedder.engine.rebuild.table_pasts import TablePasts
from shedder.engine.standing_queries.stream_state import Stream

LEFT_ROWS = 1 << 18  # What the apply thread may read itself: some hundredths of a second.
ROUNDS_MAX = 8  # A stream that outruns the reader is not chased for ever.


class WindowPast:
    """Tuples of the past that the windows of a new query need, read while its streams go on.

    The versions of its tables are those of one moment. Changes that come later are followed, so
    the reading ends however fast the tables change.
    """

    def __init__(self, core: EngineState, query: RowQuery) -> None:
        self._core = core
        self._query = query
        self._inputs = [each for each in query.inputs if each.reads_past]
        # A tuple that comes after the watermark was looked at is not older than it, or is late.
        self._closed_us = {it.alias: self._stream(it).watermark_us for it in query.inputs}
        self._read = self._positions()
        known = [us for us in self._closed_us.values() if us is not None]
        as_of_us = min(known) if known and len(known) == len(query.inputs) else None
        self._from_us = {each.alias: each.needs_from_us(as_of_us) for each in self._inputs}
        tables = query.tables.by_alias.values()
        self._changes = FollowedChanges(
            [each.table_id for each in tables if not each.corrects],
            self._reached,
            bytes_max=core.rows.limits.query_bytes_max,
        )

    def catch_up(self) -> None:
        """Read until little is left, so that the apply thread reads the rest quickly.

        Raises:
          BudgetExceeded: the tables change so fast that their changes need too much memory.
        """
        tables = self._core.executor.call(self._begin, urgent=True).result()
        if tables is not None:
            self._load(tables)
        ends, from_us, closed_us = self._read, self._from_us, self._closed_us
        stretches = {it: PastStretch(0, ends[it], from_us[it], closed_us[it]) for it in ends}
        scans = {it.stream_id: scan_of(self._core, it.stream_id) for it in self._inputs}
        replay(self._query, stretches, scans, self._read_changes)
        for _ in range(ROUNDS_MAX):
            if self._left_rows() < LEFT_ROWS:
                return
            self._read_to(self._core.executor.call(self._positions, urgent=True).result())

    def read_on(self) -> None:
        """Read what is left: what the streams have applied since. On the apply thread.

        Raises:
          As `catch_up`.
        """
        self._read_to(self._positions())
        self._query.tables.end_past({each.alias: each.newest_us for each in self._query.inputs})

    def end(self) -> None:
        """Follow no more changes: all are read, or the registration has failed."""
        self._changes.end()

    def _begin(self) -> TablePasts | None:
        """On the apply thread: take the tables of now, and follow their changes.

        None: tuples of the past join no versions.
        """
        self._read = self._positions()
        if not self._inputs or not self._query.tables.has_places:
            return None
        self._core.rows.follow(self._changes)
        return TablePasts(self._core, self._query)

    def _load(self, tables: TablePasts) -> None:
        """Begin with the versions that tuples of the past join."""
        needed = dict[int, int]()  # Position of the first tuple that is read, by id of a stream.
        for each in self._inputs:
            alias, id_, first = each.alias, each.stream_id, tables.first_position(each.stream_id)
            scan, from_us, end = scan_of(self._core, id_), self._from_us[alias], self._read[alias]
            each.read_past_from(first, scan, from_us)
            rows = each.past(scan, first, end, from_us, columns=(each.time_column,))
            firsts = [int(positions[0]) for _, positions in islice(rows, 1)]
            needed[id_] = min(needed.get(id_, end), *firsts, end)
        moment = tables.moment(needed)
        self._query.tables.load_past(moment.rows, moment.versions(), moment.reached)

    def _read_changes(self) -> None:
        self._changes.read(self._query.tables)

    def _read_to(self, ends: Mapping[str, int]) -> None:
        """Read changes of tables, and then tuples. On the apply thread these are all so far."""
        self._read_changes()
        for each in self._inputs:
            alias, end = each.alias, ends[each.alias]
            scan, from_us = scan_of(self._core, each.stream_id), self._from_us[alias]
            for rows, positions in each.past(scan, self._read[alias], end, from_us):
                timely = each.without_late(rows, positions, self._closed_us[alias])
                self._query.take_past(alias, *timely)
            self._read[alias] = end

    def _positions(self) -> dict[str, int]:
        """Return how far the streams of the past are now, by alias."""
        return {each.alias: self._stream(each).position for each in self._inputs}

    def _reached(self) -> dict[str, Reached]:
        """Return how far all streams of the query are now, by alias."""
        inputs = self._query.inputs
        return {each.alias: Reached(self._stream(each).position, None) for each in inputs}

    def _left_rows(self) -> int:
        return sum(self._stream(it).position - self._read[it.alias] for it in self._inputs)

    def _stream(self, each: RowInput) -> Stream:
        return self._core.stream(each.stream)


def restored_row_query(
    core: EngineState, entry: QueryEntry, plan: StandingPlan, state: RowState
) -> tuple[RowQuery, RowWriter | None]:
    """Return a query as a checkpoint has it; a query that cannot be restored has failed.

    The tail must have all tuples that the log had at the checkpoint.
    """
    parameters = RowParameters.of(entry)
    assert parameters is not None
    query = new_row_query(core, entry.name, plan, statistics_of(core, plan), parameters, state)
    scans = {each.stream_id: scan_of(core, each.stream_id) for each in query.inputs}
    writer = new_writer(core, query, parameters.target, stored=state.stored)
    tables = table_rows(core, query)
    query.guard(lambda: restore(query, state, scans, tables))
    return query, writer


def scan_of(core: EngineState, stream_id: int) -> Scan:
    """Return what reads a stream's archive and tail in order of position."""

    def scan(
        from_position: int, from_us: int | None, columns: tuple[str, ...]
    ) -> Iterable[tuple[int, pa.RecordBatch, Live]]:
        return core.store.scan_live(
            stream_id, from_us, columns=columns, from_position=from_position
        )

    return scan
