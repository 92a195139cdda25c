"""The profile of HyperLogLog: a distinct count from 2^lg_k registers, exact for few values."""

from __future__ import annotations

from typing import Final

import numpy as np

from synopses.hll.sparse_coupons import collided_max, gathered_max, held_max
from synopses.model.cardinality_error import relative_error
from synopses.model.profile import Cost, Profile, Share, Statistics, Thinning

LG_K_MIN: Final = 7
LG_K_MAX: Final = 21  # As in DataSketches.
_GROUP_BYTES: Final = 44  # Where its registers and its coupons are, values taken in.
_COUPON_BYTES: Final = 4


def _error_of(lg_k: int, statistics: Statistics, confidence: float) -> float:
    """Nothing for groups of few, whose coupons are counted, unless these are likely to collide."""
    few = np.array([statistics.tuples])
    if statistics.tuples <= held_max(lg_k) and not collided_max(few, confidence)[0]:
        return 0.0
    return relative_error(1 << lg_k, confidence)


def _bytes_of(lg_k: int, _statistics: Statistics) -> int:
    return (1 << lg_k) + _COUPON_BYTES * gathered_max(lg_k) + _GROUP_BYTES


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
    cost=Cost(read=1.0, read_grouped=7.5, kept=1.0, kept_grouped=7.5, always=0.0),
)
