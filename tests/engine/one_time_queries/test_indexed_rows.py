"""Row queries read what indexes say, and of the log what WHERE keeps; DuckDB is the oracle."""

from __future__ import annotations

import re
from collections import Counter

import duckdb
import pyarrow.compute as pc
import pytest

from shedder.engine.engine import Engine
from tests.engine.one_time_queries.recording_worker import relations_read, sent_rows
from tests.engine.world import CREATE, requests
from tests.scale import scaled

ROWS, SEALED = 8_000, 6_000
WHERES = (
    "client = 17",
    "client IN (3, 4999, 70) AND ok",
    "5 > hits AND hits > 3",
    "hits BETWEEN 97 AND 98 AND bytes > 0.5",
    "domain = 'b.com' OR client = 4711",
    "client = 4711 AND hits % 2 = 1",
    "bytes > 3000",
    "ts < TIMESTAMP '2023-11-14 22:15:00' AND client = 17",
    "client = NULL",
)
TEXTS = (
    "SELECT ts, client, domain, hits FROM requests WHERE {}",
    "SELECT DISTINCT domain FROM requests WHERE {} ORDER BY domain LIMIT 3",
    "SELECT domain, n FROM (SELECT domain, COUNT(*) AS n FROM requests WHERE {} GROUP BY domain) x",
)
PAIRS = "SELECT a.hits, b.domain FROM requests a JOIN requests b ON a.client = b.client"
UNMATCHED = "SELECT * FROM requests b WHERE b.client = a.client AND b.hits < 50"
PICKED = "SELECT hits FROM requests WHERE client = 17"
JOINS = (
    f"{PAIRS} WHERE a.client = 17 AND b.hits = 3",
    f"{PAIRS} WHERE a.client = 17 AND b.client = 17",
    f"{PAIRS.replace('JOIN', 'LEFT JOIN')} AND b.hits = 3 WHERE a.client = 17",
    f"SELECT a.hits FROM requests a WHERE a.client = 17 AND NOT EXISTS ({UNMATCHED})",
    f"{PICKED} UNION ALL SELECT hits FROM requests WHERE hits = 3",
    f"SELECT hits FROM requests WHERE hits IN ({PICKED})",
)


DEALT = "hybrid(blocks=64, block_rows=10)"


@pytest.fixture(params=scaled((DEALT,), ("plain", DEALT)))
def db(tmp_path, request):
    with Engine.open(tmp_path / "data", sample_rows=64) as engine:
        engine.execute(f"{CREATE} ARCHIVE {request.param}")
        table = requests(ROWS, 0, disorder_s=2)
        for first in range(0, ROWS, 2_000):
            engine.push("requests", table.slice(first, 2_000))
            if first < SEALED:
                engine.seal("requests")
        yield engine


def bag(rows):
    return Counter(repr(tuple(row.values())) for row in rows)


def about(column, texts):
    """The queries with a condition on a column: others have the same plan without its index."""
    return [text for text in texts if re.search(rf"WHERE.*\b{column}\b", text)]


def expected(table, text):
    """The rows by DuckDB; NaN counts as NULL."""
    at, known = table.schema.get_field_index("bytes"), pc.is_nan(table["bytes"])
    table = table.set_column(at, "bytes", pc.if_else(known, None, table["bytes"]))
    with duckdb.connect(":memory:") as connection:
        connection.register("requests", table)
        return bag(connection.sql(text).to_arrow_table().to_pylist())


@pytest.mark.slow
def test_rows_are_those_of_duckdb_with_each_index_and_after_deletions(db):
    table = requests(ROWS, 0, disorder_s=2)
    texts = [text.format(where) for where in WHERES for text in TEXTS[:: scaled(2, 1)]] + [*JOINS]
    for column in ("", *scaled(("client", "hits"), ("client", "hits", "domain", "ts"))):
        if column:
            db.execute(f"CREATE INDEX ON requests ({column})")
        for text in scaled(about(column, texts), texts):
            assert bag(db.execute(text).rows()) == expected(table, text), (column, text)
    db.execute("DELETE FROM requests WHERE hits = 97")
    left = table.filter([hits != 97 for hits in table["hits"].to_pylist()])
    for text in texts:
        assert bag(db.execute(text).rows()) == expected(left, text), text


@pytest.mark.slow
@pytest.mark.parametrize("text", [TEXTS[0].format("client = 4711"), JOINS[2].replace("17", "4711")])
def test_row_query_reads_few_tuples_of_indexed_runs_and_says_so(tmp_path, text):
    with Engine.open(tmp_path / "data", sample_rows=64) as engine:
        engine.execute(f"{CREATE} ARCHIVE {DEALT}")
        engine.push("requests", requests(ROWS, 0))
        engine.seal("requests")
        before = engine.execute(text)
        engine.execute("CREATE INDEX ON requests (client)")
        after = engine.execute(text)
        assert bag(after.rows()) == bag(before.rows())
        assert "index on client" in after.sources
        share = after.archive_share_read / before.archive_share_read
        assert share < (0.25 if " a " not in text else 0.75)  # One of two scans has no index.
        plan = engine.execute(f"EXPLAIN {text}").table["plan"].to_pylist()
        assert any("index on client: about " in line for line in plan)


@pytest.mark.slow
def test_worker_gets_only_the_rows_of_the_log_that_where_keeps(tmp_path):
    with Engine.open(tmp_path / "data") as engine:
        engine.execute(CREATE)
        table = requests(ROWS, 0)
        engine.push("requests", table)
        clients = table["client"].to_pylist()
        pairs = "SELECT a.ts FROM requests a JOIN requests b ON a.hits = b.hits"
        first = "SELECT FIRST(hits) AS first FROM requests WHERE client = 17 GROUP BY ok"
        one, two = clients.count(17), clients.count(18)
        for text, sent in (
            ("SELECT hits FROM requests WHERE client = 17 AND hits % 2 = 1", one),
            ("SELECT hits FROM requests WHERE client = 17 OR hits % 2 = 1", ROWS),
            (f"SELECT first FROM ({first}) x", one),
            (f"{pairs} WHERE a.client = 17 AND b.client = 18", one + two),
            (f"{pairs} WHERE a.client = 17", ROWS),
        ):
            _, relations = relations_read(engine, text, tmp_path)
            assert sent_rows(relations) == sent, text
