"""Predicted error of skipped tuples per synopsis: for decisions, never for intervals."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from allocator.curves import thinned
from shedder.cql.text.sampling_fractions import LEVEL_MAX
from shedder.engine.synopsis_plans.synopsis_plan import BY_HASH, ENDS_IN_TIME, RANKED, SynopsisKind

TUPLES_UNKNOWN = 1e6  # In a window of which nothing is known yet.
_LIKE_COUNTS = (SynopsisKind.COUNT, *BY_HASH)
_WHOLE_UNGROUPED = (
    SynopsisKind.COUNT,
    *ENDS_IN_TIME,
)  # They are of all tuples, whatever is skipped.
_OF_RANKS = (SynopsisKind.BUCKETS, SynopsisKind.FREQUENT, *RANKED)
_ADDED = (
    SynopsisKind.COUNTERS,
    *RANKED,
)  # Their intervals are of a sketch's bound around a sample's.


def both(
    kind: SynopsisKind, sizes: NDArray[np.float64], skipped: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The errors of sizes, [k], with those of skipping, [levels], as [k, levels]."""
    return sizes[:, None] + skipped if kind in _ADDED else thinned(sizes, skipped)


def beside(kind: SynopsisKind, error: float, other: float) -> float:
    """What one of the two errs by where both err by so much; 0 where the other does alone."""
    if kind in _ADDED:
        return max(error - other, 0.0)
    return math.sqrt(max(error * error - other * other, 0.0))


def skipping_error(
    kind: SynopsisKind, tuples: float, confidence: float, *, grouped: bool, factor: float = 1.0
) -> NDArray[np.float64]:
    """The error of each level, 0 to LEVEL_MAX, beside what the synopsis errs by: float64 [levels].

    Of n tuples the share s is kept: a count, of tuples or of values kept by hash, has the relative
    deviation sqrt((1/s - 1)/n); a sum sqrt(1 + cv^2) times that, and cv, which is not known before,
    is taken as 1; a rank half of it at most; a product of two counts twice. What lies at an end
    (first, last, longest) is missed with the share that is skipped. Without groups, counts and what
    came first or last are known of all tuples.

    Args:
      kind: of the synopsis. tuples: of a group in a window; 0: not known.
      confidence: of the interval. grouped: the query has GROUP BY.
      factor: by which measurements correct that; what is missed at an end needs no correction.
    """
    if not grouped and kind in _WHOLE_UNGROUPED:
        return np.zeros(LEVEL_MAX + 1)
    skipped = 2.0 ** np.arange(LEVEL_MAX + 1) - 1.0
    if kind in ENDS_IN_TIME or kind is SynopsisKind.EXTREMES:
        return np.asarray(skipped / (skipped + 1.0), np.float64)
    deviation = factor * _normal(confidence) * np.sqrt(skipped / (tuples or TUPLES_UNKNOWN))
    if kind in _OF_RANKS:
        deviation *= 0.5
    elif kind is SynopsisKind.COUNTERS:
        deviation *= 2.0
    elif kind not in _LIKE_COUNTS:
        deviation *= np.sqrt(2.0)
    return np.asarray(np.minimum(deviation, 1.0), np.float64)


@lru_cache(maxsize=1 << 10)
def _normal(confidence: float) -> float:
    return float(ndtri(0.5 + confidence / 2))
