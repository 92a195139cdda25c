"""One rule says which value a quantile is, wherever one is asked for."""

from __future__ import annotations

import math
from fractions import Fraction

import duckdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synopses.histogram.log_histogram import GroupedLogBuckets
from synopses.histogram.quantile_bounds import BucketStratum, bucket_quantile
from synopses.intervals.quantiles import rank_bounds, sampled_quantile
from synopses.intervals.sample_values import SampledValues
from synopses.model.errors import BadParameter
from synopses.model.ranks import discrete_rank, least_of, most_of
from synopses.quantiles.kll import GroupedKll
from synopses.quantiles.req import GroupedReq
from tests import truth

SHARES = (0.01, 0.05, 0.07, 0.1, 0.25, 0.3, 0.5, 0.55, 0.7, 0.9, 0.95, 0.99, 0.999)


@pytest.mark.slow
@given(hundredths=st.integers(0, 10**6), count=st.integers(0, 2**62))
def test_a_rank_is_that_of_the_decimal(hundredths: int, count: int) -> None:
    share, counts = hundredths / 10**6, np.array([count])
    exact = Fraction(hundredths, 10**6) * count
    assert discrete_rank(share, counts).tolist() == [max(1, math.ceil(exact))]
    assert least_of(share, counts).tolist() == [math.ceil(exact)]
    assert most_of(share, counts).tolist() == [math.floor(exact)]


@pytest.mark.parametrize("counts", [[], [0], [0, 3], [2**62]])
@pytest.mark.parametrize("share", [0.0, 5e-324, 2.0**-53, 0.1 + 2**-55, 1.0 - 2**-53, 1.0])
def test_a_share_of_any_double_has_a_rank(share: float, counts: list[int]) -> None:
    """Its decimal may have more digits than 64 bits hold, whatever the counts are."""
    exact = [Fraction(repr(share)) * count for count in counts]
    assert least_of(share, np.array(counts, np.int64)).tolist() == [math.ceil(e) for e in exact]
    assert most_of(share, np.array(counts, np.int64)).tolist() == [math.floor(e) for e in exact]


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan])
def test_no_share_outside_of_all_has_a_rank(share: float) -> None:
    with pytest.raises(BadParameter, match="0 to 1"):
        discrete_rank(share, np.array([3]))


@pytest.mark.parametrize("count", [100, 180, 200, 220, 340])
@pytest.mark.parametrize("share", SHARES)
def test_everybody_answers_with_the_value_of_that_rank(share: float, count: int) -> None:
    """Each of 1 to n is its own rank: 0.55 of 100 is 55, which doubles say is more."""
    values = np.arange(1.0, count + 1.0)
    rank = max(1, -(-round(share * 1000) * count // 1000))
    assert truth.exact_quantile(values, share) == rank
    for summary in (GroupedKll(1, 400), GroupedReq(1, 100)):
        summary.update(None, values)
        assert summary.quantile(share, 0.95).value[0] == rank
    buckets = GroupedLogBuckets(1)
    buckets.update(None, values)
    assert buckets.quantile(share)[0].holds(rank)
    sample = SampledValues.by_group(
        values, ids=None, groups=1, population=count, read=count, low=1.0, high=float(count)
    )
    assert sampled_quantile(sample, rank_share=share, confidence=0.95).value[0] == rank
    with duckdb.connect() as connection:
        query = f"SELECT quantile_disc(x, {share}) FROM range(1, {count + 1}) t(x)"
        assert connection.execute(query).fetchall() == [(rank,)]


@pytest.mark.parametrize("whole", [False, True])
def test_buckets_of_strata_that_were_read_whole_hold_it(*, whole: bool) -> None:
    cells = np.arange(1, 101)
    stratum = BucketStratum(
        100,
        100,
        np.zeros(100, np.int64),
        cells,
        np.ones(100, np.int64),
        np.array([100]),
        1.0,
        100.0,
    )
    for share in SHARES:
        found = bucket_quantile(
            [stratum],
            lambda cells: (cells.astype(np.float64), cells.astype(np.float64)),
            rank_share=share,
            confidence=0.95,
            whole=whole,
        )
        rank = -(-round(share * 1000) * 100 // 1000)
        assert (found.low[0], found.high[0]) == (rank, rank)


def test_many_members_are_told_apart_to_the_last() -> None:
    """With all read but one value the ranks around it are its own, at any number of members."""
    members = np.array([3 * 10**12 + 1])
    first, last = rank_bounds(
        members, members=members, members_known=True, rank_share=0.1, confidence=0.95
    )
    assert (first[0], last[0]) == (3 * 10**11 + 1, 3 * 10**11 + 1)
