"""Values above a share: the caller says what the list must not do, and it does not."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synopses.frequent.entries import ItemKind
from synopses.frequent.frequent_items import GroupedFrequent
from synopses.frequent.heavy_share import Promise, least_count
from synopses.kernels.hashing import murmur_int64, murmur_utf8
from synopses.model.errors import BadParameter
from synopses.model.estimate import Bound
from tests import truth
from tests.synopses.frequent_streams import STREAMS, of
from tests.synopses.subjects import arrow_of

NEGATIVES, POSITIVES = Promise.NO_FALSE_NEGATIVES, Promise.NO_FALSE_POSITIVES


def check(summary: GroupedFrequent, group: int, exact: Counter, share: float) -> Bound:
    """Both lists of a group are true; returns the bound of the one without false negatives."""
    all_of, only = (summary.frequent(share, promise) for promise in (NEGATIVES, POSITIVES))
    for found, positives in ((all_of, False), (only, True)):
        items = [asdict(item) for item in found.value[group]]
        bound = Bound(int(found.bound[group])).word
        assert truth.keeps_its_promise(items, bound, exact, share, positives=positives)
        for item in items:  # Whatever is promised of the list, counts are certain.
            assert item["low"] == item["count"] <= exact[item["value"]] <= item["high"]
        assert items == sorted(items, key=lambda item: (-item["count"], item["value"]))
    listed = {item.value for item in all_of.value[group]}
    assert {item.value for item in only.value[group]} <= listed
    assert only.bound[group] != Bound.NONE
    error, threshold = int(summary.error[group]), least_count(share, summary.totals)[group]
    assert (all_of.bound[group] == Bound.NONE) == (error >= threshold)
    assert bool(all_of.reason) == (all_of.bound == Bound.NONE).any()
    return Bound(int(all_of.bound[group]))


@pytest.mark.parametrize("share", [1e-4, 0.01, 0.07, 0.1, 0.2, 0.5, 1.0])
@pytest.mark.parametrize("entries", [8, 16, 1024])
@pytest.mark.parametrize("stream", list(STREAMS))
def test_both_lists_keep_their_promise(stream: str, entries: int, share: float) -> None:
    values = STREAMS[stream](np.random.default_rng(1)).astype(np.int64)
    bound = check(of(values, entries), 0, truth.exact_counts(values), share)
    if entries == 1024 and stream in ("few", "constant", "in turns"):
        assert bound is Bound.EXACT


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_of_nothing_and_next_to_nothing_the_lists_are_exact(rows: int) -> None:
    values = np.arange(rows)
    for share in (1e-4, 0.5, 1.0):
        assert check(of(values), 0, truth.exact_counts(values), share) is Bound.EXACT


@settings(max_examples=25, deadline=None)
@given(
    panes=st.lists(st.lists(st.integers(0, 40), max_size=80), max_size=5),
    weight=st.integers(1, 1000),
    share=st.floats(1e-4, 1.0),
)
def test_they_do_for_any_weighted_panes(panes: list[list[int]], weight: int, share: float) -> None:
    window, exact = GroupedFrequent(1, 8), Counter()
    for pane in panes:
        values = np.array(pane, np.int64)
        weights = values % 3 * weight
        summary = GroupedFrequent(1, 8)
        summary.update(None, murmur_int64(values)[0], values, weights)
        window.merge(summary)
        for value, amount in zip(pane, weights.tolist(), strict=True):
            exact[value] += amount
    check(window, 0, +exact, share)


@pytest.mark.slow
def test_they_do_for_many_groups_of_texts() -> None:
    rng = np.random.default_rng(3)
    keys = np.minimum(rng.zipf(1.3, 20_000), 10**6)
    texts = np.array([f"page {key}" for key in keys.tolist()], object)
    ids = np.minimum(rng.zipf(1.5, keys.size) - 1, 40).astype(np.int32)
    summary = GroupedFrequent(41, 32, ItemKind.TEXT)
    summary.update(ids, murmur_utf8(*arrow_of(texts))[0], texts)
    for share in (0.01, 0.1, 0.25):
        for group in range(41):
            check(summary, group, Counter(texts[ids == group].tolist()), share)


@pytest.mark.parametrize("late", [1, 7, 400])
@pytest.mark.parametrize("stream", ["zipf", "few", "late and heavy"])
def test_late_weight_of_any_values_is_allowed_for(stream: str, late: int) -> None:
    rng = np.random.default_rng(4)
    values = STREAMS[stream](rng).astype(np.int64)
    early = of(values, 1024)
    for more in (np.full(late, 7), np.full(late, -5), np.arange(late), np.array([], np.int64)):
        exact = truth.exact_counts(np.concatenate((values, more)))
        for share in (0.02, 0.1, 0.5):
            for promise in Promise:
                found = early.frequent(share, promise, late)
                items = [asdict(item) for item in found.value[0]]
                bound, positives = Bound(int(found.bound[0])).word, promise is POSITIVES
                assert bound != "exact" or not items
                assert truth.keeps_its_promise(items, bound, exact, share, positives=positives)


def test_a_summary_too_small_for_the_share_says_that_some_may_be_missing() -> None:
    found = of(np.arange(5000)).frequent(0.0005, NEGATIVES)
    assert found.bound.tolist() == [Bound.NONE]
    assert found.reason.startswith("a value of 0.05 % or more may be missing")
    sure = of(np.arange(5000)).frequent(0.0005, POSITIVES)
    assert (sure.value[0], sure.bound.tolist(), sure.reason) == ([], [Bound.INTERVAL], "")


def test_a_share_is_the_decimal_that_was_written() -> None:
    assert least_count(0.07, np.array([100, 0, 101])).tolist() == [7, 1, 8]
    large = 2**62 + 1
    assert least_count(0.3, np.array([large])).tolist() == [-(-3 * large // 10)]


@given(share=st.floats(1e-6, 1.0), total=st.integers(0, 2**62))
def test_the_least_count_is_the_smallest_that_reaches_the_share(share: float, total: int) -> None:
    least = int(least_count(share, np.array([total]))[0])
    exact = Fraction(repr(share)) * total
    assert least >= exact
    assert least == 1 or least - 1 < exact


@pytest.mark.parametrize("share", [0.0, -0.1, 1.5, float("nan")])
def test_what_is_no_share_is_refused(share: float) -> None:
    with pytest.raises(BadParameter, match="share"):
        of(np.arange(5)).frequent(share, NEGATIVES)
