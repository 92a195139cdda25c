"""Past of a row query: its state, made again from the archive and the tail of the log."""

from __future__ import annotations

from collections.abc import Mapping

from shedder.archive.tables.table_rows import TableRows
from shedder.engine.dataflow.past_replay import PastStretch, replay
from shedder.engine.dataflow.row_input import Scan
from shedder.engine.dataflow.row_query import RowQuery
from shedder.engine.dataflow.row_state import RowState
from shedder.errors import CorruptData


def restore(
    query: RowQuery,
    state: RowState,
    scans: Mapping[int, Scan],
    tables: Mapping[str, TableRows],
) -> None:
    """Bring a query that has read nothing to the state that a checkpoint has of it.

    Tuples are read twice around the frontier `begin`: those before it make the operators' state,
    and those after it make the kept rows. Rows depend on (event time, position) alone, so they are
    the rows that the query made before, with the same numbers.

    Args:
      query: whose inputs have read nothing. state: as stored.
      scans: by the id of a stream; each reads all tuples that the log had at `state.now`.
      tables: their rows as of `state.now`, by alias.

    Raises:
      CorruptData: tuples are missing, or others than before.
    """
    _restore_inputs(query, state)
    query.begin_clock(state.now.as_of_us)
    if state.failed:
        query.output.begin_at(state.now.rows)
        query.fail(state.failed)
        return
    if state.unmatched is not None:
        query.count_unmatched(state.now.as_of_us, state.unmatched)
    begin = state.begin
    query.tables.restore(state.tables, tables, begin.begin_us)
    stretches = {
        each.alias: PastStretch(
            0,
            begin.inputs[each.alias].position,
            each.needs_from_us(begin.as_of_us),
            begin.inputs[each.alias].watermark_us,
        )
        for each in query.inputs
    }
    replay(query, stretches, scans)
    query.resume(begin)
    for each in query.inputs:
        first, end = (mark.inputs[each.alias].position for mark in (begin, state.now))
        from_us = each.needs_from_us(begin.as_of_us)
        for rows, positions in each.past(scans[each.stream_id], first, end, from_us):
            query.take_past(each.alias, rows, positions)
    query.catch_up(begin, state.now.read_bytes)
    if query.output.rows != state.now.rows:
        raise CorruptData(
            f"query {query.name!r} had made {state.now.rows:,} rows, and the archive yields "
            f"{query.output.rows:,}"
        )


def _restore_inputs(query: RowQuery, state: RowState) -> None:
    """Have the inputs go on from their progress in a state."""
    for each in query.inputs:
        stored, mark = state.inputs[each.alias], state.now.inputs[each.alias]
        each.restore(
            from_position=stored.from_position,
            position=mark.position,
            watermark_us=mark.watermark_us,
            late=stored.late,
            dropped=stored.dropped,
            lost=stored.lost,
            late_rows=stored.late_rows,
            newest_us=state.tables.newest_us.get(each.alias),
            unread_us=stored.unread_us,
            is_idle=stored.is_idle,
        )
