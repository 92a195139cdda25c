"""What is sent of a micro-batch: as large as its panes' synopses, not as many tuples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import shedder
from shedder.engine.remote_summaries.summary_builder import Plans, Summariser
from shedder.streams.batch_conversion import conform
from synopses.frequent.frequent_items import GroupedFrequent

SECOND = 1_000_000
ENTRY_BYTES = 36  # Group (4), key, value, count and lateness (8 each).
SECONDS = 4  # of event time, a pane each
CREATE = "CREATE STREAM s (ts TIMESTAMP NOT NULL, k BIGINT, x DOUBLE) TIMESTAMP BY ts"
QUERIES = (
    "SELECT COUNT(*) AS n, SUM(x) AS s, AVG(x) AS a, COUNT(DISTINCT k) AS d FROM s {}",
    "SELECT QUANTILE(x, 0.99) AS q, TOP(k, 20) AS t FROM s {}",
    "SELECT k % 100 AS g, SUM(x) AS s, MAX(x) AS m FROM s {} GROUP BY k % 100",
)


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> Plans:
    with shedder.open(tmp_path_factory.mktemp("data")) as db:
        db.execute(CREATE)
        for number, text in enumerate(QUERIES):
            db.register(f"q{number}", text.format("[RANGE 2 SECONDS SLIDE 1 SECOND]"))
        return Plans.from_json(db.plans("s"))


def sent(plans: Plans, tuples: int) -> tuple[int, list[bytes]]:
    """Bytes of all but the tables of TOP, and these."""
    rng = np.random.default_rng(7)
    summariser = Summariser(plans)
    rows: dict[str, Any] = {
        "ts": pa.array(np.arange(tuples) * (SECONDS * SECOND // tuples), pa.timestamp("us")),
        "k": rng.integers(0, 200_000, tuples),
        "x": rng.lognormal(1, 1, tuples),
    }
    for batch in conform(pa.table(rows), plans.schema):
        summariser.add(batch)
    made = summariser.summaries()
    tables = [pane.images[2] for pane in made.panes if pane.query == "q1"]
    return len(made.to_bytes()) - sum(map(len, tables)), tables


@pytest.mark.slow
def test_what_is_sent_does_not_grow_with_the_tuples_once_synopses_are_full(plans: Plans) -> None:
    few, full, eight_times = (sent(plans, tuples)[0] for tuples in (1_000, 200_000, 1_600_000))
    assert eight_times < 1.15 * full  # Log-buckets grow with the logarithm of the range.
    assert few < full / 2  # And few tuples are sent as few.


@pytest.mark.parametrize("tuples", [200_000, 400_000, 800_000])
def test_a_table_of_top_is_at_most_full_whatever_came(plans: Plans, tuples: int) -> None:
    for image in sent(plans, tuples)[1]:
        entries = GroupedFrequent.from_bytes(image).entries
        assert len(image) < ENTRY_BYTES * entries * 3 // 4 + 200
