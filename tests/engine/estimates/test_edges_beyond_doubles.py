"""CDF and HISTOGRAM of whole numbers and times that doubles do not tell apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import shedder
from shedder.engine.engine import Engine

NEAR = 2**53
SAMPLED = 500
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SURE = " CONFIDENCE 99.999999 PERCENT"
LAYOUTS = {"few": "plain", "many": "plain", "dealt": "hybrid(blocks=8, block_rows=100)"}


def time_text(us: int) -> str:
    return f"TIMESTAMP '{(EPOCH + timedelta(microseconds=us)).replace(tzinfo=None)}'"


def create(db: Engine, name: str, kind: str) -> None:
    layout = LAYOUTS.get(name, "plain")
    columns = f"(ts TIMESTAMP NOT NULL, x {kind})"
    db.execute(f"CREATE STREAM {name} {columns} TIMESTAMP BY ts ARCHIVE {layout}")


def push(db: Engine, name: str, kind: str, x: Sequence[int]) -> None:
    values = pa.array(x, pa.int64()).cast(pa.int64() if kind == "BIGINT" else pa.timestamp("us"))
    db.push(name, {"ts": pa.array(range(len(x)), pa.timestamp("us")), "x": values})


def check(row: Mapping[str, Any], name: str, truth: float, found: Sequence[float]) -> None:
    low, value, high = found
    assert low <= truth <= high, (name, found, truth)
    if row[name + "_bound"] == "exact":
        assert value == pytest.approx(truth, rel=1e-12), (name, found, truth)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "base", "literal"),
    [("BIGINT", 2**62 + 1, str), ("BIGINT", -NEAR - 3, str), ("TIMESTAMP", NEAR + 1, time_text)],
)
def test_edges_count_what_is_below_them_to_the_last_digit(
    tmp_path: Path, kind: str, base: int, literal: Callable[[int], str]
):
    every = [base + int(each) for each in np.random.default_rng(1).integers(-3, 4, 4 * SAMPLED)]
    values = {"few": every[:SAMPLED], "many": every, "dealt": every}
    edges = [base - 1, base, base + 2]
    outputs = [f"CDF(x, {literal(edge)}) AS c{at}" for at, edge in enumerate(edges)]
    outputs.append(f"HISTOGRAM(x, [{', '.join(map(literal, edges))}]) AS h")
    sql = f"SELECT {', '.join(outputs)} FROM"
    with shedder.open(tmp_path / "data", sample_rows=SAMPLED, audit="off") as db:
        for name in LAYOUTS:
            create(db, name, kind)
        standing = db.register("standing", f"{sql} few")
        thinned = db.register("thinned", f"{sql} many THINNING 1/2{SURE}")
        for name, x in values.items():
            push(db, name, kind, x)
        db.seal("dealt")
        exact = {
            "standing": standing.answer(),
            "archive": db.execute(f"{sql} few"),
            "whole sample": db.execute(f"{sql} few WITHIN 1e15 ABSOLUTE"),
        }
        inexact = {
            "thinned": thinned.answer(),
            "sample": db.execute(f"{sql} many WITHIN 1e15 ABSOLUTE{SURE}"),
            "part of the archive": db.execute(f"{sql} dealt REDUCE BY uniform(0.75){SURE}"),
        }
    for source, answer in {**exact, **inexact}.items():
        [row] = answer.rows()
        x = values["few" if source in exact else "many"]
        bounds = {row[f"{name}_bound"] for name in ("c0", "c1", "c2")}
        assert bounds == {"exact" if source in exact else "interval"}, source
        for at, edge in enumerate(edges):
            found = [row[f"c{at}{part}"] for part in ("_low", "", "_high")]
            check(row, f"c{at}", sum(each <= edge for each in x) / len(x), found)
        for bucket, (low, high) in zip(
            row["h"], pairwise([base - 9, *edges, base + 9]), strict=True
        ):
            truth = sum(low <= each < high for each in x)
            check(row, "h", truth, [bucket[part] for part in ("low", "count", "high")])


@pytest.fixture(scope="module")
def near(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Every whole number from 3 below 2^53 to 4 above it; a stream of those about 2^62, too."""
    with shedder.open(tmp_path_factory.mktemp("near") / "data", audit="off") as db:
        for name, base in (("near", NEAR), ("far", 2**62)):
            create(db, name, "BIGINT")
            push(db, name, "BIGINT", [base + each for each in range(-3, 5)])
        yield db


@pytest.mark.parametrize("source", ["", " WITHIN 1e15 ABSOLUTE"])
@pytest.mark.parametrize(
    ("stream", "edges"),
    [
        ("far", f"4, {2**62 - 3}, {2**62 + 4}"),  # Was refused: as doubles these are one edge.
        ("near", f"4, {NEAR - 3}, {NEAR + 4}"),  # The value before an edge was counted beyond it.
    ],
)
def test_whole_numbers_are_told_from_the_edges_that_a_histogram_shows(
    near: Engine, source: str, stream: str, edges: str
):
    [row] = near.execute(f"SELECT HISTOGRAM(x, {edges}) AS h FROM {stream}{source}").rows()
    x = [(2**62 if stream == "far" else NEAR) + each for each in range(-3, 5)]
    assert row["h_bound"] == "exact"
    for bucket in row["h"]:
        low, high = (None if bucket[end] is None else int(bucket[end]) for end in ("from", "to"))
        truth = [v for v in x if (low is None or v >= low) and (high is None or v < high)]
        assert bucket["count"] == len(truth), (bucket, truth)


def test_equal_parts_begin_and_end_where_it_was_said(near: Engine):
    sql = f"SELECT HISTOGRAM(x, 2, {2**62 + 1}, {2**62 + 6}) AS h FROM far"
    [row] = near.execute(sql).rows()
    assert [bucket["from"] for bucket in row["h"]] == [None, *(2**62 + at for at in (1, 4, 6))]
