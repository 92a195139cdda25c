"""The profiles of the bottom-k samples: uniform, of strata, by the hash of a column, by weight.

Sizes are rows; bytes are those of the keys, of which up to twice as many are held between cuts.
"""

from __future__ import annotations

import math
from typing import Final

from synopses.model.cardinality_error import z_of
from synopses.model.profile import Profile, Share, Statistics, Thinning

_SIZES: Final = tuple(1 << lg for lg in range(25))
_DEFAULT: Final = 4096


def _share_error(k: int, statistics: Statistics, confidence: float) -> float:
    """Of a share or a rank: at most as for one half, with the finite-population factor."""
    left = max(0.0, 1.0 - k / statistics.tuples)
    return min(1.0, z_of(confidence) * math.sqrt(left / (4 * k)))


def _value_error(k: int, statistics: Statistics, confidence: float) -> float:
    """Of a number of values, or of a sum by weight: that of a Poisson variable of mean k."""
    return z_of(confidence) / math.sqrt(k) if k < statistics.tuples else 0.0


def _keys(k: int, _statistics: Statistics) -> int:
    return 2 * 8 * k


def _weights_and_priorities(k: int, _statistics: Statistics) -> int:
    return 2 * 16 * k


def _keys_and_strata(k: int, _statistics: Statistics) -> int:
    return 2 * 12 * k + 32


UNIFORM: Final = Profile(
    question="any aggregate behind any filter",
    size="k",
    sizes=_SIZES,
    default=_DEFAULT,
    linear=False,
    thinning=Thinning.ROWS,
    thinned="that of a simple random sample at the smaller of both thresholds",
    share=Share.TUPLES,
    error_of=_share_error,
    bytes_of=_keys,
    grows=True,
)
STRATIFIED: Final = Profile(
    question="any aggregate by group behind any filter",
    size="k",
    sizes=_SIZES,
    default=_DEFAULT,
    linear=False,
    thinning=Thinning.NEVER,
    thinned="none: rows that were skipped are not counted in their strata",
    share=Share.TUPLES,
    error_of=_share_error,
    bytes_of=_keys_and_strata,
    grows=True,
)
BY_HASH: Final = Profile(
    question="COUNT(DISTINCT x) behind any filter",
    size="rows_max",
    sizes=_SIZES,
    default=_DEFAULT,
    linear=False,
    thinning=Thinning.HASH,
    thinned="binomial in the values kept, at the smaller of both thresholds",
    share=Share.VALUE,
    error_of=_value_error,
    bytes_of=_keys,
    grows=True,
)
BY_WEIGHT: Final = Profile(
    question="SUM(x) of a heavy tail behind any filter",
    size="k",
    sizes=_SIZES,
    default=_DEFAULT,
    linear=False,
    thinning=Thinning.NEVER,
    thinned="none: a heavy row that is skipped is what the sum was made of",
    share=Share.VALUE,
    error_of=_value_error,
    bytes_of=_weights_and_priorities,
    grows=True,
)
