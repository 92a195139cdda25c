"""FREQUENT of panes of which a part was read thinned: both lists keep their promise."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict

import numpy as np
import pytest
from numpy.typing import NDArray

from shedder.engine.estimates.thinned_frequent_items import thinned_frequent
from shedder.engine.panes.level_segment import Segment
from synopses.frequent.frequent_items import GroupedFrequent
from synopses.frequent.heavy_share import Promise
from synopses.kernels.hashing import murmur_int64
from synopses.model.estimate import Bound
from tests.truth import gate, keeps_its_promise

SIZE, TRIALS = 12_000, 60
DRAWN = {
    "zipf": lambda rng: np.minimum(rng.zipf(1.3, SIZE), 10**6),
    "uniform": lambda rng: rng.integers(0, 50, SIZE),
    "different": lambda _rng: np.arange(SIZE),
    "constant": lambda _rng: np.zeros(SIZE, np.int64),
}


def summary_of(values: NDArray[np.int64], ids: NDArray[np.int32], groups: int) -> GroupedFrequent:
    summary = GroupedFrequent(groups, 256)
    summary.update(ids, murmur_int64(values)[0], values)
    return summary


@pytest.mark.slow
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("drawn", DRAWN)
def test_thinned_lists_keep_their_promise(drawn: str, groups: int) -> None:
    rng = np.random.default_rng([20261122, groups])
    values = DRAWN[drawn](rng)
    ids = rng.integers(0, groups, SIZE).astype(np.int32)
    late = np.full(9, values[0])
    counts = [Counter(values[ids == group].tolist()) for group in range(groups)]
    later = [Counter([*values[ids == group].tolist(), *late.tolist()]) for group in range(groups)]
    full = summary_of(values[: SIZE // 4], ids[: SIZE // 4], groups)
    rest = np.arange(SIZE // 4, SIZE)
    held, claims = Counter(), 0
    for _ in range(TRIALS):
        read = np.sort(rng.choice(rest, rest.size // 4, replace=False))
        segment = Segment(summary_of(values[read], ids[read], groups), rest.size, read.size)
        for share, promise, more in ((0.1, *each) for each in PAIRS):
            found = thinned_frequent(
                full, [(2, segment)], share, promise, 0.95, late=more, ungrouped=groups == 1
            )
            for group in range(groups):
                items = [asdict(item) for item in found.value[group]]
                bound = Bound(int(found.bound[group])).word
                exact = (later if more else counts)[group]
                positives = promise is Promise.NO_FALSE_POSITIVES
                held[promise, more] += keeps_its_promise(
                    items, bound, exact, share, positives=positives
                )
                claims += bound != "none"
    assert claims == len(PAIRS) * TRIALS * groups
    for pair in PAIRS:
        assert held[pair] >= gate(TRIALS, 0.95) * groups, (pair, held[pair])


PAIRS = [(promise, more) for promise in Promise for more in (0, 9)]


def test_what_cannot_be_promised_of_so_few_is_said() -> None:
    values, ids = np.arange(400), np.zeros(400, np.int32)
    segment = Segment(summary_of(values[:50], ids[:50], 1), 400, 50)
    none = GroupedFrequent(1, 256)
    for promise in Promise:
        found = thinned_frequent(none, [(3, segment)], 0.01, promise, 0.95, late=0, ungrouped=True)
        expected = Bound.NONE if promise is Promise.NO_FALSE_NEGATIVES else Bound.INTERVAL
        assert found.bound.tolist() == [expected]
