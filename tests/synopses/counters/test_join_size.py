"""Bounds of Count-Min, CountSketch and join sizes, beside exact truth."""

from __future__ import annotations

import math

import numpy as np
import pytest

from synopses.counters.count_min import GroupedCountMin
from synopses.counters.count_sketch import GroupedCountSketch
from synopses.counters.join_size import join_size, self_join_size
from synopses.model.estimate import Bound
from synopses.model.profile import Statistics
from tests.synopses.frequencies import STREAMS, hashes, how_often, pairs
from tests.truth import gate

CONFIDENCES = [0.68, 0.95, 0.99]
TRIALS = 40
LG_WIDTH = 6


def summary_of(kind, keys, seed: int, lg_width: int = LG_WIDTH):
    summary = kind(1, lg_width, seed)
    summary.update(None, hashes(keys))
    return summary


def drawn(stream: str, seed: int, rows: int):
    """Two sides; `different` ones have few keys in common."""
    rng = np.random.default_rng([seed, rows])
    left, right = STREAMS[stream](rng, rows), STREAMS[stream](rng, rows)
    return left, right + (rows // 2 if stream == "different" else 0)


@pytest.mark.slow
@pytest.mark.parametrize("confidence", CONFIDENCES)
@pytest.mark.parametrize("stream", STREAMS)
def test_the_intervals_hold_the_truth_as_often_as_they_say(stream: str, confidence: float) -> None:
    rows = 3000
    hits = dict.fromkeys(["self", "join", "second moment", "inner product"], 0)
    for seed in range(TRIALS):
        left, right = drawn(stream, seed, rows)
        a, b = (summary_of(GroupedCountMin, keys, seed) for keys in (left, right))
        own, both = pairs(left, left), pairs(left, right)
        c, d = a.signed(), b.signed()
        hits["self"] += self_join_size(a, confidence)[0].holds(own)
        hits["join"] += join_size(a, b, confidence)[0].holds(both)
        hits["second moment"] += c.second_moment(confidence)[0].holds(own)
        hits["inner product"] += c.inner_product(d, confidence)[0].holds(both)
    assert min(hits.values()) >= gate(TRIALS, confidence), hits


@pytest.mark.parametrize("confidence", CONFIDENCES)
@pytest.mark.parametrize("stream", STREAMS)
def test_counts_of_keys_lie_in_their_intervals(stream: str, confidence: float) -> None:
    hits, trials = np.zeros(2), 0
    for seed in range(10):
        keys, _ = drawn(stream, seed, 3000)
        queried = np.unique(np.concatenate((keys[:50], np.arange(10**6, 10**6 + 20))))
        truth, trials = how_often(keys, queried), trials + queried.size
        for at, kind in enumerate((GroupedCountMin, GroupedCountSketch)):
            found = summary_of(kind, keys, seed).count(hashes(queried), confidence)
            assert (found.low <= found.value).all()
            assert (found.value <= found.high).all()
            hits[at] += ((found.low <= truth) & (truth <= found.high)).sum()
            if kind is GroupedCountMin:
                assert (truth <= found.value).all()
    assert (hits >= gate(trials, confidence)).all(), hits / trials


@pytest.mark.parametrize("rows", [0, 1, 2, 60])
@pytest.mark.parametrize("stream", STREAMS)
def test_small_groups_are_exact(stream: str, rows: int) -> None:
    left, right = drawn(stream, 1, rows)
    a, b = (summary_of(GroupedCountMin, keys, 0) for keys in (left, right))
    for found, truth in (
        (self_join_size(a, 0.95), pairs(left, left)),
        (join_size(a, b, 0.95), pairs(left, right)),
    ):
        assert found.bound.tolist() == [Bound.EXACT]
        assert found.value.tolist() == found.low.tolist() == found.high.tolist() == [truth]
    queried = np.arange(100)
    for kind in (GroupedCountMin, GroupedCountSketch):
        counts = summary_of(kind, left, 0).count(hashes(queried), 0.95)
        assert counts.bound.tolist() == [Bound.EXACT] * 100
        assert counts.value.tolist() == how_often(left, queried).tolist()


def test_a_large_side_joins_a_small_one_and_groups_stay_apart() -> None:
    rng = np.random.default_rng(7)
    ids = np.repeat([0, 1, 2], [3000, 3000, 10]).astype(np.int32)
    x, y = rng.integers(0, 900, ids.size), rng.integers(0, 9, ids.size)
    a, b = GroupedCountMin(3, 8), GroupedCountMin(2, 8)
    a.update(ids, hashes(x))
    b.update(ids[:6000], hashes(y[:6000]))
    found = join_size(a, b, 0.99)
    truth = [pairs(x[ids == g], y[(ids == g) & (ids < 2)]) for g in range(3)]
    assert all(found[g].holds(truth[g]) for g in range(3))
    assert found.bound.tolist() == [Bound.INTERVAL, Bound.INTERVAL, Bound.EXACT]


@pytest.mark.parametrize("turned", [False, True])
def test_count_sketches_of_unlike_numbers_of_groups_have_inner_products(turned: bool) -> None:
    ids = np.repeat(np.arange(3), 100).astype(np.int32)
    keys = np.arange(300) % 100
    a, b = GroupedCountSketch(3, 4), GroupedCountSketch(2, 4)
    a.update(ids, hashes(keys))
    b.update(ids[:200], hashes(keys[:200]))
    found = (b if turned else a).inner_product(a if turned else b, 0.99)
    assert all(found[group].holds(truth) for group, truth in enumerate((100, 100, 0)))


@pytest.mark.parametrize("lg_width", [5, 6, 8])
def test_what_joins_with_nothing_is_nothing_in_tables_of_any_width(lg_width: int) -> None:
    left, right = GroupedCountMin(1, lg_width), GroupedCountMin(1, lg_width)
    left.update(None, hashes(np.arange(3000)))
    found = join_size(left, right, 0.99)
    assert found.low.tolist() == found.value.tolist() == found.high.tolist() == [0.0]


def test_skew_makes_the_interval_narrow_and_the_promise_bounds_it_always() -> None:
    promised = GroupedCountMin.profile.error_of(
        12, Statistics(), 0.95
    )  # Three rows out at 2.5 %: 2.61 deviations of a row.
    assert promised == pytest.approx(0.0889, abs=1e-4)
    widths = {}
    for stream in ("uniform", "zipf-1.1", "zipf-1.5", "different"):
        keys = STREAMS[stream](np.random.default_rng(8), 60_000)
        keys = keys * 10**6 + np.arange(60_000) % 30 if stream == "uniform" else keys
        found = self_join_size(summary_of(GroupedCountMin, keys, 0, 12), 0.95)[0]
        assert found.holds(pairs(keys, keys))
        widths[stream] = found.half_width / found.value
    assert max(widths.values()) <= promised
    assert widths["zipf-1.5"] < 0.005
    assert widths["zipf-1.1"] < 0.03


def test_expected_ends_worked_out_by_hand() -> None:
    """32 cells, 95 %: all else counted is exceeded 0.05^(-1/5) / 32 = 1.8206 / 32 = 0.05689 times.

    A constant stream of 1,000 fills one cell a row, so Count-Min says 1,000 and so does its low
    end: what is all there is has no excess. Of a key that is not there it says 0.
    """
    summary = summary_of(GroupedCountMin, np.full(1000, 3), 0, 5)
    summary.update(None, hashes(np.arange(100, 141)))  # One more than 40 keys: a table.
    found = summary.count(hashes(np.array([3])), 0.95)
    share = 0.05 ** (-0.2) / 32
    value = int(found.value[0])
    assert 1000 <= value <= 1041
    expected = max(0, math.ceil((value - share * 1041) / (1 - share) - 1e-6))
    assert found.low.tolist() == [expected]
    assert found.high.tolist() == [value]
