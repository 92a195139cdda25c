"""What DuckDB's and chDB's aggregate functions make of the same columns, on one thread each."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from functools import partial

import duckdb
import pyarrow as pa
from chdb import session

_MOMENTS = "count(value), sum(value), min(value), max(value)"
# By the name that a case of summaries.py has for its rivals.
_DUCKDB = {
    "distinct": "SELECT approx_count_distinct(fresh) FROM t",
    "distinct texts": "SELECT approx_count_distinct(text) FROM t",
    "distinct by group": "SELECT g, approx_count_distinct(fresh) FROM t GROUP BY g",
    "frequent": "SELECT approx_top_k(key, 20) FROM t",
    "frequent by group": "SELECT g, approx_top_k(key, 5) FROM t GROUP BY g",
    "quantile": "SELECT approx_quantile(value, 0.99) FROM t",
    "quantile by group": "SELECT g, approx_quantile(value, 0.99) FROM t GROUP BY g",
    "moments": f"SELECT {_MOMENTS} FROM t",
    "moments by group": f"SELECT g, {_MOMENTS} FROM t GROUP BY g",
    "moments by many": f"SELECT m, {_MOMENTS} FROM t GROUP BY m",
    "variance by group": "SELECT g, avg(value), var_samp(value) FROM t GROUP BY g",
    "counts": "SELECT g, count(*) FROM t GROUP BY g",
    "sample": "SELECT value FROM t USING SAMPLE reservoir(65536 ROWS)",
}
_CHDB = {
    "distinct": "SELECT uniqHLL12(fresh) FROM t",
    "distinct texts": "SELECT uniqHLL12(text) FROM t",
    "distinct by group": "SELECT g, uniqHLL12(fresh) FROM t GROUP BY g",
    "frequent": "SELECT topK(20)(key) FROM t",
    "frequent by group": "SELECT g, topK(5)(key) FROM t GROUP BY g",
    "quantile": "SELECT quantileDD(0.004, 0.99)(value) FROM t",
    "quantile by group": "SELECT g, quantileDD(0.004, 0.99)(value) FROM t GROUP BY g",
    "moments": f"SELECT {_MOMENTS} FROM t",
    "moments by group": f"SELECT g, {_MOMENTS} FROM t GROUP BY g",
    "moments by many": f"SELECT m, {_MOMENTS} FROM t GROUP BY m",
    "variance by group": "SELECT g, avg(value), varSamp(value) FROM t GROUP BY g",
    "counts": "SELECT g, count() FROM t GROUP BY g",
    "sample": "SELECT groupArraySample(65536)(value) FROM t",
}
_CREATE = (
    "CREATE TABLE b.t (key Int64, fresh Int64, value Float64, g Int32, m Int32, text String) "
    "ENGINE = Memory"
)


def duckdb_rates(table: pa.Table) -> dict[str, float]:
    """Millions of rows per CPU second by measurement; the table is in DuckDB's memory."""
    with duckdb.connect(config={"threads": 1}) as database:
        database.register("arrow", table)
        database.execute("CREATE TABLE t AS SELECT * FROM arrow")
        return {
            name: _rate(partial(_fetch, database, text), table) for name, text in _DUCKDB.items()
        }


def chdb_rates(table: pa.Table) -> dict[str, float]:
    """Millions of rows per CPU second by measurement; the table is in chDB's memory."""
    with tempfile.TemporaryDirectory() as folder:
        database = session.Session(folder)
        database.query("CREATE DATABASE b ENGINE = Atomic")
        database.query(_CREATE)
        name = os.path.join(folder, "t.arrow")
        with pa.OSFile(name, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        database.query(f"INSERT INTO b.t SELECT * FROM file('{name}', Arrow)")
        rates = {name: _rate(partial(_ask, database, text), table) for name, text in _CHDB.items()}
        database.close()
        return rates


def _fetch(database: duckdb.DuckDBPyConnection, text: str) -> object:
    return database.sql(text).to_arrow_table()


def _ask(database: session.Session, text: str) -> object:
    return database.query(f"{text.replace('FROM t', 'FROM b.t')} SETTINGS max_threads = 1", "Arrow")


def _rate(work: Callable[[], object], table: pa.Table) -> float:
    best = float("inf")
    for _ in range(4):  # The first is slower.
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return table.num_rows / best / 1e6
