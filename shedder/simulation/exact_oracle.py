"""The exact truth beside the engine: all durable tuples, and DuckDB over them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from shedder.cql.sql.exact_query import POSITION, SqlDialect, exact_sql, needs_positions
from shedder.cql.statements.bound_query import BoundQuery
from shedder.queries.answers.answer import Answer
from shedder.queries.evidence.answer_builder import finish
from shedder.queries.evidence.from_exact import evidence_from_exact
from shedder.streams.batches import arrow_schema


@dataclass(frozen=True, slots=True)
class DurableBatch:
    """One durable batch, as it was sent.

    number: of its first tuple among those that the panes have had. low_us, high_us: its event
    times. in_archive: its tuples are; of a summary they follow later. in_answers: answers had not
    known of them before.
    """

    number: int
    batch: pa.RecordBatch
    low_us: int
    high_us: int
    in_archive: bool
    in_answers: bool


class ExactOracle:
    """Keeps what windows may still ask for; answers any query exactly.

    rows: durable tuples, ever, those included that were dropped at the door, and that came as
    summaries. position: of the stream: one past the last that was not. applied: tuples that the
    panes are to have.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.position = 0
        self.applied = 0
        self._pieces: list[DurableBatch] = []
        self._database = _database()

    def add(self, first_position: int, batch: pa.RecordBatch, *, kept: int) -> None:
        """These tuples are durable; so many of them were let in."""
        assert first_position == self.position, (first_position, self.position)
        self.position += kept
        self._add(batch, kept, in_archive=True, in_answers=True)

    def add_summary(self, batch: pa.RecordBatch) -> None:
        """What these tuples come to is durable."""
        self._add(batch, batch.num_rows, in_archive=False, in_answers=True)

    def add_followed(self, first_position: int, batch: pa.RecordBatch) -> None:
        """Tuples are durable of which a summary was before."""
        assert first_position == self.position, (first_position, self.position)
        self.position += batch.num_rows
        self._add(batch, 0, in_archive=True, in_answers=False)

    def _add(
        self, batch: pa.RecordBatch, taken: int, *, in_archive: bool, in_answers: bool
    ) -> None:
        number, self.applied = self.applied, self.applied + taken
        self.rows += batch.num_rows * in_answers
        if batch.num_rows:
            times = batch.column("ts").cast(pa.int64()).to_numpy()
            ends = int(times.min()), int(times.max())
            self._pieces.append(DurableBatch(number, batch, *ends, in_archive, in_answers))

    def forget_before(self, time_us: int) -> None:
        """No window that begins earlier will be asked for."""
        self._pieces = [piece for piece in self._pieces if piece.high_us >= time_us]

    @property
    def pieces(self) -> list[DurableBatch]:
        """All that is kept, in order."""
        return self._pieces

    def answer(self, query: BoundQuery, answer: Answer, *, applied: int) -> Answer:
        """The exact answer to what an answer is about.

        Args:
          query: that was asked. answer: its window. applied: how many tuples the panes had had.
        """
        start, end = answer.start_us, answer.end_us
        assert start is not None
        assert end is not None
        stop = bisect_left(self._pieces, applied, key=lambda piece: piece.number)
        inside = [
            piece
            for piece in self._pieces[:stop]
            if piece.in_answers and piece.high_us >= start and piece.low_us < end
        ]
        self._database.register("stream", _table(query, inside))
        sql = exact_sql(query, "stream", SqlDialect.DUCKDB, start, end)
        found = self._database.sql(sql).to_arrow_table()
        self._database.unregister("stream")
        return finish(query, evidence_from_exact(query, found, start_us=start, end_us=end))


def rows_of(sql: str, tables: Mapping[str, pa.Table]) -> pa.Table:
    """Return the rows of a statement in DuckDB's SQL over tables by name."""
    database = _database()
    for name, table in tables.items():
        database.register(name, table)
    try:
        rows: pa.Table = database.sql(sql).to_arrow_table()
        return rows
    finally:
        for name in tables:
            database.unregister(name)


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """One for all truths of the process: it holds nothing between two answers."""
    database = duckdb.connect(config={"threads": 1})  # So that sums are added in one order.
    database.execute("SET TimeZone = 'UTC'")
    return database


def _table(query: BoundQuery, pieces: list[DurableBatch]) -> pa.Table:
    batches = [piece.batch for piece in pieces]
    table = pa.Table.from_batches(batches, schema=arrow_schema(query.schema))
    if not needs_positions(query):
        return table
    numbers = [piece.number + np.arange(piece.batch.num_rows) for piece in pieces]
    positions: Any = np.concatenate(numbers) if numbers else np.zeros(0, np.int64)
    return table.append_column(POSITION, pa.array(positions, pa.int64()))
