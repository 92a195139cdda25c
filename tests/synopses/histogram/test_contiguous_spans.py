"""Counters that stand side by side are found sooner; where one is says nothing of its count."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from synopses.histogram.bucket_index import cells_of
from synopses.histogram.contiguous_spans import Misses
from synopses.histogram.log_histogram import GroupedLogBuckets
from tests.scale import scaled
from tests.seeds import seed
from tests.synopses.counted_cells import counted_in_cells, cut, has_spans

ROWS = 40_000
GROUPS = 20
Doubles = NDArray[np.float64]


def some(odd: float, share: float, rng: np.random.Generator, values: Doubles) -> Doubles:
    """Values of which such a share are this one instead."""
    return np.where(rng.random(values.size) < share, odd, values)


DRAWN: dict[str, Callable[[np.random.Generator, int], Doubles]] = {
    "near": lambda rng, rows: rng.lognormal(0, 1, rows),
    "both signs": lambda rng, rows: rng.normal(0, 1, rows),
    "negative": lambda rng, rows: -rng.lognormal(0, 1, rows),
    "one in ten absent": lambda rng, rows: some(np.nan, 0.1, rng, rng.random(rows)),
    "outliers": lambda rng, rows: some(1e300, 0.001, rng, rng.random(rows) + 1),
    "mostly zeros": lambda rng, rows: rng.integers(0, 3, rows) // 2 * rng.normal(0, 1, rows),
    "sixty octaves": lambda rng, rows: rng.lognormal(0, 6, rows) * rng.choice([-1.0, 1.0], rows),
    "all octaves": lambda rng, rows: rng.lognormal(0, 100, rows),
    "growing": lambda _, rows: np.geomspace(1e-9, 1e12, rows),
    "falling, negative": lambda _, rows: -np.geomspace(1e-9, 1e12, rows),
    "tiny": lambda rng, rows: rng.random(rows) * 1e-320,
    "denormal": lambda rng, rows: rng.integers(-1, 2, rows) * rng.random(rows) * 1e-308,
    "huge": lambda rng, rows: (rng.random(rows) * 2 - 1) * 1.7e308,
    "some infinite": lambda rng, rows: some(-np.inf, 0.01, rng, rng.random(rows)),
    "five values": lambda rng, rows: rng.integers(1, 6, rows) * 1.0,
    "one value": lambda _, rows: np.full(rows, 7.25),
}
FOUND = ("near", "both signs", "negative", "one in ten absent", "outliers", "huge")


def holds(buckets: GroupedLogBuckets, ids: NDArray[np.int32], values: Doubles) -> None:
    """Counts are those of sorting, and extremes those of the values, per group."""
    shift = 52 - buckets.mantissa_bits
    present = ~np.isnan(values)
    ids, values = ids[present], values[present]
    pairs = np.column_stack((ids, cells_of(values, shift)))
    entries, counts = np.unique(pairs, axis=0, return_counts=True)
    found = buckets.buckets()
    for mine, exact in zip(found, (entries[:, 0], entries[:, 1], counts), strict=True):
        np.testing.assert_array_equal(mine, exact)
    np.testing.assert_array_equal(buckets.counts, np.bincount(ids, minlength=buckets.groups))
    least, most = buckets.quantile(0.0), buckets.quantile(1.0)
    for group in np.unique(ids):
        mine = values[ids == group]
        assert least[group].low == mine.min()
        assert most[group].high == mine.max()


def fed(buckets: GroupedLogBuckets, ids: NDArray[np.int32], values: Doubles, batch: int) -> None:
    for own, some_values in cut(ids, values, batch):
        buckets.update(own, some_values)


BITS, BATCHES = (7, 3, 0), (700, 8_000, ROWS)
# A per-change run has every two of values, batch and bits once; the seed of the run decides which.
CASES = [
    (drawn, batch, bits)
    for (i, drawn), (j, batch), (k, bits) in product(*map(enumerate, (DRAWN, BATCHES, BITS)))
    if scaled((i + j + k + seed("spans")) % len(BITS) == 0, True)
]


@pytest.mark.parametrize(("drawn", "batch", "mantissa_bits"), CASES)
def test_counts_and_extremes_are_those_of_sorting(
    drawn: str, batch: int, mantissa_bits: int
) -> None:
    rng = np.random.default_rng(batch)
    values = DRAWN[drawn](rng, ROWS)
    ids = rng.integers(0, GROUPS, ROWS).astype(np.int32)
    buckets = GroupedLogBuckets(GROUPS).resize(mantissa_bits)
    fed(buckets, ids, values, batch)
    fed(buckets, ids, values, batch)
    holds(buckets, np.tile(ids, 2), np.tile(values, 2))
    if drawn in FOUND and mantissa_bits == 7:
        assert has_spans(counted_in_cells(GROUPS, [*cut(ids, values, batch)] * 2))


def test_most_values_find_their_counters_side_by_side() -> None:
    rng = np.random.default_rng(1)
    ids = rng.integers(0, GROUPS, 4 * ROWS).astype(np.int32)
    values = rng.lognormal(0, 1, ids.size) * 2.0**ids  # Each group has a range of its own.
    pages = counted_in_cells(GROUPS, cut(ids, values, ROWS)).pages
    assert pages is not None
    rest, _ = pages.tally_spans(ids, values, np.zeros(GROUPS, np.int64))
    assert rest.size < values.size // 100


def test_counters_that_go_round_are_carried_on() -> None:
    rng = np.random.default_rng(2)
    ids = rng.integers(0, 3, 8 * ROWS).astype(np.int32)
    values = rng.normal(0, 1, ids.size)
    values[::2] = np.array([0.5, -0.25, 0.125])[ids[::2]]  # 53,000 of each, twice.
    buckets = GroupedLogBuckets(3)
    fed(buckets, ids, values, ROWS)
    fed(buckets, ids, values, ROWS)
    assert has_spans(counted_in_cells(3, [*cut(ids, values, ROWS)] * 2))
    holds(buckets, np.tile(ids, 2), np.tile(values, 2))
    assert buckets.buckets()[2].max() > 1 << 16


@pytest.mark.parametrize("mantissa_bits", [7, 6])
def test_a_group_that_was_emptied_has_extremes_of_its_own_again(mantissa_bits: int) -> None:
    """By a summary of narrower buckets, too."""
    rng = np.random.default_rng(3)
    ids = rng.integers(0, GROUPS, ROWS).astype(np.int32)
    values = rng.normal(0, 1, ROWS)
    buckets, first = GroupedLogBuckets(GROUPS).resize(mantissa_bits), GroupedLogBuckets(GROUPS)
    fed(buckets, ids, values, ROWS // 2)
    batches = cut(ids, values, ROWS // 2)
    assert has_spans(counted_in_cells(GROUPS, batches, shift=52 - mantissa_bits))
    first.update(ids[ids == 0], values[ids == 0])
    buckets.subtract(first)
    few = values[ids == 0][:50] / 4
    buckets.update(np.zeros(few.size, np.int32), few)
    others = ids != 0
    holds(buckets, np.append(ids[others], few.astype(np.int32) * 0), np.append(values[others], few))


KINDS = ["update", "few", "merge", "subtract", "grow", "resize", "select", "bytes"]
STEPS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.sampled_from(sorted(DRAWN)), st.integers(0, 2**32 - 1)),
    max_size=8,
)


@given(STEPS)
def test_whatever_is_done_between_updates(steps: list[tuple[str, str, int]]) -> None:
    rng = np.random.default_rng(5)
    groups = 4
    ids, values = rng.integers(0, groups, 4000).astype(np.int32), rng.normal(0, 1, 4000)
    buckets = GroupedLogBuckets(groups)
    buckets.update(ids, values)
    assert has_spans(counted_in_cells(groups, [(ids, values)]))
    for step, drawn, number in steps:
        rng = np.random.default_rng(number)
        rows = 20 if step == "few" else 2000
        new_ids, new = rng.integers(0, groups, rows).astype(np.int32), DRAWN[drawn](rng, rows)
        if step in ("update", "few"):
            buckets.update(new_ids, new)
        elif step in ("merge", "subtract"):
            other = GroupedLogBuckets(groups)
            other.resize(buckets.mantissa_bits)
            other.update(new_ids, new)
            buckets.merge(other)
        if step == "subtract":
            taken = GroupedLogBuckets(groups)
            taken.update(ids, values)
            buckets.subtract(taken)  # All that was there before.
            ids, values = new_ids, new
            buckets.update(new_ids, new)
        if step in ("update", "few", "merge", "subtract"):
            ids, values = np.append(ids, new_ids), np.append(values, new)
        elif step == "grow":
            groups += 1
            buckets.grow(groups)
        elif step == "resize":
            buckets.resize(max(0, buckets.mantissa_bits - 1))
        elif step == "select":
            ids = (groups - 1 - ids).astype(np.int32)
            buckets = buckets.select(np.arange(groups)[::-1].copy())
        else:
            buckets = GroupedLogBuckets.from_bytes(buckets.to_bytes())
    has_lost = any(step == "subtract" for step, _, _ in steps)
    if not has_lost:
        holds(buckets, ids, values)
        return
    for mine, exact in zip(buckets.buckets(), _of(ids, values, buckets), strict=True):
        np.testing.assert_array_equal(mine, exact)
    for group in np.unique(ids[~np.isnan(values)]):
        mine = values[(ids == group) & ~np.isnan(values)]
        assert buckets.quantile(0.0)[group].low <= mine.min()
        assert buckets.quantile(1.0)[group].high >= mine.max()


def _of(
    ids: NDArray[np.int32], values: Doubles, like: GroupedLogBuckets
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Buckets of these values, counted into an empty summary few at a time: there are no spans."""
    plain = GroupedLogBuckets(like.groups)
    plain.resize(like.mantissa_bits)
    fed(plain, ids, values, 64)
    return plain.buckets()


def test_spans_are_laid_anew_when_twice_as_many_values_missed_them() -> None:
    misses = Misses()
    misses.note(1000, 39)
    assert not misses.are_many(10)
    misses.note(1000, 1)
    assert misses.are_many(10)
    misses.begin_again()
    misses.note(4000, 79)
    assert not misses.are_many(10)
    misses.note(1, 1)
    assert misses.are_many(10)


def test_spans_that_most_values_find_stay() -> None:
    """Also where some batches find them and the others do not."""
    rng = np.random.default_rng(4)
    ids = rng.integers(0, GROUPS, ROWS).astype(np.int32)
    batches = [(ids, rng.uniform(1, 8, ROWS)), (ids, rng.uniform(3, 5, ROWS))]
    batches.append((ids[: ROWS // 4], np.zeros(ROWS // 4)))
    assert has_spans(counted_in_cells(GROUPS, batches))


def test_spans_that_most_values_miss_are_of_no_use() -> None:
    misses = Misses()
    misses.note(4000, 4000)
    assert not misses.are_most()  # That are few.
    misses.note(4000, 0)
    assert not misses.are_most()
    misses.note(2, 2)
    assert misses.are_most()
