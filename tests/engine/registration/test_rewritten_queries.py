"""Queries that were rewritten to keep their limits: what they answer, tell and keep."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import shedder
from shedder.engine.allocation.grant_report import percent
from shedder.engine.engine import Engine
from shedder.errors import BadQuery, BudgetExceeded, PrecisionUnavailable, QueryExists
from shedder.queries.answers.answer import Answer
from tests import truth

SECOND = 1_000_000
CREATE = "CREATE STREAM s (ts TIMESTAMP, k BIGINT, g VARCHAR, x DOUBLE) TIMESTAMP BY ts"
WINDOW = "[RANGE 10 MINUTES SLIDE 10 SECONDS]"
QUERY = f"""SELECT COUNT(*) AS n, SUM(x) AS sx, MAX(x) AS hx, COUNT(DISTINCT k) AS dk,
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
    query = db.register("q", f"{QUERY} REWRITE {permitted}")
    assert query.granted["rewrite"].startswith("SLIDE INTERVAL")
    answers: list[Answer] = []
    db.listen("q", lambda update: answers.append(update) if isinstance(update, Answer) else None)
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
        ("plain", 200, QUERY),
        ("grouped", 600, f"{GROUPED} COSTING AT MOST 600 KIB"),
    ):
        query = db.register(name, text)
        assert int(query.granted["bytes"]) <= limit << 10
    table = rows("lognormal-2", 30_000, seed=6)
    many = table.set_column(2, "g", pa.array(np.arange(len(table)).astype(str)))
    db.push("s", many)
    for name, limit in (("plain", 200), ("grouped", 600)):
        db.query(name).answer(after=db.push("s", many.slice(0, 0)))
        keys = db.core.standing_query(name)[1].state.keys
        held = db.core.standing_query(name)[1].state.size_bytes
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
        levels = db.core.standing_query("q")[1].state.levels
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
        assert db.core.standing_query("q")[1].state.levels == levels


def test_what_was_asked_and_what_stands_are_the_same_query(db: Engine) -> None:
    query = db.register("q", QUERY)
    assert "SLIDE INTERVAL '10' SECOND" in query.granted["asked"]
    assert query.text != query.granted["asked"]
    shown = db.execute("SHOW QUERIES").table.to_pylist()
    assert [row["text"] for row in shown] == [query.text]
    for text in (QUERY, query.text):
        assert db.register("q", text).text == query.text
    with pytest.raises(QueryExists, match=r"with another text: SELECT .* SECOND"):
        db.register("q", QUERY.replace("200 KIB", "201 KIB"))
    explained = query.explain()
    assert "granted rewrite: SLIDE" in explained
    assert "granted rewrite_saves: " in explained


def test_a_rewrite_can_be_seen_before(db: Engine) -> None:
    seen = {
        row["granted"]: row["value"]
        for row in db.execute(f"EXPLAIN CREATE QUERY q AS {QUERY}").rows()
    }
    assert db.execute("SHOW QUERIES").table.num_rows == 0
    query = db.register("q", QUERY)
    assert seen == {"text": query.text, **query.granted}


def test_a_refusal_leaves_nothing_behind(db: Engine) -> None:
    with pytest.raises(BudgetExceeded, match="REWRITE SLIDE would make it fit"):
        db.register("q", f"{QUERY} REWRITE NEVER")
    assert db.execute("SHOW QUERIES").table.num_rows == 0


def test_a_query_may_begin_thinned_without_any_limit(db: Engine) -> None:
    query = db.register("q", "SELECT g, MEDIAN(x) AS mx FROM s GROUP BY g THINNING 1/4")
    answer = query.answer(after=db.push("s", rows("uniform", 4_000, seed=1)))
    assert answer.thinning == 0.25
    db.execute("ALTER QUERY q SET THINNING 1")
    assert set(db.core.standing_query("q")[1].state.levels) == {0}


BY_RANK = "SELECT MEDIAN(x) AS mx FROM s [RANGE 1 MINUTE] WITHIN 0.003 RANK"


