"""Values that wait by group: none is lost, none is moved to another group, whatever the batches."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synopses.kernels.array_inputs import UNGROUPED
from synopses.kernels.value_buffers import ValueBuffers, quantiles
from synopses.quantiles.kll import GroupedKll
from synopses.quantiles.req import GroupedReq
from tests.truth import exact_quantile


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 60), max_size=6),
    groups=st.integers(1, 5),
    room_max=st.integers(1, 40),
    seed=st.integers(0, 2**32),
)
def test_what_is_held_and_what_was_given_away_is_what_came(
    sizes: list[int], groups: int, room_max: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    buffers, given_away = ValueBuffers(0, room_max), defaultdict(list)
    came: dict[int, list[float]] = defaultdict(list)

    def full(group: int, values: np.ndarray) -> None:
        assert values.size == room_max
        given_away[group] += values.tolist()

    for number, size in enumerate(sizes):
        if number % 2:
            buffers.trim()
        ids = rng.integers(0, groups, size).astype(np.int32)
        values = np.where(rng.random(size) < 0.1, np.nan, rng.normal(size=size))
        buffers.grow(groups)
        buffers.add(ids, values, full)
        for group, value in zip(ids.tolist(), values.tolist(), strict=True):
            came[group] += [] if np.isnan(value) else [value]
    owners, held = buffers.entries()
    assert np.bincount(owners, minlength=groups)[:groups].tolist() == (
        buffers.held.tolist() if sizes else [0] * groups
    )
    for group in range(groups):
        given = len(given_away[group])
        batches = [sorted(came[group][at : at + room_max]) for at in range(0, given, room_max)]
        assert given_away[group] == [value for batch in batches for value in batch]
        assert held[owners == group].tolist() == came[group][given:]


def test_more_full_buffers_than_are_given_away_at_once_are_all_given_away() -> None:
    rng = np.random.default_rng(3)
    ids, values = rng.integers(0, 50, 200_000).astype(np.int32), rng.normal(size=200_000)
    buffers, given_away = ValueBuffers(50, 1_024), defaultdict(list)
    buffers.add(ids, values, lambda group, batch: given_away[group].append(batch.copy()))
    owners, held = buffers.entries()
    assert sum(map(len, given_away.values())) > 100
    for group in range(50):
        mine = values[ids == group]
        batches = np.split(mine, range(1_024, mine.size, 1_024))
        for ordered, batch in zip(given_away[group], batches[:-1], strict=True):
            np.testing.assert_array_equal(ordered, np.sort(batch))
        np.testing.assert_array_equal(held[owners == group], batches[-1])


def test_values_without_groups_are_of_group_0_and_room_is_what_few_need() -> None:
    buffers = ValueBuffers(1_000, 800)
    buffers.add(UNGROUPED, np.array([3.0, np.nan, 1.0]), lambda *_: pytest.fail("not full"))
    assert buffers.entries()[1].tolist() == [3.0, 1.0]
    assert buffers.size_bytes < 1_000 * 25 + 8 * 40


def test_quantiles_of_what_is_held_are_exact() -> None:
    rng = np.random.default_rng(1)
    ids = np.sort(rng.integers(0, 6, 300)).astype(np.int32)
    ids = ids[ids != 3]
    values = rng.integers(0, 50, ids.size).astype(np.float64)
    counts = np.bincount(ids, minlength=7)
    for q in (0.0, 0.25, 0.5, 0.99, 1.0):
        ranks = np.maximum(1, np.ceil(q * counts)).astype(np.int64)
        found = quantiles(ids, values, ranks)
        for group in (0, 1, 2, 4, 5):
            assert found[group] == exact_quantile(values[ids == group], q)
        assert found[[3, 6]].tolist() == [0, 0]


@pytest.mark.parametrize("kind", [GroupedKll, GroupedReq], ids=["kll", "req"])
def test_groups_that_never_filled_a_batch_are_exact_and_take_no_sketch(kind: type) -> None:
    rng = np.random.default_rng(2)
    groups, rows = 500, 20_000
    ids = rng.integers(0, groups - 1, rows).astype(np.int32)
    ids[: rows // 2] = groups - 1  # One large group among small ones.
    values = rng.lognormal(0, 2, rows)
    summary = kind(groups, 50)
    for start in range(0, rows, 777):
        summary.update(ids[start : start + 777], values[start : start + 777])
    panes = [kind(groups, 50) for _ in range(4)]
    for pane, part in zip(panes, np.array_split(np.arange(rows), 4), strict=True):
        pane.update(ids[part], values[part])
    merged = kind(groups, 50)
    for pane in panes:
        merged.merge(kind.from_bytes(pane.to_bytes()))
    before = summary.size_bytes
    summary.settle()
    assert summary.size_bytes < before
    for found in (summary, merged):
        assert found.counts().tolist() == np.bincount(ids, minlength=groups).tolist()
        answer = found.quantile(0.9, 0.95)
        errors = found.rank_error(0.9, 0.95)
        for group in range(groups - 1):
            truth = exact_quantile(values[ids == group], 0.9)
            assert (answer.low[group], answer.value[group], answer.high[group]) == (truth,) * 3
            assert errors[group] == 0
        assert errors[-1] > 0
        assert answer.low[-1] < answer.high[-1]
