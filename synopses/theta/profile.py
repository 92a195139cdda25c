"""The profile of theta sketches: a distinct count from the k smallest hashes."""

from __future__ import annotations

import math
from typing import Final

from synopses.model.cardinality_error import z_of
from synopses.model.profile import Cost, Profile, Share, Statistics, Thinning

LG_K_MIN: Final = 5
LG_K_MAX: Final = 26  # Both as in DataSketches.
_VALUE_BYTES: Final = 16  # A full group has 2k places of 8 bytes.
_GROUP_BYTES: Final = 32


def _error_of(lg_k: int, statistics: Statistics, confidence: float) -> float:
    """Relative half-width (the upper, larger one) of a distinct count from 2^lg_k hashes.

    The relative standard error is 1/sqrt(k - 1): Bar-Yossef et al. 2002; Dasgupta et al. 2016.
    """
    if statistics.tuples <= 2**lg_k:
        return 0.0
    spread = z_of(confidence) / math.sqrt(2**lg_k - 1)
    return spread / (1 - spread) if spread < 1 else math.inf


def _bytes_of(lg_k: int, _statistics: Statistics) -> int:
    return _GROUP_BYTES + _VALUE_BYTES * (1 << lg_k)


THETA: Final = Profile(
    question="DISTINCT_BOTH, DISTINCT_ONLY, JACCARD; COUNT(DISTINCT x) thinned",
    size="lg_k",
    sizes=range(LG_K_MIN, LG_K_MAX + 1),
    default=12,
    linear=False,
    thinning=Thinning.HASH,
    thinned="binomial in the values kept, at the smallest theta",
    share=Share.VALUE,
    error_of=_error_of,
    bytes_of=_bytes_of,
    grows=True,
    cost=Cost(read=1.7, read_grouped=6.8, kept=8.5, kept_grouped=7.4, always=4.3),
)
