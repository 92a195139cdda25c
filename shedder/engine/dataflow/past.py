"""Past of a row query: its state, made again from the archive and the tail of the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.engine.dataflow.row_input import Scan
from shedder.engine.dataflow.row_output import Frontier
from shedder.engine.dataflow.row_query import RowQuery
from shedder.engine.dataflow.row_state import RowState
from shedder.errors import CorruptData


def restore(query: RowQuery, state: RowState, scans: Mapping[int, Scan]) -> None:
    """Bring a query that has read nothing to the state that a checkpoint has of it.

    Tuples are read twice around the frontier `begin`: those before it make the operators' state,
    and those after it make the kept rows. Rows depend on (event time, position) alone, so they are
    the rows that the query made before, with the same numbers.

    Args:
      query: whose inputs have read nothing. state: as stored.
      scans: by the id of a stream; each reads all tuples that the log had at `state.now`.

    Raises:
      CorruptData: tuples are missing, or others than before.
    """
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
        )
    if state.failed:
        query.output.begin_at(state.now.rows)
        query.fail(state.failed)
        return
    query.take_past(_before(query, state.begin, scans))
    query.resume(state.begin)
    query.take_past(_between(query, state, scans))
    query.catch_up(state.begin, state.now.read_bytes)
    if query.output.rows != state.now.rows:
        raise CorruptData(
            f"query {query.name!r} had made {state.now.rows:,} rows, and the archive yields "
            f"{query.output.rows:,}"
        )


def _before(
    query: RowQuery, begin: Frontier, scans: Mapping[int, Scan]
) -> Iterator[tuple[str, pa.RecordBatch, NDArray[np.int64]]]:
    """Tuples before a frontier that the operators' state as of the frontier needs."""
    for each in query.inputs:
        from_us, end = each.needs_from_us(begin.as_of_us), begin.inputs[each.alias].position
        for batch, positions in each.past(scans[each.stream_id], 0, end, from_us):
            yield each.alias, batch, positions


def _between(
    query: RowQuery, state: RowState, scans: Mapping[int, Scan]
) -> Iterator[tuple[str, pa.RecordBatch, NDArray[np.int64]]]:
    """Tuples that came between the two frontiers of a stored state."""
    for each in query.inputs:
        begin, now = (mark.inputs[each.alias].position for mark in (state.begin, state.now))
        from_us = each.needs_from_us(state.begin.as_of_us)
        for batch, positions in each.past(scans[each.stream_id], begin, now, from_us):
            yield each.alias, batch, positions
