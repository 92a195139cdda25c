"""Bottom-k samples hold what a full sort of all keys would choose, however the rows came."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from synopses.intervals.distinct import distinct_by_hash
from synopses.model.errors import BadParameter, CorruptSynopsis
from synopses.samples.bottom_k import KEY_MAX, BottomK, HashSample, Kept, WeightedBottomK


def keys_of(seed: int, count: int) -> NDArray[np.uint64]:
    return np.random.default_rng(seed).integers(0, KEY_MAX, count, np.uint64)


def move(payload: NDArray[np.int64], kept: Kept, batch: NDArray[np.int64]) -> NDArray[np.int64]:
    """What a caller does with its rows."""
    old = payload if kept.old is None else payload[kept.old]
    return np.concatenate([old, batch[kept.new]])


@given(
    seed=st.integers(0, 2**32),
    k=st.integers(1, 40),
    batches=st.lists(st.integers(0, 60), max_size=8),
)
def test_the_sample_and_its_payload_are_the_k_smallest_keys(seed, k, batches):
    keys = keys_of(seed, sum(batches))
    sample, payload = BottomK(k), np.zeros(0, np.int64)
    first = 0
    for rows in batches:
        kept = sample.update(keys[first : first + rows])
        payload = move(payload, kept, np.arange(first, first + rows))
        assert len(sample.keys) == len(payload) <= 2 * k
        first += rows
    chosen = payload[sample.chosen()]
    payload = move(payload, sample.settle(), np.zeros(0, np.int64))
    np.testing.assert_array_equal(chosen, payload)
    np.testing.assert_array_equal(keys[payload], sample.keys)
    np.testing.assert_array_equal(np.sort(payload), np.sort(np.argsort(keys)[:k]))
    assert sample.threshold == (np.sort(keys)[k] if len(keys) > k else KEY_MAX)


@given(
    seed=st.integers(0, 2**32),
    left=st.integers(0, 90),
    right=st.integers(0, 90),
    ks=st.tuples(st.integers(1, 30), st.integers(1, 30)),
)
def test_merging_two_halves_equals_one_pass(seed, left, right, ks):
    keys = keys_of(seed, left + right)
    one, other = BottomK(ks[0]), BottomK(ks[1])
    first = move(np.zeros(0, np.int64), one.update(keys[:left]), np.arange(left))
    second = move(np.zeros(0, np.int64), other.update(keys[left:]), np.arange(left, left + right))
    second = move(second, other.settle(), second)
    payload = move(first, one.merge(other), second)
    np.testing.assert_array_equal(keys[payload], one.keys)
    whole = BottomK(min(ks))
    whole.update(keys)
    whole.settle()
    # Cut to the smaller threshold, never above what one pass would hold.
    assert set(one.keys) == {key for key in whole.keys if key < one.threshold}
    assert len(one.keys) <= min(ks)
    if ks[0] == ks[1]:
        np.testing.assert_array_equal(np.sort(one.keys), np.sort(whole.keys))
        assert one.threshold == whole.threshold


def test_three_keys_worked_out_by_hand():
    sample = BottomK(2)
    kept = sample.update(np.array([50, 20, 40, 10], np.uint64))
    assert kept.old is None  # Four fit in twice k: nothing is moved yet.
    assert kept.new.tolist() == [0, 1, 2, 3]
    kept = sample.update(np.array([30, 99], np.uint64))
    assert kept.old is not None
    assert kept.old.tolist() == [1, 3]  # 20 and 10 stay, nothing of the batch enters.
    assert kept.new.tolist() == []
    assert sample.threshold == 30
    assert sample.update(np.array([30, 31], np.uint64)).new.tolist() == []


def test_lowering_the_threshold_keeps_what_a_thinned_stream_would_have():
    keys = keys_of(3, 1000)
    sample = BottomK(100)
    sample.update(keys)
    sample.lower(KEY_MAX // 64)
    assert sorted(sample.keys) == sorted(keys[keys < KEY_MAX // 64])
    assert sample.threshold == KEY_MAX // 64


def test_resizing_down_is_sampling_with_the_smaller_k():
    keys = keys_of(4, 500)
    large, small = BottomK(64), BottomK(16)
    large.update(keys)
    large.resize(16)
    small.update(keys)
    small.settle()
    np.testing.assert_array_equal(np.sort(large.keys), np.sort(small.keys))
    assert large.threshold == small.threshold


@given(
    seed=st.integers(0, 2**32),
    rows_max=st.integers(1, 60),
    batches=st.lists(st.integers(0, 60), max_size=6),
)
def test_rows_of_one_value_stay_or_go_together(seed, rows_max, batches):
    rng = np.random.default_rng(seed)
    hashes_of_values = keys_of(seed, 30)
    sample = HashSample(rows_max)
    seen: list[int] = []
    for rows in batches:
        batch = hashes_of_values[rng.integers(0, 30, rows)]
        sample.update(batch)
        seen.extend(batch.tolist())
        assert len(sample.hashes) <= 2 * rows_max
    sample.settle()
    assert sorted(sample.hashes.tolist()) == sorted(h for h in seen if h < sample.threshold)
    assert len(sample.hashes) <= rows_max
    assert sample.share == (1.0 if sample.threshold == KEY_MAX else sample.threshold / 2**64)


def test_a_value_with_more_rows_than_fit_goes_out_whole():
    sample = HashSample(2)
    sample.update(np.array([7] * 5, np.uint64))
    assert len(sample.hashes) == 0
    assert sample.threshold == 7


def test_hash_samples_merge_at_the_smaller_threshold():
    hashes = keys_of(5, 200).repeat(3)
    one, other = HashSample(100), HashSample(50)
    one.update(hashes[:300])
    other.update(hashes[300:])
    other.settle()
    kept = one.merge(other)
    below = hashes[hashes < one.threshold]
    assert sorted(one.hashes.tolist()) == sorted(below.tolist())
    assert len(kept.new) <= 50


@given(
    seed=st.integers(0, 2**32),
    k=st.integers(1, 30),
    batches=st.lists(st.integers(0, 60), max_size=6),
)
def test_a_weighted_sample_is_the_k_largest_priorities(seed, k, batches):
    rng = np.random.default_rng(seed)
    weights = rng.lognormal(0, 2, sum(batches))
    uniforms = rng.random(sum(batches)) + 1e-12
    sample, payload = WeightedBottomK(k), np.zeros(0, np.int64)
    first = 0
    for rows in batches:
        part = slice(first, first + rows)
        kept = sample.update(weights[part], uniforms[part])
        payload = move(payload, kept, np.arange(first, first + rows))
        first += rows
    payload = move(payload, sample.settle(), np.zeros(0, np.int64))
    priorities = weights / uniforms
    np.testing.assert_array_equal(np.sort(payload), np.sort(np.argsort(-priorities)[:k]))
    np.testing.assert_array_equal(weights[payload], sample.weights)
    assert sample.tau == (np.sort(priorities)[::-1][k] if len(weights) > k else 0.0)


def test_weights_that_are_not_positive_and_finite_are_passed_over():
    weights = np.array([1.0, 0.0, -3.0, np.nan, np.inf, 2.0, 1e308])
    sample = WeightedBottomK(10)
    assert sample.update(weights, np.full(7, 1e-3)).new.tolist() == [0, 5, 6]
    assert np.isfinite(sample.priorities).all()


def test_weighted_halves_merge_to_one_pass():
    rng = np.random.default_rng(6)
    weights, uniforms = rng.exponential(size=400), rng.random(400)
    one, other, whole = WeightedBottomK(20), WeightedBottomK(20), WeightedBottomK(20)
    one.update(weights[:200], uniforms[:200])
    other.update(weights[200:], uniforms[200:])
    whole.update(weights, uniforms)
    whole.settle()
    one.merge(other)
    np.testing.assert_array_equal(np.sort(one.priorities), np.sort(whole.priorities))
    assert one.tau == whole.tau


def test_bytes_round_trip_and_damage_is_named():
    uniform, hashed, weighted = BottomK(8), HashSample(8), WeightedBottomK(8)
    uniform.update(keys_of(7, 30))
    hashed.update(keys_of(7, 30))
    weighted.update(np.arange(1.0, 31.0), np.full(30, 0.5))
    for sample in (uniform, hashed, weighted):
        image = sample.to_bytes()
        assert type(sample).from_bytes(image).to_bytes() == image
        with pytest.raises(CorruptSynopsis):
            type(sample).from_bytes(image[:-1])
        with pytest.raises(CorruptSynopsis):
            type(sample).from_bytes(image[:20] + b"\xff" + image[21:])
    with pytest.raises(CorruptSynopsis):
        HashSample.from_bytes(uniform.to_bytes())


@pytest.mark.parametrize("sample", [BottomK, HashSample, WeightedBottomK])
def test_a_sample_of_no_rows_is_refused(sample):
    with pytest.raises(BadParameter, match="0"):
        sample(0)
    with pytest.raises(BadParameter, match="-1"):
        sample(4).resize(-1)


@pytest.mark.timeout(300, method="thread")
@pytest.mark.parametrize("value", [0, 1000])
def test_a_hash_sample_of_one_low_hash_says_that_it_knows_almost_nothing(value: int) -> None:
    sample = HashSample(4)
    sample.update(np.full(10, value, np.uint64))
    found = distinct_by_hash(kept=0, share=sample.share, confidence=0.95)
    assert found.low[0] == 0
    assert found.high[0] >= 2.0**54


def test_a_hash_sample_that_put_out_the_largest_hash_is_not_all() -> None:
    sample = HashSample(4)
    sample.update(np.uint64(KEY_MAX - 1) - np.arange(10, dtype=np.uint64))
    assert len(sample.hashes) < 10
    assert sample.share < 1
