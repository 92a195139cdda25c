"""EXPLAIN PRECISION of a question: it is answered, and the parts of its intervals add up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import shedder
from shedder import errors
from shedder.engine.engine import Engine
from tests.engine.world import CREATE, requests

DATA = requests(40_000, 1)


@pytest.fixture(scope="module")
def db(tmp_path_factory):
    path: Path = tmp_path_factory.mktemp("explained")
    with shedder.open(path / "data") as engine:
        assert isinstance(engine, Engine)
        engine.execute(f"{CREATE} ARCHIVE hybrid(blocks=64, block_rows=100)")
        engine.push("requests", DATA)
        engine.seal("requests")
        engine.execute("CREATE TABLE t (k BIGINT PRIMARY KEY)")
        yield engine


def parts(db: Engine, question: str, output: str) -> list[dict]:
    table = db.execute(f"EXPLAIN PRECISION SELECT {question}").table
    return [row for row in table.to_pylist() if row["output"] == output]


def test_a_question_to_the_sample_has_the_interval_that_its_answer_shows(db):
    question = "AVG(hits) AS a, COUNT(DISTINCT client) AS d FROM requests WITHIN 90 PERCENT"
    answer = db.execute(f"SELECT {question}")
    for name in ("a", "d"):
        *own, whole = parts(db, question, name)
        shown = answer.estimate(0, name)
        assert [part["part"] for part in own] == ["live sample"]
        assert (whole["low"], whole["high"]) == (shown.low, shown.high)
        assert own[0]["lower"] == pytest.approx(shown.value - shown.low)
        assert own[0]["upper"] == pytest.approx(shown.high - shown.value)


def test_a_reduced_question_has_parts_that_add_up_around_the_truth(db):
    question = "AVG(hits) AS a, COUNT(*) AS n FROM requests WHERE hits > 20 REDUCE BY uniform(0.9)"
    hits = DATA["hits"].to_numpy()
    hits = hits[hits > 20]
    for name, exact in (("a", np.mean(hits)), ("n", len(hits))):
        *own, whole = parts(db, question + " CONFIDENCE 99.9 PERCENT", name)
        assert [part["part"] for part in own] == ["archive reduction"]
        assert sum(part["lower"] for part in own) == pytest.approx(whole["value"] - whole["low"])
        assert sum(part["upper"] for part in own) == pytest.approx(whole["high"] - whole["value"])
        assert whole["low"] <= exact <= whole["high"]
        assert 0.0 < own[0]["saved_per_second"] <= (own[0]["lower"] + own[0]["upper"]) / 2


def test_an_exact_question_has_one_part_of_no_width(db):
    part, whole = parts(db, "SUM(hits) AS s FROM requests", "s")
    assert (part["part"], part["lower"], part["upper"]) == ("archive", 0.0, 0.0)
    assert (whole["bound"], whole["value"]) == ("exact", sum(DATA["hits"].to_pylist()))


@pytest.mark.parametrize("question", ["hits FROM requests", "COUNT(*) AS n FROM t"])
def test_rows_and_tables_have_no_intervals_to_explain(db, question):
    with pytest.raises(errors.BadQuery, match="aggregates over one stream"):
        db.execute(f"EXPLAIN PRECISION SELECT {question}")
