"""Random queries over joins, set operations, groups and subqueries, against SQLite."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter

import pytest

from shedder.cql.expressions.column_types import ColumnType
from tests.cql.random_queries import COLUMNS, NAMES, Writer
from tests.cql.relations import Relations, stream, table
from tests.scale import scaled
from tests.seeds import seed

WORLDS = scaled(4, 40)
QUERIES = scaled(30, 250)


@pytest.mark.slow
@pytest.mark.parametrize("world", range(WORLDS))
def test_a_random_query_has_the_rows_that_sqlite_finds(world: int) -> None:
    dice = random.Random(seed("relational", world))
    sqlite, relations = drawn(dice)
    for _ in range(QUERIES):
        text = Writer(dice).query()
        expected = Counter(sqlite.execute(text).fetchall())
        assert Counter(relations.rows(text)) == expected, text


@pytest.mark.slow
@pytest.mark.parametrize("world", range(WORLDS))
def test_all_keeps_multiplicities(world: int) -> None:
    """SQLite has no EXCEPT ALL and INTERSECT ALL, so bags of its rows are compared."""
    dice = random.Random(seed("multiplicities", world))
    sqlite, relations = drawn(dice)
    for _ in range(QUERIES // 5):
        writer, width = Writer(dice), dice.randint(1, 2)
        left, right = writer.select(width), writer.select(width)
        ours, theirs = (Counter(sqlite.execute(text).fetchall()) for text in (left, right))
        for word, expected in (
            ("UNION ALL", ours + theirs),
            ("EXCEPT ALL", ours - theirs),
            ("INTERSECT ALL", ours & theirs),
        ):
            text = f"{left} {word} {right}"
            assert Counter(relations.rows(text)) == expected, text


def drawn(dice: random.Random) -> tuple[sqlite3.Connection, Relations]:
    """Random relations in SQLite, and as two streams and a table."""
    sqlite = sqlite3.connect(":memory:")
    given = {}
    for name in NAMES:
        values = (0, 1, 1, 2, 3, None)
        rows = [(dice.choice(values), dice.choice(values)) for _ in range(dice.randrange(7))]
        sqlite.execute(f"CREATE TABLE {name} ({', '.join(COLUMNS)})")
        sqlite.executemany(f"INSERT INTO {name} VALUES (?, ?)", rows)
        columns = dict.fromkeys(COLUMNS, ColumnType.BIGINT)
        given[name] = (
            (table(name, **columns), rows)
            if name == NAMES[-1]
            else (stream(name, **columns), [(*row, at) for at, row in enumerate(rows)])
        )
    return sqlite, Relations(given)
