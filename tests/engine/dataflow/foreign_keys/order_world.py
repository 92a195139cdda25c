"""Orders and their fulfilments, pushed in random batches with disorder, and DuckDB's answers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import duckdb
import numpy as np
import pyarrow as pa

from shedder.engine.engine import Engine
from tests.engine.world import START_US

LATENESS_US = 20
RANGE_US = 300
SPAN_US = 3_000
_STREAM = (
    "CREATE STREAM {} (ts TIMESTAMP, id BIGINT, tag VARCHAR, n BIGINT) TIMESTAMP BY ts "
    "LATENESS INTERVAL '0.00002' SECOND"
)
SIDES = "fills [RANGE INTERVAL '0.0002' SECOND] f, orders [RANGE INTERVAL '0.0003' SECOND] o"
Row = tuple[int, ...]


def create(db: Engine, columns: str, *, constrained: bool = True, within: int = 0) -> None:
    """Create both streams. columns, within: of the foreign key, if there is one."""
    clause = f" FOREIGN KEY ({columns}) REFERENCES orders ({columns}) WITHIN {within} TUPLES"
    db.execute(_STREAM.format("orders"))
    db.execute(_STREAM.format("fills") + (clause if constrained else ""))


def query_text(columns: str, condition: str = "f.n <> 7") -> str:
    """Return a join over the columns of the foreign key."""
    keys = " AND ".join(f"f.{each} = o.{each}" for each in columns.split(", "))
    return f"SELECT ISTREAM(f.n, o.n AS item) FROM {SIDES} WHERE {keys} AND {condition}"


@dataclass
class OrderWorld:
    """Both streams, whole.

    is_broken: some orders come after their fulfilments, never, or twice.
    within: so many orders may come between a fulfilment and its order.
    """

    rng: np.random.Generator
    is_broken: bool
    orders: int = 150
    within: int = 0
    tables: dict[str, pa.Table] = field(init=False)

    def __post_init__(self) -> None:
        """Draw the tuples."""
        rng, size = self.rng, self.orders
        times = np.sort(rng.integers(0, SPAN_US, size))
        ids = np.arange(size)
        of = rng.integers(0, size, 3 * size)
        late = rng.integers(0, 150, 3 * size)
        filled = np.where(rng.random(3 * size) < 0.2, times[of], times[of] + late)
        if self.within:
            times = np.sort(rng.choice(SPAN_US, size, replace=False))  # So `before` counts all.
            filled = times[of] + late
            before = times[np.maximum(of - rng.integers(0, self.within + 1, 3 * size), 0)]
            filled = np.where(rng.random(3 * size) < 0.5, filled, before)
        if self.is_broken:
            ids = rng.integers(0, size, size)
            filled = times[of] + rng.integers(-200, 400, 3 * size)
        filled = np.clip(filled, 0, SPAN_US + 200)
        keys = ids[of].astype(object)
        keys[rng.random(3 * size) < 0.05] = None
        self.tables = {
            "orders": _table(times, list(ids), np.arange(size)),
            "fills": _table(filled, list(keys), np.arange(3 * size)),
        }

    def batches(self) -> list[tuple[str, pa.Table]]:
        """Cut both streams into batches, in the order of event time up to the lateness."""
        found: list[tuple[float, str, pa.Table]] = []
        for name, rows in self.tables.items():
            times = rows["ts"].cast(pa.int64()).to_numpy()
            order = np.argsort(times + self.rng.random(len(times)) * LATENESS_US, kind="stable")
            self.tables[name] = rows.append_column("position", pa.array(np.argsort(order)))
            cuts = np.sort(self.rng.choice(len(times), 12, replace=False))
            for part in np.split(order, cuts):
                if len(part):
                    # A stream runs ahead of the other by a chance.
                    ahead = self.rng.integers(-400, 400)
                    found.append((times[part].max() + ahead, name, rows.take(pa.array(part))))
        own = {name: [b for _, n, b in found if n == name] for name in self.tables}
        names = [name for _, name, _ in sorted(found, key=lambda each: each[0])]
        return [(name, own[name].pop(0)) for name in names]

    def truth(self, columns: str, *, by_time: bool = True) -> tuple[Counter[Row], int, int]:
        """Return DuckDB's pairs, and the fulfilments with no order and with several.

        by_time: orders that come later count as no partners.
        """
        keys = " AND ".join(f"f.{each} = o.{each}" for each in columns.split(", "))
        known = " AND ".join(f"f.{each} IS NOT NULL" for each in columns.split(", "))
        late = "o.ts <= f.ts" if by_time else "epoch_us(o.ts) - epoch_us(f.ts) < 200"
        on = f"{keys} AND {late} AND epoch_us(f.ts) - epoch_us(o.ts) < {RANGE_US}"
        with duckdb.connect() as db:
            for name, rows in self.tables.items():
                db.register(name, rows)
            pairs = db.sql(
                f"SELECT f.n, o.n FROM fills f JOIN orders o ON {on} WHERE f.n <> 7"
            ).fetchall()
            counts = db.sql(
                f"SELECT COUNT(*) FILTER (p = 0), COUNT(*) FILTER (p > 1) FROM (SELECT f.n, "
                f"COUNT(o.n) AS p FROM fills f LEFT JOIN orders o ON {on} "
                f"WHERE f.n <> 7 AND {known} GROUP BY f.n)"
            ).fetchall()
        return Counter(pairs), *counts[0]

    def truth_within(self, columns: str, within: int) -> tuple[Counter[Row], int, int]:
        """Return the same, where a fulfilment without an order waits for so many; after `batches`.

        It is joined with the first of them that has its key.
        """
        keys = " AND ".join(f"f.{each} = o.{each}" for each in columns.split(", "))
        known = " AND ".join(f"{each} IS NOT NULL" for each in columns.split(", "))
        since = "epoch_us(f.ts) - epoch_us(o.ts)"
        text = f"""
            WITH o AS (SELECT *, ROW_NUMBER() OVER (ORDER BY ts, position) AS place FROM orders),
            f AS (SELECT *, (SELECT COUNT(*) FROM orders o WHERE o.ts <= g.ts) AS before
                FROM fills g WHERE n <> 7 AND {known}),
            early AS (SELECT f.n, o.n AS item FROM f JOIN o ON {keys}
                WHERE {since} BETWEEN 0 AND {RANGE_US - 1}),
            late AS (SELECT f.n, ARG_MIN(o.n, o.place) AS item FROM f JOIN o ON {keys}
                WHERE {since} BETWEEN -199 AND -1 AND o.place <= f.before + {within}
                AND f.n NOT IN (SELECT n FROM early) GROUP BY f.n),
            pairs AS (FROM early UNION ALL FROM late)
        """
        missing = "SELECT COUNT(*) FROM f WHERE n NOT IN (SELECT n FROM pairs)"
        several = "SELECT COUNT(*) FROM (FROM early SELECT n GROUP BY n HAVING COUNT(*) > 1)"
        with duckdb.connect() as db:
            for name, rows in self.tables.items():
                db.register(name, rows)
            pairs = db.sql(f"{text} FROM pairs").fetchall()
            counts = db.sql(f"{text} SELECT ({missing}), ({several})").fetchall()
        return Counter(pairs), *counts[0]


def push(db: Engine, batches: list[tuple[str, pa.Table]]) -> None:
    """Push batches in their order."""
    for name, batch in batches:
        db.push(name, batch)


def end(db: Engine) -> None:
    """Promise that nothing more comes."""
    for name in ("orders", "fills"):
        db.heartbeat(name, START_US + 10 * SPAN_US)


def facts(db: Engine, name: str) -> dict[str, str]:
    """Return the facts of DESCRIBE."""
    return {row["key"]: row["value"] for row in db.execute(f"DESCRIBE {name}").rows()}


def operators(db: Engine, name: str) -> dict[str, int]:
    """Return the bytes of each operator, by its text."""
    made = db.core.look(db.core.rows.queries[name].operators)
    return {each.text: each.size_bytes for each in made}


def _table(times: np.ndarray, ids: list[object], n: np.ndarray) -> pa.Table:
    return pa.table(
        {
            "ts": pa.array(times + START_US, pa.timestamp("us")),
            "id": pa.array(ids, pa.int64()),
            "tag": pa.array([None if each is None else f"tag {each}" for each in ids], pa.string()),
            "n": pa.array(n, pa.int64()),
        }
    )
