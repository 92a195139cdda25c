"""Frequent items: every bound holds against exact counts, in any order, merged or not."""

from __future__ import annotations

from collections import Counter

import datasketches
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synopses.frequent.batch_kernels import BATCH_MIN
from synopses.frequent.entries import ItemKind
from synopses.frequent.frequent_items import GroupedFrequent
from synopses.kernels.hashing import murmur_float64, murmur_int64, murmur_utf8
from synopses.kernels.string_sizes import strings_bytes
from synopses.model.errors import BadParameter, CannotMerge, CorruptSynopsis
from synopses.model.profile import TYPICAL
from tests import truth
from tests.seeds import seed
from tests.synopses.frequent_streams import STREAMS, of
from tests.synopses.subjects import arrow_of


def worst_share(entries: int) -> float:
    return GroupedFrequent.profile.error_of(entries, TYPICAL, 0.95)


def check(
    summary: GroupedFrequent, group: int, exact: Counter, entries_min: int | None = None
) -> None:
    """All that the summary says of a group is true. entries_min: the smallest it ever had."""
    items = summary.top(10**6)[group]
    error = int(summary.error[group])
    assert summary.totals[group] == sum(exact.values())
    assert error <= worst_share(entries_min or summary.entries) * sum(exact.values())
    held = {item.value: item for item in items}
    for value, count in exact.items():
        if value in held:
            assert held[value].low <= count <= held[value].high
            assert held[value].low == held[value].count
            assert held[value].high - held[value].low <= error
        else:
            assert count <= error
    for k in (1, 3):
        top = summary.top(k)[group]
        outside = max((exact[v] for v in exact if v not in {i.value for i in top}), default=0)
        assert all(item.low >= outside for item in top if item.guaranteed)


@pytest.mark.parametrize("batch", [1, 7, 5000])
@pytest.mark.parametrize("stream", list(STREAMS))
def test_bounds_hold_whatever_the_stream(stream: str, batch: int) -> None:
    values = STREAMS[stream](np.random.default_rng(1)).astype(np.int64)
    values = values[:1500] if batch == 1 else values
    check(of(values, batch=batch), 0, truth.exact_counts(values))


@pytest.mark.parametrize("left", list(STREAMS))
@pytest.mark.parametrize("right", ["zipf", "unique", "late and heavy"])
def test_bounds_hold_after_merging(left: str, right: str) -> None:
    rng = np.random.default_rng(2)
    first, second = (STREAMS[name](rng).astype(np.int64) for name in (left, right))
    check(of(first).merge(of(second)), 0, truth.exact_counts(np.concatenate((first, second))))


def test_bounds_hold_for_many_panes_of_many_groups() -> None:
    rng = np.random.default_rng(3)
    window, exact = GroupedFrequent(0, 32), [Counter() for _ in range(20)]
    for _ in range(12):
        values = np.minimum(rng.zipf(1.2, 4000), 10**6)
        ids = rng.integers(0, 20, 4000).astype(np.int32)
        pane = GroupedFrequent(20, 32)
        pane.update(ids, murmur_int64(values)[0], values)
        window.merge(pane)
        for group, part in enumerate(truth.by_group(ids, values, 20)):
            exact[group].update(part.tolist())
    for group in range(20):
        check(window, group, exact[group])


@settings(max_examples=60, deadline=None)
@given(
    panes=st.lists(st.lists(st.integers(0, 40), max_size=80), max_size=5),
    weight=st.integers(1, 1000),
)
def test_bounds_hold_for_any_weighted_panes(panes: list[list[int]], weight: int) -> None:
    window, exact = GroupedFrequent(1, 8), Counter()
    for pane in panes:
        values = np.array(pane, np.int64)
        weights = values % 3 * weight
        summary = GroupedFrequent(1, 8)
        summary.update(None, murmur_int64(values)[0], values, weights)
        window.merge(summary)
        exact.update(dict.fromkeys(pane, 0))
        for value, amount in zip(pane, weights.tolist(), strict=True):
            exact[value] += amount
    check(window, 0, +exact)


def test_what_was_frequent_from_the_start_is_counted_exactly() -> None:
    values = STREAMS["zipf"](np.random.default_rng(4)).astype(np.int64)
    first = of(values, entries=64).top(1)[0][0]
    assert first.low == first.high == truth.exact_counts(values)[1]
    assert first.guaranteed


def test_equal_counts_come_in_the_order_of_their_values() -> None:
    items = of(np.array([9, 3, 5, 3, 9, 5, 1])).top(3)[0]
    assert [(item.value, item.count) for item in items] == [(3, 2), (5, 2), (9, 2)]


def test_every_value_is_listed_when_there_are_few() -> None:
    assert [item.value for item in of(np.array([4, 4, 2])).top(10)[0]] == [4, 2]
    assert GroupedFrequent(2, 8).top(3) == [[], []]


