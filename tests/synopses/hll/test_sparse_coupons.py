"""Groups of few distinct values: counted one by one, as far as that is true."""

from __future__ import annotations

import datasketches
import numpy as np
import pytest

from synopses.hll.hyperloglog import GroupedDistinct
from synopses.hll.profile import DISTINCT
from synopses.hll.sparse_coupons import SLOTS, collided_max, held_max
from synopses.hll.sparse_kernels import ROOM_MIN
from synopses.kernels.hashing import murmur_int64
from synopses.model.binary_header import Kind, seal
from synopses.model.errors import BadParameter, CorruptSynopsis
from synopses.model.estimate import Bound
from synopses.model.profile import Statistics
from tests import truth


def of_integers(values: np.ndarray, lg_k: int = 12) -> GroupedDistinct:
    summary = GroupedDistinct(1, lg_k)
    summary.update(None, *murmur_int64(values))
    return summary


def of_groups(sizes: np.ndarray, lg_k: int, times: int = 2) -> GroupedDistinct:
    """Group g has sizes[g] values, each so many times."""
    ids = np.repeat(np.arange(sizes.size, dtype=np.int32), sizes)
    rows = np.random.default_rng(1).permutation(np.tile(np.arange(ids.size), times))
    summary = GroupedDistinct(sizes.size, lg_k)
    for start in range(0, rows.size, 5_000):
        part = rows[start : start + 5_000]
        summary.update(ids[part], *murmur_int64(part))
    return summary


@pytest.mark.parametrize("lg_k", [7, 10, 12])
def test_groups_of_few_have_both_ends_at_the_truth(lg_k: int) -> None:
    sizes = np.arange(held_max(lg_k) + 1)
    answer = of_groups(sizes, lg_k).distinct(0.99)
    assert (answer.value == sizes).mean() > 0.98  # Coupons may collide.
    assert (answer.low == answer.value).all()
    assert (answer.high == answer.value).all()
    assert answer.bound[0] == Bound.EXACT  # Nothing was taken in.
    assert (answer.bound[1:] == Bound.INTERVAL).all()  # Values that came twice hide collisions.


def test_values_that_came_once_each_are_counted_exactly() -> None:
    answer = of_groups(np.array([1, 5, 250]), 12, times=1).distinct(0.95)
    assert answer.value.tolist() == [1, 5, 250]
    assert (answer.bound == Bound.EXACT).all()


def test_one_more_value_than_is_held_makes_registers() -> None:
    most = held_max(12)
    few, many = of_integers(np.tile(np.arange(most), 2)), of_integers(np.arange(most + 1))
    assert few.distinct(0.95).high[0] == most
    twice = many.merge(many.select(np.zeros(1, np.int64))).distinct(0.95)
    assert twice.low[0] < most + 1 < twice.high[0]
    assert len(few.to_bytes()) < 4096 < len(many.to_bytes())


@pytest.mark.slow
@pytest.mark.coverage_gate
@pytest.mark.parametrize("values", [3_000, 20_000, 120_000])
@pytest.mark.parametrize("confidence", [0.5, 0.95])
def test_collisions_are_bounded_as_often_as_it_says(values: int, confidence: float) -> None:
    trials, rng = 60, np.random.default_rng(values)
    held = np.array([len(np.unique(rng.integers(0, SLOTS, values))) for _ in range(trials)])
    high = held + collided_max(held, confidence)
    assert int((high >= values).sum()) >= truth.gate(trials, confidence)
    assert (high - held).mean() <= 8 + 3 * values**2 / (2 * SLOTS)


def test_collisions_that_are_certain_are_found() -> None:
    rows = 4_000  # All in the same 26 bits but two thousand.
    h1 = (np.arange(rows, dtype=np.uint64) << np.uint64(26)) | (np.arange(rows) % 2_000).astype(
        np.uint64
    )
    summary = GroupedDistinct(1, 16)
    summary.update(None, h1, np.ones(rows, np.uint64))
    answer = summary.distinct(0.95)
    assert answer.low[0] == answer.value[0] == 2_000
    assert answer.bound[0] == Bound.INTERVAL
    assert summary.distinct(1 - 1e-12).high[0] > 2_000


