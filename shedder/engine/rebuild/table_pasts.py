"""Past of the tables of a new query: the versions that the tuples of its windows joined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.archive.tables.table_rows import TableRows
from shedder.dataflow.key_directory import KeyDirectory
from shedder.dataflow.tables.table_places import Reached
from shedder.dataflow.tables.table_versions import NEVER
from shedder.engine.dataflow.row_query import RowQuery
from shedder.engine.engine_state import EngineState
from shedder.engine.tables.table_history import PastChange

Int64s = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class TableMoment:
    """Tables at one moment of the log.

    rows, changes: by alias. reached: positions of streams at each change, as of `load_past`.
    """

    rows: Mapping[str, TableRows]
    changes: Mapping[str, Sequence[tuple[int, PastChange]]]
    reached: Sequence[Mapping[str, Reached]]

    def versions(self) -> dict[str, pa.Table]:
        """Return what the changes have ended or begun, by alias, as `TableVersions.history`."""
        return {alias: _versions(rows, self.changes[alias]) for alias, rows in self.rows.items()}


class TablePasts:
    """Changes of the tables whose versions the tuples of a query join, at one moment.

    The changes before `first` may be unknown, so tuples before it are not read.
    """

    def __init__(self, core: EngineState, query: RowQuery) -> None:
        """The tables of now. On the apply thread."""
        by_alias = query.tables.by_alias
        tables = {it: core.tables[of.name] for it, of in by_alias.items() if not of.corrects}
        self._rows = {alias: table.rows for alias, table in tables.items()}
        histories = {alias: table.history for alias, table in tables.items()}
        self.first = max((each.begin_number for each in histories.values()), default=0)
        self._changes = {
            alias: [it for it in each.changes if it.number > self.first]
            for alias, each in histories.items()
        }
        numbers = {it.number for each in self._changes.values() for it in each}
        self._numbers = np.array(sorted(numbers), np.int64)
        places, requested = core.table_histories.places, np.append(self._numbers, self.first)
        self._ids = {each.alias: each.stream_id for each in query.inputs}
        self._positions = {it: places.of(it, requested) for it in set(self._ids.values())}

    def first_position(self, stream_id: int) -> int:
        """Return the position from which the versions of all tables are known."""
        return int(self._positions[stream_id][-1]) if self.first else 0

    def moment(self, needed: Mapping[int, int]) -> TableMoment:
        """Return the tables without the changes that came before all tuples that are read.

        needed: position of the first of these tuples, by the id of a stream.
        """
        is_kept = np.zeros(len(self._numbers), np.bool_)
        for stream_id, position in needed.items():
            is_kept |= self._positions[stream_id][:-1] > position
        begin = int(np.argmax(is_kept)) if is_kept.any() else len(self._numbers)
        place = {int(number): at for at, number in enumerate(self._numbers[begin:], 1)}
        changes = {
            alias: [(place[it.number], it) for it in each if it.number in place]
            for alias, each in self._changes.items()
        }
        reached = [
            {
                alias: Reached(int(self._positions[id_][at]), None)
                for alias, id_ in self._ids.items()
            }
            for at in range(begin, len(self._numbers))
        ]
        return TableMoment(self._rows, changes, reached)


def _versions(rows: TableRows, changes: Sequence[tuple[int, PastChange]]) -> pa.Table:
    """Return the rows that changes took out, and the present ones that they put, with their spans.

    A row is valid from the last change of its key before it was taken out. changes: with places.
    """
    schema, key = rows.table().schema, rows.schema.key
    keys = KeyDirectory(pa.schema([(it.name, it.type.arrow) for it in rows.schema.key_columns]))
    touches = [
        keys.assign([change.keys.column(name) for name in key]) * _base(changes) + place
        for place, change in changes
    ]
    touched = np.sort(np.concatenate([np.empty(0, np.int64), *touches]))
    parts: list[pa.RecordBatch] = []
    begins, ends = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    taken = [(place, batch) for place, change in changes for batch in change.replaced]
    for end, batch in [*taken, *((NEVER, piece) for piece in rows.pieces)]:
        ids = keys.find([batch.column(name) for name in key])
        kept = np.flatnonzero(ids)  # A key that no change had is valid at all places.
        place = min(end, _base(changes) - 1)
        begins.append(_last_before(touched, ids[kept], place, _base(changes)))
        ends.append(np.full(len(kept), end))
        parts.append(batch.take(pa.array(kept, pa.int64())))
    found = pa.Table.from_batches([it.cast(schema) for it in parts], schema)
    for at, name in enumerate(key):
        found = found.append_column(f"#{at}", found[name])
    found = found.append_column("#from", pa.array(np.concatenate(begins)))
    return found.append_column("#to", pa.array(np.concatenate(ends))).combine_chunks()


def _base(changes: Sequence[tuple[int, PastChange]]) -> int:
    """A number above all places and that of now: (key, place) is key * base + place."""
    return changes[-1][0] + 2 if changes else 2


def _last_before(touched: Int64s, ids: Int64s, place: int, base: int) -> Int64s:
    """Return the place of the last change of each key before a place; 0: there is none."""
    at = np.searchsorted(touched, ids * base + place) - 1
    found = touched[np.maximum(at, 0)] if len(touched) else np.zeros(len(ids), np.int64)
    places: Int64s = np.where((at >= 0) & (found // base == ids), found % base, 0)
    return places
