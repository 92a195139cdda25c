"""Windows of very many panes: as if all panes were merged each time, in bounded memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from shedder.engine.engine import Engine
from shedder.engine.panes.pane import Pane
from shedder.engine.standing_queries.standing_query import SLIDES_PER_FRAME_MAX
from shedder.engine.synopsis_plans.synopsis_plan import SynopsisKind
from shedder.engine.window_state.merged_window import merged_window
from shedder.engine.window_state.query_state import QueryState
from shedder.errors import BudgetExceeded
from shedder.streams.windows import Span

SECOND = 1_000_000
NOW_US = 1_700_000_000 * SECOND
MS = 1_000
INTEGER_STATE = (
    SynopsisKind.COUNT,
    SynopsisKind.DISTINCT,
    SynopsisKind.BUCKETS,
)  # Merges of these are equal to the byte.
SELECT = (
    "SELECT COUNT(*) AS n, SUM(v) AS s, MAX(k) AS m, COUNT(DISTINCT k) AS d, MEDIAN(v) AS q, "
    "TOP(k, 3) AS t FROM s [RANGE {} SLIDE {}] {}"
)


def open_at(directory: Path, **overrides: Any) -> Engine:
    """An engine whose clock stands still, in its far future."""
    return Engine.open(
        directory, clock_us=lambda: NOW_US + 10**6 * SECOND, checkpoint_seconds=1e6, **overrides
    )


def tuples(rng: np.random.Generator, times_us: np.ndarray, first_key: int, keys: int) -> pa.Table:
    rows = len(times_us)
    return pa.table(
        {
            "ts": pa.array(NOW_US + times_us.astype(np.int64), pa.timestamp("us")),
            "k": pa.array(rng.integers(first_key, first_key + keys, rows)),
            "v": pa.array(rng.lognormal(2, 1, rows)),
        }
    )


def all_panes_merged(query_state: QueryState, start_us: int, end_us: int) -> Pane:
    width = query_state.grid.width_us
    assert width is not None
    whole = Pane(query_state.plan, 1 if query_state.keys is None else query_state.keys.size)
    for number in sorted(query_state.panes):
        if start_us <= number * width < end_us:
            whole.merge(query_state.panes[number])
    return whole


def check_window(query_state: QueryState, answer: Any) -> None:
    """The window of an answer, made again, against the merge of all its panes."""
    if answer.end_us is None:
        return
    naive = all_panes_merged(query_state, answer.start_us, answer.end_us)
    merged = merged_window(query_state, Span(answer.start_us, answer.end_us))
    if merged.ids is not None:
        assert merged.ids.tolist() == np.flatnonzero(naive.counts > 0).tolist()
        naive = naive.select(merged.ids)
    for part, mine, theirs in zip(
        query_state.plan.parts, merged.pane.parts, naive.parts, strict=True
    ):
        if part.kind in INTEGER_STATE:
            assert mine.to_bytes() == theirs.to_bytes(), part
        elif part.kind is SynopsisKind.MOMENTS:
            assert mine.counts().tolist() == theirs.counts().tolist()
            np.testing.assert_allclose(mine.sum().value, theirs.sum().value, rtol=1e-14)
            assert mine.maximum().value.tolist() == theirs.maximum().value.tolist()
        else:
            assert mine.totals.tolist() == theirs.totals.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("grouped", [False, True], ids=["one group", "groups"])
@pytest.mark.parametrize("seed", range(3))
def test_a_window_equals_the_merge_of_its_panes(tmp_path: Path, seed: int, grouped: bool) -> None:
    rng = np.random.default_rng(seed)
    slide, panes = ("100 MILLISECONDS", 90) if seed % 2 else ("300 MILLISECONDS", 30)
    text = SELECT.format("9 SECONDS", slide, "GROUP BY k" if grouped else "")
    db = open_at(tmp_path / "data")
    db.execute(
        "CREATE STREAM s (ts TIMESTAMP, k BIGINT, v DOUBLE) TIMESTAMP BY ts "
        "LATENESS INTERVAL '1' SECOND"
    )
    db.register("q", text)
    newest = 0
    for number in range(40):
        newest += int(rng.choice([200, 1_000, 2_500, 30_000], p=[0.4, 0.4, 0.17, 0.03])) * MS
        times = newest - np.sort(rng.integers(0, 1_500 * MS, int(rng.integers(1, 60))))[::-1]
        # Keys come and go, so that ids are compacted; some tuples are too late.
        answer = db.query("q").answer(after=db.push("s", tuples(rng, times, 40 * number, 60)))
        query_state = db.core.standing_query("q")[1].state
        check_window(query_state, answer)
        assert len(query_state.panes) <= query_state.grid.panes_max(SECOND) + panes
        if number % 13 == 12:
            if number == 12:
                db.close()
            else:
                db.checkpoints.now()
                db.close()
            db = open_at(tmp_path / "data")
            check_window(db.core.standing_query("q")[1].state, db.query("q").answer())
    assert query_state.panes.closed.merge_bytes.sum() > 0 or not query_state.panes
    db.close()


@pytest.mark.slow
@pytest.mark.parametrize("listened", [False, True], ids=["invoked", "subscribed"])
def test_a_batch_over_100_000_panes_makes_those_that_answers_need(
    tmp_path: Path, listened: bool
) -> None:
    rows = 100_000
    rng = np.random.default_rng(1)
    with open_at(tmp_path / "data", sample_rows=1_000) as db:
        db.execute("CREATE STREAM s (ts TIMESTAMP, k BIGINT, v DOUBLE) TIMESTAMP BY ts")
        text = "SELECT COUNT(*) AS n, SUM(k) AS total FROM s [RANGE {} SLIDE {}]"
        query = db.register("q", text.format("100 MILLISECONDS", "1 MILLISECOND"))
        answers: list[Any] = []
        if listened:
            db.listen("q", answers.append)
        table = tuples(rng, np.arange(rows) * MS, 0, 50)
        db.push("s", tuples(rng, np.zeros(1), 0, 1))
        tracemalloc.start()
        answer = query.answer(after=db.push("s", table.slice(1)))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        keys = table["k"].to_numpy()
        last_end = NOW_US + (rows - 1) * MS
        assert answer.end_us == last_end
        row = answer.rows()[0]
        assert (row["n"], row["n_bound"]) == (100, "exact")
        assert row["total"] == keys[-101:-1].sum()
        assert peak < 60e6  # All panes at once take 105 MB; answers that are told, 10 KB each.
        query_state = db.core.standing_query("q")[1].state
        assert len(query_state.panes) <= 200
        assert (query_state.timely, query_state.late) == (rows, 0)
        if listened:
            ends = [each.end_us for each in answers[-SLIDES_PER_FRAME_MAX:]]
            assert ends == list(range(last_end - 999 * MS, last_end + 1, MS))
            for each in answers[-SLIDES_PER_FRAME_MAX::100]:
                first = (each.start_us - NOW_US) // MS
                assert each.rows()[0]["total"] == keys[first : first + 100].sum()


def test_late_tuples_are_told_from_those_that_no_answer_needs(tmp_path: Path) -> None:
    with open_at(tmp_path / "data") as db:
        db.execute("CREATE STREAM s (ts TIMESTAMP, k BIGINT, v DOUBLE) TIMESTAMP BY ts")
        query = db.register("q", "SELECT COUNT(*) AS n FROM s [RANGE 10 SECONDS SLIDE 1 SECOND]")
        rng = np.random.default_rng(1)
        db.push("s", tuples(rng, np.array([50 * SECOND]), 0, 1))
        mixed = np.array([3, 51, 52, 90, 99, 100]) * SECOND
        answer = query.answer(after=db.push("s", tuples(rng, mixed, 0, 1)))
        query_state = db.core.standing_query("q")[1].state
        assert (query_state.timely, query_state.late) == (6, 1)
        assert sorted(query_state.panes) == [NOW_US // SECOND + s for s in (90, 99, 100)]
        assert answer.rows()[0]["n"] == 2


def test_panes_are_counted_when_a_query_is_registered(tmp_path: Path) -> None:
    with open_at(tmp_path / "data", memory_bytes=256 << 20) as db:
        db.execute(
            "CREATE STREAM slow (ts TIMESTAMP, k BIGINT) TIMESTAMP BY ts LATENESS INTERVAL '1' DAY"
        )
        text = "SELECT COUNT(*) AS n FROM slow [RANGE {} SLIDE {}]"
        with pytest.raises(BudgetExceeded, match="are free"):  # A day of panes stays open.
            db.register("q", text.format("1 SECOND", "1 MILLISECOND"))
        db.register("q", text.format("1 HOUR", "1 MINUTE"))
