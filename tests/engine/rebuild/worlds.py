"""A stream in virtual time whose rows are deleted, beside DuckDB over the rows that are left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from shedder.engine.engine import Engine
from shedder.engine.runtime.cpu_timer import CpuTimer
from shedder.engine.synopsis_plans.synopsis_plan import SynopsisPlan
from shedder.queries.answers.answer import Answer
from shedder.simulation.virtual_environment import Later, VirtualEnvironment
from shedder.streams.batches import encode

SECOND = 1_000_000
START = 1_000 * SECOND
CREATE = """CREATE STREAM s (ts TIMESTAMP NOT NULL, k BIGINT, g VARCHAR, x DOUBLE)
TIMESTAMP BY ts LATENESS INTERVAL '1' SECOND"""
SURE = "CONFIDENCE 99.99999999 PERCENT"
AGGREGATES = """COUNT(*) AS n, COUNT(k) AS nk, SUM(k) AS sk, MIN(k) AS lk, MAX(k) AS hk,
    AVG(x) AS ax, VAR(x) AS vx, COUNT(DISTINCT k) AS dk, MIN(g) AS lg"""
MORE = ", FIRST(k) AS fk, LAST(k) AS ek, QUANTILE(k, 0.5) AS mk, CORR(x, k) AS cx"
TRUTHS = {
    "n": "COUNT(*)",
    "nk": "COUNT(k)",
    "sk": "SUM(k)::BIGINT",
    "lk": "MIN(k)",
    "hk": "MAX(k)",
    "ax": "AVG(x)",
    "vx": "VAR_SAMP(x)",
    "dk": "COUNT(DISTINCT k)",
    "lg": "MIN(g)",
    "fk": "ARG_MIN(k, (ts, serial)) FILTER (k IS NOT NULL)",
    "ek": "ARG_MAX(k, (ts, serial)) FILTER (k IS NOT NULL)",
    "mk": "QUANTILE_DISC(k, 0.5)",
    "cx": "CORR(x, k)",
}
QUERIES = {
    "whole": f"SELECT {AGGREGATES}{MORE} FROM s {SURE}",
    "grouped": f"SELECT g, {AGGREGATES}{MORE} FROM s GROUP BY g {SURE}",
    "filtered": f"SELECT {AGGREGATES} FROM s WHERE k > 3 {SURE}",
    "landmark": f"SELECT {AGGREGATES} FROM s [FROM TIMESTAMP '1970-01-01 00:16:45'] {SURE}",
    "narrow": f"SELECT g, {AGGREGATES} FROM s [RANGE 2 SECONDS SLIDE 2 SECONDS] GROUP BY g {SURE}",
    "sliding": f"SELECT g, {AGGREGATES} FROM s [RANGE 8 SECONDS SLIDE 4 SECONDS] GROUP BY g {SURE}",
    "tumbling": f"SELECT {AGGREGATES}{MORE} FROM s [RANGE 4 SECONDS SLIDE 4 SECONDS] "
    f"WHERE k > 3 {SURE}",
    "having": f"SELECT g, COUNT(*) AS n FROM s GROUP BY g HAVING COUNT(*) > 30 {SURE}",
    "largest": f"SELECT g, COUNT(*) AS n FROM s GROUP BY g ORDER BY n DESC, g LIMIT 2 {SURE}",
}
WHERE = {"filtered": "k > 3", "tumbling": "k > 3", "landmark": f"epoch_us(ts) >= {1_005 * SECOND}"}


class Unrepaired(VirtualEnvironment):
    """A machine on which panes are rebuilt when the test says so.

    at_registration: called once, after a new query has read the past.
    """

    def __init__(self, seed: int, time_us: int) -> None:
        super().__init__(seed, time_us)
        self.repairs = Later()
        self.at_registration: list[Callable[[], object]] = []

    def cpu_timer(self, query: str, plan: SynopsisPlan, *, grouped: bool) -> CpuTimer:
        """Do what is to be done after the past was read, and before the query stands."""
        while self.at_registration:
            self.at_registration.pop()()
        return super().cpu_timer(query, plan, grouped=grouped)

    def pool(self, name: str) -> Any:
        """Keep repairs apart from other work."""
        return self.repairs.pool() if name == "shedder-repair" else super().pool(name)


class Deleting:
    """A stream `s` with standing queries, and a table `s` with the rows that are left."""

    def __init__(self, directory: Path, queries: dict[str, str] = QUERIES, **settings: Any) -> None:
        self.directory = directory
        self.settings = {"purge_share": 1.0, "purge_after_s": 1e6} | settings
        self.machine = Unrepaired(1, START)
        self.queries = queries
        self.serial = 0
        self.table = duckdb.connect(config={"threads": 1})
        self.table.execute("SET TimeZone = 'UTC'")
        self.table.execute(
            "CREATE TABLE s (ts TIMESTAMP, k BIGINT, g VARCHAR, x DOUBLE, serial INT)"
        )
        self.engine = Engine.open(directory, machine=self.machine, **self.settings)
        self.engine.execute(CREATE)
        for name, text in queries.items():
            self.engine.register(name, text)

    def close(self) -> None:
        self.engine.close()
        self.table.close()

    def push(self, rows: int, seed: int, *, seconds: float = 2.0, late: int = 0) -> None:
        """Push rows of the next seconds, and some that come too late for their panes."""
        rng = np.random.default_rng(seed)
        now_us = self.machine.time_us
        self.machine.time_us += round(seconds * SECOND)
        times = now_us + rng.integers(0, round(seconds * SECOND), rows)
        times[:late] -= 5 * SECOND
        batch = pa.record_batch(
            {
                "ts": pa.array(times, pa.timestamp("us")),
                "k": pa.array(rng.integers(0, 10, rows), pa.int64(), mask=rng.random(rows) < 0.1),
                "g": pa.array(rng.choice(list("abc"), rows), mask=rng.random(rows) < 0.1),
                "x": pa.array(rng.lognormal(1, 1, rows), mask=rng.random(rows) < 0.1),
            }
        )
        serials = pa.array(np.arange(self.serial, self.serial + rows), pa.int32())
        self.serial += rows
        table = pa.table({**{n: batch[n] for n in batch.schema.names}, "serial": serials})
        self.table.register("pushed", table)
        self.table.execute("INSERT INTO s SELECT * FROM pushed")
        self.table.unregister("pushed")
        self.engine.append("s", encode(batch), producer="p", epoch=0, sequence=None)
        self.machine.settle()

    def delete(self, where: str) -> None:
        self.engine.execute(f"DELETE FROM s WHERE {where}")
        self.machine.settle()  # Another DELETE waits for a purge that is due, on one thread.
        self.table.execute(f"DELETE FROM s WHERE {where}")

    def rebuild(self) -> None:
        """Let panes be rebuilt until there is nothing left to do."""
        self.machine.settle()
        self.engine.repair.wake()
        while self.machine.repairs.step():
            self.machine.settle()
            self.engine.repair.wake()

    def reopen(self, *, killed: bool = False) -> None:
        if killed:
            self.engine.core.store.close()
        else:
            self.engine.close()
        self.machine = Unrepaired(2, self.machine.time_us)
        self.engine = Engine.open(self.directory, machine=self.machine, **self.settings)

    def answer(self, name: str) -> Answer:
        return self.engine.query(name).answer()

    def check(self, name: str) -> set[str]:
        """Compare an answer with the rows that are left; return the bounds that it has.

        Exact values equal the truth, intervals hold it, and exact counts name every group.
        """
        answer, seen = self.answer(name), set[str]()
        truths = self._truths(name, answer)
        rows = answer.rows()
        for row in rows:
            truth = truths.pop(row.get("g"), None)
            for column in [each for each in row if f"{each}_bound" in row]:
                seen.add(row[f"{column}_bound"])
                if truth is None:  # No row of the group is left.
                    truth = dict.fromkeys(TRUTHS) | {"n": 0, "nk": 0, "dk": 0}
                found = name, column, row, truth[column]
                assert holds(row, column, truth[column]), found
        if name == "having":
            truths = {key: row for key, row in truths.items() if row["n"] > 30}
        if seen == {"exact"} and name != "largest":
            assert not truths, (name, truths)
        return seen

    def _truths(self, name: str, answer: Answer) -> dict[Any, dict[str, Any]]:
        where = [WHERE.get(name, "TRUE")]
        if answer.start_us is not None:
            where.append(f"epoch_us(ts) >= {answer.start_us}")
        if answer.end_us is not None:
            where.append(f"epoch_us(ts) < {answer.end_us}")
        outputs = ", ".join(f"{truth} AS {column}" for column, truth in TRUTHS.items())
        grouped = " GROUP BY g" if "GROUP BY" in self.queries[name] else ""
        key = "g" if grouped else "NULL AS g"
        text = f"SELECT {key}, {outputs} FROM s WHERE {' AND '.join(where)}{grouped}"
        found = self.table.sql(text).to_arrow_table().to_pylist()
        return {row.pop("g"): row for row in found}


def holds(row: dict[str, Any], column: str, truth: Any) -> bool:
    """Whether an output's bound is kept; floats are exact up to the rounding of 1,000 sums."""
    value, bound = row[column], row[f"{column}_bound"]
    truth = None if truth != truth else truth  # DuckDB has NaN where there are too few values.
    if bound == "none":
        return True
    if truth is None or isinstance(truth, str) or (value is None and bound == "exact"):
        return bool(value == truth)
    if bound == "exact" and not isinstance(truth, float):
        return bool(value == truth)
    low, high = (
        (value, value) if bound == "exact" else (row[f"{column}_low"], row[f"{column}_high"])
    )
    slack = 1e-9 * max(1.0, abs(truth)) if isinstance(truth, float) else 0
    return bool(low - slack <= truth <= high + slack)
