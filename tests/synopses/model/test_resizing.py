"""resize_to: as much as fits into so many bytes, whatever the kind, and about so when full."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from synopses.counters.count_min import GroupedCountMin
from synopses.counters.count_sketch import GroupedCountSketch
from synopses.frequent.frequent_items import GroupedFrequent
from synopses.histogram.log_histogram import GroupedLogBuckets
from synopses.hll.hyperloglog import GroupedDistinct
from synopses.kernels.hashing import murmur_int64, position_start
from synopses.model.errors import BadParameter
from synopses.model.resizing import FULL
from synopses.quantiles.kll import GroupedKll
from synopses.quantiles.req import GroupedReq
from synopses.samples.bottom_k import BottomK, HashSample, WeightedBottomK
from synopses.samples.stratified_sample import StratifiedBottomK
from synopses.theta.theta_sketch import GroupedTheta

GROUPS = 3
MORE = 2.2  # Arrays grow by doubling; what was held value by value leaves room behind.


def ids_of(values: NDArray[np.int64]) -> NDArray[np.int32]:
    return (values % GROUPS).astype(np.int32)


def hashed(*, both: bool = False) -> Callable[[Any, NDArray[np.int64]], None]:
    def feed(summary: Any, values: NDArray[np.int64]) -> None:
        summary.update(ids_of(values), *murmur_int64(values)[: 2 if both else 1])

    return feed


def by_value(summary: Any, values: NDArray[np.int64]) -> None:
    summary.update(ids_of(values), 1.001 ** (values % 20_000).astype(np.float64))


KINDS: dict[str, tuple[Callable[[], Any], Callable[[Any, NDArray[np.int64]], object]]] = {
    "distinct": (lambda: GroupedDistinct(GROUPS, 12), hashed(both=True)),
    "theta": (lambda: GroupedTheta(GROUPS, 12), hashed()),
    "kll": (lambda: GroupedKll(GROUPS, 4_000), by_value),
    "req": (lambda: GroupedReq(GROUPS, 100), by_value),
    "log buckets": (lambda: GroupedLogBuckets(GROUPS), by_value),
    "frequent": (
        lambda: GroupedFrequent(GROUPS, 1_024),
        lambda s, v: s.update(ids_of(v), murmur_int64(v)[0], v),
    ),
    "count-min": (lambda: GroupedCountMin(GROUPS, 12), hashed()),
    "count-sketch": (lambda: GroupedCountSketch(GROUPS, 12), hashed()),
    "bottom-k": (lambda: BottomK(4_096), lambda s, v: s.update(murmur_int64(v)[0])),
    "hash sample": (lambda: HashSample(4_096), lambda s, v: s.update(murmur_int64(v)[0])),
    "weighted": (
        lambda: WeightedBottomK(4_096),
        lambda s, v: s.update(np.ones(v.size), (murmur_int64(v)[0] >> np.uint64(12)) / 2.0**52),
    ),
    "stratified": (
        lambda: StratifiedBottomK(GROUPS, 4_096),
        lambda s, v: s.update(ids_of(v), position_start(1, int(v[0]))),
    ),
}


def settled(summary: Any) -> int:
    """Bytes held when nothing waits to be sorted in."""
    summary.to_bytes()
    return int(summary.size_bytes)


@pytest.mark.parametrize("name", KINDS)
def test_it_takes_the_largest_size_that_fits_and_stays_near_it_when_full(name: str) -> None:
    empty, feed = KINDS[name]
    summary, values = empty(), np.arange(60_000)
    feed(summary, values[:30_000])
    profile, before = summary.profile, summary.size
    copies = GROUPS if name not in ("bottom-k", "hash sample", "weighted", "stratified") else 1
    held = copies * profile.bytes_of(before, FULL)
    least = copies * profile.bytes_of(profile.sizes[0], FULL)
    for size_bytes in (held, held // 2, held // 7):
        if size_bytes < least:
            continue
        summary.resize_to(size_bytes)
        assert summary.size == profile.size_within(size_bytes // copies, FULL)
        feed(summary, values[30_000:])
        assert settled(summary) <= MORE * size_bytes
    assert summary.size < before
    if not profile.grows:
        now = summary.size
        summary.resize_to(1 << 40)
        assert summary.size == now
    else:
        summary.resize_to(held)
        assert summary.size == before


@pytest.mark.parametrize("name", KINDS)
def test_what_not_even_the_smallest_size_holds_is_refused(name: str) -> None:
    summary = KINDS[name][0]()
    with pytest.raises(BadParameter, match="size_bytes is 7, expected >= "):
        summary.resize_to(7)


def test_the_two_names_of_a_size_lie_on_one_curve() -> None:
    profile = GroupedKll.profile
    for size_bytes in (20_000, 200_000, 2_000_000):
        size = profile.size_within(size_bytes, FULL)
        error = profile.error_of(size, FULL, 0.95)
        assert profile.error_at(size_bytes, FULL, confidence=0.95) == error


@pytest.mark.parametrize("bits", range(8))
def test_a_histogram_keeps_to_its_bytes_whatever_the_data(bits: int) -> None:
    """Values of all sizes and both signs touch each bucket that there is."""
    words = np.random.default_rng(bits).integers(0, 2**64, 400_000, np.uint64)
    values = words.view(np.float64)[~np.isnan(words.view(np.float64))]
    ids, profile = (np.arange(values.size) % GROUPS).astype(np.int32), GroupedLogBuckets.profile
    size_bytes = GROUPS * profile.bytes_of(bits, FULL)
    before, after = GroupedLogBuckets(GROUPS), GroupedLogBuckets(GROUPS)
    before.update(ids, values)
    before.resize_to(size_bytes)
    after.resize_to(size_bytes)
    after.update(ids, values)
    assert before.size == after.size == bits
    back = GroupedLogBuckets.from_bytes(before.to_bytes())
    for summary in (before, after, back, before.select(np.arange(GROUPS))):
        assert summary.size_bytes <= 1.5 * size_bytes
