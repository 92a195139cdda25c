"""Size of an equi-join from the panes of two windows, with a distribution-free interval.

The pairs of a key are a sum over pairs of panes, one of each side. Where the key is heavy in both
panes, their number is exact. The rest R_k of the key is known if the key is sampled; else it lies
in [0, R_max] for certain. R_max comes from heavy counts and bucket sums, which count every row.

A key that is heavy in no pane has at most A_j * B_j pairs, the product of the sums of its bucket.
Keys that are heavy in some panes only may have many more. Those of the largest R_max are not
estimated: unless they are sampled, their rest is an interval. The others are estimated from the
sampled keys (synopses/intervals/sampled_keys.py). Which keys are estimated depends on R_max alone,
not on the sample.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from synopses.intervals.interval import Intervals
from synopses.intervals.sampled_keys import CertainRange, sampled_key_total
from synopses.joins.pane_counts import NO_KEYS, ClosedPane
from synopses.joins.pane_kernels import Longs, Words, buckets_of, sampled
from synopses.model.parameters import error_share

Floats = NDArray[np.float64]

PAIRS_MAX = 1 << 62  # More pairs are not counted.
_WHOLE_MAX = 1 << 53  # Doubles hold all whole numbers up to it.
_ROUNDING = 1e-12  # Relative, of sums of doubles; ends move outward by it.


@dataclass(frozen=True, slots=True, eq=False)
class _WindowCounts:
    """Counts of one side over its panes.

    heavy: exact rows of the heavy keys. missing: the most rows in panes where a key is not heavy.
    keys, counts: the other rows of the sampled keys; keys ascend.
    sums: rows per bucket.
    """

    heavy: Longs
    missing: Longs
    keys: Words
    counts: Longs
    sums: Longs


def join_size(
    left: Sequence[ClosedPane], right: Sequence[ClosedPane], secrets: Words, *, confidence: float
) -> Intervals:
    """The pairs of equal keys of two windows, one interval; EXACT where no key was left out.

    Sizes beyond 2^53 are never EXACT.

    Args:
      left, right: panes of the windows, all with the same number of buckets.
      secrets: as of the panes.
      confidence: in (0, 1).

    Raises:
      OverflowError: there may be more than PAIRS_MAX pairs.
    """
    panes = [*left, *right]
    if not left or not right:
        return _exact(0)
    level = max(pane.level for pane in panes)
    heavy_keys = _union([pane.heavy_keys for pane in panes])
    sides = [_side(each, heavy_keys, secrets, level) for each in (left, right)]
    rows = [float(side.heavy.sum() + side.sums.sum()) for side in sides]
    if rows[0] * rows[1] > PAIRS_MAX:
        raise OverflowError(f"{rows[0]:.0f} rows join {rows[1]:.0f} rows")
    ours, theirs = sides
    certain = int(ours.heavy @ theirs.heavy)
    rest_max = (ours.heavy + ours.missing) * (theirs.heavy + theirs.missing)
    rest_max -= ours.heavy * theirs.heavy
    kept = _union([ours.keys, theirs.keys, heavy_keys[sampled(heavy_keys, secrets[0], level)]])
    at = np.searchsorted(heavy_keys, kept)
    is_heavy = np.zeros(len(kept), np.bool_)
    if len(heavy_keys):
        is_heavy = heavy_keys[np.minimum(at, len(heavy_keys) - 1)] == kept
    rests = _found(kept, ours.keys, ours.counts), _found(kept, theirs.keys, theirs.counts)
    exact = [np.zeros(len(kept), np.int64) for _ in sides]
    for counts, side in zip(exact, sides, strict=True):
        counts[is_heavy] = side.heavy[at[is_heavy]]
    values = (exact[0] + rests[0]) * (exact[1] + rests[1]) - exact[0] * exact[1]
    if level == 0:
        return _exact(certain + int(values.sum()))
    pairs = ours.sums.astype(np.float64) * theirs.sums
    share = 2.0**-level
    is_wide = _not_estimated(rest_max.astype(np.float64), pairs, share, confidence)
    apart = np.zeros(len(kept), np.bool_)
    apart[is_heavy] = is_wide[at[is_heavy]]
    known = np.zeros(len(heavy_keys), np.bool_)
    known[at[is_heavy]] = True
    estimated = rest_max[~is_wide].astype(np.float64)
    interval = sampled_key_total(
        values[~apart].astype(np.float64),
        share,
        CertainRange(
            max(float(pairs.max()), float(estimated.max(initial=0.0))),
            float(np.square(pairs).sum() + np.square(estimated).sum()),
            float(pairs.sum() + estimated.sum()),
        ),
        confidence=confidence,
    )
    least = float(certain + values[apart].sum())
    unknown = float(rest_max[is_wide & ~known].sum())
    return _rounded(
        least + interval.value[0] + unknown / 2.0,
        least + interval.low[0],
        least + interval.high[0] + unknown,
    )


def _not_estimated(
    rest_max: Floats, pairs: Floats, share: float, confidence: float
) -> NDArray[np.bool_]:
    """Return the heavy keys whose rests are not estimated: those with which the width is least.

    The width is that of certain facts alone.

    rest_max: of the heavy keys. pairs: the most pairs of each bucket.
    """
    order = np.argsort(-rest_max)
    largest = np.append(rest_max[order], 0.0)
    squares = float(np.square(pairs).sum())
    left = squares + np.append(np.square(largest)[::-1].cumsum()[::-1][:-1], 0.0)
    apart = np.append(0.0, largest[:-1].cumsum())
    most = np.maximum(largest, pairs.max())
    weight = math.log(2.0 / error_share(confidence))
    odds = (1.0 - share) / share
    reach = most * max(odds, 1.0) * weight / 3.0
    widths = apart + 2.0 * (reach + np.sqrt(np.square(reach) + 2.0 * weight * odds * left))
    found = np.zeros(len(rest_max), np.bool_)
    found[order[: int(np.argmin(widths))]] = True
    return found


def _side(
    panes: Sequence[ClosedPane], heavy_keys: Words, secrets: Words, level: int
) -> _WindowCounts:
    sums = np.zeros(len(panes[0].sums), np.int64)
    for pane in panes:
        sums += pane.sums
    buckets = buckets_of(heavy_keys, secrets[1], len(sums))
    heavy, missing = np.zeros(len(heavy_keys), np.int64), sums[buckets]
    for pane in panes:
        at = np.searchsorted(heavy_keys, pane.heavy_keys)
        heavy[at] += pane.heavy_counts
        missing[at] -= pane.sums[buckets[at]]
    keys = np.concatenate([pane.keys for pane in panes])
    counts = np.concatenate([pane.counts for pane in panes])
    kept = sampled(keys, secrets[0], level)
    found, inverse = np.unique(keys[kept], return_inverse=True)
    summed = np.zeros(len(found), np.int64)
    np.add.at(summed, inverse, counts[kept])
    return _WindowCounts(heavy, missing, found, summed, sums)


def _found(wanted: Words, keys: Words, counts: Longs) -> Longs:
    """Return the counts of the wanted keys, 0 where a key has none; keys ascend."""
    if not len(keys):
        return np.zeros(len(wanted), np.int64)
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, counts[at], 0)


def _union(keys: Sequence[Words]) -> Words:
    return np.unique(np.concatenate(keys)) if keys else NO_KEYS


def _exact(pairs: int) -> Intervals:
    if pairs > _WHOLE_MAX:
        return _rounded(pairs, pairs, pairs)
    whole = np.array([float(pairs)])
    return Intervals.of(whole, whole, whole, exact=True)


def _rounded(value: float, low: float, high: float) -> Intervals:
    """Whole ends outside of those that were computed."""
    ends = math.floor(low * (1.0 - _ROUNDING)), math.ceil(high * (1.0 + _ROUNDING))
    return Intervals.of(np.array([round(value)]), np.array([ends[0]]), np.array([ends[1]]))
