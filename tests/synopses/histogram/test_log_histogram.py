"""Log buckets: the truth is in the bucket, always, and the bucket is narrow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synopses.histogram.bucket_index import cell_ends, cells_of
from synopses.histogram.codec import packed
from synopses.histogram.log_histogram import GroupedLogBuckets
from synopses.model.binary_header import Kind, seal
from synopses.model.errors import BadParameter, CorruptSynopsis
from synopses.model.estimate import Bound
from tests import truth
from tests.synopses.counted_cells import counted_in_cells

DOUBLES = st.floats(allow_nan=False, allow_infinity=True)
QUANTILES = (0.0, 0.001, 0.07, 0.5, 0.9, 0.99, 1.0)


def of(values: list[float]) -> GroupedLogBuckets:
    buckets = GroupedLogBuckets(1)
    buckets.update(None, np.array(values, np.float64))
    return buckets


@given(value=DOUBLES)
def test_a_value_lies_between_the_ends_of_its_cell(value: float) -> None:
    low, high = cell_ends(cells_of(np.array([value])))
    assert low[0] <= value <= high[0]
    if np.isfinite(value) and abs(value) > 1e-300:
        assert high[0] - low[0] <= 2**-7 * abs(value)
    if value == 0 or np.isinf(value):
        assert low[0] == high[0]


@given(left=DOUBLES, right=DOUBLES)
def test_cells_are_in_the_order_of_their_values(left: float, right: float) -> None:
    cells = cells_of(np.array([min(left, right), max(left, right)]))
    assert cells[0] <= cells[1]


@given(values=st.lists(DOUBLES, min_size=1, max_size=60), q=st.floats(0, 1))
def test_the_quantile_of_any_values_is_held(values: list[float], q: float) -> None:
    estimate = of(values).quantile(q)[0]
    assert estimate.holds(truth.exact_quantile(np.array(values), q))
    assert estimate.low <= estimate.value <= estimate.high


@pytest.mark.parametrize("distribution", truth.distributions())
def test_quantiles_by_group_are_held_and_narrow(distribution: str) -> None:
    values = truth.draw(distribution, 3, 20_000)
    ids = np.random.default_rng(3).integers(0, 9, 20_000).astype(np.int32)
    buckets = GroupedLogBuckets(9)
    buckets.update(ids, values)
    groups = truth.by_group(ids, values, 9)
    for q in QUANTILES:
        answer = buckets.quantile(q)
        exact = np.array([truth.exact_quantile(group, q) for group in groups])
        assert ((answer.low <= exact) & (exact <= answer.high)).all()
        assert (np.abs(answer.value - exact) <= 2**-7 * np.abs(exact)).all()
        assert (answer.high - answer.low <= 2**-7 * np.abs(exact)).all()


def test_one_value_repeated_is_exact() -> None:
    answer = of([7.25] * 100).quantile(0.5)
    assert answer.bound.tolist() == [Bound.EXACT]
    assert answer.value.tolist() == [7.25]


def test_an_empty_group_has_no_quantile() -> None:
    buckets = GroupedLogBuckets(3)
    assert buckets.quantile(0.5).null.tolist() == [True, True, True]
    buckets.update(np.array([1], np.int32), np.array([2.0]))
    assert buckets.quantile(0.5).null.tolist() == [True, False, True]


def test_a_quantile_beyond_one_is_refused_with_its_value() -> None:
    with pytest.raises(BadParameter, match=r"q is 1\.5, expected 0 to 1"):
        of([1.0]).quantile(1.5)


def test_taking_a_part_away_leaves_the_rest() -> None:
    values = truth.draw("lognormal-2", 5, 4000)
    ids = np.random.default_rng(5).integers(0, 3, 4000).astype(np.int32)
    whole, old = GroupedLogBuckets(3), GroupedLogBuckets(3)
    whole.update(ids, values)
    old.update(ids[:2500], values[:2500])
    whole.subtract(old)
    for group, rest in enumerate(truth.by_group(ids[2500:], values[2500:], 3)):
        assert whole.counts[group] == len(rest)
        assert whole.quantile(0.3)[group].holds(truth.exact_quantile(rest, 0.3))


def test_a_window_that_slides_for_long_does_not_grow() -> None:
    window = GroupedLogBuckets(1)
    panes = []
    for seed in range(60):
        pane = of((truth.draw("lognormal-2", seed, 500) * 10.0**seed).tolist())
        panes.append(pane)
        window.merge(pane)
        if len(panes) > 5:
            window.subtract(panes.pop(0))
    fresh = GroupedLogBuckets(1)
    for pane in panes:
        fresh.merge(pane)
    assert window.size_bytes <= 4 * fresh.size_bytes
    assert window.quantile(0.5).low == fresh.quantile(0.5).low


@pytest.mark.parametrize("values", [[0.0, -0.0], [-0.0, 0.0], [-0.0, -0.0]])
def test_of_two_zeros_nobody_tells_which_came_first(values: list[float]) -> None:
    """In one pass or two, in any order: one value, and equal bytes."""
    whole, left, right, zero = (GroupedLogBuckets(1) for _ in range(4))
    whole.update(None, np.array(values))
    left.update(None, np.array(values[:1]))
    right.update(None, np.array(values[1:]))
    zero.update(None, np.zeros(2))
    assert whole.to_bytes() == left.merge(right).to_bytes() == zero.to_bytes()
    answer = whole.quantile(1.0)
    for ends in (answer.value, answer.low, answer.high):
        assert not np.signbit(ends[0])


def test_memory_does_not_depend_on_whether_wide_values_came_first() -> None:
    """A row of the directory is as wide as all stretches of keys: of one group they are many."""
    rng = np.random.default_rng(1)
    doubles = rng.integers(0, 2**63, 20_000).view(np.float64)
    wide, many = GroupedLogBuckets(1), GroupedLogBuckets(2_000)
    wide.update(None, np.where(rng.random(doubles.size) < 0.5, doubles, -doubles))
    ids = (np.arange(160_000) % 2_000).astype(np.int32)
    many.update(ids, rng.lognormal(0, 1, ids.size))
    first = GroupedLogBuckets(0).merge(wide).merge(many)
    last = GroupedLogBuckets(0).merge(many).merge(wide)
    assert first.to_bytes() == last.to_bytes()
    assert first.size_bytes < 1.5 * last.size_bytes
    updated = GroupedLogBuckets(2_000).merge(wide)
    rng = np.random.default_rng(2)
    for start in range(0, ids.size, 16_000):
        updated.update(ids[start : start + 16_000], rng.lognormal(0, 1, 16_000))
    assert updated.size_bytes < 1.5 * last.size_bytes
    others = first.select(np.arange(1, 2_000))
    assert others.size_bytes < 1.5 * many.size_bytes


def test_what_is_cut_out_of_wide_values_says_all_that_it_holds() -> None:
    rng = np.random.default_rng(1)
    values = rng.integers(0, 2**63, 20_000).view(np.float64)
    pages = counted_in_cells(1, [(None, values)]).pages
    assert pages is not None
    tables = pages.columns, pages.rows, pages.held, pages.stretches
    held = sum(table.nbytes for table in (*tables, pages.counters, pages.directory))
    assert pages.size_bytes == held
    assert pages.stretches.nbytes > 0


def with_ends(summary: GroupedLogBuckets, ends: list[tuple[float, float]]) -> bytes:
    """Return the bytes of a histogram, with other least and largest values of its groups."""
    parameters = (summary.groups, 52 - summary.mantissa_bits)
    buckets = packed(summary.buckets(), summary.groups)
    return seal(Kind.LOG_BUCKETS, parameters, [buckets, np.array(ends)])


@pytest.mark.parametrize(
    "ends", [(np.inf, -np.inf), (np.nan, np.nan), (1.9, 1.1), (1.5, 2.0), (1.0, 1.5)]
)
def test_ends_that_cannot_be_are_refused(ends: tuple[float, float]) -> None:
    summary = GroupedLogBuckets(1)
    summary.update(None, np.array([1.0, 2.0]))
    with pytest.raises(CorruptSynopsis, match="ends of group 0"):
        GroupedLogBuckets.from_bytes(with_ends(summary, [ends]))


def test_ends_of_an_empty_group_are_none() -> None:
    summary = GroupedLogBuckets(2)
    summary.update(np.ones(3, np.int32), np.array([1.0, 2.0, 3.0]))
    assert GroupedLogBuckets.from_bytes(summary.to_bytes()).counts.tolist() == [0, 3]
    kept = with_ends(summary, [(np.inf, -np.inf), (1.0, 3.0)])
    assert kept == summary.to_bytes()
    with pytest.raises(CorruptSynopsis, match="ends of group 0"):
        GroupedLogBuckets.from_bytes(with_ends(summary, [(1.0, 2.0), (1.0, 3.0)]))


def test_buckets_are_as_wide_where_no_group_is_left() -> None:
    coarse = GroupedLogBuckets(3).resize(3)
    for empty in (coarse.select(np.zeros(0, np.int64)), GroupedLogBuckets(0).resize(3)):
        assert empty.mantissa_bits == 3
        assert GroupedLogBuckets.from_bytes(empty.to_bytes()).to_bytes() == empty.to_bytes()
        empty.update(None, np.array([1.0]))
        assert empty.quantile(0.5).value[0] == 1.0


def test_a_group_that_is_selected_twice_is_refused() -> None:
    with pytest.raises(BadParameter, match="ids is 1, expected each group once"):
        GroupedLogBuckets(3).select(np.array([1, 2, 1]))


def test_a_batch_of_all_kinds_of_values_is_counted_like_one_value_after_the_other() -> None:
    rng = np.random.default_rng(5)
    kinds = (
        rng.lognormal(0, 1, 3_000),
        rng.normal(0, 1, 3_000),
        rng.choice([0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, 1.0, -1.0], 3_000),
        rng.choice([0.0, -0.0, np.nan], 600),
        np.full(140_000, 2.5),  # More than a counter of 16 bits holds.
        # No directory is as wide.
        rng.choice([-1, 1], 3_000) * np.exp(rng.uniform(-700, 700, 3_000)),
        np.full(600, np.nan),
    )
    values = np.concatenate(kinds)
    at_once, one_by_one = GroupedLogBuckets(1), GroupedLogBuckets(1)
    for batch in kinds * 2:
        at_once.update(None, batch)
        for first in range(0, batch.size, 500):  # Too few for the loop of one group.
            one_by_one.update(None, batch[first : first + 500])
    assert at_once.to_bytes() == one_by_one.to_bytes()
    there = values[~np.isnan(values)]
    cells, counts = np.unique(cells_of(there), return_counts=True)
    assert at_once.counts.tolist() == [2 * there.size]
    np.testing.assert_array_equal(at_once.buckets()[1], cells)
    np.testing.assert_array_equal(at_once.buckets()[2], 2 * counts)
