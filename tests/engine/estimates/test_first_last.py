"""FIRST and LAST in the engine: panes, history, archive and restart tell the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import shedder
from shedder.engine.engine import Engine
from tests.engine.world import CREATE, SECOND, START_US, requests

COLUMNS = ("client", "domain", "bytes", "ok", "day", "hits", "ts")
SELECT = ", ".join(
    f"{function}({column}) AS {function.lower()}_{column}"
    for function in ("FIRST", "LAST")
    for column in COLUMNS
)


def coarse(rows: int, seed: int) -> pa.Table:
    """Requests out of order, at whole seconds: many have the same time."""
    table = requests(rows, seed, seconds=60.0, disorder_s=1.5)
    times = np.asarray(table["ts"].cast(pa.int64())) // SECOND * SECOND
    return table.set_column(0, "ts", pa.array(times, pa.timestamp("us")))


def expected(table: pa.Table) -> dict[str, Any]:
    """The truth by the plainest code there is; rows are in order of position."""
    times = np.asarray(table["ts"].cast(pa.int64()))
    by_time = table.take(pa.array(np.argsort(times, kind="stable")))
    found = {}
    for column in COLUMNS:
        values = [v for v in by_time[column].to_pylist() if v is not None and v == v]
        found[f"first_{column}"], found[f"last_{column}"] = values[0], values[-1]
    return found


def values(row: dict[str, Any]) -> dict[str, Any]:
    assert {value for name, value in row.items() if name.endswith("_bound")} == {"exact"}
    return {name: row[name] for name in row if name.rsplit("_", 1)[-1] in COLUMNS}


def push_in_parts(db: Engine, table: pa.Table) -> Any:
    return [db.push("requests", table.slice(at, 400)) for at in range(0, table.num_rows, 400)][-1]


@pytest.mark.slow
def test_panes_history_runs_and_tail_tell_the_same(tmp_path: Path) -> None:
    table = coarse(3_000, seed=5)
    live = f"SELECT {SELECT} FROM requests"
    with shedder.open(tmp_path / "data", sample_rows=64, run_rows=1_000) as db:
        db.execute(CREATE)
        before = db.register("before", live)
        push_in_parts(db, table.slice(0, 2_000))
        db.seal("requests")
        receipt = push_in_parts(db, table.slice(2_000))
        right = expected(table)
        assert values(before.answer(after=receipt).rows()[0]) == right
        assert values(db.register("after", live).answer(after=receipt).rows()[0]) == right
        assert values(db.execute(live).rows()[0]) == right
        grouped = db.execute(f"SELECT domain, {SELECT} FROM requests GROUP BY domain")
        for row in grouped.rows():
            if row["domain"] is not None:
                mine = table.filter(pa.compute.equal(table["domain"], row["domain"]))
                assert values({k: v for k, v in row.items() if k != "domain"}) == expected(mine)
    with shedder.open(tmp_path / "data", sample_rows=64, run_rows=1_000) as db:
        assert values(db.query("before").answer().rows()[0]) == right
        assert values(db.execute(live).rows()[0]) == right


def late_pushed(db: Engine, at_s: int) -> None:
    """One tuple of that second; the watermark is two seconds behind the newest."""
    row = requests(1, seed=at_s)
    times = pa.array([START_US + at_s * SECOND], pa.timestamp("us"))
    row = row.set_column(0, "ts", times).set_column(1, "client", pa.array([at_s], pa.int64()))
    db.push("requests", row)


@pytest.mark.parametrize(
    ("late_s", "bounds"),
    [(5, ("none", "exact")), (15, ("exact", "exact")), (27, ("exact", "none"))],
)
def test_a_late_tuple_leaves_the_end_that_it_cannot_reach(
    tmp_path: Path, late_s: int, bounds: tuple[str, str]
) -> None:
    window = "[RANGE INTERVAL '30' SECOND SLIDE INTERVAL '10' SECOND]"
    with shedder.open(tmp_path / "data") as db:
        db.execute(CREATE)
        query = db.register(
            "ends", f"SELECT FIRST(client) AS f, LAST(client) AS l FROM requests {window}"
        )
        for second in (3, 12, 22, 40, late_s):
            late_pushed(db, second)
        answer = query.answer(after=db.push("requests", requests(0, seed=1)))
        assert (answer.start_us, answer.end_us) == (START_US, START_US + 30 * SECOND)
        [row] = answer.rows()
        assert (row["f"], row["l"], answer.late) == (3, 22, 1)
        assert (row["f_bound"], row["l_bound"]) == bounds
