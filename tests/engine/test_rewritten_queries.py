"""Queries that were rewritten to keep their limits: what they answer, tell and keep."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import shedder
from shedder.engine.engine import Engine
from shedder.errors import BadQuery, BudgetExceeded, QueryExists
from shedder.queries.answer import Answer
from tests import truth

SECOND = 1_000_000
CREATE = "CREATE STREAM s (ts TIMESTAMP, k BIGINT, g VARCHAR, x DOUBLE) TIMESTAMP BY ts"
WINDOW = "[RANGE 10 MINUTES SLIDE 10 SECONDS]"
ASKED = f"""SELECT COUNT(*) AS n, SUM(x) AS sx, MAX(x) AS hx, COUNT(DISTINCT k) AS dk,
  MEDIAN(x) AS mx FROM s {WINDOW} COSTING AT MOST 200 KIB"""
GROUPED = f"SELECT g, COUNT(*) AS n, AVG(x) AS ax, MEDIAN(x) AS mx FROM s {WINDOW} GROUP BY g"


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Engine]:
    with opened(tmp_path) as engine:
        engine.execute(CREATE)
        yield engine


def opened(directory: Path) -> Engine:
    engine = shedder.open(directory, clock_us=lambda: 100_000 * SECOND)
    assert isinstance(engine, Engine)
    return engine


def rows(distribution: str, count: int, seed: int, minutes: float = 40) -> pa.Table:
    rng = np.random.default_rng(seed)
    times = np.sort(rng.uniform(0, minutes * 60 * SECOND, count)).astype(np.int64)
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us")),
            "k": (rng.zipf(1.3, count) % 50_000).astype(np.int64),
            "g": rng.choice(list("abc"), count, p=[0.6, 0.3, 0.1]),
            "x": truth.draw(distribution, seed, count),
        }
    )


def within(table: pa.Table, answer: Answer) -> Any:
    """The tuples that the answer says it is about."""
    times = np.asarray(table["ts"].cast(pa.int64()))
    assert answer.start_us is not None
    assert answer.end_us is not None
    return table.filter((times >= answer.start_us) & (times < answer.end_us)).to_pandas()


def holds(row: dict[str, Any], name: str, exact: float) -> bool:
    slack = 1e-9 * abs(exact)
    return bool(row[f"{name}_low"] - slack <= exact <= row[f"{name}_high"] + slack)


@pytest.mark.slow
@pytest.mark.parametrize("distribution", ["uniform", "lognormal-2", "constant"])
@pytest.mark.parametrize("permitted", ["SLIDE", "SLIDE, RANGE"])
def test_answers_are_true_of_the_window_that_they_name(
    db: Engine, distribution: str, permitted: str
) -> None:
    query = db.register("q", f"{ASKED} REWRITE {permitted}")
    assert query.granted["rewrite"].startswith("SLIDE INTERVAL")
    answers: list[Answer] = []
    db.listen("q", lambda news: answers.append(news) if isinstance(news, Answer) else None)
    table = rows(distribution, 20_000, seed=3)
    for first in range(0, len(table), 2_500):
        db.push("s", table.slice(first, 2_500))
    query.answer(after=db.push("s", rows(distribution, 1, 4).slice(0, 0)))
    assert len(answers) >= 3
    for answer in answers:
        [row] = answer.rows()
        there = within(table, answer)
        assert (row["n"], row["n_bound"]) == (len(there), "exact")
        assert row["sx"] == pytest.approx(there.x.sum())
        assert row["hx"] == there.x.max()
        assert holds(row, "mx", truth.exact_quantile(there.x.to_numpy(), 0.5))
        error = abs(row["dk"] / there.k.nunique() - 1)
        assert error < 4 * max(row["dk_high"] / row["dk"] - 1, 0.01)
        assert any("rewritten to keep its limits: SLIDE" in note for note in answer.notes)


def test_a_shorter_range_is_in_the_answer(db: Engine) -> None:
    text = f"SELECT SUM(x) AS sx FROM s {WINDOW} COSTING AT MOST 40 KIB REWRITE RANGE"
    query = db.register("q", text)
    assert "RANGE INTERVAL" in query.granted["rewrite"]
    table = rows("normal", 20_000, seed=5)
    answer = query.answer(after=db.push("s", table))
    assert answer.start_us is not None
    assert answer.end_us is not None
    assert answer.end_us - answer.start_us < 600 * SECOND
    assert answer.rows()[0]["sx"] == pytest.approx(within(table, answer).x.sum())


def test_memory_stays_within_the_limit(db: Engine) -> None:
    for name, limit, text in (
        ("plain", 200, ASKED),
        ("grouped", 600, f"{GROUPED} COSTING AT MOST 600 KIB"),
    ):
        query = db.register(name, text)
        assert int(query.granted["bytes"]) <= limit << 10
    table = rows("lognormal-2", 30_000, seed=6)
    many = table.set_column(2, "g", pa.array(np.arange(len(table)).astype(str)))
    db.push("s", many)
    for name, limit in (("plain", 200), ("grouped", 600)):
        db.query(name).answer(after=db.push("s", many.slice(0, 0)))
        keys = db.core.published(name)[1].standing.keys
        held = db.core.published(name)[1].standing.size_bytes
        assert held - (0 if keys is None else keys.size_bytes) <= limit << 10


@pytest.mark.slow
@pytest.mark.parametrize("distribution", ["uniform", "lognormal-2"])
def test_a_query_is_thinned_from_its_first_tuple_on(tmp_path: Path, distribution: str) -> None:
    text = f"{GROUPED} CONFIDENCE 99.9999 PERCENT COSTING AT MOST 8 NS"
    table = rows(distribution, 60_000, seed=8)
    with opened(tmp_path / "d") as db:
        db.execute(CREATE)
        db.push("s", table.slice(0, 30_000))
        query = db.register("q", text)  # Over a history, which is thinned alike.
        assert "mx read 1/" in query.granted["rewrite"]
        assert "by skipping" in query.granted["rewrite_costs"]
        levels = db.core.published("q")[1].standing.levels
        assert max(levels) > 0
        answer = query.answer(after=db.push("s", table.slice(30_000)))
        there = within(table, answer)
        assert answer.thinning == 2.0 ** -max(levels)
        for row in answer.rows():
            of_group = there[there.g == row["g"]]
            assert holds(row, "n", len(of_group))
            assert holds(row, "ax", of_group.x.mean())
            assert holds(row, "mx", truth.exact_quantile(of_group.x.to_numpy(), 0.5))
        before, granted = answer.rows(), dict(query.granted)
    with opened(tmp_path / "d") as db:
        query = db.query("q")
        assert query.answer().rows() == before
        assert dict(query.granted) == granted
        assert db.core.published("q")[1].standing.levels == levels


def test_what_was_asked_and_what_stands_are_the_same_query(db: Engine) -> None:
    query = db.register("q", ASKED)
    assert "SLIDE INTERVAL '10' SECOND" in query.granted["asked"]
    assert query.text != query.granted["asked"]
    shown = db.execute("SHOW QUERIES").table.to_pylist()
    assert [row["text"] for row in shown] == [query.text]
    for text in (ASKED, query.text):
        assert db.register("q", text).text == query.text
    with pytest.raises(QueryExists, match=r"with another text: SELECT .* SECOND"):
        db.register("q", ASKED.replace("200 KIB", "201 KIB"))
    told = query.explain()
    assert "granted rewrite: SLIDE" in told
    assert "granted rewrite_saves: " in told


def test_a_rewrite_can_be_seen_before(db: Engine) -> None:
    seen = {
        row["granted"]: row["value"]
        for row in db.execute(f"EXPLAIN CREATE QUERY q AS {ASKED}").rows()
    }
    assert db.execute("SHOW QUERIES").table.num_rows == 0
    query = db.register("q", ASKED)
    assert seen == {"text": query.text, **query.granted}


def test_a_refusal_leaves_nothing_behind(db: Engine) -> None:
    with pytest.raises(BudgetExceeded, match="REWRITE SLIDE would make it fit"):
        db.register("q", f"{ASKED} REWRITE NEVER")
    assert db.execute("SHOW QUERIES").table.num_rows == 0


def test_a_query_may_begin_thinned_without_any_limit(db: Engine) -> None:
    query = db.register("q", "SELECT g, MEDIAN(x) AS mx FROM s GROUP BY g THINNING 1/4")
    answer = query.answer(after=db.push("s", rows("uniform", 4_000, seed=1)))
    assert answer.thinning == 0.25
    db.execute("ALTER QUERY q SET THINNING 1")
    assert set(db.core.published("q")[1].standing.levels) == {0}


@pytest.mark.parametrize("clause", ["THINNING 1/8", "COSTING AT MOST 1 MIB"])
def test_a_question_that_is_asked_once_has_no_such_clauses(db: Engine, clause: str) -> None:
    word = clause.split(maxsplit=1)[0]
    for text in (f"SELECT COUNT(*) FROM s {clause}", f"EXPLAIN SELECT COUNT(*) FROM s {clause}"):
        with pytest.raises(BadQuery, match=f"{word} is for standing queries"):
            db.execute(text)
    with pytest.raises(BadQuery, match=f"no meaning for rows|{word} has no meaning"):
        db.execute(f"INSERT INTO s SELECT * FROM s {clause}")
    with pytest.raises(BadQuery, match=f"a rollup has no {word}"):
        db.execute(f"CREATE ROLLUP r AS SELECT COUNT(*) FROM s [RANGE 1 HOUR] {clause}")
