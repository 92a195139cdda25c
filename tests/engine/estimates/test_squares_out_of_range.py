"""Variances that doubles cannot hold on the way: every source says that it has no bound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import shedder

QUESTION = "SELECT VAR(x) AS v, STDDEV(x) AS s, CORR(x, x) AS c FROM t"
BEYOND = {
    "sum of squares": [-1e153, 1e153] * 5000,
    "a square": [0.0, 1e200],
    "a distance": [1e308, 1e308, -1e308],
    "too small": [1e-170, 3e-170],
}


def answers_of(values: list[float], directory: Path) -> list[dict[str, Any]]:
    """One row each by panes, panes with groups, the archive and the sample."""
    with shedder.open(directory) as db:
        db.execute("CREATE STREAM t (ts TIMESTAMP NOT NULL, g BIGINT, x DOUBLE) TIMESTAMP BY ts")
        standing = db.register("ungrouped", QUESTION)
        grouped = db.register("grouped", QUESTION.replace("SELECT", "SELECT g,") + " GROUP BY g")
        times = pa.array(np.arange(len(values)), pa.timestamp("us"))
        columns = {"ts": times, "g": np.zeros(len(values), np.int64), "x": np.array(values)}
        receipt = db.push("t", pa.table(columns))
        answers = [each.answer(after=receipt) for each in (standing, grouped)]
        answers += [db.execute(QUESTION), db.execute(f"{QUESTION} WITHIN 99 PERCENT")]
        return [answer.rows()[0] for answer in answers]


@pytest.mark.slow
@pytest.mark.parametrize("beyond", BEYOND)
def test_no_source_gives_a_bound_where_squares_are_out_of_range(
    beyond: str, tmp_path: Path
) -> None:
    for row in answers_of(BEYOND[beyond], tmp_path / "data"):
        found = [(row[name], row[f"{name}_bound"]) for name in "vsc"]
        assert found == [(None, "none")] * 3


@pytest.mark.slow
def test_all_sources_agree_where_they_are_in_range(tmp_path: Path) -> None:
    for at, (values, variance) in enumerate(
        [([5.0] * 9, 0.0), ([1.0, 2.0], 0.5), ([1.0, np.inf], None), ([3.0], None)]
    ):
        for row in answers_of(values, tmp_path / str(at)):
            assert (row["v"], row["v_bound"]) == (variance, "exact")


@pytest.mark.slow
@pytest.mark.parametrize("unit", [1e-120, 1e-90, 1.0, 1e75, 1e100])
def test_thinned_variances_are_in_the_unit_of_squares(unit: float, tmp_path: Path) -> None:
    rows = 20_000
    values = unit * np.random.default_rng(3).normal(size=rows)
    with shedder.open(tmp_path / "data") as db:
        db.execute("CREATE STREAM t (ts TIMESTAMP NOT NULL, g BIGINT, x DOUBLE) TIMESTAMP BY ts")
        query = db.register(
            "q", "SELECT g, VAR(x) AS v, STDDEV(x) AS s FROM t GROUP BY g THINNING 1/8"
        )
        times = pa.array(np.arange(rows), pa.timestamp("us"))
        columns = {"ts": times, "g": np.arange(rows) % 2, "x": values}
        answer = query.answer(after=db.push("t", pa.table(columns)))
        for row in answer.rows():
            truth = values[row["g"] :: 2].var(ddof=1)
            assert row["v"] == pytest.approx(truth, rel=0.2)
            assert row["s"] == pytest.approx(np.sqrt(truth), rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("unit", [1e-170, 1e170])
def test_a_thinned_variance_beyond_doubles_is_null(unit: float, tmp_path: Path) -> None:
    values = unit * np.arange(1, 1001)
    with shedder.open(tmp_path / "data") as db:
        db.execute("CREATE STREAM t (ts TIMESTAMP NOT NULL, x DOUBLE) TIMESTAMP BY ts")
        query = db.register("q", "SELECT VAR(x) AS v, STDDEV(x) AS s FROM t THINNING 1/8")
        times = pa.array(np.arange(len(values)), pa.timestamp("us"))
        answer = query.answer(after=db.push("t", pa.table({"ts": times, "x": values})))
        [row] = answer.rows()
        assert [(row[name], row[f"{name}_bound"]) for name in "vs"] == [(None, "none")] * 2