def predicted(db: Engine, name: str) -> str:
    """The largest error that is predicted of a query's synopses as they stand."""
    rows = db.execute("EXPLAIN ALLOCATION").table.to_pylist()
    return percent(max(row["predicted_error"] or 0.0 for row in rows if row["query"] == name))


@pytest.mark.parametrize("clause", ["THINNING 1/4", "COSTING AT MOST 5 NS REWRITE THINNING"])
def test_what_is_granted_reckons_with_the_tuples_that_will_be_skipped(
    db: Engine, clause: str
) -> None:
    """A larger sketch makes up for them, as far as it can; before, the one of all tuples stood."""
    query = db.register("q", f"{BY_RANK} {clause}")
    whole = db.register("whole", BY_RANK)
    assert db.core.standing_query("q")[1].state.levels[-1] == 2
    assert int(query.granted["bytes"]) > int(whole.granted["bytes"])
    assert f"predicted error {predicted(db, 'q')}" in query.granted["quantile 0.5"]
    assert "missed" not in query.granted
    if "rewrite_saves" in query.granted:
        taken = int(query.granted["bytes"])
        assert query.granted["rewrite_saves"].startswith(f"{taken:,} bytes instead of")


@pytest.mark.parametrize(
    ("outputs", "target"),
    [
        ("MEDIAN(x)", "0.003 RANK"),
        ("COUNT(DISTINCT k)", "1 PERCENT"),
        ("AVG(x)", "0.5 PERCENT"),
        ("g, COUNT(*)", "0.1 PERCENT"),
    ],
)
def test_a_promise_that_skipping_breaks_is_refused(db: Engine, outputs: str, target: str) -> None:
    by = "GROUP BY g" if "g," in outputs else ""
    text = f"SELECT {outputs} AS a FROM s [RANGE 1 MINUTE] {by} WITHIN {target} THINNING 1/64"
    missed = db.register("q", text).granted["missed"]
    assert predicted(db, "q") in missed
    text = text.replace("THINNING", "ELSE FAIL THINNING")
    for asks in (f"EXPLAIN CREATE QUERY p AS {text}", f"CREATE QUERY p AS {text}"):
        with pytest.raises(PrecisionUnavailable, match=r"needs more of the tuples|no size reaches"):
            db.execute(asks)


def test_what_is_known_of_skipped_tuples_can_be_promised(db: Engine) -> None:
    query = db.register(
        "q",
        "SELECT COUNT(*) AS n, MIN(x) AS lx, MAX(x) AS hx, LAST(x) AS ex FROM s [RANGE 1 MINUTE]"
        " WITHIN 1e-6 PERCENT ELSE FAIL THINNING 1/64",
    )
    assert not {"missed", "not_planned"} & set(query.granted)
    table = rows("normal", 2_000, seed=3, minutes=1)
    answer = query.answer(after=db.push("s", table))
    [row], x = answer.rows(), within(table, answer).x
    assert (row["n"], row["lx"], row["hx"], row["ex"]) == (len(x), x.min(), x.max(), x.iloc[-1])


def test_a_query_with_limits_gets_what_they_allow_when_others_leave(tmp_path: Path) -> None:
    """What it may have at most is what its limits leave it, not what it began with."""
    other = "SELECT COUNT(DISTINCT x) AS d FROM s [RANGE 1 MINUTE] WITHIN 1 PERCENT ELSE FAIL"
    text = "SELECT COUNT(DISTINCT k) AS d FROM s [RANGE 1 MINUTE] WITHIN 1 PERCENT"
    with opened(tmp_path) as db:
        db.execute(CREATE)
        allowed = db.register("alone", f"{text} COSTING AT MOST 1 MIB").granted["bytes"]
        db.query("alone").drop()
        promised = db.register("other", other).granted["bytes"]
        db.budgets.set_synopsis_bytes(int(promised) + int(allowed) * 3 // 4)
        first = db.register("q", f"{text} COSTING AT MOST 1 MIB").granted["bytes"]
        assert int(first) < int(allowed)
        db.query("other").drop()
    with opened(tmp_path) as db:  # A restart knows what it may have, too.
        db.budgets.set_synopsis_bytes(1 << 30)
        assert db.query("q").granted["bytes"] == allowed


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
