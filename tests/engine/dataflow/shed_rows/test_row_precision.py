"""Predicted precision of row queries with ON OVERLOAD SHED, beside the rows that DuckDB finds."""

from __future__ import annotations

import re

import pytest

from shedder.cql.text.sampling_fractions import share_text
from shedder.engine.dataflow.row_precision import bytes_by_level, expected_text
from shedder.engine.engine import Engine
from tests.engine.dataflow.shed_rows.shed_world import (
    QUERIES,
    WINDOW,
    TwoStreams,
    create,
    push,
    rows_of,
)
from tests.seeds import seed

NAMES = {"join": "pairs", "distinct": "known", "except": "rest", "not exists": "lonely"}
LIMITS = (4 << 20, 8 << 20, 64 << 20)
NEAR = 0.02  # Of the share of rows in a sample of half of the keys: five deviations and more.


def text_of(kind: str) -> str:
    window = "[RANGE 10 SECONDS SLIDE 10 SECONDS]"
    return f"{QUERIES[kind][0].replace(WINDOW, window)} ON OVERLOAD SHED"


def described(db: Engine, name: str) -> dict[str, str]:
    return {row["key"]: row["value"] for row in db.execute(f"DESCRIBE {name}").rows()}


def level_in(text: str) -> int:
    found = re.match(r"level (\d), ", text)
    assert found, text
    return int(found[1])


@pytest.mark.slow
@pytest.mark.parametrize("limit", LIMITS)
def test_measured_rates_are_near_the_predicted_ones_and_bytes_sum_to_the_budget(tmp_path, limit):
    world = TwoStreams(seed("row precision", limit), keys=60_000, rows=60_000)
    with Engine.open(tmp_path, row_query_bytes_max=limit, memory_bytes=4 << 30) as db:
        create(db)
        for kind, name in NAMES.items():
            db.register(name, text_of(kind))
        push(db, world, 3)
        levels = dict[str, int]()
        for kind, name in NAMES.items():
            query = db.query(name)
            found, truth = rows_of(query.answer().table), world.rows(kind, slides=1)
            facts = described(db, name)
            levels[name] = level = int(facts["level"])
            false_negatives = (truth - found).total() / truth.total()
            false_positives = (found - truth).total() / max(1, found.total())
            assert abs(false_negatives - float(facts["predicted_fn"])) < NEAR
            assert abs(false_positives - float(facts["predicted_fp"])) < NEAR
            expected = query.granted["expected precision"]
            assert abs(level_in(expected) - level) <= 1  # Bytes are estimated within a factor of 2.
            preview = db.execute(f"EXPLAIN CREATE QUERY q AS {text_of(kind)}").rows()
            assert {"granted": "expected precision", "value": expected} in preview
            assert f"  predicted precision: level {level}, " in query.explain()
        check_allocation(db, levels)


def check_allocation(db: Engine, levels: dict[str, int]) -> None:
    """Row queries have their levels, and their bytes sum to what they may hold together."""
    answer = db.execute("EXPLAIN ALLOCATION")
    assert "false negatives plus" in str(answer)
    rows = answer.rows()
    first = [row["synopsis"] for row in rows].index("free") + 1
    assert sum(row["size_bytes"] for row in rows[:first]) == db.core.synopsis_bytes
    plans = rows[first:]
    assert sum(row["size_bytes"] for row in plans) == db.core.rows.limits.all_bytes_max
    of = {row["query"]: row for row in plans if row["synopsis"] == "operators"}
    for name, level in levels.items():
        assert of[name]["thinning"] == share_text(level)
        assert (of[name]["predicted_fn"], of[name]["predicted_fp"]) == (1 - 2.0**-level, 0.0)
        taken = sum(row["size_bytes"] for row in plans if row["query"] == name)
        assert taken == int(described(db, name)["size_bytes"])


def test_shared_state_is_a_row_of_its_own_in_the_allocation(tmp_path):
    world = TwoStreams(seed("row precision", "shared"), keys=100, rows=200)
    with Engine.open(tmp_path) as db:
        create(db)
        text = QUERIES["join"][0]
        for name in ("one", "two"):
            db.register(name, text)
        push(db, world)
        rows = db.execute("EXPLAIN ALLOCATION").rows()
        plans = rows[[row["synopsis"] for row in rows].index("free") + 1 :]
        assert sum(row["size_bytes"] for row in plans) == db.core.rows.limits.all_bytes_max
        [shared] = [row for row in plans if row["synopsis"] == "operators that row queries share"]
        assert shared["query"] is None
        assert shared["size_bytes"] > 0
        of = [row for row in plans if row["synopsis"] == "operators"]
        assert [(row["thinning"], row["predicted_fn"]) for row in of] == [("1", 0.0)] * 2
        assert "expected precision" not in db.query("one").granted


def test_levels_halve_the_bytes_of_tuples_and_pay_empty_operators_for_each_stratum():
    found = bytes_by_level(6_400, 10)
    strata = [3_200, 1_600, 800, 400, 200, 100, 100]
    assert found.tolist() == [sum(strata[level:]) + 10 * (7 - level) for level in range(7)]


def test_expected_level_is_the_lowest_that_fits():
    sizes = bytes_by_level(6_400, 10).tolist()
    for level, size in enumerate(sizes):
        text = expected_text([6_000, 400], empty_bytes=10, beside_bytes=5, bytes_max=size + 5)
        assert level_in(text) == level
    text = expected_text([6_000, 400], empty_bytes=10, beside_bytes=5, bytes_max=sizes[-1] + 4)
    assert text == "none: level 6 is expected to hold 115 bytes, row_query_bytes_max is 114"


def test_no_level_is_expected_of_a_stream_whose_rate_is_unknown(tmp_path):
    with Engine.open(tmp_path) as db:
        create(db)
        granted = db.register("q", text_of("join")).granted
        assert granted["expected precision"] == ("none before its bytes are known: unknown rate")
