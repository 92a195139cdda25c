"""Past of a row query: a new query reads that of its windows, a restored one that of its state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

import pyarrow as pa

from shedder.archive.metadata.catalog_entries import QueryEntry
from shedder.archive.store.scan import Live
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
from shedder.engine.rebuild.table_pasts import TableMoment, TablePasts
from shedder.engine.standing_queries.stream_state import Stream

LEFT_ROWS = 1 << 18  # What the apply thread may read itself: some hundredths of a second.
ROUNDS_MAX = 8  # A stream that outruns the reader is not chased for ever.


class WindowPast:
    """Tuples of the past that the windows of a new query need, read while its streams go on."""

    def __init__(self, core: EngineState, query: RowQuery) -> None:
        self._core = core
        self._query = query
        self._inputs = [each for each in query.inputs if each.reads_past]
        # A tuple that comes after the watermark was looked at is not older than it, or is late.
        self._closed_us = {it.alias: self._stream(it).watermark_us for it in query.inputs}
        self._read = {each.alias: self._stream(each).position for each in self._inputs}
        self._tables: TablePasts | None = None
        known = [us for us in self._closed_us.values() if us is not None]
        as_of_us = min(known) if known and len(known) == len(query.inputs) else None
        self._from_us = {each.alias: each.needs_from_us(as_of_us) for each in self._inputs}

    def catch_up(self) -> None:
        """Read until little is left, so that the apply thread reads the rest quickly."""
        first_positions = self._core.executor.call(self._begin, urgent=True).result()
        needed = self._first_needed(first_positions)
        self._read, tables = self._core.executor.call(
            lambda: self._moment(needed), urgent=True
        ).result()
        self._load(tables)
        ends, from_us, closed_us = self._read, self._from_us, self._closed_us
        stretches = {it: PastStretch(0, ends[it], from_us[it], closed_us[it]) for it in ends}
        scans = {it.stream_id: scan_of(self._core, it.stream_id) for it in self._inputs}
        replay(self._query, stretches, scans)
        for _ in range(ROUNDS_MAX):
            if self._left_rows() < LEFT_ROWS:
                return
            self._read_to(self._core.executor.call(self._moment, urgent=True).result())

    def read_on(self) -> None:
        """Read what is left: what the streams have applied since. On the apply thread."""
        self._read_to(self._moment())
        self._query.tables.end_past({each.alias: each.newest_us for each in self._query.inputs})

    def _begin(self) -> dict[str, int]:
        """On the apply thread: return the positions from which versions of tables are known."""
        if not self._inputs or not self._query.tables.has_places:
            return {}
        self._tables = tables = TablePasts(self._core, self._query)
        tables.take()
        self._read = {each.alias: self._stream(each).position for each in self._inputs}
        return {each.alias: tables.first_position(each.stream_id) for each in self._inputs}

    def _first_needed(self, first_positions: Mapping[str, int]) -> dict[int, int]:
        """Return the position of the first tuple that is read, by the id of a stream.

        first_positions: by alias; the tuples before them are left out.
        """
        found = dict[int, int]()
        for each in self._inputs if first_positions else ():
            alias, id_, first = each.alias, each.stream_id, first_positions[each.alias]
            scan, from_us, end = scan_of(self._core, id_), self._from_us[alias], self._read[alias]
            each.read_past_from(first, scan, from_us)
            rows = each.past(scan, first, end, from_us, columns=(each.time_column,))
            found[id_] = min(found.get(id_, end), *(int(it[1][0]) for it in islice(rows, 1)), end)
        return found

    def _moment(
        self, needed: Mapping[int, int] | None = None
    ) -> tuple[dict[str, int], TableMoment | None]:
        """On the apply thread: how far the streams are, and the tables as of there.

        needed: as of `TablePasts.forget`.
        """
        ends = {each.alias: self._stream(each).position for each in self._inputs}
        if self._tables is None:
            return ends, None
        if needed is not None:
            self._tables.forget(needed)
        return ends, self._tables.take()

    def _load(self, tables: TableMoment | None) -> None:
        if tables is not None:
            self._query.tables.load_past(tables.rows, tables.versions(), tables.reached)

    def _read_to(self, moment: tuple[dict[str, int], TableMoment | None]) -> None:
        ends, tables = moment
        self._load(tables)
        for each in self._inputs:
            alias, end = each.alias, ends[each.alias]
            scan, from_us = scan_of(self._core, each.stream_id), self._from_us[alias]
            for rows, positions in each.past(scan, self._read[alias], end, from_us):
                timely = each.without_late(rows, positions, self._closed_us[alias])
                self._query.take_past(alias, *timely)
            self._read[alias] = end

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
    query = new_row_query(core, entry.name, plan, statistics_of(core, plan), parameters)
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
