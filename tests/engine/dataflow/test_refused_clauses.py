"""The table "What row queries refuse" of docs/cql.md: each row is refused, and says why."""

from __future__ import annotations

import re

import pytest

from shedder.engine.engine import Engine
from shedder.errors import BadQuery, ShedderError, StreamInUse, TypeMismatch, Unimplemented
from tests.documents import ROOT

HOUR = "[RANGE INTERVAL '1' HOUR]"
SLIDING = "[RANGE 1 HOUR SLIDE 1 MINUTE]"
COUNTED = f"SELECT COUNT(*) AS n FROM s {SLIDING} a JOIN r {SLIDING} b ON a.id = b.id"
STANDING = "CREATE QUERY q AS "

# By the first cell of the row, without marks: statements that are refused.
REFUSED = {
    "WITHIN, ELSE, WEIGHT, REDUCE BY, THINNING, COSTING": [
        f"{begin}SELECT DISTINCT id FROM s {HOUR} {clause}"
        for begin in ("", STANDING)
        for clause in (
            "WITHIN 1 PERCENT",
            "WITHIN 1 PERCENT ELSE FAIL",
            "WEIGHT 2",
            "REDUCE BY uniform(0.5)",
            "THINNING 1/2",
            "COSTING AT MOST 1 MIB",
        )
    ],
    "CONFIDENCE": [
        f"SELECT id FROM s {HOUR} CONFIDENCE 95 PERCENT",
        f"{COUNTED} CONFIDENCE 95 PERCENT",
        f"CREATE VIEW v AS {COUNTED} CONFIDENCE 95 PERCENT",
        f"{STANDING}INSERT INTO r (id) {COUNTED} CONFIDENCE 95 PERCENT",
    ],
    "ON OVERLOAD SHED of one answer": [f"SELECT id FROM s {HOUR} ON OVERLOAD SHED"],
    "ON OVERLOAD SHED of tuples of a stream": [
        f"CREATE VIEW v AS SELECT DISTINCT id FROM s {HOUR} ON OVERLOAD SHED",
        f"{STANDING}INSERT INTO r (id) SELECT DISTINCT id FROM s {HOUR} ON OVERLOAD SHED",
    ],
    "ON OVERLOAD SHED of standing rows": [
        f"{STANDING}SELECT a.ts FROM s {HOUR} a JOIN r {HOUR} b ON a.ts > b.ts ON OVERLOAD SHED",
        f"{STANDING}SELECT s.id FROM s {HOUR} JOIN t ON s.id = t.id ON OVERLOAD SHED",
        f"{STANDING}SELECT id, COUNT(*) AS n FROM s {SLIDING} GROUP BY id ON OVERLOAD SHED",
    ],
    "ON OVERLOAD SHED beside CONFIDENCE": [
        f"{STANDING}{COUNTED} CONFIDENCE 95 PERCENT ON OVERLOAD SHED"
    ],
    "lists: TOP, FREQUENT, HISTOGRAM": [
        f"{begin}SELECT {call} AS it FROM s {HOUR} a JOIN r {HOUR} b ON a.id = b.id"
        for begin in ("", STANDING)
        for call in ("TOP(a.id, 3)", "FREQUENT(a.id, 0.1)", "HISTOGRAM(a.id, [1, 2])")
    ],
    "COLLAPSE in a window": [
        f"{begin}SELECT DISTINCT id FROM s [RANGE 1 DAY SLIDE 1 SECOND COLLAPSE]"
        for begin in ("", STANDING)
    ],
    "a relation in FROM that no condition connects": [
        f"{begin}SELECT a.id FROM s {HOUR} a, r {HOUR} b" for begin in ("", STANDING)
    ],
    "SAMPLE of a table or a subquery": [
        f"{begin}{text}"
        for begin in ("", STANDING)
        for text in ("SELECT id FROM t SAMPLE(5)", "SELECT id FROM (SELECT id FROM s) u SAMPLE(5)")
    ],
    "INTERNAL in a window": ["SELECT COUNT(*) FROM s [RANGE 1 HOUR INTERNAL]"],
    "PREV of a stream, of a time window or of a subquery, and outside of p2 = PREV(p1)": [
        f"SELECT p1.id FROM s{window} p1, s{window} p2 WHERE {condition}"
        for window, condition in (
            ("", "p2 = PREV(p1)"),
            (f" {HOUR}", "p2 = PREV(p1)"),
            (" [ROWS 2]", "PREV(p1) IS NULL"),
        )
    ]
    + [
        "SELECT p1.id FROM (SELECT id FROM s) p1, s [ROWS 2] p2 WHERE p2 = PREV(p1)",
        "SELECT PREV(p1) FROM s [ROWS 2] p1",
    ],
    "ISTREAM, DSTREAM, RSTREAM, and a window over a subquery": [
        *(f"SELECT {word}(id) FROM s {HOUR}" for word in ("ISTREAM", "DSTREAM", "RSTREAM")),
        f"SELECT id FROM (SELECT id FROM s) u {HOUR}",
    ],
    "ORDER BY, LIMIT, OFFSET, in a subquery, too": [
        f"{STANDING}SELECT id FROM s {HOUR} ORDER BY id",
        f"{STANDING}SELECT id FROM s {HOUR} LIMIT 3",
        f"{STANDING}SELECT id FROM s {HOUR} OFFSET 3",
        f"{STANDING}SELECT id FROM (SELECT id FROM s {HOUR} LIMIT 3) u",
    ],
    "NOW()": [f"{STANDING}SELECT id FROM s {HOUR} WHERE ts > NOW() - INTERVAL '1' MINUTE"],
    "AS OF": [f"{STANDING}SELECT id FROM t AS OF TIMESTAMP '2026-01-01'"],
    "of a table that is not RETROACTIVE, in a query that reads streams: outer joins that keep its "
    "rows without a match, set operations, a join with other tables alone": [
        f"{STANDING}SELECT t.id FROM t LEFT JOIN s ON s.id = t.id",
        f"{STANDING}SELECT t.id FROM t FULL JOIN s ON s.id = t.id",
        f"{STANDING}SELECT id FROM s {HOUR} UNION SELECT id FROM t",
        (
            f"{STANDING}SELECT s.id FROM s, (SELECT t.id FROM t JOIN w ON t.id = w.id) u "
            "WHERE s.id = u.id"
        ),
    ],
    "such a table joined with rows of DISTINCT, GROUP BY or a set operation": [
        f"{STANDING}SELECT u.id FROM (SELECT DISTINCT id FROM s {HOUR}) u JOIN t ON u.id = t.id",
        (
            f"{STANDING}SELECT u.id FROM (SELECT id, COUNT(*) AS n FROM s {HOUR} GROUP BY id) u "
            "JOIN t ON u.id = t.id"
        ),
    ],
    "JOIN_SIZE; MIN and MAX of VARCHAR": [
        f"{STANDING}SELECT {call} AS it FROM s {HOUR} a JOIN r {HOUR} b ON a.id = b.id"
        for call in ("JOIN_SIZE(a.id, b.id)", "MIN(a.name)", "MAX(a.name)")
    ],
    "aggregates of more than 62 expressions": [
        f"{STANDING}SELECT {', '.join(f'SUM(id + {n}) AS s{n}' for n in range(63))} FROM s [ROWS 5]"
    ],
    "FIRST and LAST over anything but a time window of one stream": [
        f"{STANDING}SELECT FIRST(id) AS f FROM s [ROWS 5]",
        f"{STANDING}SELECT LAST(a.id) AS f FROM s {HOUR} a JOIN r {HOUR} b ON a.id = b.id",
    ],
    "ROWS windows over a stream with RETAIN": [f"{STANDING}SELECT id FROM short [ROWS 5]"],
    "ROWS windows over a subquery, but one that selects from a stream without a window, or of "
    "RSTREAM of aggregates without GROUP BY": [
        (
            f"{STANDING}SELECT u.id FROM (SELECT a.id FROM s {HOUR} a JOIN r {HOUR} b "
            "ON a.id = b.id) u [ROWS 5]"
        ),
        (
            f"{STANDING}SELECT u.n FROM (SELECT RSTREAM(id, COUNT(*) AS n) FROM s {SLIDING} "
            "GROUP BY id) u [ROWS 5]"
        ),
    ],
    "DISTINCT and other operators that would keep every tuple for ever": [
        f"{STANDING}SELECT DISTINCT id FROM s",
        f"{STANDING}SELECT a.id FROM s a JOIN r b ON a.id = b.id",
    ],
    "aggregates without a common SLIDE and without ISTREAM, DSTREAM or RSTREAM": [
        f"CREATE VIEW v AS SELECT COUNT(*) AS n FROM s {HOUR}",
        f"{STANDING}INSERT INTO r (id) SELECT COUNT(*) AS n FROM s {HOUR}",
    ],
    "windows of rows and SAMPLE": [
        "DELETE FROM s [ROWS 5] WHERE id = 1",
        "DELETE FROM s SAMPLE(5) WHERE id = 1",
        "INSERT INTO r (id) SELECT id FROM s [ROWS 5]",
        "INSERT INTO r (id) SELECT id FROM s SAMPLE(5)",
        "CREATE ROLLUP u AS SELECT COUNT(*) FROM s [ROWS 5]",
        "CREATE ROLLUP u AS SELECT COUNT(*) FROM s SAMPLE(5)",
    ],
    "joins, subqueries, set operations": [
        f"INSERT INTO r (id) {text}"
        for text in (
            "SELECT a.id FROM s a JOIN r b ON a.id = b.id",
            "SELECT id FROM (SELECT id FROM s) u",
            "SELECT id FROM s UNION ALL SELECT id FROM s",
        )
    ],
    "a stream that a standing row query reads": ["DELETE FROM read WHERE id = 1"],
}


