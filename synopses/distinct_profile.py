"""The profile of HyperLogLog: a distinct count from 2^lg_k registers."""

from __future__ import annotations

from typing import Final

from synopses.cardinality import relative_error
from synopses.profile import Profile, Share, Statistics, Thinning

LG_K_MIN: Final = 7
LG_K_MAX: Final = 21  # As in DataSketches.
_GROUP_BYTES: Final = 16  # Where its registers are, how many are set, values taken in.


def _error_of(lg_k: int, _statistics: Statistics, confidence: float) -> float:
    return relative_error(1 << lg_k, confidence)


def _bytes_of(lg_k: int, _statistics: Statistics) -> int:
    return (1 << lg_k) + _GROUP_BYTES


DISTINCT: Final = Profile(
    question="COUNT(DISTINCT x)",
    size="lg_k",
    sizes=range(LG_K_MIN, LG_K_MAX + 1),
    default=12,
    linear=False,
    thinning=Thinning.NEVER,
    thinned="none: registers cannot be cut back to the values that were read",
    share=Share.VALUE,
    error_of=_error_of,
    bytes_of=_bytes_of,
    power=0.5,
)
