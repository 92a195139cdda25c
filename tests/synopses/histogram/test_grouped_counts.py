"""Where a count is held, in counters or in a hash map, says nothing about the counts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from synopses.histogram.bucket_index import (
    SHIFT_MAX,
    SHIFT_MIN,
    cell_ends,
    cells_of,
    cells_of_keys,
    coarser,
    keys_of_cells,
)
from synopses.histogram.codec import packed, unpacked
from synopses.histogram.dense_range import ROWS_MIN
from synopses.histogram.log_histogram import GroupedLogBuckets
from synopses.model.binary_header import Kind, seal
from synopses.model.errors import BadParameter, CorruptSynopsis
from tests import truth
from tests.laws import Part, resizing_commutes_with_merging
from tests.synopses.counted_cells import counted_in_cells, cut
from tests.synopses.subjects import LINEAR

SHIFTS = (SHIFT_MIN, SHIFT_MIN + 1, 49, SHIFT_MAX)
ODD = np.array([0.0, -0.0, 5e-324, -5e-324, np.inf, -np.inf, np.nan, 1.7e308, -1.7e308, 1e-310])


def mixed(seed: int, rows: int) -> NDArray[np.float64]:
    """Numbers of both signs over many decades, and one in twenty odd."""
    rng = np.random.default_rng(seed)
    values = rng.lognormal(0, 2, rows) * rng.choice([-1.0, 1.0], rows)
    return np.where(rng.random(rows) < 0.05, rng.choice(ODD, rows), values)


def counted(
    ids: NDArray[np.int32], values: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Groups, cells and counts by sorting."""
    present = ~np.isnan(values)
    pairs = np.column_stack((ids[present], cells_of(values[present])))
    entries, counts = np.unique(pairs, axis=0, return_counts=True)
    return entries[:, 0], entries[:, 1], counts


@pytest.mark.parametrize("groups", [1, 3, 40])
@pytest.mark.parametrize("batch", [50, 4096, 20_000])
def test_counts_are_those_of_sorting_whatever_the_batches(groups: int, batch: int) -> None:
    values = mixed(groups, 20_000)
    ids = np.random.default_rng(batch).zipf(1.5, values.size).clip(1, groups).astype(np.int32) - 1
    buckets = GroupedLogBuckets(groups)
    batches = [(None if groups == 1 else own, some) for own, some in cut(ids, values, batch)]
    for own, some in batches:
        buckets.update(own, some)
    assert counted_in_cells(groups, batches).pages is not None
    for found, exact in zip(buckets.buckets(), counted(ids, values), strict=True):
        np.testing.assert_array_equal(found, exact)
    present = ~np.isnan(values)
    assert buckets.counts.tolist() == np.bincount(ids[present], minlength=groups).tolist()
    for group, mine in enumerate(truth.by_group(ids[present], values[present], groups)):
        assert buckets.quantile(0.0)[group].low == mine.min()
        assert buckets.quantile(1.0)[group].high == mine.max()


