"""Queries and windows that docs/cql.md shows in tables and in blocks without a result."""

from __future__ import annotations

import re

import pytest

from shedder.cli.script import statements
from shedder.engine.engine import Engine
from tests.documents import ROOT, blocks

PAGE = ROOT / "docs/cql.md"
SETUP = (
    (
        "CREATE STREAM requests (ts TIMESTAMP NOT NULL, client BIGINT, domain VARCHAR, "
        "bytes DOUBLE) TIMESTAMP BY ts"
    ),
    "CREATE STREAM orders (ts TIMESTAMP NOT NULL, id BIGINT) TIMESTAMP BY ts",
    (
        "CREATE STREAM payments (ts TIMESTAMP NOT NULL, order_id BIGINT, amount DOUBLE) "
        "TIMESTAMP BY ts"
    ),
    "CREATE STREAM s (ts TIMESTAMP NOT NULL, x BIGINT) TIMESTAMP BY ts",
    "CREATE TABLE customers (client BIGINT PRIMARY KEY, tier VARCHAR)",
    "INSERT INTO requests VALUES (TIMESTAMP '2026-01-01 00:00:07', 17, 'a', 512)",
)
ONCE = re.compile(
    r"ORDER BY|LIMIT|OFFSET|NOW\(\)|WITH totals|LEFT JOIN"
)  # Not of standing queries.


@pytest.fixture(scope="module")
def db(tmp_path_factory):
    with Engine.open(tmp_path_factory.mktemp("documented") / "data") as db:
        for statement in SETUP:
            db.execute(statement)
        yield db


def stand(db: Engine, text: str) -> None:
    db.register("documented", text)
    db.execute("DROP QUERY documented")


def section(title: str) -> str:
    return PAGE.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def windows() -> list[str]:
    """The windows in the first cells of two tables."""
    rows = section("Windows") + section("Windows of rows")
    cells = re.findall(r"^\| ([^|]*) \|", rows, re.MULTILINE)
    return [window for cell in cells for window in re.findall(r"`(\[[^`]+\])`", cell)]


def test_every_window_of_the_page_is_asked_once_and_stands(db):
    found = windows()
    assert len(found) >= 13
    for window in found:
        text = f"SELECT COUNT(*) AS n FROM requests {window}"
        assert db.execute(text).table.num_rows == 1, window
        stand(db, text)


def test_every_query_in_a_block_without_a_result_is_asked_once_and_stands(db):
    texts = [
        statement
        for block in blocks(PAGE)
        if block.language == "text"
        for statement in statements(block.text)
    ]
    assert len(texts) >= 7
    for text in texts:
        db.execute(text)
        if not ONCE.search(text):
            stand(db, text)


def test_what_stands_for_a_part_that_is_left_out_stands(db):
    rows = section("What the papers have, and CQL has not")
    [source] = re.findall(r"`(FROM \(SELECT [^`]+)`", rows)
    stand(db, f"SELECT SUM(part) AS total {source}")
