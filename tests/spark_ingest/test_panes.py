"""Two queries' panes beside each other: alike where they must be, and told where they are not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

import shedder
from shedder.engine.engine import Engine
from shedder.engine.remote_summaries.summary_builder import Plans, Summariser, built_of
from shedder.streams.batch_conversion import conform
from spark_ingest.demo.panes import Alike, alike, beside
from synopses.histogram.log_histogram import GroupedLogBuckets

ROWS = 30_000
CREATE = """CREATE STREAM {} (ts TIMESTAMP, k BIGINT, g VARCHAR, x DOUBLE)
TIMESTAMP BY ts LATENESS INTERVAL '5' SECOND"""
QUERIES = {
    "sliding": "SELECT COUNT(*) AS n, SUM(k) AS s, AVG(x) AS a, COUNT(DISTINCT k) AS d, "
    "QUANTILE(x, 0.9) AS q, TOP(k, 3) AS t FROM {} [RANGE 10 SECONDS SLIDE 1 SECOND]",
    "grouped": "SELECT g, VAR(x) AS v, COUNT(DISTINCT k) AS d, FIRST(x) AS f, CORR(k, x) AS c, "
    "SELF_JOIN_SIZE(k) AS j FROM {} WHERE x > 1 GROUP BY g",
    "ranks": "SELECT QUANTILE(x, 0.5) AS q FROM {} WITHIN 0.02 RANK",
    "sparse": "SELECT g, COUNT(*) AS n FROM {} [RANGE 10 SECONDS SLIDE 1 SECOND] "
    "WHERE k > 19000 AND x > 40 GROUP BY g",
    "sets": "SELECT DISTINCT_BOTH(k, g = 'a', g = 'b') AS b FROM {}",
}


def rows() -> pa.Table:
    rng = np.random.default_rng(5)
    times = np.sort(rng.integers(0, 20_000_000, ROWS))
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us")),
            "k": rng.zipf(1.3, ROWS) % 20_000,
            "g": rng.choice(["a", "b", "ü", None], ROWS),
            "x": pa.array(rng.lognormal(1, 2, ROWS), mask=rng.random(ROWS) < 0.05),
        }
    )


def both_ways(directory: Path, table: pa.Table, sent: pa.Table) -> Engine:
    """Summaries of a table in one stream, in three parts; tuples in another."""
    db = shedder.open(directory, overload="off", clock_us=lambda: 10**10)
    for stream in ("built", "sent"):
        db.execute(CREATE.format(stream))
        for name, text in QUERIES.items():
            db.register(f"{name}_{stream}", text.format(stream))
    plans, made = Plans.from_json(db.plans("built")), []
    for number in range(3):
        builder = Summariser(plans, number << 40)
        for batch in conform(table.take(np.arange(number, ROWS, 3)), plans.schema):
            builder.add(batch)
        made.append(builder.summaries())
    db.merge("built", built_of(made, plans).to_bytes())
    db.push("sent", sent)
    for stream in ("built", "sent"):
        db.heartbeat(stream, 18_000_000)
        db.ledger(stream)
    return db


def found(db: Engine) -> dict[tuple[str, str, str], Alike]:
    each = [
        alike(name, *(db.core.stream(s).queries[f"{name}_{s}"].state for s in ("built", "sent")))
        for name in QUERIES
    ]
    return {(one.query, one.synopsis, one.answers): one for many in each for one in many}


@pytest.mark.slow
def test_the_same_tuples_are_the_same_bytes_where_their_order_does_not_matter(
    tmp_path: Path,
) -> None:
    with both_ways(tmp_path, rows(), rows()) as db:
        tallies = found(db)
    assert {one.unlike for one in tallies.values()} == {0}
    certain = {key: one for key, one in tallies.items() if not one.why}
    kinds = {"count", "moments", "hll", "log-buckets", "theta", "count-min"}
    assert {kind for _, kind, _ in certain} == kinds
    assert all(one.equal == one.panes > 0 for one in certain.values())
    hll = tallies["sliding", "hll", "COUNT(DISTINCT)"]
    assert (hll.panes, hll.closed) == (12, 10)  # Those that windows to come need.
    # Random coins: else the comparison would look at nothing.
    ranks = tallies["ranks", "kll", "QUANTILE"]
    assert ranks.equal < ranks.panes


@pytest.mark.slow
def test_wider_buckets_are_alike_if_the_narrow_ones_come_to_them(tmp_path: Path) -> None:
    with both_ways(tmp_path, rows(), rows()) as db:
        panes = db.core.stream("sent").queries["sliding_sent"].state.panes
        for held in panes.values():
            for each in held.parts:
                if isinstance(each, GroupedLogBuckets):
                    each.resize(each.mantissa_bits - 2)
        wide = found(db)["sliding", "log-buckets", "QUANTILE"]
        assert (wide.equal, wide.unlike) == (0, 0)
        assert wide.why == "buckets are as wide as there was room when they came"
        one = min(panes)
        parts = [each for each in panes[one].parts if isinstance(each, GroupedLogBuckets)]
        parts[0].update(None, np.array([1e9]))  # A value that the others do not have.
        assert found(db)["sliding", "log-buckets", "QUANTILE"].unlike == 1


@pytest.mark.slow
def test_panes_in_which_nothing_matches_are_alike_whether_they_are_there_or_not(
    tmp_path: Path,
) -> None:
    with both_ways(tmp_path, rows(), rows()) as db:
        standing = [
            db.core.stream(stream).queries[f"sparse_{stream}"].state for stream in ("built", "sent")
        ]
        held = [len(each.panes) for each in standing]
        assert held[0] > held[1] > 0
        few = found(db)["sparse", "count", "COUNT(*)"]
        assert few.equal == few.panes == held[0]


@pytest.mark.slow
def test_one_tuple_more_is_told_of_every_synopsis_that_it_is_in(tmp_path: Path) -> None:
    table = rows()
    more = pa.table(
        {
            "ts": pa.array([9_500_000], pa.timestamp("us")),
            "k": [999_999],
            "g": ["a"],
            "x": [1.5],
        }
    )
    with both_ways(tmp_path, table, pa.concat_tables([table.cast(more.schema), more])) as db:
        tallies = found(db)
    # It is not the first of its group, its hash is above theta, and it is not what sparse counts;
    # all else counts it.
    silent = {key for key, one in tallies.items() if not one.unlike}
    assert silent == {
        ("grouped", "first and last", "FIRST"),
        ("sets", "theta", "DISTINCT_BOTH"),
        ("sparse", "count", "COUNT(*)"),
    }
    assert tallies["sliding", "hll", "COUNT(DISTINCT)"].unlike == 1


@pytest.mark.parametrize(
    ("unlike", "said"),
    [(0, "q, kll: which values stay is drawn as they come"), (2, "q, kll: UNLIKE in 2 panes")],
)
def test_below_the_table_is_why_bytes_differ(unlike: int, said: str) -> None:
    one = Alike("q", "kll", "QUANTILE", 9, 8, 4, unlike, "which values stay is drawn as they come")
    table, *below = beside([one, replace(one, synopsis="hll", equal=9, unlike=0, why="")])
    assert below == [said]
    console = Console(width=80)
    with console.capture() as shown:
        console.print(table)
    assert [line.split() for line in shown.get().splitlines()[1:]] == [
        ["q", "kll", "QUANTILE", "9", "8", "4"],
        ["hll", "QUANTILE", "9", "8", "9"],
    ]
