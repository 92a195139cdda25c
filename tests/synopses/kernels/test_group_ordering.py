"""A batch dealt out by group is a stable sort; what reads it says the same as row by row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synopses.histogram.log_histogram import GroupedLogBuckets
from synopses.hll.hyperloglog import GroupedDistinct
from synopses.kernels.group_ordering import ROWS_MIN, by_group, groups_of
from synopses.kernels.hashing import murmur_int64


@pytest.mark.slow
@given(ids=st.lists(st.integers(0, 6), max_size=60), spare=st.integers(0, 3))
def test_it_is_a_stable_sort(ids: list[int], spare: int) -> None:
    column = np.arange(len(ids), dtype=np.uint64)
    given_ids, groups = np.array(ids, np.int32), 7 + spare
    bounds, dealt = by_group(given_ids, column, groups)
    order = np.argsort(given_ids, kind="stable")
    assert dealt.tolist() == column[order].tolist()
    assert groups_of(bounds).tolist() == given_ids[order].tolist()
    assert len(bounds) == groups + 1


@pytest.mark.slow
@pytest.mark.parametrize("groups", [2, 30])
@pytest.mark.parametrize("values", [20, 3_000, 1 << 40])
def test_many_rows_at_once_and_few_at_a_time_come_to_the_same(groups: int, values: int) -> None:
    rng = np.random.default_rng([groups, values])
    rows = 40_000
    ids = rng.geometric(0.2, rows).clip(1, groups).astype(np.int32) - 1
    keys = rng.integers(0, values, rows)
    for made, columns in (
        (lambda: GroupedDistinct(groups, 9), murmur_int64(keys)),
        (lambda: GroupedLogBuckets(groups), (np.where(keys % 7, keys * 0.1 + 1.0, np.nan),)),
    ):
        few, many = made(), made()
        small, large = ROWS_MIN * groups - 1, 10 * ROWS_MIN * groups
        for summary, batch in ((few, small), (many, large), (few, small), (many, large)):
            for start in range(0, rows, batch):
                some = slice(start, start + batch)
                summary.update(ids[some], *(column[some] for column in columns))
        assert few.to_bytes() == many.to_bytes()