@pytest.fixture(scope="module")
def db(tmp_path_factory):
    with Engine.open(tmp_path_factory.mktemp("refused") / "data") as db:
        columns = "(ts TIMESTAMP NOT NULL, id BIGINT, name VARCHAR) TIMESTAMP BY ts"
        for name in ("s", "r", "read"):
            db.execute(f"CREATE STREAM {name} {columns}")
        db.execute(f"CREATE STREAM short {columns} RETAIN INTERVAL '1' DAY")
        for name in ("t", "w"):
            db.execute(f"CREATE TABLE {name} (id BIGINT PRIMARY KEY, name VARCHAR)")
        db.register("reads", "SELECT id FROM read")
        yield db


def refused_rows() -> list[str]:
    """First cells of the table, without marks and links."""
    section = (ROOT / "docs/cql.md").read_text().partition("\n## What row queries refuse\n")[2]
    cells = re.findall(r"^\| ([^|]+) \|", section.partition("\n## ")[0], re.MULTILINE)
    plain = [re.sub(r"\]\([^)]*\)|[`\[\]]", "", cell).replace(" …", "") for cell in cells]
    return plain[1:]


def test_the_page_lists_what_is_refused_here():
    assert sorted(refused_rows()) == sorted(REFUSED)


@pytest.mark.parametrize("row", REFUSED)
def test_a_clause_of_the_table_is_refused(db, row):
    for text in REFUSED[row]:
        with pytest.raises(ShedderError) as raised:
            db.execute(text)
        assert isinstance(raised.value, BadQuery | StreamInUse | TypeMismatch | Unimplemented), text
    assert db.execute("SHOW QUERIES").table.num_rows == 1
