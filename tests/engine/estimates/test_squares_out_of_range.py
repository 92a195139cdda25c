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
