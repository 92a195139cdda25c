"""Groups beyond the byte cap: what is said of those that have room stays true."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from shedder.engine.engine import Engine
from shedder.engine.panes.overflow_group import among_others
from shedder.engine.rebuild.pane_repair import rows_there
from shedder.queries.answers.answer import Answer
from shedder.streams.group_keys import OTHERS

SECOND = 1_000_000
NOW_US = 1_700_000_000 * SECOND
SELECT = "SELECT k, COUNT(*) AS n, MAX(k) AS m FROM s {} GROUP BY k"
SLIDING = "[RANGE INTERVAL '100' SECOND SLIDE INTERVAL '20' SECOND]"


def open_small(directory: Path) -> Engine:
    return Engine.open(
        directory, group_bytes_max=64 << 10, checkpoint_seconds=1e6, allocation_seconds=1e6
    )


def batch(second: int, first: int, groups: int) -> pa.Table:
    """One tuple of each of these groups."""
    times = pa.array(np.full(groups, NOW_US + second * SECOND), pa.timestamp("us"))
    return pa.table({"ts": times, "k": pa.array(np.arange(first, first + groups))})


def check(answer: Answer, pushed: list[tuple[int, int, int]]) -> int:
    """Every row against the batches in its window; returns the number of groups that had room."""
    inside = [
        np.arange(first, first + groups)
        for second, first, groups in pushed
        if answer.start_us is None or answer.start_us <= NOW_US + second * SECOND < answer.end_us
    ]
    truth = np.bincount(np.concatenate(inside))
    for number, row in enumerate(answer.rows()):
        if number == answer.others:
            continue
        n = truth[row["k"]]
        assert row["n_low"] <= n <= row["n_high"], (row, n)
        assert row["n_bound"] != "exact" or row["n"] == n, (row, n)
    assert sum(answer.table["n"].to_pylist()) == truth.sum()
    return answer.table.num_rows


def test_a_group_that_found_no_room_once_finds_none_later(tmp_path: Path) -> None:
    with open_small(tmp_path / "data") as db:
        db.execute("CREATE STREAM s (ts TIMESTAMP, k BIGINT) TIMESTAMP BY ts")
        query = db.register("g", SELECT.format(""))
        pushed = [(0, 0, 10_000), *[(1, 20_000, 10)] * 5]
        for one in pushed:
            answer = query.answer(after=db.push("s", batch(*one)))
        assert answer.others is not None
        check(answer, pushed)


def test_long_texts_that_name_groups_count_against_the_cap(tmp_path: Path) -> None:
    """64 KiB of an aggregate have room for thousands of counts, and for eight of these names."""
    with open_small(tmp_path / "data") as db:
        db.execute("CREATE STREAM t (ts TIMESTAMP, name VARCHAR) TIMESTAMP BY ts")
        query = db.register("g", "SELECT name, COUNT(*) AS n FROM t GROUP BY name")
        for first in range(0, 400, 20):
            names = [f"{number:08000}" for number in range(first, first + 20)]
            times = pa.array(np.full(20, NOW_US), pa.timestamp("us"))
            receipt = db.push("t", pa.table({"ts": times, "name": names}))
        answer = query.answer(after=receipt)
        assert answer.others is not None
        assert 8 < answer.table.num_rows < 40
        assert sum(answer.table["n"].to_pylist()) == 400
        _, standing_query = db.core.standing_query("g")
        assert standing_query.state.size_bytes < 1 << 20


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("restarts", [False, True], ids=["one life", "many lives"])
def test_groups_that_find_room_later_are_bounded_not_exact(
    tmp_path: Path, seed: int, restarts: bool
) -> None:
    rng = np.random.default_rng(seed)
    db = open_small(tmp_path / "data")
    db.execute("CREATE STREAM s (ts TIMESTAMP, k BIGINT) TIMESTAMP BY ts")
    db.register("g", SELECT.format(SLIDING))
    pushed = []
    for number in range(20):
        for second in (0, 7, 14):  # Large panes die beside small ones with the same groups.
            size = int(rng.choice([20, 300, 3_000], p=[0.7, 0.2, 0.1]))
            one = (number * 20 + second, int(rng.choice([0, 100, 2_000, 4_000])), size)
            pushed.append(one)
            db.push("s", batch(*one))
        if restarts and number % 3 == 0:
            db.close()
            db = open_small(tmp_path / "data")
        db.heartbeat("s", NOW_US + (number + 1) * 20 * SECOND)
        check(db.query("g").answer(), pushed)
    db.close()


@pytest.mark.slow
@pytest.mark.parametrize(("cap", "full"), [(64 << 10, True), (64 << 20, False)])
def test_explain_says_when_the_cap_leaves_no_room_for_merges(
    tmp_path: Path, cap: int, full: bool
) -> None:
    with Engine.open(tmp_path / "data", group_bytes_max=cap, allocation_seconds=1e6) as db:
        db.execute("CREATE STREAM s (ts TIMESTAMP, k BIGINT) TIMESTAMP BY ts")
        query = db.register("g", SELECT.format("[RANGE 100 SECONDS SLIDE 1 SECOND]"))
        for second in range(140):
            receipt = db.push("s", batch(second, 0, 16))
        answer = query.answer(after=receipt)
        check(answer, [(second, 0, 16) for second in range(140)])
        assert ("a slide merges up to" in query.explain()) == full


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_groups_of_a_provider_that_find_no_room_in_a_wider_window_are_all_among_its_others(
    tmp_path: Path, seed: int
) -> None:
    """Of those that found no room at once, all but one had been forgotten, and no answer knew."""
    rng = np.random.default_rng(seed)
    with open_small(tmp_path / "data") as db:
        db.execute("CREATE STREAM s (ts TIMESTAMP, k BIGINT) TIMESTAMP BY ts")
        db.register(
            "feeder", SELECT.format("[RANGE INTERVAL '10' SECOND SLIDE INTERVAL '10' SECOND]")
        )
        query = db.register("g", SELECT.format(SLIDING))
        pushed = []
        for second in range(0, 200, 5):
            groups = 10 if second <= 30 else int(rng.choice([5, 20, 60, 150, 250, 400]))
            pushed.append((second, 100 * int(rng.integers(0, 3)), groups))
            answer = query.answer(after=db.push("s", batch(*pushed[-1])))
            if second >= 20:
                check(answer, pushed)


def test_what_is_known_of_all_groups_together_is_known_once_when_some_find_no_room(tmp_path):
    with Engine.open(tmp_path / "data", allocation_seconds=1e6) as db:
        db.execute("CREATE STREAM s (ts TIMESTAMP, k BIGINT) TIMESTAMP BY ts")
        query = db.register("g", SELECT.format(""))
        db.execute("ALTER QUERY g SET THINNING 1/2")
        query.answer(after=db.push("s", pa.concat_tables([batch(0, 0, 40)] * 25)))
        (pane,) = db.core.standing_query("g")[1].state.panes.values()
        rows = pane.select(np.arange(1, 41))
        ids = np.where(np.arange(40) < 30, OTHERS, np.arange(40) - 29)
        fewer = among_others(rows, ids, 11)
        for place, segment in rows.segments.items():
            assert fewer.segments[place].basics == segment.basics
        assert fewer.segments
        assert fewer.counts.tolist() == [rows.counts[:30].sum(), *rows.counts[30:]]
        assert rows_there(fewer) == rows_there(rows) == 1_000
