"""A stream's past, to which everything is done that can be, beside DuckDB over the rows it has."""

from __future__ import annotations

import math
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from shedder.archive.operations.backup import restore
from shedder.engine.engine import Engine
from shedder.errors import BeforeRetention
from shedder.queries.answers.answer import Answer
from synopses.model.estimate import Bound
from tests.engine.supervised import INDEXES, REWRITES, Supervised, settle

SECOND = 1_000_000
START_US = 472_222 * 3_600 * SECOND
RETAIN_S = 1_600
SURE = "CONFIDENCE 99.99999999 PERCENT"  # A run checks hundreds of intervals; none may miss.
CREATE = f"""CREATE STREAM s (
  ts TIMESTAMP NOT NULL, serial BIGINT NOT NULL, k BIGINT, g VARCHAR, x DOUBLE
) TIMESTAMP BY ts LATENESS INTERVAL '0' SECOND RETAIN INTERVAL '{RETAIN_S}' SECOND ARCHIVE """
LAYOUTS = (
    "plain",
    "eager(0.5, 0.8)",
    "lazy",
    "hybrid(blocks=8, block_rows=16)",
    "hybrid(blocks=64, block_rows=4)",
    "hybrid(blocks=1)",
)
AGGREGATES = """COUNT(*) AS n, COUNT(k) AS nk, SUM(k) AS sk, AVG(x) AS ax, SUM(x) AS sx,
    MIN(x) AS lx, MAX(k) AS hk, STDDEV(x) AS dx"""
MORE = ", COUNT(DISTINCT k) AS dk, QUANTILE(x, 0.5) AS q"
WHERES = (
    *[""] * 3,
    "k = 3",
    "k IN (1, 5, 900)",
    "x > 0.9",
    "k BETWEEN 2 AND 4 AND x < 1",
    "g = 'a'",
    "g IS NULL OR k > 8",
    "serial > 400 AND k <> 2",
)
GROUPS = ("", "", "g", "k", "DATE_TRUNC('minute', ts)")
REDUCTIONS = (
    "uniform(0.3)",
    "uniform(0.8)",
    "by_age('3 minutes', 0.9)",
    "by_value('k', 8, 9, 0.7)",
)
DELETES = ("k = 7", "x > 2.5", "g = 'b' AND k < 3", "k IS NULL", "serial % 3 = 0", "g = 'c'")
ROLLED = """SELECT g, COUNT(*), COUNT(k), SUM(k), VAR(x), MIN(x), MAX(k)
    FROM s [RANGE 1 MINUTE] GROUP BY g"""
COMMANDS = (
    *["push"] * 5,
    *["seal"] * 3,
    *["delete"] * 2,
    "purge",
    *["lay_out"] * 2,
    "index",
    "roll_up",
    "insert",
    "reopen",
    "crash",
    "back_up",
    "retire",
    "rot",
    "scrub",
)


def question(aggregates: str, group: str, where: str, window: str, *, of: str) -> str:
    """In CQL, and but for the window in DuckDB's SQL."""
    key = f"{group} AS key, " if group else ""
    by = f" GROUP BY {group}" if group else ""
    return f"SELECT {key}{aggregates} FROM {of}{window}" + (f" WHERE {where}" if where else "") + by


