"""Exact truth of standing row queries: DuckDB over windows of the tuples that were in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shedder.errors import BadSetting
from shedder.queries.answers.answer import Answer, InputProgress
from shedder.simulation.exact_oracle import rows_of
from shedder.simulation.scenario import ScenarioRows
from shedder.simulation.tuple_generator import SCHEMA

SHARD = "shard"
"""The column of a tuple's truth that has the table's value for its key at its place in the log."""

_WITH_SHARD = SCHEMA.append(pa.field(SHARD, pa.int64()))

Int64s = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class _LogRecord:
    """A batch of a stream, or a record that the stream is idle: `times` is None.

    end: position behind the batch. times: event times in us.
    """

    stream: str
    end: int = 0
    times: Int64s | None = None


@dataclass(slots=True)
class _Progress:
    """Progress of one query through the log. Watermarks and late positions are by alias."""

    marks: dict[str, int | None]
    late: dict[str, list[Int64s]]
    idle: set[str] = field(default_factory=set)

    def read(self, record: _LogRecord, aliases: Sequence[str], lateness_us: int) -> None:
        """Read one record of the stream behind some aliases."""
        for alias in aliases:
            if record.times is None:
                self.idle.add(alias)
                continue
            self.idle.discard(alias)
            mark, newest_us = self.marks[alias], int(record.times.max()) - lateness_us
            if mark is not None:
                late = np.flatnonzero(record.times < mark)
                self.late[alias].append(late + record.end - len(record.times))
            self.marks[alias] = newest_us if mark is None else max(mark, newest_us)
        active = [mark for alias, mark in self.marks.items() if alias not in self.idle]
        known = [mark for mark in active if mark is not None]
        if self.idle and known and len(known) == len(active):
            for alias in self.idle:
                self.marks[alias] = max(min(known), self.marks[alias] or min(known))


class RowTruth:
    """Durable tuples of the streams, each with the value of the table that it joins.

    lateness_us: of the streams.
    """

    def __init__(self, lateness_us: int) -> None:
        self._lateness_us = lateness_us
        self._shards: dict[object, object] = {}
        self._parts: dict[str, list[pa.Table]] = {}
        self._records: list[_LogRecord] = []

    def change(self, rows: pa.RecordBatch) -> None:
        """Put rows of the table in force for the tuples that follow in the log."""
        keys, shards = (rows.column(name).to_pylist() for name in ("key", SHARD))
        self._shards.update(zip(keys, shards, strict=True))

    def add(self, stream: str, batch: pa.RecordBatch) -> None:
        """Add the next durable tuples of a stream."""
        if not batch.num_rows:
            return
        times = batch.column("ts").cast(pa.int64()).to_numpy()
        shards = [self._shards.get(key) for key in batch.column("key").to_pylist()]
        table = pa.Table.from_batches([batch.cast(SCHEMA)])
        parts = self._parts.setdefault(stream, [])
        parts.append(table.append_column(SHARD, pa.array(shards, pa.int64())))
        end = sum(part.num_rows for part in parts)
        self._records.append(_LogRecord(stream, end, times))

    def count_idle(self, stream: str) -> None:
        """Note the record that a stream is idle."""
        self._records.append(_LogRecord(stream))

    def differences(self, query: ScenarioRows, answer: Answer) -> int:
        """Return the number of rows in which an answer and the truth differ.

        A count of late tuples that is not the true one counts as a row.

        Raises:
          BadSetting: the scenario has no window for an input.
        """
        wrong, truth = self.rows(query, answer)
        answered, wanted = _bag(answer.table), _bag(truth)
        return wrong + ((answered - wanted) + (wanted - answered)).total()

    def rows(self, query: ScenarioRows, answer: Answer) -> tuple[int, pa.Table]:
        """Return how many counts of late tuples are wrong, and the true rows as of an answer.

        Raises:
          BadSetting: the scenario has no window for an input.
        """
        wrong, windows = 0, {}
        known = [it.as_of_us for it in answer.inputs if it.as_of_us is not None]
        as_of_us = min(known) if len(known) == len(answer.inputs) else None
        if as_of_us is not None and query.slide_s:
            as_of_us -= as_of_us % round(1e6 * query.slide_s)
        late_of = self._late(answer.inputs)
        for each in answer.inputs:
            if each.alias not in query.windows:
                there = ", ".join(query.windows)
                raise BadSetting(
                    f"rows {query.name!r}: `windows` has {there}; it lacks the input {each.alias!r}"
                )
            late = late_of[each.alias]
            wrong += each.late != len(late)
            span_us = round(1e6 * query.windows[each.alias])
            windows[each.alias] = self._window(each, late, as_of_us, span_us)
        return wrong, rows_of(query.truth, windows)

    def _late(self, inputs: Sequence[InputProgress]) -> dict[str, Int64s]:
        """Return the positions of late tuples of a query, by alias, by a loop over records."""
        aliases: dict[str, list[str]] = {}
        for each in inputs:
            aliases.setdefault(each.stream, []).append(each.alias)
        read = {each.stream: each.position for each in inputs}
        now = _Progress({it.alias: None for it in inputs}, {it.alias: [] for it in inputs})
        for record in self._records:
            if record.stream not in aliases:
                continue
            if record.end > read[record.stream]:
                break
            now.read(record, aliases[record.stream], self._lateness_us)
        none = np.empty(0, np.int64)
        return {alias: np.concatenate([none, *at]) for alias, at in now.late.items()}

    def _window(
        self, each: InputProgress, late: Int64s, as_of_us: int | None, span_us: int
    ) -> pa.Table:
        """Return the tuples that were read, in time and in [as_of - span, as_of)."""
        parts = self._parts.get(each.stream)
        if not parts:
            return _WITH_SHARD.empty_table()
        parts[:] = [pa.concat_tables(parts)]
        whole = parts[0].slice(0, each.position)
        if as_of_us is None:
            return whole.slice(0, 0)
        times = whole["ts"].cast(pa.int64()).to_numpy()
        kept = (times < as_of_us) & (times >= as_of_us - span_us)
        kept[late] = False
        return whole.filter(pa.array(kept))


def _bag(table: pa.Table) -> Counter[tuple[object, ...]]:
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))
