"""Counting keys: exactly while they are few, then in tables; and taking them out again."""

from __future__ import annotations

import numpy as np
import pytest

from synopses.counters.count_min import GroupedCountMin
from synopses.counters.count_sketch import GroupedCountSketch
from synopses.counters.hybrid_counters import keys_max
from synopses.model.binary_header import Kind, seal
from synopses.model.errors import BadParameter, CannotMerge, CorruptSynopsis
from synopses.model.profile import Statistics
from tests.laws import Part, Subject
from tests.synopses.frequencies import STREAMS, hashes
from tests.synopses.subjects import count_integers, to_bytes
from tests.truth import draw

KINDS = [GroupedCountMin, GroupedCountSketch]


def summary_of(kind, keys, lg_width: int = 6, seed: int = 0):
    summary = kind(1, lg_width, seed)
    summary.update(None, hashes(keys))
    return summary


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_is_exact_up_to_so_many_keys_and_no_further(kind) -> None:
    most = keys_max(6)
    assert summary_of(kind, np.arange(most)).exact.all()
    assert not summary_of(kind, np.arange(most + 1)).exact.any()


@pytest.mark.parametrize("kind", KINDS)
def test_who_has_a_table_keeps_no_room_for_single_keys(kind) -> None:
    """An open pane held twice what its profile says, because only closing settles it."""
    profile = GroupedCountMin.profile
    for lg_width in (8, 12):
        summary = summary_of(kind, np.arange(3 * keys_max(lg_width)), lg_width)
        most = profile.bytes_of(lg_width, Statistics(tuples=10**6))
        assert summary.size_bytes <= most + 4_096


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("rows", [0, 1, 30, 3000])
def test_what_was_merged_can_be_taken_out_to_the_last_tuple(kind, stream: str, rows: int) -> None:
    rng = np.random.default_rng([rows, 1])
    left, right = STREAMS[stream](rng, rows), STREAMS[stream](rng, rows // 2)
    both = summary_of(kind, left).merge(summary_of(kind, right))
    both.subtract(summary_of(kind, right))
    assert np.array_equal(both.tables(0), summary_of(kind, left).tables(0))
    if both.exact.all():
        assert both.to_bytes() == summary_of(kind, left).to_bytes()


def test_small_groups_stay_usable_after_keys_are_taken_out() -> None:
    summary = summary_of(GroupedCountMin, np.arange(40))
    summary.subtract(summary_of(GroupedCountMin, np.arange(0, 40, 2)))
    summary.merge(summary_of(GroupedCountMin, np.arange(10)))
    odd = np.arange(1, 40, 2)
    expected = summary_of(GroupedCountMin, np.concatenate((odd, np.arange(10))))
    assert summary.to_bytes() == expected.to_bytes()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [0, 3, 60, 2000])
@pytest.mark.parametrize("size", [5, 7, 8])
def test_tables_shrink_before_or_after_a_merge_alike(kind, rows: int, size: int) -> None:
    subject = Subject("counters", lambda groups: kind(groups, 8), count_integers, to_bytes)
    ids = (np.arange(rows) % 3).astype(np.int32)
    left, right = Part(ids, draw("normal", 1, rows)), Part(ids, draw("zipf", 2, rows))
    apart = subject.of(left, 3).resize(size).merge(subject.of(right, 3).resize(size))
    together = subject.of(left, 3).merge(subject.of(right, 3)).resize(size)
    subject.assert_same(apart, together)
    fed = subject.empty(3).resize(size)
    subject.feed(fed, left)
    subject.feed(fed, right)
    subject.assert_same(fed, together)


@pytest.mark.parametrize("rows", [0, 50, 5000])
def test_a_count_min_holds_the_count_sketch_of_half_its_width(rows: int) -> None:
    keys = STREAMS["zipf-1.1"](np.random.default_rng(3), rows)
    signed = summary_of(GroupedCountMin, keys, 7).signed()
    assert signed.to_bytes() == summary_of(GroupedCountSketch, keys, 6).to_bytes()


def test_only_what_is_alike_is_merged() -> None:
    with pytest.raises(CannotMerge, match="lg_width is 6 on the left, 7 on the right"):
        GroupedCountMin(1, 6).merge(GroupedCountMin(1, 7))
    with pytest.raises(CannotMerge, match="seed is 0 on the left, 1 on the right"):
        GroupedCountMin(1, 6).subtract(GroupedCountMin(1, 6, seed=1))


@pytest.mark.parametrize("lg_width", [3, 25])
def test_sizes_that_make_no_sense_are_refused(lg_width: int) -> None:
    with pytest.raises(BadParameter, match="4 to 24"):
        GroupedCountMin(1, lg_width)
    with pytest.raises(BadParameter, match="4 to 6"):
        GroupedCountMin(1, 6).resize(lg_width)


def test_bytes_of_one_kind_are_not_taken_for_the_other() -> None:
    with pytest.raises(CorruptSynopsis, match="kind"):
        GroupedCountSketch.from_bytes(summary_of(GroupedCountMin, np.arange(9)).to_bytes())


def test_entries_that_no_summary_writes_are_refused() -> None:
    one = np.ones(2, np.int64)
    ids, keys = np.zeros(2, np.int32), np.array([1, 2], np.uint64)
    few = np.zeros(1, np.uint8)
    for body, reason in (
        ((few, b"", ids, keys[::-1], one), "out of order"),
        ((few, b"", ids, keys, one - 1), "count is 0"),
        ((few, b"", ids + 1, keys, one), "group is 1"),
        ((few, b"", np.zeros(21, np.int32), np.arange(21, dtype=np.uint64), np.ones(21, np.int64)),
         "keys of a group is 21"),
    ):  # fmt: skip
        data = seal(Kind.COUNT_MIN, (1, 4), [*body])
        with pytest.raises(CorruptSynopsis, match=reason):
            GroupedCountMin.from_bytes(data)


def test_many_groups_grow_large_one_after_another() -> None:
    rng = np.random.default_rng(5)
    ids, keys = rng.integers(0, 40, 20_000).astype(np.int32), rng.integers(0, 500, 20_000)
    ids[:10_000] //= 2  # Some groups are small, some large.
    summary = GroupedCountMin(40, 6)
    for rows in np.array_split(np.arange(20_000), 7):
        summary.update(ids[rows], hashes(keys[rows]))
    for group in range(40):
        alone = summary_of(GroupedCountMin, keys[ids == group])
        assert summary.select(np.array([group])).to_bytes() == alone.to_bytes()
    assert np.array_equal(summary.totals(), np.bincount(ids, minlength=40))
