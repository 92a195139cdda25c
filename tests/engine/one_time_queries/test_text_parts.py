"""Parts of texts as groups and conditions: asked once, standing, and in rows that stand."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from shedder.engine.engine import Engine

URLS = ["https://a.org/x/1", "https://b.org/x?id=7&k", "b.org", "", None, "https://é.org//z?id=8"]
ROWS = 300
BEGIN = datetime(2026, 1, 1, 23, 58)
TIMES = [BEGIN + timedelta(seconds=at) for at in range(ROWS)]
HOST, ID = "SPLIT_PART(url, '/', 3)", "REGEXP_EXTRACT(url, '[?&]id=(\\d+)', 1)"
MINUTE = "STRFTIME(ts, '%d %H:%M')"
GROUPED = f"SELECT {HOST} AS host, {MINUTE} AS minute, COUNT(*) AS n FROM s"
KEPT = f"WHERE {ID} <> '' OR SUBSTRING(url, 1, 1) = 'b'"


def expected() -> Counter[tuple[str | None, str, int]]:
    groups: Counter[tuple[str | None, str]] = Counter()
    for at, moment in enumerate(TIMES):
        url = URLS[at % len(URLS)]
        if url is not None and ("id=" in url or url.startswith("b")):
            parts = url.split("/")
            groups[parts[2] if len(parts) > 2 else "", moment.strftime("%d %H:%M")] += 1
    return Counter((*group, count) for group, count in groups.items())


@pytest.fixture(scope="module")
def db(tmp_path_factory):
    with Engine.open(tmp_path_factory.mktemp("texts") / "data", run_rows=64) as db:
        db.execute("CREATE STREAM s (ts TIMESTAMP NOT NULL, url VARCHAR) TIMESTAMP BY ts")
        db.register("panes", f"{GROUPED} [RANGE 1 DAY SLIDE 1 HOUR] {KEPT} GROUP BY host, minute")
        db.register("rows", f"{GROUPED} [RANGE 1 DAY] {KEPT} GROUP BY host, minute HAVING n > 0")
        db.register("distinct", f"SELECT DISTINCT {HOST} AS host FROM s [RANGE 1 DAY] {KEPT}")
        urls = [URLS[at % len(URLS)] for at in range(ROWS)]
        db.push("s", pa.table({"ts": pa.array(TIMES, pa.timestamp("us")), "url": urls}))
        db.heartbeat("s", int(datetime(2026, 1, 2, 2, tzinfo=UTC).timestamp()) * 1_000_000)
        yield db


@pytest.mark.parametrize("name", ["panes", "rows", "once"])
def test_groups_are_parts_of_texts(db, name):
    once = f"{GROUPED} {KEPT} GROUP BY host, minute"
    answer = db.execute(once) if name == "once" else db.query(name).answer()
    rows = answer.table.select(["host", "minute", "n"]).to_pylist()
    assert Counter(tuple(row.values()) for row in rows) == expected()


def test_distinct_rows_are_parts_of_texts(db):
    hosts = db.query("distinct").answer().table["host"].to_pylist()
    assert sorted(hosts) == sorted({host for host, _, _ in expected()})