@pytest.mark.parametrize("lg_k", [7, 8, 12, 14])
@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 100, 256, 257])
@pytest.mark.parametrize("target", [datasketches.HLL_4, datasketches.HLL_8])
def test_the_library_reads_lists_and_sets_and_we_read_them_back(
    lg_k: int, size: int, target: datasketches.tgt_hll_type
) -> None:
    ours = of_integers(np.arange(size), lg_k)
    image = ours.image(0)
    theirs = datasketches.hll_sketch.deserialize(image)
    if size <= (7 if lg_k < 8 else held_max(lg_k)):
        assert len(image) <= 12 + 4 * size
        assert theirs.get_estimate() == pytest.approx(size, rel=1e-4)
    library = datasketches.hll_sketch(lg_k, target)
    for value in range(size // 2, 2 * size):
        library.update(value)
    union = datasketches.hll_union(lg_k)
    union.update(library)
    union.update(theirs)
    merged = union.get_result(target).serialize_compact()
    every = of_integers(np.arange(2 * size), lg_k)
    read = GroupedDistinct.from_images([merged], lg_k)
    assert read.registers(0).tobytes() == every.registers(0).tobytes()
    again = GroupedDistinct.from_images([image], lg_k)
    assert again.registers(0).tobytes() == ours.registers(0).tobytes()
    assert again.image(0) == image


@pytest.mark.parametrize("size", [3, 200, 300])
def test_one_group_is_the_same_in_batches_of_any_size(size: int) -> None:
    values = np.random.default_rng(size).integers(0, size, 4_000)
    whole, parts = of_integers(values), GroupedDistinct(1)
    for start in range(0, 4_000, 37):
        parts.update(None, *murmur_int64(values[start : start + 37]))
    grouped = GroupedDistinct(1)
    grouped.update(np.zeros(4_000, np.int32), *murmur_int64(values))
    assert whole.to_bytes() == parts.to_bytes() == grouped.to_bytes()


def test_coupons_come_back_from_bytes() -> None:
    summary = of_integers(np.arange(50))
    read = GroupedDistinct.from_bytes(summary.to_bytes())
    assert read.to_bytes() == summary.to_bytes()
    assert read.distinct(0.95)[0].value == 50


@pytest.mark.parametrize(("group", "slot"), [(1, 5), (-1, 5), (0, SLOTS), (0, -1)])
def test_coupons_outside_of_their_groups_or_slots_are_refused(group: int, slot: int) -> None:
    parts = [
        np.zeros(0, np.int64),
        np.zeros((0, 128), np.uint8),
        np.array([group], np.int32),
        np.array([slot], np.int32),
        np.ones(1, np.uint8),
        np.ones(1, np.int64),
    ]
    with pytest.raises(CorruptSynopsis, match="group" if slot == 5 else "cell"):
        GroupedDistinct.from_bytes(seal(Kind.DISTINCT, (1, 7), parts))


def test_few_values_cost_some_bytes_each() -> None:
    summary = of_groups(np.full(1_000, 200), 12)
    assert summary.size_bytes < 1_000 * 200 * 27


def test_the_profile_promises_no_error_where_coupons_are_counted() -> None:
    assert DISTINCT.error_of(12, Statistics(256), 0.95) == 0.0
    assert DISTINCT.error_of(12, Statistics(257), 0.95) > 0.01
    assert DISTINCT.error_of(21, Statistics(100_000), 0.95) > 0.0  # Some of these collide.


def test_a_confidence_of_one_is_refused() -> None:
    with pytest.raises(BadParameter, match=r"confidence is 1\.0"):
        collided_max(np.array([3]), 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("lg_k", [7, 10, 12])
@pytest.mark.parametrize("groups", [3, 5_000])
def test_asking_in_between_changes_nothing(groups: int, lg_k: int) -> None:
    """Coupons wait in lists, of dense groups, too, until the first question."""
    rng = np.random.default_rng(groups + lg_k)
    ids = np.minimum(rng.geometric(0.002, 40_000) - 1, groups - 1).astype(np.int32)
    hashes = murmur_int64(rng.integers(0, 20_000, ids.size))
    whole, parts, apart = (GroupedDistinct(groups, lg_k) for _ in range(3))
    whole.update(ids, *hashes)
    for start in range(0, ids.size, 7_001):
        rows = slice(start, start + 7_001)
        part = GroupedDistinct(groups, lg_k)
        part.update(ids[rows], *(half[rows] for half in hashes))
        parts.update(ids[rows], *(half[rows] for half in hashes))
        assert parts.distinct(0.95).value.sum() > 0
        apart.merge(part)
    assert whole.to_bytes() == parts.to_bytes() == apart.to_bytes()
    taken = np.bincount(ids, minlength=groups)
    assert (whole.distinct(0.95).high <= taken).all()
    np.testing.assert_array_equal(
        GroupedDistinct.from_bytes(whole.to_bytes()).distinct(0.95).high, parts.distinct(0.95).high
    )


def test_a_settled_summary_holds_registers_alone_and_still_counts() -> None:
    sizes = np.full(100, 2_000)
    settled, other = of_groups(sizes, 10), of_groups(sizes, 10)
    settled.settle()
    assert settled.size_bytes <= 100 * (1024 + 40)  # Registers; where they are, values taken in.
    assert settled.size_bytes < other.size_bytes
    assert settled.to_bytes() == other.to_bytes()
    more = np.arange(50_000, dtype=np.int64)
    for summary in (settled, other):
        summary.update((more % 100).astype(np.int32), *murmur_int64(more + 10**9))
    assert settled.to_bytes() == other.to_bytes()


def test_coupons_that_share_a_slot_keep_the_larger_register() -> None:
    h1 = np.full(100, 5, np.uint64) | (np.arange(100, dtype=np.uint64) << np.uint64(26))
    h2 = np.uint64(1) << np.arange(60, 20, -0.4).astype(np.uint64)
    summary = GroupedDistinct(1)
    summary.update(None, h1, h2)
    assert summary.distinct(0.95).value[0] == 1
    assert summary.registers(0)[5] == 44  # 1 + leading zeros of the smallest.


def test_a_merge_of_groups_that_the_other_lacks_makes_no_room_for_them() -> None:
    """Panes of a window have groups of their own, of which another pane has none."""
    groups, panes, each = 100_000, 10, 500
    merged = GroupedDistinct(0)
    for pane in range(panes):
        part = GroupedDistinct(groups)
        ids = np.arange(pane * each, (pane + 1) * each, dtype=np.int32)
        part.update(ids, *murmur_int64(ids.astype(np.int64)))
        merged.merge(part)
    assert merged.distinct(0.95).value.sum() == panes * each
    lists = 28 * groups  # Where they are, values taken in, dense rows.
    assert merged.size_bytes <= lists + 2 * 4 * ROOM_MIN * panes * each
