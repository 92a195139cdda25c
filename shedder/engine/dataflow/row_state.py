"""State of a row query in a checkpoint: its frontiers, and the late tuples that it left out.

Operators and kept rows are not stored. A restart makes them again from the archive and the log.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from shedder.dataflow.joins.arriving_side import Unmatched
from shedder.engine.dataflow.query_tables import TablesState
from shedder.engine.dataflow.row_input import LateRows, RowInput
from shedder.engine.dataflow.row_output import Frontier, InputFrontier
from shedder.engine.dataflow.row_query import RowQuery
from shedder.streams.ipc import table_bytes


@dataclass(frozen=True, slots=True, eq=False)
class InputState:
    """Stored progress of one input."""

    from_position: int
    late: int
    dropped: int
    lost: int
    late_rows: LateRows
    unread_us: int | None
    is_idle: bool


@dataclass(frozen=True, slots=True, eq=False)
class RowState:
    """Stored state of a row query.

    begin: frontier from which a restart makes the kept rows again. now: frontier of the checkpoint.
    inputs: by alias. tables: what a restart needs of their past.
    failed: why the query makes no more rows; "": it does.
    stored: rows that the query has inserted into its target, as of `now`.
    unmatched: as of `now`; None: the query relies on no foreign key.
    """

    begin: Frontier
    now: Frontier
    inputs: dict[str, InputState]
    tables: TablesState
    failed: str
    stored: int = 0
    unmatched: Unmatched | None = None

    @classmethod
    def of(
        cls, query: RowQuery, *, read_bytes_max: int, retained_from_us: Mapping[int, int]
    ) -> RowState:
        """Note the state of a query; later changes of the query do not change it.

        The query forgets the late tuples that no later restart asks for.

        read_bytes_max: as of `RowOutput.restart_point`. retained_from_us: event time before which
        retention may remove tuples, by the id of a stream that has RETAIN.
        """
        now = query.frontier
        floors_us = [
            retained_from_us[each.stream_id] + each.lookback_us
            for each in query.inputs
            if each.stream_id in retained_from_us
        ]
        begin = query.output.restart_point(
            now, read_bytes_max=read_bytes_max, floor_us=max(floors_us, default=None)
        )
        inputs = {each.alias: _of_input(each, begin) for each in query.inputs}
        timed = [each for each in query.inputs if not each.holds_rows]
        tables = query.tables.state(
            {each.alias: each.needs_from_us(begin.as_of_us) for each in timed},
            query.needs_from_place(begin),
            {each.alias: each.newest_us for each in query.inputs},
            begin.begin_us,
        )
        stored = query.output.kept_from or 0
        return cls(begin, now, inputs, tables, query.failed, stored, query.unmatched)

    def to_bytes(self) -> bytes:
        """Frontiers and counts as JSON in the schema's metadata; late tuples as rows."""
        late = [each.late_rows for each in self.inputs.values()]
        sizes = np.array([len(rows.positions) for rows in late], np.int64)
        late = late or [LateRows()]
        state = {
            "begin": _frontier_to_json(self.begin),
            "now": _frontier_to_json(self.now),
            "inputs": {
                alias: [each.from_position, each.late, each.dropped, each.lost]
                for alias, each in self.inputs.items()
            },
            "unread_us": {alias: each.unread_us for alias, each in self.inputs.items()},
            "idle": [alias for alias, each in self.inputs.items() if each.is_idle],
            "failed": self.failed,
            "stored": self.stored,
            **({} if self.unmatched is None else {"unmatched": list(astuple(self.unmatched))}),
        }
        fields: list[pa.Field[Any]] = [
            pa.field("input", pa.int64()),
            pa.field("position", pa.int64()),
            pa.field("time_us", pa.int64()),
        ]
        metadata = {"state": json.dumps(state).encode(), **self.tables.to_metadata()}
        schema = pa.schema(fields, metadata=metadata)  # type: ignore[arg-type]
        columns = (
            np.repeat(np.arange(len(sizes)), sizes),
            np.concatenate([rows.positions for rows in late]),
            np.concatenate([rows.times_us for rows in late]),
        )
        arrays = [pa.array(column, pa.int64()) for column in columns]
        return table_bytes(pa.table(arrays, schema=schema))

    @classmethod
    def from_bytes(cls, data: bytes) -> RowState:
        """Read what `to_bytes` wrote."""
        table = pa.ipc.open_stream(data).read_all()
        state: dict[str, Any] = json.loads(table.schema.metadata[b"state"])
        number, position, time_us = (column.to_numpy() for column in table.columns)
        inputs: dict[str, InputState] = {}
        unread_us = state.get("unread_us", {})  # Absent in directories of earlier versions.
        idle = state.get("idle", ())  # Absent before inputs could count as idle.
        for at, (alias, (first, late, dropped, lost)) in enumerate(state["inputs"].items()):
            late_rows = LateRows(position[number == at], time_us[number == at])
            inputs[alias] = InputState(
                first, late, dropped, lost, late_rows, unread_us.get(alias), alias in idle
            )
        begin, now = (_frontier_from_json(state[key]) for key in ("begin", "now"))
        tables = TablesState.from_metadata(table.schema.metadata)
        counts = state.get("unmatched")
        unmatched = None if counts is None else Unmatched(*counts)
        stored = state.get("stored", 0)  # Absent before row queries could insert.
        return cls(begin, now, inputs, tables, state["failed"], stored, unmatched)


def _of_input(each: RowInput, begin: Frontier) -> InputState:
    each.forget_late(each.needs_from_us(begin.as_of_us))
    return InputState(
        each.from_position,
        each.late,
        each.dropped,
        each.lost,
        each.late_rows,
        each.unread_us,
        each.is_idle,
    )


def _frontier_to_json(frontier: Frontier) -> list[Any]:
    inputs = {alias: [it.position, it.watermark_us] for alias, it in frontier.inputs.items()}
    return [frontier.rows, frontier.read_bytes, inputs]


def _frontier_from_json(stored: list[Any]) -> Frontier:
    rows, read_bytes, inputs = stored
    return Frontier(rows, {alias: InputFrontier(*it) for alias, it in inputs.items()}, read_bytes)
