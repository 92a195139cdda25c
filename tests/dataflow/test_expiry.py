"""Three ways in which rows leave windows: the same rows, with different work."""

from __future__ import annotations

import pyarrow as pa
import pytest

from shedder.dataflow.dataflow import Dataflow
from shedder.dataflow.expiry.expiry_modes import Expiry
from shedder.dataflow.relation_to_stream import stream_batch
from tests.dataflow.links import FTP, flow, traffic
from tests.scale import scaled
from tests.seeds import seed

TUPLES = scaled(3_000, 1_000_000)
# Q29 of Golab 2006, section 3.6; the windows are in ticks of 1 us.
JOINED = (
    "SELECT l.src, l.dst, r.dst AS other FROM link1 [RANGE {w}] l JOIN link2 [RANGE {w}] r "
    f"ON l.src = r.src WHERE l.protocol = {FTP} AND r.protocol = {FTP}"
)
DISTINCT = "SELECT DISTINCT src FROM link1 [RANGE {w}]"
PAIRS = "SELECT DISTINCT src, dst FROM link1 [RANGE {w}]"
NEGATED = (
    "SELECT l.src, l.dst FROM link1 [RANGE {w}] l WHERE NOT EXISTS "
    "(SELECT * FROM link2 [RANGE {w}] r WHERE r.src = l.src)"
)
BOTH = (
    "SELECT l.src, t.dst FROM link1 [RANGE {w}] l JOIN link3 [RANGE {w} SLIDE {s}] t "
    f"ON l.src = t.src WHERE t.protocol = {FTP} AND NOT EXISTS "
    "(SELECT * FROM link2 [RANGE {w}] r WHERE r.src = l.src)"
)
SLIDING = "SELECT src, dst FROM link1 [RANGE {w} SLIDE {s}]"
GROUPS = "SELECT src, SUM(dst) AS d FROM link1 [RANGE {w} SLIDE {s}] GROUP BY src"
PAIR_SUMS = (
    "SELECT l.src, SUM(r.dst) AS d FROM link1 [RANGE {w} SLIDE {s}] l JOIN link2 [RANGE {w}] r "
    "ON l.src = r.src GROUP BY l.src"
)
UNION = f"{SLIDING} UNION ALL SELECT src, dst FROM link2 [RANGE {{w}}]"


def run(dataflow: Dataflow, parts: list[dict[str, pa.RecordBatch]]) -> list[tuple[object, ...]]:
    """The insertions and deletions, in order."""
    signs, rows = dataflow.signed_changes(), []
    for at, part in enumerate(parts):
        for alias, source in dataflow.sources.items():
            dataflow.push(alias, part[source.relation], 100 * at)
        changes = dataflow.advance(dict.fromkeys(dataflow.sources, 100 * (at + 1)))
        batch = stream_batch(signs.apply(dataflow.as_of_us or 0, changes))
        rows += list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
    return rows


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", [JOINED, DISTINCT, PAIRS, NEGATED, BOTH, SLIDING, GROUPS, PAIR_SUMS, UNION]
)
def test_rows_are_the_same_in_all_ways(text):
    parts = traffic(TUPLES // 3, 80, seed("expiry", text) % 2**32)
    made = {each: run(flow(text, 300, each), parts) for each in Expiry}
    assert made[Expiry.NEGATIVE] == made[Expiry.PATTERN]
    assert made[Expiry.DIRECT] == made[Expiry.PATTERN]
    assert len(made[Expiry.PATTERN]) > 20
    assert any(row[-1] < 0 for row in made[Expiry.PATTERN])


def touches(dataflow: Dataflow) -> int:
    """Rows that states took, gave, and looked at in searches for rows that have left."""
    return sum(
        each.rows_in + each.rows_out + each.searched_rows
        for each in dataflow.operators()
        if each.text.startswith(("Join", "Negative tuples"))
    )


@pytest.mark.slow
@pytest.mark.parametrize("window", scaled((8_000,), (8_000, 30_000)))
def test_states_by_update_pattern_touch_the_fewest_rows(window):
    """Golab 2006, section 3.6: Q29.1; negative tuples double the rows of windows and joins.

    Eager searches look at whole windows for each batch of 100 ticks.
    """
    parts, found = traffic(2 * window, 20_000, 5), {}
    for expiry in Expiry:
        dataflow, filled = flow(JOINED, window, expiry), 0
        for at, part in enumerate(parts, 1):
            for alias, source in dataflow.sources.items():
                dataflow.push(alias, part[source.relation], 100 * (at - 1))
            dataflow.advance(dict.fromkeys(dataflow.sources, 100 * at))
            if at == len(parts) // 2:
                filled = touches(dataflow)
        found[expiry] = touches(dataflow) - filled
    assert found[Expiry.PATTERN] <= 0.6 * found[Expiry.NEGATIVE], found
    assert found[Expiry.DIRECT] >= 20 * found[Expiry.PATTERN], found
