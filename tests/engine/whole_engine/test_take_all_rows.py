"""Take-all rows of thinned queries in a whole engine: restarts, sharing, summaries, deletions."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import shedder
from shedder.engine.engine import Engine
from shedder.engine.remote_summaries.summary_builder import Plans, Summariser
from shedder.streams.batch_conversion import conform
from shedder.streams.windows import Span
from tests.engine.checkpointed import checkpoint
from tests.engine.killed import copy_killed
from tests.engine.thinned_streams import CREATE, SECOND, rows

pytestmark = pytest.mark.slow

VALUES = "COUNT(*) AS n, SUM(x) AS s, AVG(x) AS a, VAR(x) AS v, MAX(x) AS h"
CERTAIN = "CONFIDENCE 99.9999 PERCENT"
GROUPED = f"SELECT g, {VALUES} FROM s GROUP BY g {CERTAIN}"
SLIDING = f"""SELECT g, {VALUES} FROM s [RANGE 20 SECONDS SLIDE 10 SECONDS] WHERE k > 3
  GROUP BY g {CERTAIN}"""
WIDER = SLIDING.replace("RANGE 20", "RANGE 40")
STRETCH = 1 << 16  # Positions of rows that have the same ends.


def opened(directory: Path) -> Engine:
    engine = shedder.open(
        directory, clock_us=lambda: 10_000 * SECOND, checkpoint_seconds=1e6, audit="off"
    )
    assert isinstance(engine, Engine)
    return engine


def begun(directory: Path, queries: dict[str, str], share: str = "1/8") -> Engine:
    engine = opened(directory)
    engine.execute(CREATE)
    for name, text in queries.items():
        engine.register(name, text)
        engine.execute(f"ALTER QUERY {name} SET THINNING {share}")
    return engine


def answers(engine: Engine, name: str) -> list[dict[str, Any]]:
    return sorted(engine.query(name).answer().rows(), key=lambda row: str(row["g"]))


def in_full(engine: Engine, name: str) -> int:
    """Rows that a thinned query has read in full, in the panes that it has."""
    standing = engine.core.standing_query(name)[1].state
    return sum(int(pane.parts[0].count().value.sum()) for pane in standing.panes.values())


def check(engine: Engine, name: str, truth: pa.Table) -> None:
    """All intervals hold: each would miss one of a million."""
    found = answers(engine, name)
    assert len(found) == 4
    for row in found:
        x = truth.filter(pa.compute.equal(truth["g"], row["g"]))["x"].to_numpy()
        count, x = len(x), x[~np.isnan(x)]
        exact = {"n": count, "s": x.sum(), "a": x.mean(), "v": x.var(), "h": x.max()}
        for output, value in exact.items():
            assert row[f"{output}_bound"] in ("exact", "interval"), output
            slack = 1e-9 * abs(value)
            assert row[f"{output}_low"] - slack <= value <= row[f"{output}_high"] + slack, output


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("at", [None, STRETCH + 3_000, 2 * STRETCH + 3_000])
def test_a_restart_makes_the_same_panes(tmp_path: Path, clean: bool, at: int | None) -> None:
    """A checkpoint falls into the stretch whose values are gathered, or behind it, or is absent."""
    queries = {"grouped": GROUPED, "sliding": SLIDING}
    size = 3 * STRETCH
    table = rows(size, 1, seconds=60.0)
    cuts = [0, *([] if at is None else [at]), 2 * STRETCH + 9_000, size]
    engine = begun(tmp_path / "first", queries)
    for first, last in pairwise(cuts):
        engine.push("s", table.slice(first, last - first))
        if last == at:
            checkpoint(engine)
    before = {name: answers(engine, name) for name in queries}
    assert in_full(engine, "grouped") > 500
    if clean:
        engine.close()
        shutil.copytree(tmp_path / "first", tmp_path / "second")
    else:
        copy_killed(engine, tmp_path / "second")
        engine.close()
    with opened(tmp_path / "second") as again:
        assert {name: answers(again, name) for name in queries} == before
        again.push("s", rows(1_000, 2, begin_s=60))
        check(again, "grouped", pa.concat_tables([table, rows(1_000, 2, begin_s=60)]))


def test_levels_that_change_within_a_window_leave_intervals_that_hold(tmp_path: Path) -> None:
    with begun(tmp_path, {"grouped": GROUPED}, "1/8") as engine:
        pushed = []
        for number, share in enumerate(("1/8", "1/8", "1/2", "1", "1/64", "1/4")):
            engine.execute(f"ALTER QUERY grouped SET THINNING {share}")
            pushed.append(rows(40_000, number, begin_s=10 * number))
            engine.push("s", pushed[-1])
        check(engine, "grouped", pa.concat_tables(pushed))


def test_shared_panes_are_those_that_a_query_alone_would_have(tmp_path: Path) -> None:
    """A consumer goes on as its provider would have; a replay may end the sharing later."""
    begun(tmp_path / "shared", {"a": SLIDING, "b": WIDER}).close()
    shutil.copytree(tmp_path / "shared", tmp_path / "alone")  # With the same random keys.
    with opened(tmp_path / "shared") as shared, opened(tmp_path / "alone") as alone:
        alone.execute("DROP QUERY a")
        for number in range(4):
            table = rows(STRETCH, number, begin_s=20 * number, seconds=20.0)
            for engine in (shared, alone):
                engine.push("s", table)
            if number == 2:
                assert shared.core.standing_query("b")[1].state.feed is not None
                shared.execute("DROP QUERY a")
            assert answers(shared, "b") == answers(alone, "b")
        assert in_full(alone, "b") > 100


def test_summaries_of_thinned_rows_carry_the_rows_that_were_read_in_full(tmp_path: Path) -> None:
    with begun(tmp_path, {"grouped": GROUPED, "sliding": SLIDING}, "1/4") as engine:
        plans = Plans.from_json(engine.plans("s"))
        table = rows(2 * STRETCH + 20_000, 5, seconds=20.0)
        shuffled = table.take(np.random.default_rng(1).permutation(len(table)))
        builder = Summariser(plans)
        for first in range(0, len(table), 10_000):
            for batch in conform(shuffled.slice(first, 10_000), plans.schema):
                builder.add(batch)
        engine.merge("s", builder.summaries().to_bytes())
        check(engine, "grouped", table)
        assert in_full(engine, "grouped") > 500
        for ledger in engine.ledger("s").queries:
            assert ledger.read + ledger.thinned == len(table)


def test_deleted_and_late_rows_are_allowed_for(tmp_path: Path) -> None:
    with begun(tmp_path, {"grouped": GROUPED, "sliding": SLIDING}) as engine:
        table = rows(2 * STRETCH + 20_000, 6, seconds=40.0)
        engine.push("s", table)
        engine.push("s", rows(300, 7, begin_s=5, seconds=2.0))  # Too late for sliding panes.
        engine.heartbeat("s", 45 * SECOND)
        assert in_full(engine, "grouped") > 200
        engine.execute("DELETE FROM s WHERE x > 40")
        left = pa.concat_tables([table, rows(300, 7, begin_s=5, seconds=2.0)])
        x = left["x"].to_numpy()
        kept = left.filter(pa.array(~(x > 40)))
        for row in answers(engine, "grouped"):
            for output, value in _exact(kept, row["g"]).items():
                if row[f"{output}_bound"] != "none":
                    assert row[f"{output}_low"] <= value * (1 + 1e-9), output
                    assert value * (1 - 1e-9) <= row[f"{output}_high"], output
        standing = engine.core.standing_query("sliding")[1].state
        assert standing.late_in(Span(20 * SECOND, 40 * SECOND)) == 0


def _exact(table: pa.Table, group: str) -> dict[str, float]:
    x = table.filter(pa.compute.equal(table["g"], group))["x"].drop_null().to_numpy()
    return {"s": x.sum(), "a": x.mean(), "v": x.var(), "h": x.max()}


def test_a_query_that_is_registered_later_is_thinned_alike(tmp_path: Path) -> None:
    """Its past is read from the archive, in other batches."""
    with begun(tmp_path, {"grouped": GROUPED}) as engine:
        table = rows(2 * STRETCH, 8, seconds=40.0)
        engine.push("s", table)
        engine.register("later", GROUPED)
        engine.execute("ALTER QUERY later SET THINNING 1/8")
        more = rows(2 * STRETCH, 9, begin_s=40, seconds=40.0)
        engine.push("s", more)
        for name in ("grouped", "later"):
            check(engine, name, pa.concat_tables([table, more]))
