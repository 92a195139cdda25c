"""Two streams whose keys do not fit, and the exact rows of queries over them by DuckDB."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from shedder.engine.engine import Engine
from tests.engine.world import START_US

SLIDE_US = 10_000_000
BEGIN_US = START_US - START_US % SLIDE_US
WINDOW = "[RANGE 40 SECONDS SLIDE 10 SECONDS]"
SLIDES = 4  # Of a window.

_NOT_IN_B = f"WHERE NOT EXISTS (SELECT * FROM b {WINDOW} WHERE b.k = a.k)"
_NOT_IN = "WHERE NOT EXISTS (SELECT * FROM b WHERE b.k = a.k)"

# Of each kind: the query, and SQL for DuckDB over the tuples of the windows, or of all time.
QUERIES = {
    "join": (
        f"SELECT a.k, a.v, b.v AS w FROM a {WINDOW} JOIN b {WINDOW} ON a.k = b.k",
        "SELECT a.k, a.v, b.v FROM a JOIN b ON a.k = b.k",
    ),
    "left": (
        f"SELECT a.k, a.v, b.v AS w FROM a {WINDOW} LEFT JOIN b {WINDOW} ON a.k = b.k",
        "SELECT a.k, a.v, b.v FROM a LEFT JOIN b ON a.k = b.k",
    ),
    "distinct": (f"SELECT DISTINCT k FROM a {WINDOW}", "SELECT DISTINCT k FROM a"),
    "except": (
        f"SELECT k FROM a {WINDOW} EXCEPT SELECT k FROM b {WINDOW}",
        "SELECT k FROM a EXCEPT SELECT k FROM b",
    ),
    "not exists": (f"SELECT a.k, a.v FROM a {WINDOW} {_NOT_IN_B}", f"SELECT k, v FROM a {_NOT_IN}"),
    "partitions": (
        "SELECT k, v FROM a [PARTITION BY k ROWS 3]",
        "SELECT k, v FROM every_a QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) <= 3",
    ),
}


class TwoStreams:
    """Slides of the streams a and b, each tuple with a number of its own."""

    def __init__(self, seed: int, *, keys: int, rows: int, batches: int = 3) -> None:
        """keys: different ones. rows: of a slide and stream. batches: of a slide and stream."""
        self._rng = np.random.default_rng(seed)
        self._keys, self._rows, self._batches = keys, rows, batches
        self._slides: dict[str, list[pa.Table]] = {"a": [], "b": []}

    @property
    def end_us(self) -> int:
        """The instant behind the newest slide."""
        return BEGIN_US + len(self._slides["a"]) * SLIDE_US

    def slide(self, rows: int | None = None) -> Iterator[tuple[str, pa.Table]]:
        """Make the tuples of the next slide. rows: of each stream, in place of the usual number."""
        rows, begin_us = rows or self._rows, self.end_us
        for name, known in self._slides.items():
            first = sum(len(each) for each in known)
            ts = begin_us + np.sort(self._rng.choice(SLIDE_US, rows, replace=False))
            table = pa.table(
                {
                    "ts": pa.array(ts, pa.timestamp("us")),
                    "k": pa.array(self._rng.integers(0, self._keys, rows), pa.int64()),
                    "v": pa.array(np.arange(first, first + rows), pa.int64()),
                }
            )
            known.append(table)
            size = -(-rows // self._batches)
            for at in range(0, rows, size):
                yield name, table.slice(at, size)

    def rows(self, kind: str, slides: int = SLIDES) -> Counter[tuple[Any, ...]]:
        """Return the exact rows of a query behind the newest slide. slides: of a window."""
        with duckdb.connect() as sql:
            for name, known in self._slides.items():
                sql.register(name, pa.concat_tables(known[-slides:]))
                sql.register(f"every_{name}", pa.concat_tables(known))
            return Counter(sql.execute(QUERIES[kind][1]).fetchall())


def create(db: Engine) -> None:
    """Create both streams."""
    for name in "ab":
        db.execute(f"CREATE STREAM {name} (ts TIMESTAMP, k BIGINT, v BIGINT) TIMESTAMP BY ts")


def push(db: Engine, world: TwoStreams, slides: int = 1, rows: int | None = None) -> None:
    """Push slides, and raise the watermarks behind them."""
    for _ in range(slides):
        for name, table in world.slide(rows):
            db.push(name, table)
        for name in "ab":
            db.heartbeat(name, world.end_us)


def rows_of(table: pa.Table, columns: int | None = None) -> Counter[tuple[Any, ...]]:
    """Return the rows of an answer. columns: the first ones alone; None: all."""
    values = [column.to_pylist() for column in table.columns[:columns]]
    return Counter(zip(*values, strict=True))
