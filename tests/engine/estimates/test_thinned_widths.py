"""Histograms by group that were collapsed while all tuples were thinned are read as they are."""

import numpy as np
import pytest

from shedder.engine.estimates.thinned_sketches import thinned_quantile
from shedder.engine.panes.level_segment import Segment
from synopses.histogram.log_histogram import GroupedLogBuckets


@pytest.mark.parametrize("bits", [7, 5, 0])
@pytest.mark.parametrize("of_whole", [7, 3])
def test_a_quantile_is_of_buckets_of_one_width(bits: int, of_whole: int) -> None:
    """What was read in full is empty, and as narrow as it was made: the answer was 1e-231."""
    values = np.random.default_rng(1).lognormal(2, 0.5, 2_000)
    ids = np.arange(2_000, dtype=np.int32) % 2
    synopsis = GroupedLogBuckets(2)
    synopsis.update(ids, values)
    synopsis.resize(bits)
    low, high = float(values.min()), float(values.max())
    segment = Segment(synopsis, population=4_000, read=2_000, low=low, high=high)
    whole = GroupedLogBuckets(2).resize(of_whole)
    found = thinned_quantile(whole, [(1, segment)], 0.5, 0.95, ungrouped=False)
    true = [np.median(values[ids == group]) for group in (0, 1)]
    assert np.allclose(found.value, true, rtol=2.0 ** -(min(bits, of_whole) + 1) + 0.02)
    assert (found.low <= true).all()
    assert (true <= found.high).all()
    assert synopsis.mantissa_bits == bits
