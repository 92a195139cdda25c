"""Row queries of two streams over kills, against an engine without kills and a brute force."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection

import numpy as np
import pyarrow as pa
import pytest

from shedder.archive.log.records import Idle, RecordType
from shedder.engine.engine import Engine
from tests.engine.dataflow.worlds import START_US, Subscriber, applied, rows_of
from tests.engine.killed import copy_killed
from tests.scale import scaled
from tests.seeds import seed

pytestmark = pytest.mark.slow

LATENESS_US = {"o": 20, "p": 5}
CREATE = (
    "CREATE STREAM {} (ts TIMESTAMP, k BIGINT, {}) TIMESTAMP BY ts LATENESS INTERVAL '{}' SECOND"
)
STREAMS = [
    CREATE.format("o", "name VARCHAR", "0.00002"),
    CREATE.format("p", "paid BOOLEAN", "0.000005"),
]
ORDERS = "o [RANGE INTERVAL '0.00004' SECOND]"
PAID = "p [RANGE INTERVAL '0.00002' SECOND]"
QUERIES = {
    "inner": f"SELECT o.name, p.k, p.paid FROM {ORDERS} JOIN {PAID} ON o.k = p.k",
    "left": f"SELECT o.k, o.name, p.paid FROM {ORDERS} LEFT JOIN {PAID} ON o.k = p.k",
    "absent": f"SELECT o.k, o.name FROM {ORDERS} WHERE o.k NOT IN (SELECT p.k FROM {PAID})",
    "groups": f"SELECT o.k, COUNT(*) AS n FROM {ORDERS} JOIN {PAID} ON o.k = p.k GROUP BY o.k",
    "counts": f"SELECT COUNT(*) AS n, SUM(o.k + p.k) AS s FROM {ORDERS} JOIN {PAID} ON o.k = p.k",
    "spread": f"SELECT VAR(o.k) AS v, MAX(o.k) AS m, COUNT(DISTINCT o.name) AS d "
    f"FROM {ORDERS} JOIN {PAID} ON o.k = p.k",
    "union": f"SELECT k FROM {ORDERS} UNION ALL SELECT k FROM {PAID}",
    "except": f"SELECT k FROM {ORDERS} EXCEPT SELECT k FROM {PAID}",
}
Tuple = tuple[int, int | None, str | bool]


def table(stream: str, rows: list[Tuple]) -> pa.Table:
    times, keys, values = ([row[at] for row in rows] for at in range(3))
    name, kind = ("name", pa.string()) if stream == "o" else ("paid", pa.bool_())
    return pa.table(
        {
            "ts": pa.array([START_US + time for time in times], pa.timestamp("us")),
            "k": pa.array(keys, pa.int64()),
            name: pa.array(values, kind),
        }
    )


def tuples(rng: np.random.Generator, stream: str, now: int) -> list[Tuple]:
    """Up to 12 tuples around an instant, some of them too late, and some without a key."""
    rows = []
    for _ in range(int(rng.integers(0, 13))):
        time = now + int(rng.integers(-2 * LATENESS_US[stream], 10))
        key = None if rng.random() < 0.1 else int(rng.integers(0, 6))
        value = str(rng.choice(["a", "b"])) if stream == "o" else bool(rng.random() < 0.5)
        rows.append((time, key, value))
    return rows


class Truth:
    """The tuples of a stream that were in time."""

    def __init__(self, lateness_us: int) -> None:
        self.rows: list[Tuple] = []
        self.watermark: int | None = None
        self.is_idle = False
        self._lateness_us = lateness_us

    def push(self, rows: list[Tuple]) -> None:
        self.is_idle &= not rows
        before = self.watermark
        self.rows += [row for row in rows if before is None or row[0] >= before]
        if rows:
            self.promise(max(row[0] for row in rows) - self._lateness_us)

    def promise(self, watermark: int) -> None:
        self.watermark = watermark if self.watermark is None else max(self.watermark, watermark)

    def window(self, as_of: int, range_us: int) -> list[Tuple]:
        return [row for row in self.rows if as_of - range_us <= row[0] < as_of]


def follow(truths: Collection[Truth]) -> None:
    """Raise the watermarks of idle streams to the least of the others."""
    marks = [truth.watermark for truth in truths if not truth.is_idle]
    if marks and None not in marks:
        for truth in truths:
            if truth.is_idle:
                truth.promise(min(marks))


def count_idle(db: Engine, stream: str) -> None:
    """Log that a stream counts as idle, as after a time-out."""
    header = Idle(db.core.stream(stream).id, START_US)
    db.core.log_queue.write(RecordType.IDLE, [header.to_bytes()], header)


def content(name: str, orders: list[Tuple], payments: list[Tuple]) -> Counter[tuple[object, ...]]:
    """A query's relation, by loops over the tuples of two windows."""
    pairs = [(o, p) for o in orders for p in payments if o[1] is not None and o[1] == p[1]]
    match name:
        case "inner":
            return Counter((o[2], p[1], p[2]) for o, p in pairs)
        case "left":
            matched = Counter((o[1], o[2], p[2]) for o, p in pairs)
            keys = {p[1] for p in payments} - {None}
            return matched + Counter((o[1], o[2], None) for o in orders if o[1] not in keys)
        case "groups":
            return Counter(Counter(o[1] for o, _ in pairs).items())
        case "counts":
            return Counter([(len(pairs), sum(o[1] + p[1] for o, p in pairs) if pairs else None)])
        case "spread":
            keys = [o[1] for o, _ in pairs]
            var = statistics.variance(keys) if len(keys) > 1 else None
            return Counter([(var, max(keys, default=None), len({o[2] for o, _ in pairs}))])
        case "absent":
            keys = [p[1] for p in payments]
            if None in keys:
                return Counter()
            left = [o for o in orders if not keys or (o[1] is not None and o[1] not in keys)]
            return Counter((o[1], o[2]) for o in left)
        case "union":
            return Counter((row[1],) for row in (*orders, *payments))
        case _:
            return Counter({(o[1],) for o in orders} - {(p[1],) for p in payments})


