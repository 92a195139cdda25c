"""Quantiles whose target is a rank error: which sketch is kept, and that its answers hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from shedder.cql.expressions.column_types import ColumnType
from shedder.engine.engine import Engine
from shedder.engine.synopsis_plans.quantile_sketch_choice import rank_sketch
from shedder.engine.synopsis_plans.synopsis_plan import SynopsisKind, SynopsisSpec, plan
from shedder.queries.answers.database_api import Receipt
from tests import truth
from tests.cql.trees import bound_query

SECOND = 1_000_000
NOW_US = 1_700_000_000 * SECOND


@pytest.mark.parametrize(
    ("q", "error", "req", "high"),
    [
        (0.5, 0.001, False, True),  # In the middle KLL is smaller.
        (0.99, 0.05, False, True),  # A small KLL is good enough.
        (0.99, 0.001, True, True),
        (0.01, 0.001, True, False),
        (1.0, 0.0001, True, True),
    ],
)
def test_the_smaller_sketch_is_taken(q: float, error: float, req: bool, high: bool) -> None:
    choice = rank_sketch(q, ColumnType.DOUBLE, error=error, confidence=0.95)
    assert (choice.req, choice.high) == (req, high)
    assert choice.reason.startswith("KLL would take ")


@pytest.mark.parametrize("kind", [ColumnType.TIMESTAMP, ColumnType.BIGINT, ColumnType.INTEGER])
def test_times_and_whole_numbers_are_never_rounded_to_floats(kind: ColumnType) -> None:
    choice = rank_sketch(0.999, kind, error=0.001, confidence=0.95)
    assert not choice.req
    assert choice.reason.startswith("REQ's floats are too coarse for ")


def test_values_that_floats_cannot_tell_apart_do_not_meet_a_target_by_rank(tmp_path: Path) -> None:
    size = 50_000
    order = np.random.default_rng(1).permutation(size)
    whole, real = 1_700_000_000_000_000 + order, 1e9 + order * 1e-4
    db = Engine.open(tmp_path / "data", checkpoint_seconds=1e6)
    db.execute("CREATE STREAM s (ts TIMESTAMP, i BIGINT, x DOUBLE) TIMESTAMP BY ts")
    text = "SELECT QUANTILE(i, 0.99) AS whole, QUANTILE(x, 0.99) AS real, QUANTILE(x - 1e9, 0.99)"
    db.register("q", text + " AS apart FROM s WITHIN 0.0005 RANK")
    times = pa.array(np.full(size, NOW_US), pa.timestamp("us"))
    receipt = db.push("s", pa.table({"ts": times, "i": whole, "x": real}))
    row = db.query("q").answer(after=receipt).rows()[0]
    db.close()
    assert row["whole_met"] is True
    assert abs((whole <= row["whole"]).mean() - 0.99) <= 0.0005
    assert row["real_met"] is False
    assert row["real_low"] <= truth.exact_quantile(real, 0.99) <= row["real_high"]
    assert row["apart_met"] is True
    assert abs((real - 1e9 <= row["apart"]).mean() - 0.99) <= 0.0005


def test_what_was_granted_as_kll_stays_kll() -> None:
    query = bound_query("SELECT QUANTILE(d, 0.99) FROM stream WITHIN 0.001 RANK")
    (aggregate,) = query.aggregates
    assert plan(query, {aggregate: 2_000}).parts[1] == SynopsisSpec(
        SynopsisKind.KLL, aggregate.argument, 2_000
    )
    assert plan(query, {aggregate: 12}).parts[1].kind is SynopsisKind.REQ_HIGH


def pushed(db: Engine, second: int) -> tuple[np.ndarray, Receipt]:
    values = truth.draw("lognormal-2", second, 4_000)
    times = pa.array(np.full(4_000, NOW_US + second * SECOND), pa.timestamp("us"))
    k = np.floor(values).astype(np.int64)
    table = pa.table({"ts": times, "x": values, "k": k, "g": np.arange(4_000) % 3})
    return values, db.push("s", table)


@pytest.mark.slow
@pytest.mark.parametrize("by", ["", "g"])
def test_tails_over_windows_hold_and_explain_says_by_which_sketch(tmp_path: Path, by: str) -> None:
    text = f"""SELECT {by + "," if by else ""} QUANTILE(x, 0.995) AS tail,
      QUANTILE(x, 0.005) AS head, MEDIAN(x) AS middle, QUANTILE(k, 0.99) AS whole
      FROM s [RANGE 6 SECONDS SLIDE 2 SECONDS] {"GROUP BY g" if by else ""}
      WITHIN 0.002 RANK CONFIDENCE 99.99 PERCENT"""
    db = Engine.open(tmp_path / "data", checkpoint_seconds=1e6)
    db.execute("CREATE STREAM s (ts TIMESTAMP, x DOUBLE, k BIGINT, g BIGINT) TIMESTAMP BY ts")
    granted = db.register("q", text).granted
    assert granted["quantile 0.995"].startswith("REQ of k = ")
    assert granted["quantile 0.5"].startswith("KLL of k = ")
    assert "for low ranks (KLL would take " in granted["quantile 0.005"]
    values: dict[int, np.ndarray] = {}
    checked = 0
    for second in range(16):
        values[second], receipt = pushed(db, second)
        if second == 9:  # From stored panes and a replayed log.
            db.close()
            db = Engine.open(tmp_path / "data", checkpoint_seconds=1e6)
        answer = db.query("q").answer(after=receipt)
        if answer.end_us is None or answer.table.num_rows == 0:
            continue
        assert answer.start_us is not None
        first, last = ((at - NOW_US) // SECOND for at in (answer.start_us, answer.end_us))
        inside = [values[at] for at in range(max(first, 0), last)]
        if not inside:
            continue
        for row in answer.rows():
            x = np.concatenate([v[np.arange(4_000) % 3 == row["g"]] if by else v for v in inside])
            for name, q, column in [
                ("tail", 0.995, x),
                ("head", 0.005, x),
                ("middle", 0.5, x),
                ("whole", 0.99, np.floor(x)),
            ]:
                checked += 1
                exact = truth.exact_quantile(column, q)
                assert row[f"{name}_low"] <= exact <= row[f"{name}_high"], (name, row)
                assert row[f"{name}_met"] is True
                near = (column < row[name]).mean(), (column <= row[name]).mean()
                assert near[0] - 0.002 <= q <= near[1] + 0.002, name
    db.close()
    assert checked >= 40
