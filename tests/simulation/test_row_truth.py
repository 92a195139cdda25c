"""Worlds with row queries: their relations are compared with a second text."""

from __future__ import annotations

import pyarrow as pa
import pytest

from shedder.errors import BadSetting
from shedder.queries.answers.answer import Answer, InputProgress
from shedder.simulation.html_report import to_html
from shedder.simulation.row_truth import RowTruth
from shedder.simulation.scenario import ScenarioRows
from shedder.simulation.tuple_generator import SCHEMA, TABLE_SCHEMA
from tests.simulation.worlds import run, scenario

SECOND = 1_000_000
JOIN = {
    "name": "pairs",
    "sql": "SELECT a.key AS key, COUNT(*) AS n FROM requests [RANGE 1 SECOND] a "
    "JOIN requests [RANGE 1 SECOND] b ON a.key = b.key GROUP BY a.key",
    "truth": "SELECT a.key, COUNT(*) FROM a JOIN b ON a.key = b.key GROUP BY a.key",
    "windows": {"a": 1, "b": 1},
}
SHARDS = ScenarioRows(name="q", sql="", truth="SELECT key, shard FROM r", windows={"r": 2})


def tuples(*rows: tuple[int, int]) -> pa.RecordBatch:
    """Return tuples of (event time in seconds, key)."""
    whole = {"ts": [ts * SECOND for ts, _ in rows], "key": [key for _, key in rows]}
    rest = {"value": [0.5] * len(rows), "size": [1] * len(rows), "ok": [True] * len(rows)}
    return pa.RecordBatch.from_pydict(whole | rest, schema=SCHEMA)


def answer_of(rows: list[tuple[int, int | None]], *, position: int, late: int = 0) -> Answer:
    """Return an answer of SHARDS as of 10 s."""
    table = pa.table({"key": [key for key, _ in rows], "shard": [shard for _, shard in rows]})
    return Answer(table, inputs=(InputProgress("requests", "r", position, 10 * SECOND, late),))


def test_a_tuple_joins_the_row_that_was_before_it_in_the_log() -> None:
    truth = RowTruth(lateness_us=20 * SECOND)
    truth.add("requests", tuples((8, 1), (9, 2)))
    truth.change(pa.RecordBatch.from_pydict({"key": [1], "shard": [5]}, schema=TABLE_SCHEMA))
    # Two are before and behind the window.
    truth.add("requests", tuples((8, 1), (7, 1), (10, 1), (9, 2)))
    rows = [(1, None), (2, None), (1, 5), (2, None)]
    assert truth.differences(SHARDS, answer_of(rows, position=6)) == 0
    assert truth.differences(SHARDS, answer_of(rows[:2], position=2)) == 0
    assert truth.differences(SHARDS, answer_of(rows[1:], position=6)) == 1
    assert truth.differences(SHARDS, answer_of([(1, 5), *rows[1:]], position=6)) == 2


def test_late_tuples_are_not_in_the_truth_and_are_counted() -> None:
    truth = RowTruth(lateness_us=SECOND)
    truth.add("requests", tuples((10, 1)))
    truth.add("requests", tuples((8, 2), (9, 3)))  # The watermark is 9 s.
    assert truth.differences(SHARDS, answer_of([(3, None)], position=3, late=1)) == 0
    assert truth.differences(SHARDS, answer_of([(3, None)], position=3)) == 1


def test_tuples_of_an_idle_stream_are_late_behind_the_watermark_of_the_other() -> None:
    """The other stream goes from 5 to 20 s; a batch ends the silence."""
    query = ScenarioRows(
        name="q", sql="", truth="SELECT b.key FROM a, b", windows={"a": 30, "b": 30}
    )
    truth = RowTruth(lateness_us=0)
    truth.add("requests", tuples((5, 1)))
    truth.add("requests_of_x", tuples((1, 2)))
    truth.count_idle("requests_of_x")
    truth.add("requests", tuples((20, 3)))
    truth.add("requests_of_x", tuples((19, 4), (20, 5)))
    truth.add("requests_of_x", tuples((10, 6), (21, 7)))
    rows = pa.table({"key": pa.array([2], pa.int64())})
    for position, late in ((1, 0), (3, 1), (5, 2)):
        inputs = (
            InputProgress("requests", "a", 2, 20 * SECOND),
            InputProgress("requests_of_x", "b", position, 20 * SECOND, late),
        )
        assert truth.differences(query, Answer(rows, inputs=inputs)) == 0
        assert truth.differences(query, Answer(rows.slice(1), inputs=inputs)) == 1