@pytest.mark.parametrize("world", range(scaled(1, 40)))
def test_rows_of_two_streams_are_the_same_over_kills(world, tmp_path):
    rng = np.random.default_rng(seed("row joins", world))
    truths = {stream: Truth(lateness) for stream, lateness in LATENESS_US.items()}
    steady, db = (Engine.open(tmp_path / name, run_rows=64) for name in ("steady", "0"))
    readers, undisturbed = ([Subscriber(name) for name in QUERIES] for _ in range(2))
    for engine, subscribers in ((db, readers), (steady, undisturbed)):
        for text in STREAMS:
            engine.execute(text)
        for name, text in QUERIES.items():
            engine.register(name, text)
        for subscriber in subscribers:
            subscriber.begin(engine)
    now = 0
    for step in range(1, 60):
        now += int(rng.integers(0, 8))
        stream = str(rng.choice(["o", "p"]))
        match rng.choice(["push", "promise", "idle", "seal", "checkpoint", "kill"], p=ODDS):
            case "push":
                rows = tuples(rng, stream, now)
                truths[stream].push(rows)
                for engine in (db, steady):
                    engine.push(stream, table(stream, rows))
            case "promise":  # A stream that is silent does not stop the other.
                truths[stream].is_idle = False
                truths[stream].promise(now)
                for engine in (db, steady):
                    engine.heartbeat(stream, START_US + now)
            case "idle":
                truths[stream].is_idle = True
                for engine in (db, steady):
                    count_idle(engine, stream)
            case "seal":
                db.seal(stream)
            case "checkpoint":
                db.core.executor.call(db.checkpoints.now).result()
            case "kill":
                copied = copy_killed(db, tmp_path / str(step))
                db.close()
                db = Engine.open(copied, run_rows=64)
        follow(truths.values())
    applied(db)
    applied(steady)
    for reader in readers:
        reader.read(db)
    for reader in undisturbed:
        reader.read(steady)
    answers = {name: db.query(name).answer() for name in QUERIES}
    db.close()
    steady.close()
    marks = {stream: truth.watermark for stream, truth in truths.items()}
    for reader, other in zip(readers, undisturbed, strict=True):
        assert reader.got == other.got, reader.name
        answer = answers[reader.name]
        shown = Counter(tuple(row.values()) for row in answer.table.to_pylist())
        signs = {row[-1] for row in reader.got}
        if reader.name in (
            "groups",
            "counts",
            "spread",
        ):  # Of aggregates, rows that leave are sent, too.
            left = Counter[tuple[object, ...]]()
            for *row, _, sign in reader.got:
                left[tuple(row)] += sign
            assert shown == +left, reader.name
        else:
            assert signs <= {1}, reader.name
            assert shown <= Counter(row[:-2] for row in reader.got), reader.name
        for each in answer.inputs:
            mark = marks[each.stream]
            assert each.as_of_us == (None if mark is None else START_US + mark)
        if None not in marks.values():
            as_of = min(marks.values())
            windows = truths["o"].window(as_of, 40), truths["p"].window(as_of, 20)
            assert shown == content(reader.name, *windows), reader.name


ODDS = [0.54, 0.1, 0.06, 0.08, 0.12, 0.1]


def test_silent_stream_holds_a_join_until_a_heartbeat(tmp_path):
    with Engine.open(tmp_path / "d") as db:
        for text in STREAMS:
            db.execute(text)
        query = db.register("inner", QUERIES["inner"])
        changes = query.subscribe()
        db.push("p", table("p", [(100, 1, True)]))
        db.push("o", table("o", [(100, 1, "a"), (130, 2, "b")]))
        assert query.answer().table.num_rows == 0
        as_of = {each.stream: each.as_of_us for each in query.answer().inputs}
        assert as_of == {"o": START_US + 110, "p": START_US + 95}
        db.heartbeat("p", START_US + 200)
        assert query.answer().table.to_pylist() == [{"name": "a", "k": 1, "paid": True}]
        assert rows_of(next(changes).table) == [("a", 1, True, 100, 1)]