class ArchiveWalk:
    """One stream, and the table of all rows that it should have."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.root, self.lives = directory, 0
        self.directory = directory / "0"
        self.now_us = START_US
        self.serial = 0
        self.done: Counter[str] = Counter()
        self.ways: Counter[str] = Counter()
        self.database = duckdb.connect(config={"threads": 1})
        self.database.execute("SET TimeZone = 'UTC'")
        self.open()
        self.engine.execute(CREATE + self.one(LAYOUTS))
        self.rows = self.made(0)

    def open(self) -> None:
        self.engine = Engine.open(
            self.directory,
            machine=Supervised(lambda: self.now_us),
            sample_rows=200,
            checkpoint_seconds=1e6,
            purge_after_s=1e6,
            purge_share=0.5,
            log_segment_bytes=64 << 10,
        )

    def close(self) -> None:
        self.engine.close()
        self.database.close()

    def one(self, options: Any) -> str:
        return str(options[self.rng.integers(len(options))])

    def step(self) -> str:
        command = self.one(COMMANDS)
        getattr(self, command)()
        self.done[command] += 1
        self.settle()
        return command

    def settle(self) -> None:
        """Until what is done in the background is done."""
        for _ in range(2):  # What an index was made of may have been laid out anew meanwhile.
            settle(self.engine, REWRITES)
            settle(self.engine, INDEXES)

    # --- what is done to it ---

    def made(self, rows: int) -> pa.Table:
        rng = self.rng
        times = self.now_us + rng.integers(-20 * SECOND, 1, rows)
        late = rng.random(rows) < 0.02
        times[late] -= rng.integers(0, 600, int(late.sum())) * SECOND
        k, x = rng.integers(0, 10, rows), rng.lognormal(0.0, 0.7, rows)
        x[rng.random(rows) < 0.05] = np.nan
        serials = np.arange(self.serial, self.serial + rows)
        self.serial += rows
        g = np.array(["a", "b", "c", "d", ""], object)[rng.integers(0, 5, rows)]
        return pa.table(
            {
                "ts": pa.array(times, pa.timestamp("us")),
                "serial": serials,
                "k": pa.array(k, mask=rng.random(rows) < 0.1),
                "g": pa.array(g, pa.string(), mask=rng.random(rows) < 0.1),
                "x": pa.array(x, mask=rng.random(rows) < 0.1),
            }
        )

    def push(self) -> None:
        self.now_us += int(self.rng.integers(1, 90)) * SECOND
        table = self.made(int(self.rng.choice([1, 40, 300, 1_200])))
        self.engine.push("s", table)
        self.rows = pa.concat_tables([self.rows, table])

    def seal(self) -> None:
        self.engine.seal("s")

    def delete(self) -> None:
        where, (window, said) = self.one(DELETES), self.window()
        try:
            self.engine.execute(f"DELETE FROM s{window} WHERE {where}")
        except BeforeRetention:
            return
        self.rows = self.table_of(
            f"SELECT * FROM s WHERE NOT coalesce(({where}) AND {said}, FALSE)"
        ).cast(self.rows.schema)

    def purge(self) -> None:
        self.engine.execute("PURGE STREAM s")

    def lay_out(self) -> None:
        self.engine.execute(f"ALTER STREAM s SET ARCHIVE {self.one(LAYOUTS)}")

    def index(self) -> None:
        column = self.one(("k", "g", "x", "serial", "ts"))
        known = self.engine.core.store.indexes.columns(1)
        self.engine.execute(f"{'DROP' if column in known else 'CREATE'} INDEX ON s ({column})")

    def roll_up(self) -> None:
        known = {entry.name for entry, _ in self.engine.core.store.rollups.entries(1)}
        name, lazy = ("r", "") if self.rng.random() < 0.5 else ("z", "LAZY ")
        if name in known:
            self.engine.execute(f"DROP ROLLUP {name}")
        else:
            self.engine.execute(f"CREATE {lazy}ROLLUP {name} AS {ROLLED}")

    def insert(self) -> None:
        where = self.one(("k = 1", "x > 3", "g = 'd'"))
        again = self.table_of(f"SELECT * FROM s WHERE {where}").cast(self.rows.schema)
        self.engine.execute(f"INSERT INTO s SELECT * FROM s WHERE {where}")
        self.rows = pa.concat_tables([self.rows, again])

    def reopen(self) -> None:
        self.engine.close()
        self.open()

    def crash(self) -> None:
        """What a kill leaves, when nothing was being written."""
        old, self.directory = self.directory, self.next()
        shutil.copytree(old, self.directory)
        self.engine.close()
        shutil.rmtree(old)
        self.open()

    def back_up(self) -> None:
        saved = self.next()
        self.engine.backup(saved)
        self.engine.close()
        shutil.rmtree(self.directory)
        self.directory = self.next()
        restore(saved, self.directory)
        shutil.rmtree(saved)
        self.open()

    def retire(self) -> None:
        """Old runs go: of the rows that are too old any, of others none."""
        core = self.engine.core
        core.executor.call(self.engine.checkpoints.tidy).result()
        store = core.store
        left = Counter[int]()
        for _, batch in store.scan(1):
            left.update(batch["serial"].to_pylist())
        kept = np.zeros(self.rows.num_rows, np.bool_)
        for at, serial in enumerate(self.rows["serial"].to_pylist()):
            kept[at] = left[serial] > 0
            left[serial] -= kept[at]
        assert not +left
        gone = self.rows.filter(pa.array(~kept))
        retained_us = store.retention.retained_from_us(1)
        if gone.num_rows:
            newest = gone["ts"].cast(pa.int64()).to_numpy().max()
            assert retained_us is not None
            assert newest < retained_us <= self.now_us - RETAIN_S * SECOND + 1
        self.rows = self.rows.filter(pa.array(kept))

    def rot(self) -> None:
        """Damage a run's file unnoticed, and put it back later."""
        runs = self.engine.core.store.runs(1)
        if not runs:
            return
        run = runs[int(self.rng.integers(len(runs)))]
        self.engine.close()
        path = self.directory / "runs" / run.file
        whole = path.read_bytes()
        damaged = bytearray(whole)
        damaged[int(self.rng.integers(len(whole)))] ^= 1 << int(self.rng.integers(8))
        if self.rng.random() < 0.3:
            path.unlink()
        else:
            path.write_bytes(damaged)
        self.open()
        self.settle()
        for _ in range(4):
            self.ask(damaged=True)
        path.write_bytes(whole)
        self.engine.execute("SCRUB")
        assert self.engine.core.store.quarantine.runs(1) == []

    def scrub(self) -> None:
        assert self.engine.files.scrub().damaged == []

    def next(self) -> Path:
        self.lives += 1
        return self.root / str(self.lives)

    # --- what it says ---

    def window(self) -> tuple[str, str]:
        """In CQL, and as a condition."""
        low, high = sorted(int(each) for each in self.rng.integers(START_US, self.now_us + 2, 2))
        begin = f"CAST({low} AS TIMESTAMP)"
        match self.rng.integers(4):
            case 0:
                end = f"CAST({high + 1} AS TIMESTAMP)"
                said = f"epoch_us(ts) >= {low} AND epoch_us(ts) < {high + 1}"
                return f" [FROM {begin} TO {end}]", said
            case 1:
                return f" [FROM {begin}]", f"epoch_us(ts) >= {low}"
            case _:
                return "", "TRUE"

    def table_of(self, sql: str) -> pa.Table:
        """DuckDB's answer over the rows that there should be; NaN is NULL in conditions."""
        self.database.register("rows_", self.rows)
        self.database.execute(
            "CREATE OR REPLACE VIEW s AS "
            "SELECT * REPLACE (CASE WHEN isnan(x) THEN NULL ELSE x END AS x) FROM rows_"
        )
        return self.database.sql(sql).to_arrow_table()

    def truth(self, group: str, where: str, said: str) -> dict[Any, dict[str, Any]]:
        median = "list_sort(list(x))[CAST(ceil(0.5 * count(x)) AS BIGINT)] AS q"
        aggregates = AGGREGATES + MORE.replace("QUANTILE(x, 0.5) AS q", median)
        condition = f"({where}) AND ({said})" if where else said
        table = self.table_of(question(aggregates, group, condition, "", of="s"))
        sums = table["sk"].cast(pa.int64())
        table = table.set_column(table.column_names.index("sk"), "sk", sums)
        return {row.get("key"): row for row in table.to_pylist()}

    def ask(self, *, damaged: bool = False) -> None:
        group, where, (window, said) = self.one(GROUPS), self.one(WHERES), self.window()
        more = MORE if self.rng.random() < 0.4 else ""
        way = self.one(("", "", "REDUCE BY", "REDUCE BY", "WITHIN"))
        clause = ""
        if way == "REDUCE BY":
            clause = f" REDUCE BY {self.one(REDUCTIONS)} {SURE}"
        elif way == "WITHIN":
            clause = f" WITHIN {self.one((3, 20, 60))} PERCENT {SURE}"
        text = question(AGGREGATES + more, group, where, window, of="s") + clause
        try:
            answer = self.engine.execute(text)
        except BeforeRetention:
            return
        self.ways[("part" if answer.archive else "+".join(answer.sources)) + " " + way] += 1
        truth = self.truth(group, where, said)
        try:
            self.check(answer, truth, damaged=damaged)
            if way == "WITHIN" and not damaged:
                assert answer.met is not False
        except AssertionError as error:
            raise AssertionError(f"{text}\n{answer}\n{answer.explain()}\n{error}") from error

    def check(self, answer: Answer, truth: dict[Any, dict[str, Any]], *, damaged: bool) -> None:
        rows = answer.rows()
        missing = answer.missing
        absent = truth.keys() - {row.get("key") for row in rows}
        if absent:
            assert missing is not None, absent
            most = math.inf if missing.weight_max is None else missing.weight_max
            assert all(truth[key]["n"] <= most for key in absent), (absent, missing)
        if not damaged:
            assert answer.complete or answer.end_us is not None, answer.notes
        for at, row in enumerate(rows):
            true = truth.get(row.get("key"))
            assert true is not None, row
            for name in answer.approximate:
                found, value = answer.estimate(at, name), true[name]
                if found.bound is Bound.NONE:
                    continue
                if found.bound is Bound.EXACT:
                    exact = None if math.isnan(found.value) else found.value
                    assert same(exact, value), (name, row, value)
                    continue
                if value is None:  # No row of it was read: no value, or one between the ends.
                    assert math.isnan(found.value), (name, row)
                    continue
                slack = 1e-9 * max(1.0, abs(value))
                assert found.low - slack <= value <= found.high + slack, (name, row, value)


def same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
