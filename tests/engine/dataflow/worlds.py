"""A stream of small numbers, the rows that queries make of it, and a subscriber that resumes."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from shedder.engine.engine import Engine
from tests.engine.world import START_US

LATENESS_US = 20
CREATE = (
    "CREATE STREAM s (ts TIMESTAMP, id BIGINT, kind BIGINT) TIMESTAMP BY ts "
    "LATENESS INTERVAL '0.00002' SECOND"
)
PICKED = "SELECT id, kind + 1 AS next FROM s WHERE kind > 2"
Row = tuple[int, ...]


def batch(rows: list[tuple[int, int, int]]) -> pa.Table:
    """Rows of (event time after START_US, id, kind)."""
    times, ids, kinds = ([row[at] for row in rows] for at in range(3))
    return pa.table(
        {
            "ts": pa.array([START_US + time for time in times], pa.timestamp("us")),
            "id": pa.array(ids, pa.int64()),
            "kind": pa.array(kinds, pa.int64()),
        }
    )


def drawn_tuples(rng: np.random.Generator, first_id: int, now: int) -> list[tuple[int, int, int]]:
    """Up to 30 tuples around an instant; some of them too late."""
    rows = int(rng.integers(0, 31))
    times = now + rng.integers(-2 * LATENESS_US, LATENESS_US, rows)
    kinds = rng.integers(0, 6, rows)
    return [
        (int(time), first_id + at, int(kind))
        for at, (time, kind) in enumerate(zip(times, kinds, strict=True))
    ]


def rows_of(table: pa.Table) -> list[Row]:
    """Rows as tuples: the columns, the event time after START_US, and the sign."""
    times = table.column("_ts").cast(pa.int64()).to_pylist()
    columns = [table.column(name).to_pylist() for name in table.column_names[:-2]]
    signs = table.column("_sign").to_pylist()
    return [
        (*row, time - START_US, sign)
        for *row, time, sign in zip(*columns, times, signs, strict=True)
    ]


@dataclass
class Picked:
    """The rows of PICKED, by a loop over tuples. Times are after START_US."""

    watermark: int | None = None
    late: int = 0
    made: list[Row] = field(default_factory=list)
    _waits: list[tuple[int, int, int, int]] = field(default_factory=list)
    _position: int = 0

    def push(self, rows: list[tuple[int, int, int]]) -> None:
        for time, id_, kind in rows:
            if self.watermark is not None and time < self.watermark:
                self.late += 1
            else:
                insort(self._waits, (time, self._position, id_, kind))
            self._position += 1
        if rows:
            self.promise(max(time for time, _, _ in rows) - LATENESS_US)

    def promise(self, watermark: int) -> None:
        self.watermark = watermark if self.watermark is None else max(self.watermark, watermark)
        while self._waits and self._waits[0][0] < self.watermark:
            time, _, id_, kind = self._waits.pop(0)
            if kind > 2:
                self.made.append((id_, kind + 1, time, 1))


@dataclass
class Subscriber:
    """Reads what there is, without waiting, and goes on behind it the next time."""

    name: str
    token: str | None = None
    got: list[Row] = field(default_factory=list)

    def begin(self, db: Engine) -> None:
        self.token = db.query(self.name).answer().resume

    def read(self, db: Engine, *, batches: int = 1 << 30) -> None:
        cursor = db.query(self.name).cursor(self.token)
        for _ in range(batches):
            answer = cursor.take()
            if answer is None:
                return
            self.got += rows_of(answer.table)
            self.token = answer.resume


def applied(db: Engine) -> None:
    """Wait until all that is durable is applied."""
    db.core.executor.call(lambda: None).result()


def ids_of(db: Engine, name: str) -> list[int]:
    """The ids of all rows of a stream or view, sorted."""
    return sorted(row["id"] for row in db.execute(f"SELECT id FROM {name}").table.to_pylist())


def subscribed(query):
    """The kept rows of a query in their order, from the first one on."""
    newest, token = query.answer(), None
    end = newest.resume
    reader, rows = query.subscribe(after=f"{end.partition('.')[0]}.0"), []
    while token != end:
        part = next(reader)
        token = part.resume
        rows += [tuple(row.values()) for row in part.table.to_pylist()]
    return rows


def outcome(query):
    """What a query has told: its rows in order, its relation, and its inputs."""
    answer = query.answer()
    relation = sorted(map(str, answer.table.to_pylist()))
    cursor = query.cursor(f"{answer.resume.partition('.')[0]}.0")
    parts = list(iter(cursor.take, None))
    return (
        [row for part in parts for row in rows_of(part.table)],
        relation,
        [(it.position, it.late) for it in answer.inputs],
    )


def memory(db: Engine) -> int:
    return db.core.executor.call(lambda: db.core.rows.size_bytes).result()


def sharers(db: Engine, name: str) -> set[str]:
    """The queries that read an operator of this query."""
    found = db.core.executor.call(lambda: db.core.rows.operators(db.core.rows.queries[name]))
    return {other for each in found.result() for other in each.others}