@pytest.mark.parametrize("stream", list(STREAMS))
def test_datasketches_reads_our_image_of_integers(stream: str) -> None:
    values = STREAMS[stream](np.random.default_rng(5)).astype(np.int64)
    ours = of(values)
    theirs = datasketches.frequent_items_sketch.deserialize(
        ours.image(0), datasketches.PyLongsSerDe()
    )
    assert theirs.total_weight == len(values)
    exact = truth.exact_counts(values)
    for item in ours.top(100)[0]:
        assert theirs.get_upper_bound(item.value) == item.high
        assert theirs.get_lower_bound(item.value) <= item.low
        assert theirs.get_lower_bound(item.value) <= exact[item.value]


def test_datasketches_reads_our_image_of_texts_and_doubles() -> None:
    rng = np.random.default_rng(6)
    texts = np.array([f"é{value}" for value in rng.integers(0, 5, 400)], object)
    summary = GroupedFrequent(1, 8, ItemKind.TEXT)
    summary.update(None, murmur_utf8(*arrow_of(texts))[0], texts)
    theirs = datasketches.frequent_strings_sketch.deserialize(summary.image(0))
    for text, count in truth.exact_counts(texts).items():
        assert theirs.get_lower_bound(text) <= count <= theirs.get_upper_bound(text)
    doubles = rng.integers(0, 5, 400) / 4
    summary = GroupedFrequent(1, 8, ItemKind.DOUBLE)
    summary.update(None, murmur_float64(doubles)[0], doubles)
    reader = datasketches.PyDoublesSerDe()
    theirs = datasketches.frequent_items_sketch.deserialize(summary.image(0), reader)
    for number, count in truth.exact_counts(doubles).items():
        assert theirs.get_lower_bound(number) <= count <= theirs.get_upper_bound(number)


@pytest.mark.parametrize("sizes", [(1,), (6, 7, 0, 12, 13), (5_000, 3)])
def test_what_is_read_again_holds_no_more_memory_and_goes_on_alike(sizes: tuple[int, ...]) -> None:
    held = GroupedFrequent(len(sizes), 4096)
    ids = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    words = np.concatenate([np.arange(size) for size in sizes]).astype(np.uint64) * np.uint64(977)
    held.update(ids, words, words.astype(np.int64))
    read = GroupedFrequent.from_bytes(held.to_bytes())
    assert read.size_bytes <= held.size_bytes
    for each in (held, read):
        each.update(
            ids[:1].repeat(900), words.max() + np.arange(900).astype(np.uint64), np.arange(900)
        )
    assert read.to_bytes() == held.to_bytes()


def test_an_empty_group_is_an_empty_sketch() -> None:
    image = GroupedFrequent(1, 8).image(0)
    reader = datasketches.PyLongsSerDe()
    assert datasketches.frequent_items_sketch.deserialize(image, reader).is_empty()


def test_only_the_values_of_new_entries_are_fetched() -> None:
    class Column:
        fetched = 0

        def __getitem__(self, rows: np.ndarray) -> np.ndarray:
            self.fetched += len(rows)
            return rows % 3

    column, summary = Column(), GroupedFrequent(1, 64)
    summary.update(None, murmur_int64(np.arange(3000) % 3)[0], column)
    assert column.fetched == 3
    assert {item.value: item.count for item in summary.top(5)[0]} == {0: 1000, 1: 1000, 2: 1000}


def test_other_tables_do_not_merge() -> None:
    with pytest.raises(CannotMerge, match="entries is 8 on the left, 16 on the right"):
        GroupedFrequent(1, 8).merge(GroupedFrequent(1, 16))
    with pytest.raises(CannotMerge, match="items is 'INTEGER' on the left, 'TEXT' on the right"):
        GroupedFrequent(1, 8).merge(GroupedFrequent(1, 8, ItemKind.TEXT))


@pytest.mark.parametrize("entries", [0, 7, 12, 2**21])
def test_a_table_of_no_power_of_two_is_refused(entries: int) -> None:
    with pytest.raises(BadParameter, match=f"entries is {entries}"):
        GroupedFrequent(1, entries)


