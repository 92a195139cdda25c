"""Sums and means of finite values beyond the range of doubles: every source says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from shedder.engine.engine import Engine
from synopses.moments.moments import GroupedMoments
from tests.engine.supervised import REWRITES, Supervised, settle

QUESTION = "SELECT SUM(x) AS s, AVG(x) AS a FROM t"
GROUPED = "SELECT g, SUM(x) AS s, AVG(x) AS a FROM t GROUP BY g"
ROLLUP = "CREATE ROLLUP r AS SELECT SUM(x) FROM rolled [RANGE 1 SECOND]"
BEYOND = {
    "above": [1e308] * 1000,
    "below": [-1e308] * 1000,
    "on the way": [1e308] * 500 + [-1e308] * 500,
    "two": [1.7e308, 1.7e308],
}
INFINITE = {
    "above": ([np.inf, 1.0] * 500, np.inf),
    "below": ([1.0, -np.inf] * 500, -np.inf),
    "above, and finite ones far below": ([-1e308, -1e308, np.inf], np.inf),
    "both": ([np.inf, -np.inf] * 500, None),
}


def answers_of(values: list[float], directory: Path) -> dict[str, dict[str, Any]]:
    """One row each by every source that knows all values."""
    with Engine.open(directory, machine=Supervised()) as engine:
        for stream in ("t", "rolled"):
            columns = "(ts TIMESTAMP NOT NULL, g BIGINT, x DOUBLE)"
            engine.execute(f"CREATE STREAM {stream} {columns} TIMESTAMP BY ts")
        engine.execute(ROLLUP)
        standing = {"panes": QUESTION, "panes by group": GROUPED}
        handles = {name: engine.register(name.replace(" ", "_"), q) for name, q in standing.items()}
        times = pa.array(np.arange(len(values)) * 10_000, pa.timestamp("us"))
        columns = {"ts": times, "g": np.zeros(len(values), np.int64), "x": np.array(values)}
        for stream in ("t", "rolled"):
            engine.push(stream, pa.table(columns))
        answers = {name: handle.answer() for name, handle in handles.items()}
        engine.seal("rolled")
        settle(engine, REWRITES)
        answers |= {
            "archive": engine.execute(QUESTION),
            "sample": engine.execute(f"{QUESTION} WITHIN 99 PERCENT"),
            "rollup": engine.execute(QUESTION.replace("FROM t", "FROM rolled")),
        }
        assert answers["rollup"].sources != answers["archive"].sources
        return {name: answer.rows()[0] for name, answer in answers.items()}


@pytest.mark.slow
@pytest.mark.parametrize("beyond", BEYOND)
def test_no_source_takes_a_sum_that_left_the_range_for_an_answer(
    beyond: str, tmp_path: Path
) -> None:
    for source, row in answers_of(BEYOND[beyond], tmp_path / "data").items():
        found = [(row[name], row[f"{name}_bound"]) for name in "sa"]
        assert found == [(None, "none")] * 2, source


@pytest.mark.slow
@pytest.mark.parametrize("values", INFINITE)
def test_a_sum_over_infinities_is_infinite_and_exact(values: str, tmp_path: Path) -> None:
    pushed, wanted = INFINITE[values]
    rows = answers_of(pushed, tmp_path / "data")
    for source in ("panes", "panes by group", "archive", "rollup"):
        found = [(rows[source][name], rows[source][f"{name}_bound"]) for name in "sa"]
        assert found == [(wanted, "exact")] * 2, source


@pytest.mark.slow
def test_a_thinned_window_does_not_take_it_for_an_answer(tmp_path: Path) -> None:
    with Engine.open(tmp_path / "data", machine=Supervised()) as engine:
        engine.execute("CREATE STREAM t (ts TIMESTAMP NOT NULL, x DOUBLE) TIMESTAMP BY ts")
        query = engine.register("q", QUESTION)
        times = pa.array(np.arange(4000), pa.timestamp("us"))
        engine.push("t", pa.table({"ts": times, "x": np.full(4000, 1e308)}))
        engine.thinning.set_thinning("q", 3)
        engine.push("t", pa.table({"ts": times, "x": np.full(4000, 1e300)}))
        row = query.answer().rows()[0]
    assert [(row[name], row[f"{name}_bound"]) for name in "sa"] == [(None, "none")] * 2


def test_moments_say_what_left_the_range_and_of_which_group() -> None:
    moments = GroupedMoments(4, integer=False)
    ids = np.array([0, 0, 1, 1, 2, 3, 3], np.int32)
    moments.update(ids, np.array([1.7e308, 1.7e308, 1e308, -1e308, np.inf, 1.0, 2.0]))
    for column, last in ((moments.sum(), 3.0), (moments.mean(), 1.5)):
        assert column.null.tolist() == [True, False, False, False]
        assert column.bound.tolist() == [2, 0, 0, 0]
        assert column.value[1:].tolist() == [0.0, np.inf, last]
        assert "beyond the range" in column.reason
    sums, rest = moments.sums()
    assert np.isnan([sums[0], rest[0]]).all()
    assert (rest[1:] == 0).all()
