"""Which rows of a frame are kept at a level: nested, whatever the values, about the share."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from shedder.cql.expressions.column_types import ColumnType
from shedder.cql.expressions.expression import Call, Column, Literal, Op
from shedder.streams.frame import Frame
from shedder.streams.positions import Positions

X = Column("x", ColumnType.DOUBLE)


def frame(x: np.ndarray, seed: int, first: int = 0) -> Frame:
    columns = {"ts": pa.array(np.arange(len(x)), pa.timestamp("us")), "x": pa.array(x)}
    return Frame(pa.record_batch(columns), "ts", positions=Positions(seed, first))


def kept(one: Frame, level: int) -> np.ndarray:
    thinned = one.thinned(level)
    return np.arange(len(one)) if thinned.rows is None else thinned.rows


def test_what_is_kept_at_a_level_is_kept_at_all_below_it() -> None:
    whole = frame(np.zeros(50_000), seed=7)
    before = set(kept(whole, 0))
    for level in range(1, 8):
        now = set(kept(whole, level))
        assert now < before
        before = now


@pytest.mark.parametrize("level", [1, 3, 6])
def test_about_the_share_is_kept(level: int) -> None:
    count = len(kept(frame(np.zeros(200_000), seed=level), level))
    share = 2.0**-level
    assert stats.binomtest(count, 200_000, share).pvalue > 1e-6


def test_keeping_is_independent_of_the_values_and_of_the_batches() -> None:
    """The same positions are kept, whatever is in them and however they came."""
    rng = np.random.default_rng(1)
    one, other = frame(np.arange(9_000.0), seed=5), frame(rng.lognormal(0, 2, 9_000), seed=5)
    assert kept(one, 3).tolist() == kept(other, 3).tolist()
    parts = [frame(np.zeros(3_000), seed=5, first=first) for first in (0, 3_000, 6_000)]
    together = np.concatenate([kept(p, 3) + 3_000 * i for i, p in enumerate(parts)])
    assert together.tolist() == kept(one, 3).tolist()
    # Large values are kept as often as small ones.
    values = rng.lognormal(0, 2, 100_000)
    chosen = kept(frame(values, seed=11), 2)
    assert stats.ks_2samp(values[chosen], np.delete(values, chosen)).pvalue > 1e-6


def test_another_seed_keeps_others() -> None:
    assert kept(frame(np.zeros(500), 1), 1).tolist() != kept(frame(np.zeros(500), 2), 1).tolist()


def test_a_filtered_or_cut_or_sorted_frame_keeps_the_same_rows() -> None:
    whole = frame(np.arange(2_000.0)[::-1].copy(), seed=3)
    survivors = set(whole.thinned(2).frame.present(X).values.tolist())
    condition = Call(Op.LT, (X, Literal(700.0, ColumnType.DOUBLE)), ColumnType.BOOLEAN)
    views = [
        whole.where(condition),
        whole.between(100, 1_500),
        whole.where(condition).between(5, 400),
    ]
    for view in views:
        mine = set(view.present(X).values.tolist())
        thinned = view.thinned(2)
        assert set(thinned.frame.present(X).values.tolist()) == mine & survivors
        assert view.thinned(2) is thinned  # Gathered once, and shared by all callers.


def test_rows_of_a_stretch_are_found_among_the_kept() -> None:
    thinned = frame(np.zeros(1_000), seed=3).thinned(2)
    first, last = thinned.between(200, 600)
    assert thinned.rows is not None
    assert thinned.rows[first:last].tolist() == [r for r in thinned.rows if 200 <= r < 600]


def test_the_basics_are_of_all_rows() -> None:
    one = frame(np.array([np.nan, 4.0, -2.0, 9.0, np.nan]), seed=1)
    known = one.known(X, 0, 5)
    assert (known.rows, known.low, known.high) == (3, -2.0, 9.0)
    known = one.known(X, 1, 3)
    assert (known.rows, known.low, known.high) == (2, -2.0, 4.0)
    assert one.known(X, 4, 5).rows == 0


@pytest.mark.parametrize("odd", [0.0, np.nan])
def test_values_are_present_the_same_whether_or_not_the_basics_were_asked_first(odd: float) -> None:
    with_basics, without = (frame(np.array([3.0, odd, -2.0]), seed=1) for _ in range(2))
    assert with_basics.basics("x").nulls == np.isnan(odd)
    assert with_basics.time_ends_us == (0, 2)
    for one in (with_basics, with_basics.between(0, 2)):
        again = without if one is with_basics else without.between(0, 2)
        np.testing.assert_array_equal(one.present(X).values, again.present(X).values)
        assert (one.present(X).rows is None) == (again.present(X).rows is None)


def test_queries_that_ask_for_the_same_stretches_in_turn_share_what_is_derived_of_them() -> None:
    whole = frame(np.arange(900.0), seed=3)
    ends = [(0, 100), (100, 700), (700, 900)]  # Too late, in time, not believed.
    mine = [whole.between(*each) for each in ends]
    hashes = [each.hashes(X) for each in mine]
    for _ in range(3):
        again = [whole.between(*each) for each in ends]
        assert all(one.hashes(X) is before for one, before in zip(again, hashes, strict=True))
    for first in range(50):  # But not of ever so many.
        assert whole.between(first, first + 1).present(X).values.tolist() == [float(first)]
    assert whole.between(*ends[1]).hashes(X).first.tolist() == hashes[1].first.tolist()