def test_an_input_without_a_window_is_named() -> None:
    truth = RowTruth(lateness_us=SECOND)
    truth.add("requests", tuples((10, 1)))
    query = SHARDS.model_copy(update={"windows": {"x": 1.0}})
    with pytest.raises(BadSetting, match="it lacks the input 'r'"):
        truth.differences(query, answer_of([], position=1))


@pytest.mark.slow
def test_a_relation_that_is_not_the_truth_is_a_problem() -> None:
    honest = scenario(rows=[JOIN], producers=[{"arrivals": {"rate": 300}}], seconds=2)
    world, result = run(honest)
    assert not result.problems
    assert world.rows.compared >= 5
    wrong = JOIN | {"windows": {"a": 1, "b": 0.9}}
    _, result = run(scenario(rows=[wrong], producers=[{"arrivals": {"rate": 300}}], seconds=2))
    assert len(result.problems) >= 3
    assert all("rows differ from the truth" in problem for problem in result.problems)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"stream": {"on_overload": "DROP"}}, "policy DROP"),
        ({"producers": [{"helps": True, "arrivals": {"rate": 10}}]}, "producers clients"),
        ({"producers": [{"thinning": "1/8", "arrivals": {"rate": 10}}]}, "producers clients"),
    ],
)
def test_tuples_beside_row_queries_are_neither_dropped_nor_summarised(
    changes: dict[str, object], what: str
) -> None:
    with pytest.raises(BadSetting, match=f"{what}: beside `rows` no tuple may be"):
        scenario(rows=[JOIN], **changes)


COUNTED = {
    "name": "pairs",
    "sql": "SELECT COUNT(*) AS n FROM requests [RANGE 1 SECOND SLIDE 500 MILLISECONDS] a "
    "JOIN requests [RANGE 1 SECOND SLIDE 500 MILLISECONDS] b ON a.key = b.key "
    "CONFIDENCE 95 PERCENT",
    "truth": "SELECT COUNT(*) FROM a JOIN b ON a.key = b.key",
    "windows": {"a": 1, "b": 1},
    "slide_s": 0.5,
}


@pytest.mark.slow
def test_intervals_of_a_join_are_judged_beside_the_truth() -> None:
    """Keys find room at first, and not when there are 400,000 of them."""
    few = scenario(rows=[COUNTED], producers=[{"arrivals": {"rate": 300}}], seconds=2)
    world, result = run(few)
    assert not result.problems
    pairs = world.rows.intervals["pairs"]
    assert pairs.exact >= 5
    assert result.totals["row_intervals"] == 0
    wrong = COUNTED | {"truth": "SELECT COUNT(*) + 1 FROM a JOIN b ON a.key = b.key"}
    _, result = run(few.model_copy(update={"rows": (ScenarioRows.model_validate(wrong),)}))
    assert len(result.problems) >= 3
    assert all("rows differ from the truth" in problem for problem in result.problems)


@pytest.mark.slow
def test_intervals_that_miss_fail_the_claim_of_their_coverage() -> None:
    world = {
        "machine": {"sample_rows": 64, "row_query_bytes": "1MiB"},
        "stream": {"lateness_s": 0.1, "keys": 400_000, "skew": 0},
        "producers": [{"arrivals": {"rate": 20_000}}],
        "claims": {"row_coverage_min": 0.9, "row_intervals_min": 3},
        "seconds": 2,
    }
    _, result = run(scenario(rows=[COUNTED], **world), keep_all=False)
    assert result.held, (result.claims, result.problems)
    page = to_html(result)
    assert "pairs.n: the answer, its interval, and the truth" in page
    assert page.count("<polygon") >= 1
    wrong = COUNTED | {"truth": "SELECT 3 * COUNT(*) FROM a JOIN b ON a.key = b.key"}
    _, result = run(scenario(rows=[wrong], **world), keep_all=False)
    assert [claim.name for claim in result.claims if not claim.held] == ["coverage of rows"]
