"""Intervals of groups that GROUP BY shows because at least one of their rows was read."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from shedder.cql.statements.bound_query import BoundQuery
from shedder.queries.evidence.answer_builder import finish
from shedder.queries.evidence.evidence import Evidence
from shedder.queries.sampling.from_sample import evidence_from_sample
from tests.queries.asking import ask
from tests.queries.sampled import evidence_from_parts, stream_of, view_of
from tests.truth import gate

Source = Callable[[BoundQuery, pa.RecordBatch, int, int], Evidence]

QUERY = """client, COUNT(*) AS n, SUM(bytes) AS total, AVG(bytes) AS mean,
    2 * SUM(bytes) / COUNT(*) AS ratio FROM requests GROUP BY client"""
SIZES = (1, 2, 5, 20, 100)
MIXED = np.repeat(SIZES, (2_000, 1_000, 400, 100, 20))
SINGLE = np.ones(1_000, np.int64)
ZIPF = np.maximum(2_500 // np.arange(1, 2_001), 1)


def live(query: BoundQuery, data: pa.RecordBatch, read: int, seed: int) -> Evidence:
    return evidence_from_sample(query, view_of(data, read, seed))


def weighted(query: BoundQuery, data: pa.RecordBatch, read: int, seed: int) -> Evidence:
    return evidence_from_sample(query, view_of(data, read, seed, weighted=["bytes"]))


def in_parts(query: BoundQuery, data: pa.RecordBatch, read: int, seed: int) -> Evidence:
    return evidence_from_parts(query, data, read, seed)


@pytest.mark.slow
@pytest.mark.parametrize("source", [live, weighted, in_parts])
@pytest.mark.parametrize(
    ("counts", "read", "trials"),
    [(SINGLE, 5, 12), (MIXED, 5_000, 1), (MIXED, 500, 3), (MIXED, 50, 8), (ZIPF, 100, 4)],
)
def test_intervals_of_shown_groups_hold_in_each_class_of_sizes(
    source: Source, counts: np.ndarray, read: int, trials: int
):
    data, query = stream_of(counts), ask(QUERY)
    clients, values = data["client"].to_numpy(), data["bytes"].to_numpy()
    sums = np.bincount(clients, values)
    truths = {"n": counts, "total": sums, "mean": sums / counts, "ratio": 2.0 * sums / counts}
    hits: dict[tuple[str, int], list[bool]] = {}
    for seed in range(trials):
        table = finish(query, source(query, data, read, seed)).table
        shown = table["client"].to_numpy()
        sizes = np.searchsorted(SIZES, counts[shown])
        for name, truth in truths.items():
            low, high = (table[name + end].to_numpy() for end in ("_low", "_high"))
            slack = 1e-9 * np.abs(truth[shown])
            held = (low <= truth[shown] + slack) & (truth[shown] - slack <= high)
            for each in np.unique(sizes):
                hits.setdefault((name, int(each)), []).extend(held[sizes == each].tolist())
    assert len(hits) >= len(truths)
    for where, held in hits.items():
        assert sum(held) >= gate(len(held), 0.95), where


def test_the_interval_of_a_group_of_which_one_row_was_read_begins_with_that_row():
    query = ask(QUERY)
    table = finish(query, live(query, stream_of(SINGLE), 5, 1)).table
    assert table["n_low"].to_pylist() == [1] * 5
    assert all(high <= 1_000 for high in table["n_high"].to_pylist())


def test_sums_of_groups_of_which_many_rows_were_read_are_hardly_wider():
    data = stream_of(np.full(10, 2_000))
    query = ask("client, SUM(bytes) AS total FROM requests GROUP BY client")
    shown = finish(query, live(query, data, 1_000, 1)).rows()
    for row in shown:
        one = ask(f"SUM(bytes) AS total FROM requests WHERE client = {row['client']}")
        [alone] = finish(one, live(one, data, 1_000, 1)).rows()
        width = row["total_high"] - row["total_low"]
        assert width < 1.01 * (alone["total_high"] - alone["total_low"])
    assert len(shown) == 10


def test_a_group_that_is_a_stratum_of_its_own_is_shown_anyway_and_known_exactly():
    data, query = (
        stream_of(np.full(10, 400)),
        ask("client, COUNT(*) AS n FROM requests GROUP BY client"),
    )
    view = view_of(data, 500, 1, strata={("client",): ()})
    assert (
        finish(query, evidence_from_sample(query, view)).table["n_bound"].to_pylist()
        == ["exact"] * 10
    )


@pytest.mark.parametrize("source", [live, weighted, in_parts])
def test_groups_that_are_asked_again_alone_are_as_among_all(source: Source):
    query = ask(QUERY)
    again = source(query, stream_of(MIXED), 500, 1).again
    assert again is not None
    whole = again(0.1, query.aggregates)
    rows = np.random.default_rng(2).permutation(whole.groups)[:50]
    some, taken = again(0.1, query.aggregates, rows), whole.take(rows)
    assert some.keys[0].equals(taken.keys[0])
    for aggregate, found in some.estimates.items():
        expected = taken.estimates[aggregate]
        np.testing.assert_array_equal(found.low, expected.low)
        np.testing.assert_array_equal(found.high, expected.high)
        np.testing.assert_array_equal(found.bound, expected.bound)