def test_the_size_for_an_error_is_the_smallest_that_gives_it() -> None:
    profile = GroupedFrequent.profile
    entries = profile.for_error(0.01, confidence=0.95)
    assert worst_share(entries) <= 0.01 < worst_share(entries // 2)


@pytest.mark.parametrize("stream", list(STREAMS))
@pytest.mark.parametrize("merge_first", [True, False])
def test_bounds_stay_certain_when_tables_shrink_and_grow(stream: str, merge_first: bool) -> None:
    values = STREAMS[stream](np.random.default_rng(9)).astype(np.int64)
    cut = len(values) // 3
    halves = [of(values[:cut], entries=64), of(values[cut:], entries=64)]
    if not merge_first:
        halves = [half.resize(16) for half in halves]
    summary = halves[0].merge(halves[1]).resize(16)
    exact = truth.exact_counts(values)
    check(summary, 0, exact)
    check(summary.resize(64), 0, exact, entries_min=16)
    summary.update(None, murmur_int64(values)[0], values)
    check(summary, 0, exact + exact, entries_min=16)


@pytest.mark.parametrize("stream", list(STREAMS))
@pytest.mark.parametrize("entries", [16, 256])
def test_images_of_the_library_are_read_with_bounds_that_hold(stream: str, entries: int) -> None:
    values = STREAMS[stream](np.random.default_rng(11)).astype(np.int64)
    library = datasketches.frequent_items_sketch(6)
    for value in values.tolist():
        library.update(value)
    reader = datasketches.PyLongsSerDe()
    empty = datasketches.frequent_items_sketch(6).serialize(reader)
    read = GroupedFrequent.from_images([empty, library.serialize(reader)], entries)
    assert read.totals.tolist() == [0, len(values)]
    exact = truth.exact_counts(values)
    for item in read.top(100)[1]:
        assert item.low <= exact[item.value] <= item.high
    ours = read.select(np.array([1])).merge(of(values, entries))
    check(ours, 0, exact + exact, entries_min=16)


def test_images_of_texts_and_doubles_come_back() -> None:
    texts = np.array(["é", "", "é", "long" * 30], object)
    summary = GroupedFrequent(1, 8, ItemKind.TEXT)
    summary.update(None, murmur_utf8(*arrow_of(texts))[0], texts)
    read = GroupedFrequent.from_images([summary.image(0)], 8, ItemKind.TEXT)
    assert read.to_bytes() == summary.to_bytes()
    doubles = np.array([0.5, -1.0, 0.5])
    summary = GroupedFrequent(1, 8, ItemKind.DOUBLE)
    summary.update(None, murmur_float64(doubles)[0], doubles)
    read = GroupedFrequent.from_images([summary.image(0)], 8, ItemKind.DOUBLE)
    assert read.to_bytes() == summary.to_bytes()


@pytest.mark.parametrize("items", [ItemKind.INTEGER, ItemKind.TEXT])
def test_damaged_images_are_refused_or_read_but_never_crash(items: ItemKind) -> None:
    values = np.arange(20) % 7
    summary = GroupedFrequent(1, 8, items)
    if items is ItemKind.TEXT:
        texts = np.array([f"v{value}" for value in values.tolist()], object)
        summary.update(None, murmur_utf8(*arrow_of(texts))[0], texts)
    else:
        summary.update(None, murmur_int64(values)[0], values)
    image, rng, refused = summary.image(0), np.random.default_rng(12), 0
    for trial in range(1000):
        end = len(image) if trial % 3 else rng.integers(0, len(image) + 1)
        damaged = bytearray(image[:end])
        for at in rng.integers(0, max(end, 1), 2 if end else 0):
            damaged[at] = rng.integers(0, 256)
        try:
            GroupedFrequent.from_images([bytes(damaged)], 8, items).top(3)
        except CorruptSynopsis:
            refused += 1
    assert 0 < refused < 1000


def test_a_smaller_table_keeps_the_most_frequent_and_errs_by_the_largest_that_it_lost() -> None:
    """Counts 1 to 20 in a table of 16, of which 3/4 may be used: 9 to 20 stay, 8 is lost."""
    keys = np.repeat(np.arange(1, 21), np.arange(1, 21))
    summary = GroupedFrequent(1, 64)
    summary.update(None, murmur_int64(keys)[0], keys)
    summary.resize(16)
    assert summary.error.tolist() == [8]
    [found] = summary.top(20)
    assert [(i.value, i.low, i.high) for i in found] == [(v, v, v) for v in range(20, 8, -1)]


def test_lists_of_stretches_bound_what_each_did_not_list() -> None:
    """Two stretches: an item unlisted in one may have been there as often as what that lost."""
    first = np.repeat(np.arange(1, 21), np.arange(1, 21))
    second = np.repeat(np.arange(101, 121), np.arange(1, 21))
    window = GroupedFrequent(1, 16)
    for keys in (first, second):
        pane = GroupedFrequent(1, 64)
        pane.update(None, murmur_int64(keys)[0], keys)
        window.merge(pane.resize(16))
    counts = truth.exact_counts(np.concatenate((first, second)))
    [found] = window.top(4)
    assert {i.value for i in found} == {20, 120, 19, 119}
    assert all(i.low <= counts[i.value] <= i.high for i in found)


@pytest.mark.parametrize("entries", [8, 64, 1024])
@pytest.mark.parametrize("stream", list(STREAMS))
def test_batches_of_any_size_keep_all_bounds(stream: str, entries: int) -> None:
    """Large ones are merged in, small ones are counted key by key, and so in turns."""
    rng = np.random.default_rng(3)
    values = np.concatenate([STREAMS[stream](rng) for _ in range(4)]).astype(np.int64)
    summary, at = GroupedFrequent(1, entries), 0
    for rows in (BATCH_MIN, 300, 2 * BATCH_MIN, 1, len(values)):
        part = values[at : at + rows]
        summary.update(None, murmur_int64(part)[0], part)
        at += rows
        check(summary, 0, truth.exact_counts(values[:at]))


@pytest.mark.parametrize("entries", [8, 64, 1024])
@pytest.mark.parametrize("stream", list(STREAMS))
def test_a_large_batch_forgets_no_more_than_the_largest_count_without_room(
    stream: str, entries: int
) -> None:
    values = STREAMS[stream](np.random.default_rng(5)).astype(np.int64)
    counts = sorted(truth.exact_counts(values).values(), reverse=True)
    room = entries * 3 // 4
    summary = of(values, entries=entries, batch=len(values))
    assert summary.error.tolist() == [counts[room] if len(counts) > room else 0]
    kept = [item.count for item in summary.top(room)[0]]
    assert kept == [count for count in counts[:room] if count > summary.error[0]]


def test_large_batches_of_few_values_are_counted_exactly() -> None:
    """So many that dozens want one place of the index; some come into the full table late."""
    rng = np.random.default_rng(6)
    summary, seen = GroupedFrequent(1, 1024), []
    for known in (8, 600, 768, 768):
        seen.append(rng.integers(0, known, 3 * BATCH_MIN))
        summary.update(None, murmur_int64(seen[-1])[0], seen[-1])
    [found] = summary.top(1024)
    assert {item.value: (item.low, item.high) for item in found} == {
        value: (count, count) for value, count in truth.exact_counts(np.concatenate(seen)).items()
    }


def test_texts_of_a_large_batch_are_fetched_once_they_have_a_counter() -> None:
    values = np.random.default_rng(7).zipf(1.2, 2 * BATCH_MIN) % 10_000
    texts = np.array([f"client-{value}" for value in values], object)
    summary = GroupedFrequent(1, 64, ItemKind.TEXT)
    summary.update(None, murmur_int64(values)[0], texts)
    check(summary, 0, truth.exact_counts(texts))


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("size_bytes", [0, 3_000, 30_000])
def test_bounds_hold_of_texts_that_are_held_to_bytes(groups: int, size_bytes: int) -> None:
    """The wider a text, the rarer: what is held fits, and all counts are true."""
    rng = np.random.default_rng(seed("texts held to bytes", groups))
    summary = GroupedFrequent(groups, 64, ItemKind.TEXT)
    exact = [Counter[str]() for _ in range(groups)]
    other = GroupedFrequent(groups, 64, ItemKind.TEXT)
    for batch in range(12):
        numbers = rng.zipf(1.5, 400) % 500
        texts = [f"{number}".ljust(int(number) * 20, "x") for number in numbers.tolist()]
        ids = rng.integers(0, groups, len(texts)).astype(np.int32)
        for group, text in zip(ids.tolist(), texts, strict=True):
            exact[group][text] += 1
        into = summary if batch % 3 else other
        values: np.ndarray = np.array(texts, object)
        into.update(ids, _text_keys(texts), values)
        into.hold_texts(size_bytes)
        assert strings_bytes(into.tracked()[1].values).sum() <= size_bytes
        assert into.size_bytes < 64 * 100 * groups + 4_000 + 3 * size_bytes
    summary = GroupedFrequent.from_bytes(summary.merge(other).to_bytes())
    for group in range(groups):
        held = {item.value: item for item in summary.top(100)[group]}
        assert summary.totals[group] == sum(exact[group].values())
        for text, count in exact[group].items():
            if text in held:
                assert held[text].low <= count <= held[text].high
            else:
                assert count <= summary.error[group]
    assert (
        size_bytes < 30_000 or held["1".ljust(20, "x")].low > 100
    )  # The most frequent one is never dropped.


def test_texts_within_the_bytes_are_left_alone() -> None:
    texts = [f"{number:05}" for number in range(40)]
    summary = GroupedFrequent(1, 64, ItemKind.TEXT)
    summary.update(None, _text_keys(texts), np.array(texts, object))
    before = summary.to_bytes()
    summary.hold_texts(40 * (49 + 5))
    assert summary.to_bytes() == before
    summary.hold_texts(40 * (49 + 5) - 1)
    assert summary.error[0] == 1


def _text_keys(texts: list[str]) -> np.ndarray:
    data = [text.encode() for text in texts]
    offsets = np.cumsum([0, *map(len, data)]).astype(np.int32)
    return murmur_utf8(offsets, np.frombuffer(b"".join(data), np.uint8))[0]
