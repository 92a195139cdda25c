"""Expected bytes of operators, beside what they hold when windows are full."""

from __future__ import annotations

import pyarrow as pa
import pytest

from shedder.dataflow.estimates.state_bytes import (
    GROWS,
    NO_ESTIMATE,
    UNKNOWN_RATE,
    counted_bytes,
    relation_bytes,
)
from shedder.dataflow.expiry.expiry_modes import Expiry
from shedder.dataflow.graph_text import graph_outline
from shedder.dataflow.join_order import StreamStatistics
from tests.dataflow.links import flow, traffic
from tests.scale import scaled

JOIN = (
    "SELECT l.src, l.dst, r.dst AS other FROM link1 [RANGE {w}] l JOIN link2 [RANGE {w}] r "
    "ON l.src = r.src"
)
QUERIES = {
    "join": JOIN,
    "filtered join": JOIN.replace("] l", " SLIDE {s}] l") + " WHERE l.protocol = 1",
    "DISTINCT": "SELECT DISTINCT src FROM link1 [RANGE {w}]",
    "DISTINCT of pairs": "SELECT DISTINCT src, dst FROM link1 [RANGE {w} SLIDE {s}]",
    "ISTREAM": "SELECT ISTREAM(src, dst) FROM link1 [RANGE {w}]",
    "GROUP BY": "SELECT src, SUM(dst) AS d, COUNT(*) AS n FROM link1 [RANGE {w}] GROUP BY src",
    "sums over a join": (
        "SELECT l.src, SUM(r.dst) AS d FROM link1 [RANGE {w}] l JOIN link2 [RANGE {w}] r "
        "ON l.src = r.src GROUP BY l.src"
    ),
    "NOT EXISTS": (
        "SELECT l.src, l.dst FROM link1 [RANGE {w}] l WHERE NOT EXISTS "
        "(SELECT * FROM link2 [RANGE {w}] r WHERE r.src = l.src)"
    ),
    "EXCEPT": (
        "SELECT src, dst FROM link1 [RANGE {w}] EXCEPT SELECT src, dst FROM link2 [RANGE {w}]"
    ),
    "ROWS": "SELECT src, dst FROM link1 [PARTITION BY src ROWS 3]",
}
LISTS = (
    "SELECT TOP(src, 7) AS busiest FROM link1 [ROWS 1000 SLIDE 20]",
    "SELECT TOP(src, 200) AS busiest FROM link1 [ROWS 3000 SLIDE 100]",
    "SELECT TOP(dst, 20) AS busiest FROM link1 [ROWS 1400 SLIDE 350]",
)
SMALL = 4_096  # Bytes that are not compared.


@pytest.mark.parametrize("window", scaled((3_000,), (1_500, 3_000, 12_000, 50_000)))
@pytest.mark.parametrize("query", QUERIES)
def test_operators_hold_what_is_expected_within_a_factor_of_two(query, window):
    """On average over a window: what has left is dropped from time to time."""
    parts = traffic(int(3.3 * window) // 100 * 100, window // 2, 7)
    names = {"l": "link1", "r": "link2", "link1": "link1", "link2": "link2"}
    known = {
        alias: StreamStatistics(
            1e6,
            pa.Table.from_batches(part[name] for part in parts[:30])
            .combine_chunks()
            .to_batches()[0],
        )
        for alias, name in names.items()
    }
    dataflow = flow(QUERIES[query], window)
    expected, result = dataflow.estimated_bytes(known)
    sinks = (
        []
        if dataflow.is_stream
        else [dataflow.current_relation(1 << 30), dataflow.signed_changes()]
    )
    held: list[list[int]] = []
    for at, part in enumerate(parts, 1):
        for alias, source in dataflow.sources.items():
            dataflow.push(alias, part[source.relation], 100 * (at - 1))
        changes = dataflow.advance(dict.fromkeys(dataflow.sources, 100 * at))
        if sinks:
            sinks[0].add(100 * at, changes)
            sinks[1].apply(100 * at, changes)
        if 100 * at > 2 * window:
            held.append([each.size_bytes for each in (*dataflow.operators(), *sinks)])
    if sinks:
        expected = [*expected, relation_bytes(result), counted_bytes(result)]
    means = [sum(sizes) / len(held) for sizes in zip(*held, strict=True)]
    pairs = [each for each in zip(expected, means, strict=True) if max(each) > SMALL]
    assert pairs
    assert all(mean / 2 <= given <= 2 * mean for given, mean in pairs), pairs


@pytest.mark.parametrize("query", LISTS)
def test_lists_of_frequent_values_hold_what_is_expected_within_a_factor_of_two(query):
    parts = traffic(9_900, 1_500, 7)
    sample = pa.Table.from_batches(part["link1"] for part in parts[:30]).combine_chunks()
    dataflow = flow(query, 1)
    known = {"link1": StreamStatistics(1e6, sample.to_batches()[0])}
    (_, expected, _), result = dataflow.estimated_bytes(known)
    assert result == NO_ESTIMATE
    held = []
    for at, part in enumerate(parts, 1):
        dataflow.push("link1", part["link1"], 100 * (at - 1))
        dataflow.advance({"link1": 100 * at})
        held.append(dataflow.operators()[1].size_bytes)
    mean = sum(held[33:]) / len(held[33:])  # All panes are there by then.
    assert mean / 2 <= expected <= 2 * mean, mean


def test_operators_without_a_rate_or_an_end_say_so():
    rows = traffic(1_000, 50, 7)[0]
    known = {"l": StreamStatistics(1e6, rows["link1"]), "r": StreamStatistics(1e6, rows["link2"])}
    dataflow = flow(JOIN, 1_000)
    assert dataflow.estimated_bytes({})[0] == [UNKNOWN_RATE, 0, UNKNOWN_RATE, 0, UNKNOWN_RATE, 0]
    unbounded = flow(JOIN.replace("[RANGE {w}] r", "[RANGE UNBOUNDED] r"), 1_000)
    assert GROWS in unbounded.estimated_bytes(known)[0]
    negative = flow(JOIN, 1_000, Expiry.NEGATIVE).estimated_bytes(known)[0]
    assert all(isinstance(each, int) for each in negative)
    assert sum(negative) > sum(flow(JOIN, 1_000).estimated_bytes(known)[0])
    outline = graph_outline(dataflow.operators(), dataflow.estimated_bytes({})[0])
    assert outline[1] == "Join l.src = r.src: WK, unknown rate"
    assert NO_ESTIMATE not in negative
