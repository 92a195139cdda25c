"""Lists of panes on Zipf's distribution against exact counts (Golab 2006, section 6.3)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pytest

from shedder.engine.registration.list_lengths import LIST_FACTOR
from synopses.frequent.pane_lists import PaneList, PaneLists, listed_places
from synopses.model.errors import BadParameter

KEYS, ROWS, LENGTHS = 1647, 100_000, range(1, 11)
PANES = (20, 100, 500)  # Tuples of a pane.
EQUAL = {k: k for k in LENGTHS}


def zipf(skew: float) -> np.ndarray:
    share = np.arange(1, KEYS + 1) ** -skew
    rng = np.random.default_rng(1)  # Recall has no certain bound.
    return rng.choice(KEYS, ROWS, p=share / share.sum())


def lists_of(
    values: np.ndarray, size: int, lengths: Mapping[int, int] = EQUAL
) -> dict[int, PaneLists]:
    """Lists over the window of all values, by k. lengths: of the lists."""
    found = {k: PaneLists(len(values) // size) for k in lengths}
    for pane in values.reshape(-1, size):
        ids, counts = np.unique(pane, return_counts=True)
        for k, lists in found.items():
            places, outside = listed_places(counts, lengths[k])
            lists.append(PaneList(ids[places], counts[places], outside))
    return found


# Few values are frequent: at 0.9, 3 of 5 are found with k = 8 and panes of 100.
@pytest.mark.parametrize(("skew", "least"), [(0.9, 0.5), (1.1, 0.65), (1.3, 0.65)])
def test_reported_values_are_frequent_and_few_frequent_ones_are_missing(skew, least):
    values = zipf(skew)
    truth = np.bincount(values, minlength=KEYS)
    counted = []  # By size of panes, then by length: occurrences that the lists count.
    for size in PANES:
        outside, reported, recalls, sums = [], [], [], []
        for k, lists in lists_of(values, size).items():
            top = lists.top(KEYS)
            assert (top.low <= truth[top.ids]).all()
            assert (truth[top.ids] <= top.high).all()
            unlisted = np.delete(truth, top.ids)
            assert unlisted.max(initial=0) <= lists.outside
            found = set(top.ids[top.low > lists.outside].tolist())
            frequent = set(np.flatnonzero(truth > lists.outside).tolist())
            assert found <= frequent  # Precision 1.
            if k >= 5 and size >= 100:
                recalls.append(len(found) / len(frequent))
            outside.append(lists.outside)
            reported.append(found)
            sums.append(int(top.low.sum()))
        assert outside == sorted(outside, reverse=True)
        assert all(few <= more for few, more in pairwise(reported))
        assert sums == sorted(sums)
        assert min(recalls, default=1) >= least
        assert np.mean(recalls or 1) >= 0.65
        counted.append(sums)
    assert (np.diff(counted, axis=0) <= 0).all()  # Longer panes count less of their tuples.


@pytest.mark.parametrize("skew", [0.9, 1.1, 1.3])
def test_lists_of_four_times_the_rows_miss_few_frequent_values(skew):
    values = zipf(skew)
    truth = np.bincount(values, minlength=KEYS)
    for size in (100, 500):
        lengths = {k: LIST_FACTOR * k for k in range(5, 11)}
        for k, lists in lists_of(values, size, lengths).items():
            top = lists.top(KEYS)
            found = set(top.ids[top.low > lists.outside].tolist())
            frequent = set(np.flatnonzero(truth > lists.outside).tolist())
            assert found <= frequent
            assert len(found) >= 0.65 * len(frequent), (k, size)
            assert lists.top(k).guaranteed.mean() >= 0.6


def test_guaranteed_values_are_the_most_frequent():
    values = zipf(1.1)
    truth = np.bincount(values, minlength=KEYS)
    for k, lists in lists_of(values, 100).items():
        top = lists.top(k)
        others = np.delete(truth, top.ids)
        assert (truth[top.ids][top.guaranteed] >= others.max()).all()
    assert top.guaranteed.sum() >= 3


def test_panes_with_few_values_are_exact_and_leave_in_order():
    lists = PaneLists(2)
    for ids, counts in (([0, 1], [5, 4]), ([1], [9]), ([2, 0], [3, 1])):
        lists.append(PaneList(np.array(ids), np.array(counts), 0))
    top = lists.top(10)
    assert top.ids.tolist() == [1, 2, 0]
    assert top.low.tolist() == top.high.tolist() == [9, 3, 1]
    assert top.guaranteed.all()
    lists.append(PaneList(np.array([2]), np.array([4]), 4))
    lists.keep(lists.ids)
    top = lists.top(1)
    assert (top.ids.tolist(), top.low.tolist(), top.high.tolist()) == ([2], [7], [7])
    assert lists.outside == 4


def test_a_window_without_panes_is_refused():
    with pytest.raises(BadParameter, match="panes is 0, expected at least 1"):
        PaneLists(0)
