"""What is kept has nothing to do with the values, however these come in bursts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from shedder.streams.frame import Frame
from shedder.streams.positions import Positions

ROWS = 200_000
RARE = 1e-6  # So seldom a sound sampler fails here, per test.


def bursts(seed):
    """Values that depend on when they come: floods of one category and of large numbers."""
    rng = np.random.default_rng(seed)
    lengths = rng.geometric(1 / 700, ROWS // 200)
    burst = np.repeat(np.arange(len(lengths)), lengths)[:ROWS]
    level = rng.lognormal(0, 2, ROWS)[burst]
    category = rng.integers(0, 8, ROWS)[burst]
    return level * rng.lognormal(0, 0.3, ROWS), category


def levels_by_burst(values):
    """As load sets them: thinner while large values flood in, from batch to batch."""
    means = values.reshape(-1, 2_000).mean(axis=1)
    return np.searchsorted(np.quantile(means, [0.5, 0.8, 0.95]), means)


def kept_of(values, seed, first, level):
    batch = pa.record_batch({"ts": pa.array(np.zeros(len(values), np.int64), pa.timestamp("us"))})
    frame = Frame(batch, "ts", positions=Positions(seed, first))
    rows = frame.thinned(level).rows
    mask = np.zeros(len(values), bool)
    mask[rows if rows is not None else slice(None)] = True
    return mask


@pytest.mark.parametrize("level", [1, 2, 4])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_kept_and_skipped_values_have_one_distribution(level, seed):
    values, category = bursts(seed)
    kept = kept_of(values, 977 * seed, 1 << 33, level)
    assert stats.ks_2samp(values[kept], values[~kept]).pvalue > RARE
    table = [np.bincount(category[mask], minlength=8) for mask in (kept, ~kept)]
    assert stats.chi2_contingency(table).pvalue > RARE


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_levels_that_follow_the_bursts_keep_a_fair_part_of_each_stretch(seed):
    """A batch of large values is read thinner, but in it small and large ones are kept alike."""
    values, category = bursts(seed)
    levels = levels_by_burst(values)
    rank = stats.rankdata(values.reshape(-1, 2_000), axis=1).ravel() / 2_000
    for level in (1, 2, 3):
        chosen = np.flatnonzero(np.repeat(levels == level, 2_000))
        kept = np.concatenate(
            [
                kept_of(values[at : at + 2_000], seed, int(at), level)
                for at in np.flatnonzero(levels == level) * 2_000
            ]
        )
        assert stats.kstest(rank[chosen][kept], rank[chosen]).pvalue > RARE
        counts = np.bincount(category[chosen], weights=kept, minlength=8)
        there = np.bincount(category[chosen], minlength=8)
        some = there > 0
        expected = there[some] * kept.mean()
        spread = expected * (1 - kept.mean())
        chi2 = float(((counts[some] - expected) ** 2 / spread).sum())
        assert stats.chi2.sf(chi2, some.sum() - 1) > RARE
        assert stats.binomtest(int(kept.sum()), len(kept), 2.0**-level).pvalue > RARE


def test_a_sampler_that_prefers_large_values_is_found_out():
    """The tests above can fail."""
    values, _ = bursts(1)
    rng = np.random.default_rng(5)
    kept = rng.random(ROWS) < np.where(values > np.median(values), 0.27, 0.23)
    assert stats.ks_2samp(values[kept], values[~kept]).pvalue < RARE
