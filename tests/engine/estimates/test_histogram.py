"""HISTOGRAM end to end: exact in panes, in intervals when tuples are skipped or late."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import shedder
from shedder.engine.engine import Engine
from shedder.errors import PrecisionUnavailable
from tests.truth import gate

SECOND = 1_000_000
EDGES = [-1.0, 0.0, 0.5, 2.0, 8.0]
CREATE = "CREATE STREAM s (ts TIMESTAMP, x DOUBLE, g VARCHAR) TIMESTAMP BY ts"
HISTOGRAM = f"HISTOGRAM(x, {EDGES}) AS h"


def opened(directory: Path) -> Engine:
    engine = shedder.open(directory, clock_us=lambda: 10_000 * SECOND, allocation_seconds=1e6)
    assert isinstance(engine, Engine)
    engine.execute(CREATE)
    return engine


def rows(count: int, seed: int, begin_s: float = 0.0) -> pa.Table:
    rng = np.random.default_rng(seed)
    times = np.sort(rng.uniform(begin_s * SECOND, (begin_s + 10) * SECOND, count)).astype(np.int64)
    x = np.where(rng.random(count) < 0.05, np.nan, rng.standard_t(2, count))
    x = np.where(rng.random(count) < 0.02, np.inf, x)
    table = {"ts": pa.array(times, pa.timestamp("us")), "x": pa.array(x, mask=x > 50), "g": None}
    return pa.table({**table, "g": rng.choice(["a", "b", "c"], count, p=[0.7, 0.25, 0.05])})


def counted(table: pa.Table, group: str | None) -> list[int]:
    x = table["x"].to_numpy()
    x = x if group is None else x[np.asarray(table["g"].to_pylist()) == group]
    return np.bincount(np.digitize(x[~np.isnan(x)], EDGES), minlength=len(EDGES) + 1).tolist()


def held(row: dict[str, Any], truth: list[int]) -> list[bool]:
    assert [item["from"] for item in row["h"]] == [None, *EDGES]
    assert [item["to"] for item in row["h"]] == [*EDGES, None]
    assert all(item["low"] <= item["count"] <= item["high"] for item in row["h"])
    found = [b["low"] <= n <= b["high"] for b, n in zip(row["h"], truth, strict=True)]
    assert all(found) or row["h_bound"] == "interval"
    return found


@pytest.mark.slow
@pytest.mark.parametrize("by", ["", "g"])
def test_counts_are_exact_in_panes_and_in_the_archive_and_add_up(tmp_path: Path, by: str) -> None:
    keys, group_by = (f"{by},", f"GROUP BY {by}") if by else ("", "")
    select = f"SELECT {keys} COUNT(x) AS n, {HISTOGRAM} FROM s {{}} {group_by}"
    table = pa.concat_tables([rows(2_000, part, begin_s=10 * part) for part in range(3)])
    with opened(tmp_path) as db:
        sliding = db.register("q", select.format("[RANGE 10 SECONDS SLIDE 5 SECONDS]"))
        db.register("all", select.format(""))
        db.push("s", table)
        db.heartbeat("s", 30 * SECOND)
        ts = table["ts"].cast(pa.int64()).to_numpy()
        window = table.filter(pa.array((ts >= 20 * SECOND) & (ts < 30 * SECOND)))
        answers = [(sliding.answer(), window), (db.query("all").answer(), table)]
        answers.append((db.execute(select.format("")), table))
        for answer, inside in answers:
            assert answer.table.num_rows == (3 if by else 1)
            for row in answer.rows():
                assert [item["count"] for item in row["h"]] == counted(inside, row.get("g"))
                assert sum(item["count"] for item in row["h"]) == row["n"]
                assert row["h_bound"] == "exact"


@pytest.mark.slow
def test_no_rows_give_buckets_of_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        (row,) = db.execute(f"SELECT {HISTOGRAM} FROM s").rows()
        assert [item["count"] for item in row["h"]] == [0] * 6
        grouped = db.execute(f"SELECT g, {HISTOGRAM} FROM s GROUP BY g")
        assert grouped.table.num_rows == 0


@pytest.mark.slow
@pytest.mark.parametrize("by", ["", "g"])
def test_intervals_hold_for_all_buckets_at_once_when_tuples_are_skipped(
    tmp_path: Path, by: str
) -> None:
    keys, group_by = (f"{by},", f"GROUP BY {by}") if by else ("", "")
    whole = []
    with opened(tmp_path) as db:
        for trial in range(12):
            if trial:
                db.execute(CREATE)
            db.register("q", f"SELECT {keys} {HISTOGRAM} FROM s {group_by}")
            pushed = []
            for part, share in enumerate(("1", "1/8", "1/2")):
                db.execute(f"ALTER QUERY q SET THINNING {share}")
                pushed.append(rows(1_500, 100 * trial + part, begin_s=10 * part))
                db.push("s", pushed[-1])
            answer = db.query("q").answer(after=db.push("s", pushed[-1].slice(0, 0)))
            for row in answer.rows():
                # Without groups, the basics have counted every bucket before tuples were skipped.
                assert row["h_bound"] == ("interval" if by else "exact")
                whole.append(all(held(row, counted(pa.concat_tables(pushed), row.get("g")))))
            db.execute("DROP QUERY q")
            db.execute("DROP STREAM s")
    assert sum(whole) >= gate(len(whole), 0.95)


@pytest.mark.slow
def test_late_tuples_may_be_in_any_bucket(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        query = db.register("q", f"SELECT {HISTOGRAM} FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS]")
        timely, late = rows(500, 1), rows(40, 2)
        db.push("s", timely)
        db.heartbeat("s", 10 * SECOND)
        db.push("s", late)
        answer = query.answer(after=db.push("s", late.slice(0, 0)))
        (row,) = answer.rows()
        assert answer.late > 0
        truth = np.add(counted(timely, None), counted(late, None)).tolist()
        assert all(held(row, truth))


@pytest.mark.slow
def test_a_target_is_met_when_every_bucket_meets_it(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        db.push("s", rows(4_000, 5))
        select = f"SELECT g, {HISTOGRAM} FROM s GROUP BY g WITHIN 1 PERCENT ELSE FAIL"
        query = db.register("q", select)
        assert query.answer().rows()[0]["h_met"] is True  # Exact.
        db.execute("ALTER QUERY q SET THINNING 1/8")
        with pytest.raises(PrecisionUnavailable, match="a list with wider counts"):
            query.answer(after=db.push("s", rows(4_000, 6, begin_s=10)))


@pytest.mark.slow
def test_an_answer_prints_buckets_by_their_edges(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        db.push("s", rows(100, 7))
        text = str(db.execute("SELECT HISTOGRAM(x, [0, 2]) AS h FROM s"))
        assert "< 0: " in text
        assert "0 .. 2: " in text
        assert ">= 2: " in text
