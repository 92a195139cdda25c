"""Exact truth of standing row queries: DuckDB over windows of the tuples that were in time."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa

from shedder.errors import BadSetting
from shedder.queries.answers.answer import Answer
from shedder.simulation.exact_oracle import rows_of
from shedder.simulation.scenario import ScenarioRows
from shedder.simulation.tuple_generator import SCHEMA

SHARD = "shard"
"""The column of a tuple's truth that has the table's value for its key at its place in the log."""

_WITH_SHARD = SCHEMA.append(pa.field(SHARD, pa.int64()))


class RowTruth:
    """Durable tuples of the stream, each with the value of the table that it joins.

    lateness_us: of the stream.
    """

    def __init__(self, lateness_us: int) -> None:
        self._lateness_us = lateness_us
        self._watermark_us: int | None = None
        self._shards: dict[object, object] = {}
        self._parts: list[pa.Table] = []
        self._late = np.empty(0, np.int64)  # Positions.
        self._rows = 0

    def change(self, rows: pa.RecordBatch) -> None:
        """Put rows of the table in force for the tuples that follow in the log."""
        keys, shards = (rows.column(name).to_pylist() for name in ("key", SHARD))
        self._shards.update(zip(keys, shards, strict=True))

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the next durable tuples of the stream."""
        if not batch.num_rows:
            return
        times = batch.column("ts").cast(pa.int64()).to_numpy()
        if self._watermark_us is not None:
            late = np.flatnonzero(times < self._watermark_us)
            self._late = np.concatenate([self._late, late + self._rows])
        shards = [self._shards.get(key) for key in batch.column("key").to_pylist()]
        table = pa.Table.from_batches([batch.cast(SCHEMA)])
        self._parts.append(table.append_column(SHARD, pa.array(shards, pa.int64())))
        self._rows += batch.num_rows
        newest_us = int(times.max()) - self._lateness_us
        self._watermark_us = max(newest_us, self._watermark_us or newest_us)

    def differences(self, query: ScenarioRows, answer: Answer) -> int:
        """Return the number of rows in which an answer and the truth differ.

        A count of late tuples that is not the true one counts as a row.

        Raises:
          BadSetting: the scenario has no window for an input.
        """
        wrong, windows = 0, {}
        for each in answer.inputs:
            if each.alias not in query.windows:
                known = ", ".join(query.windows)
                raise BadSetting(
                    f"rows {query.name!r}: `windows` has {known}; it lacks the input {each.alias!r}"
                )
            wrong += each.late != int(np.count_nonzero(self._late < each.position))
            span_us = round(1e6 * query.windows[each.alias])
            windows[each.alias] = self._window(each.position, each.as_of_us, span_us)
        answered, wanted = _bag(answer.table), _bag(rows_of(query.truth, windows))
        return wrong + ((answered - wanted) + (wanted - answered)).total()

    def _window(self, position: int, as_of_us: int | None, span_us: int) -> pa.Table:
        """Return the tuples below a position, in time and in [as_of - span, as_of)."""
        if not self._parts:
            return _WITH_SHARD.empty_table()
        self._parts = [pa.concat_tables(self._parts)]
        whole = self._parts[0].slice(0, position)
        if as_of_us is None:
            return whole.slice(0, 0)
        times = whole["ts"].cast(pa.int64()).to_numpy()
        kept = (times < as_of_us) & (times >= as_of_us - span_us)
        kept[self._late[self._late < position]] = False
        return whole.filter(pa.array(kept))


def _bag(table: pa.Table) -> Counter[tuple[object, ...]]:
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))
