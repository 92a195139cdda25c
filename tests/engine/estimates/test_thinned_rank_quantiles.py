"""Quantiles of parts that were read thinned: the ends are the very ranks that enclose them."""

from __future__ import annotations

import numpy as np
import pytest

from shedder.engine.estimates.thinned_rank_quantiles import RankStrata
from shedder.engine.panes.level_segment import Segment
from synopses.intervals.confidence_split import split_confidence
from synopses.intervals.quantiles import rank_bounds
from synopses.quantiles.kll import GroupedKll
from synopses.quantiles.rank_sketches import RankSketches
from synopses.quantiles.req import GroupedReq


@pytest.mark.parametrize("empty", [GroupedKll(1, 200), GroupedReq(1, 12, high=True)])
@pytest.mark.parametrize("q", [0.3, 0.5, 0.9])
def test_ends_are_the_values_of_the_ranks_that_enclose_the_quantile(
    empty: RankSketches, q: float
) -> None:
    """r / n as a decimal may lie above rank r: an end a rank too high encloses too little."""
    for read in range(20, 120):
        sketch = empty.select(np.array([0]))
        sketch.update(None, np.arange(1.0, read + 1))
        segment = Segment(sketch, population=2 * read, read=read, low=0, high=1_000)
        whole = empty.select(np.array([0]))
        found = RankStrata(whole, [(1, segment)], ungrouped=True).quantile(q, 0.95)
        first, last = rank_bounds(
            np.array([read]),
            members=np.array([2 * read]),
            members_known=True,
            rank_share=q,
            confidence=split_confidence(0.95, 2),
        )
        if first[0] >= 1 and last[0] <= read:  # All values are held: a rank is its value.
            assert (found.low[0], found.high[0]) == (first[0], last[0])