def test_counters_of_several_groups_that_go_round_are_carried_on() -> None:
    """Every second value is one of two, so that each group has 100,000 of them."""
    rng = np.random.default_rng(3)
    values, ids = mixed(3, 400_000), rng.integers(0, 2, 400_000).astype(np.int32)
    values[::2] = 7.25 - ids[::2]
    buckets = GroupedLogBuckets(2)
    for start in range(0, values.size, 50_000):
        buckets.update(ids[start : start + 50_000], values[start : start + 50_000])
    for found, exact in zip(buckets.buckets(), counted(ids, values), strict=True):
        np.testing.assert_array_equal(found, exact)
    assert buckets.buckets()[2].max() > 1 << 16


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize(
    "kinds",
    [
        [7.25],
        [1.0, 2.0, 3.0, 4.0, 5.0],
        [0.0, -0.0],
        [0.0, -0.0, np.nan, 3.0, -3.0, 1e-3, 40.0],
        [np.nan],
        [np.inf, -np.inf, 1e308, -1e305],
        [5e-324, -5e-324, 1e-310, 0.0],
        [1.0, 2.0**15.99],  # As far apart as an array of cells is long, at 7 bits of mantissa,
        [1.0, 2.0**16],  # and one further.
        [-1e300, 1e-300, 0.0, np.inf],
    ],
)
def test_few_different_values_of_one_group_are_counted_like_any(
    kinds: list[float], shift: int
) -> None:
    values = np.random.default_rng(len(kinds)).choice(kinds, 3 * ROWS_MIN)
    at_once, one_by_one = GroupedLogBuckets(1), GroupedLogBuckets(1)
    for buckets in (at_once, one_by_one):
        buckets.resize(52 - shift)
    for _ in range(2):
        at_once.update(None, values)
        for first in range(0, values.size, ROWS_MIN // 2):
            one_by_one.update(None, values[first : first + ROWS_MIN // 2])
    assert at_once.to_bytes() == one_by_one.to_bytes()
    cells, counts = np.unique(cells_of(values[~np.isnan(values)], shift), return_counts=True)
    assert at_once.counts.tolist() == [2 * counts.sum()]
    np.testing.assert_array_equal(at_once.buckets()[1], cells)
    np.testing.assert_array_equal(at_once.buckets()[2], 2 * counts)


ROWS = 150_001  # More than two runs of dense_window_kernels.py, and a rest.
DRAWN = {
    "near": lambda rng: rng.lognormal(0, 1, ROWS),
    "both signs": lambda rng: rng.normal(0, 1, ROWS),
    "negative": lambda rng: -rng.lognormal(0, 1, ROWS),
    "five values": lambda rng: rng.integers(1, 6, ROWS) * 1.0,
    "mostly zeros": lambda rng: rng.integers(0, 3, ROWS) // 2 * rng.normal(0, 1, ROWS),
    "sixty octaves": lambda rng: rng.lognormal(0, 6, ROWS) * rng.choice([-1.0, 1.0], ROWS),
    "all octaves": lambda rng: rng.lognormal(0, 100, ROWS),
    "growing": lambda rng: np.geomspace(1e-9, 1e12, ROWS),
    "with holes": lambda rng: rng.choice([1.0, 1e3, -1e9], ROWS) + rng.random(ROWS),
    "odd ones": lambda _: mixed(1, ROWS),
}


@pytest.mark.parametrize("drawn", DRAWN)
def test_many_values_of_one_group_are_counted_as_sorting_counts_them(drawn: str) -> None:
    rng = np.random.default_rng(7)
    values = DRAWN[drawn](rng)
    buckets = GroupedLogBuckets(1)
    first = rng.lognormal(0, 1, 4096)  # So there are pages.
    buckets.update(None, first)
    before = buckets.select(np.array([0]))
    for _ in range(3):
        buckets.update(None, values)
    assert counted_in_cells(1, [(None, first)]).pages is not None
    _, cells, counts = counted(np.zeros(ROWS, np.int32), values)
    found = buckets.subtract(before).buckets()
    np.testing.assert_array_equal(found[1], cells)
    np.testing.assert_array_equal(found[2], 3 * counts)
    assert buckets.counts.tolist() == [3 * counts.sum()]
    assert buckets.quantile(0.0)[0].low <= np.nanmin(values)
    assert buckets.quantile(1.0)[0].high >= np.nanmax(values)


@pytest.mark.parametrize(("least", "most"), [(1.1, 2e3), (-2e3, -1.1), (-2e3, 2e3)])
def test_extremes_move_within_their_bucket_and_by_one(least: float, most: float) -> None:
    """Only runs with values in the bucket of an extreme, or further out, are looked at for it."""
    rng = np.random.default_rng(8)
    signs = rng.choice([sign for sign in (-1.0, 1.0) if least < 2.0 * sign < most], 4 * ROWS_MIN)
    inside = signs * np.exp(rng.uniform(np.log(1.2), np.log(1e3), 4 * ROWS_MIN))
    buckets = GroupedLogBuckets(1)
    buckets.update(None, np.append(inside, [least, most]))
    assert counted_in_cells(1, [(None, inside)]).pages is not None
    for step in (2.0**-40, 2.0**-7):
        for turn in range(6):
            if turn % 2:
                least -= step * abs(least)
            else:
                most += step * abs(most)
            buckets.update(None, np.append(inside, least if turn % 2 else most))
            assert buckets.quantile(0.0)[0].low == least
            assert buckets.quantile(1.0)[0].high == most


def test_a_histogram_of_many_values_takes_less_than_a_map_would() -> None:
    values = truth.draw("lognormal-1", 1, 400_000)
    ids = np.random.default_rng(1).integers(0, 100, values.size).astype(np.int32)
    buckets = GroupedLogBuckets(100)
    buckets.update(ids, values)
    beside = 100 * 3 * 8  # Bytes: a count and two ends of each group.
    assert buckets.size_bytes - beside < 16 * buckets.buckets()[0].size


def test_few_values_of_many_groups_stay_in_the_map() -> None:
    values = truth.draw("lognormal-2", 1, 5000)
    ids = (np.arange(5000) % 1000).astype(np.int32)
    assert counted_in_cells(1000, [(ids, values)]).pages is None


def test_parts_held_in_different_layouts_merge_and_subtract() -> None:
    ids = np.random.default_rng(4).integers(0, 5, 30_000).astype(np.int32)
    values = np.concatenate((mixed(1, 15_000), np.abs(mixed(2, 15_000)) ** 0.25))
    whole, left, right = (GroupedLogBuckets(5) for _ in range(3))
    whole.update(ids, values)
    left.update(ids[:15_000], values[:15_000])
    right.update(ids[15_000:], values[15_000:])
    both = GroupedLogBuckets.from_bytes(left.to_bytes()).merge(right)
    assert both.to_bytes() == whole.to_bytes()
    rest = both.subtract(left)
    for found, exact in zip(rest.buckets(), right.buckets(), strict=True):
        np.testing.assert_array_equal(found, exact)


def test_counts_of_billions_are_exact() -> None:
    values = np.geomspace(1.0, 10.0, 1000)
    buckets = GroupedLogBuckets(1)
    buckets.update(None, values)
    for _ in range(33):
        buckets.merge(buckets)
    buckets.update(None, values)
    _, _, counts = buckets.buckets()
    assert int(counts.sum()) == int(buckets.counts[0]) == 1000 * (2**33 + 1)
    assert counts.max() > 2**32
    again = GroupedLogBuckets.from_bytes(buckets.to_bytes())
    assert again.to_bytes() == buckets.to_bytes()
    assert buckets.subtract(again).counts.tolist() == [0]


@pytest.mark.slow
@pytest.mark.parametrize("groups", [1, 2])
def test_counters_that_go_round_are_carried(groups: int) -> None:
    values = np.concatenate((np.geomspace(1.0, 10.0, 1000), np.full(300_000, 3.25), -np.ones(9)))
    ids = np.where(np.arange(values.size) % 3 == 0, 0, groups - 1).astype(np.int32)
    whole, part = GroupedLogBuckets(groups), GroupedLogBuckets(groups)
    for batch in (slice(0, 1000), slice(1000, 150_000), slice(150_000, None)):
        part.update(None if groups == 1 else ids[batch], values[batch])
        whole.merge(part)
    left = np.concatenate((ids[:1000].repeat(3), ids[1000:150_000].repeat(2), ids[150_000:]))
    twice = np.concatenate((values[:1000].repeat(3), np.full(2 * 149_000, 3.25), values[150_000:]))
    for found, exact in zip(whole.buckets(), counted(left, twice), strict=True):
        np.testing.assert_array_equal(found, exact)
    once = whole.subtract(part)
    mine = slice(0, 1000), slice(1000, 150_000)
    kept = [np.concatenate([column[rows] for rows in (mine[0], *mine)]) for column in (ids, values)]
    for found, exact in zip(once.buckets(), counted(*kept), strict=True):
        np.testing.assert_array_equal(found, exact)


@pytest.mark.slow
def test_zeros_among_numbers_of_one_group_are_counted_in_a_counter_that_goes_round() -> None:
    values = np.where(np.random.default_rng(6).random(200_000) < 0.5, mixed(6, 200_000), 0.0)
    buckets = GroupedLogBuckets(1)
    for start in range(0, values.size, 40_000):
        buckets.update(None, values[start : start + 40_000])
    for found, exact in zip(
        buckets.buckets(), counted(np.zeros(values.size, np.int32), values), strict=True
    ):
        np.testing.assert_array_equal(found, exact)
    assert buckets.counts[0] == np.count_nonzero(~np.isnan(values))


def test_a_long_batch_gives_pages_at_once_to_the_groups_whose_values_differ() -> None:
    ids = np.repeat(np.arange(200, dtype=np.int32), 50)
    values = np.where(ids % 2 == 0, truth.draw("lognormal-1", 3, ids.size), 7.0 + ids)
    order = np.random.default_rng(3).permutation(ids.size)
    buckets = GroupedLogBuckets(200)
    buckets.update(ids[order], values[order])
    pages = counted_in_cells(200, [(ids[order], values[order])]).pages
    assert pages is not None
    assert np.sort(pages.held).tolist() == list(range(0, 200, 2))
    for found, exact in zip(buckets.buckets(), counted(ids, values), strict=True):
        np.testing.assert_array_equal(found, exact)


@pytest.mark.parametrize("shift", SHIFTS)
def test_a_coarser_cell_holds_its_finer_ones(shift: int) -> None:
    values = mixed(3, 3000)
    values = values[~np.isnan(values)]
    cells = cells_of(values, shift)
    low, high = cell_ends(cells, shift)
    assert ((low <= values) & (values <= high)).all()
    np.testing.assert_array_equal(coarser(cells_of(values), SHIFT_MIN, shift), cells)
    finite = cells[np.isfinite(values)]  # Infinities are never looked up by key.
    np.testing.assert_array_equal(cells_of_keys(keys_of_cells(finite, shift), shift), finite)


@pytest.mark.parametrize("distribution", ["normal", "lognormal-2", "pareto", "constant"])
def test_collapsed_buckets_still_hold_the_truth_and_are_as_wide_as_they_say(
    distribution: str,
) -> None:
    values = truth.draw(distribution, 8, 20_000)
    buckets = GroupedLogBuckets(1)
    buckets.update(None, values)
    for bits in (6, 4, 1, 0):
        before = buckets.size_bytes
        assert buckets.resize(bits).size_bytes <= before
        buckets.update(None, values)
        for q in (0.0, 0.01, 0.5, 0.99, 1.0):
            answer, exact = buckets.quantile(q)[0], truth.exact_quantile(values, q)
            assert answer.holds(exact)
            assert answer.high - answer.low <= 2.0**-bits * abs(exact)


def test_what_was_collapsed_does_not_come_back() -> None:
    with pytest.raises(BadParameter, match="mantissa_bits is 5, expected 0 to 4"):
        GroupedLogBuckets(1).resize(4).resize(5)


@pytest.mark.parametrize("bits", [7, 6, 3, 0])
def test_collapsing_then_merging_is_merging_then_collapsing(bits: int) -> None:
    values = mixed(5, 8000)
    part = Part(np.random.default_rng(5).integers(0, 4, 8000).astype(np.int32), values)
    (subject,) = (each for each in LINEAR if each.name == "log buckets")
    resizing_commutes_with_merging(subject, part[:3000], part[3000:], 4, bits)
    small, large = subject.of(part[:3000], 4).resize(bits), subject.of(part[3000:], 4)
    whole = subject.of(part, 4).resize(bits)
    for merged in (subject.of(part[:3000], 4).resize(bits).merge(large), large.merge(small)):
        subject.assert_same(merged, whole)  # The wider buckets of the two are the merged one's.
        subject.assert_same(GroupedLogBuckets.from_bytes(merged.to_bytes()), whole)


def image(data: bytes, *, groups: int = 1, shift: int = SHIFT_MIN) -> bytes:
    parameters = (groups, shift)
    return seal(Kind.LOG_BUCKETS, parameters, [data, np.zeros((max(groups, 0), 2))])


def one(cell: int, count: int) -> bytes:
    return packed((np.array([0]), np.array([cell]), np.array([count])), 1)


def test_buckets_wider_than_an_octave_are_no_image() -> None:
    with pytest.raises(CorruptSynopsis, match="shift is 60"):
        GroupedLogBuckets.from_bytes(image(b"\0", shift=60))


def test_cells_beyond_infinity_are_no_image() -> None:
    with pytest.raises(CorruptSynopsis, match="cell"):
        GroupedLogBuckets.from_bytes(image(one(2**18 * 2, 1)))


@pytest.mark.parametrize(
    ("data", "groups", "wrong"),
    [
        (b"", 1, "groups is 1, expected '0 to 0"),
        (b"\0", -1, "groups is -1"),
        (b"\0\0", 1, "length of packed buckets is 2, expected 1"),
        (b"\x80", 1, "length of packed buckets is 1"),
        (b"\xff" * 9 + b"\0", 1, "length of packed buckets is 10"),
        (b"\x05\0", 1, "buckets of a group is 5, expected '0 to 0'"),
        (b"\1\1\1\1", 2, "buckets is 2, expected '0 to 1'"),
        (b"\2\5\0\1\1", 1, "distance of buckets is 5"),
        (b"\1\xff\xff\xff\xff\x7f\1", 1, "distance of buckets is 34359738367"),
        (b"\1\5\0", 1, "count of a bucket is 0"),
        (one(5, 2**62), 1, "counts together"),
    ],
)
def test_bytes_that_are_no_buckets_are_refused(data: bytes, groups: int, wrong: str) -> None:
    with pytest.raises(CorruptSynopsis, match=wrong):
        GroupedLogBuckets.from_bytes(image(data, groups=groups))


@pytest.mark.slow
@given(
    st.lists(
        st.dictionaries(st.integers(0, 2**31 - 1), st.integers(1, 2**53), max_size=5), max_size=5
    )
)
def test_packed_buckets_are_unpacked_as_they_were(held: list[dict[int, int]]) -> None:
    rows = [(g, cell, n) for g, cells in enumerate(held) for cell, n in sorted(cells.items())]
    ids, cells, counts = (np.array([row[at] for row in rows], np.int64) for at in range(3))
    data = packed((ids, cells, counts), len(held))
    assert [column.tolist() for column in unpacked(data, len(held))] == [
        ids.tolist(), cells.tolist(), counts.tolist()
    ]  # fmt: skip


def test_a_bucket_beside_others_takes_its_count_and_a_byte() -> None:
    summary = GroupedLogBuckets(1)
    summary.update(None, np.repeat(np.geomspace(1.0, 2.0, 1000, endpoint=False), 10))
    buckets = summary.buckets()[0].size
    assert buckets == 128
    assert len(summary.to_bytes()) < 2 * buckets + 100
