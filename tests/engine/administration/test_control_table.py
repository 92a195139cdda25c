"""The control table: a part of it is what the whole has of that part."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from shedder.engine.engine import Engine
from shedder.engine.runtime.environment import Environment
from shedder.errors import BadQuery, BadSetting, UnknownQuery

SECOND = 1_000_000
QUERIES = 12
PASSED_S = 0.01  # More than the apply thread looks at queries without a break.
ENTITIES = (
    *("stream", "query", "tenant", "budget", "synopsis", "overload"),
    *("archive", "checkpoint", "repair", "scrub", "audit", "task", "scheduler"),
)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Engine]:
    with opened(tmp_path, Environment(lambda: 1_000 * SECOND)) as engine:
        yield engine


def opened(directory: Path, machine: Environment) -> Engine:
    engine = Engine.open(directory, machine=machine, checkpoint_seconds=1e9)
    for stream in ("a", "b"):
        engine.execute(f"CREATE STREAM {stream} (ts TIMESTAMP, x DOUBLE) TIMESTAMP BY ts")
        for number in range(QUERIES):
            engine.register(f"{stream}{number}", f"SELECT SUM(x), MEDIAN(x) FROM {stream}")
    return engine


def rows(table: pa.Table) -> list[tuple[str, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def names(table: pa.Table) -> list[tuple[str, ...]]:
    """What changes by itself, such as rates and memory, is left out."""
    return [row[:3] for row in rows(table)]


def test_a_part_of_the_table_has_the_rows_that_the_whole_has_of_it(db: Engine) -> None:
    whole = names(db.control())
    assert {entity for entity, _, _ in whole} == {*ENTITIES} - {"task"}
    for entity in ENTITIES:
        assert names(db.control(entity)) == [row for row in whole if row[0] == entity]
    for name in ("a", "b3", "a0/1", "synopses", ""):
        found = [row for row in whole if name in ("", row[1])]
        assert names(db.control(name=name)) == found
        for entity in ENTITIES:
            assert names(db.control(entity, name)) == [row for row in found if row[0] == entity]
    assert rows(db.control("querry")) == rows(db.control(name="absent")) == []


class Hasty(Environment):
    """A machine whose clock advances at each reading while `hurries` is true."""

    def __init__(self) -> None:
        super().__init__(lambda: 1_000 * SECOND)
        self.hurries = False
        self._gone_s = 0.0

    def monotonic_s(self) -> float:
        self._gone_s += PASSED_S * self.hurries
        return super().monotonic_s() + self._gone_s


def test_queries_of_more_than_one_look_are_all_told(tmp_path: Path) -> None:
    machine = Hasty()
    with opened(tmp_path, machine) as db:
        whole = rows(db.control("query"))
        machine.hurries = True
        assert rows(db.control("query")) == whole
    assert len({name for _, name, _, _ in whole}) == 2 * QUERIES


def test_a_bad_value_is_refused_by_name_and_changes_nothing(db: Engine) -> None:
    bad = [
        ("thinning", "1/3", BadQuery, r"line 1, column 3: expected a share .*\n  1/3\n    \^"),
        ("thinning", "", BadQuery, "expected one statement, got 0"),
        ("thinning", "1/8; DROP STREAM a", BadQuery, "line 1, column 6: expected a share"),
        ("thinning", "1/8 SET WEIGHT 3", BadQuery, "unexpected 'SET'"),
        ("thinning", "1/8 FOR", BadQuery, "expected outputs or aggregates"),
        ("thinning", "1/8 FOR MIN(x)", BadQuery, "MIN"),
        ("weight", "x", BadSetting, "weight is 'x'; it must be a number over 0, at most 1e"),
        ("weight", "0", BadSetting, "weight is 0.0; it must be a number over 0"),
        ("weight", "nan", BadSetting, "weight is nan; it must be a number over 0"),
        ("active", "perhaps", BadSetting, r"no control query\.active = 'perhaps'"),
    ]
    standing_query = db.core.standing_query("a0")[1]
    for key, value, error, message in bad:
        with pytest.raises(error, match=message):
            db.set_control("query", "a0", key, value)
        assert (standing_query.weight, standing_query.active) == (1.0, True)
        assert set(standing_query.state.levels) == {0}


def test_values_of_a_query_are_set_in_the_words_of_the_statements(db: Engine) -> None:
    standing_query = db.core.standing_query("a0")[1]
    for value, levels in (("1/8 for median(x);", {0, 3}), ("1/4", {2}), ("AUTO", {0})):
        db.set_control("query", "a0", "thinning", value)
        assert set(standing_query.state.levels) == levels
    db.set_control("query", "a0", "weight", " 2.5 ")
    assert standing_query.weight == 2.5
    for name in ("absent", 'a "name"', ""):
        for key, value in (("thinning", "1/8"), ("weight", "2"), ("active", "true")):
            with pytest.raises(UnknownQuery):
                db.set_control("query", name, key, value)
