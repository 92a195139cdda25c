"""Choice of the sketch that answers a quantile whose target is a rank error."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from shedder.cql.expressions.column_types import ColumnType
from synopses.model.errors import BadParameter
from synopses.model.profile import TYPICAL, Profile
from synopses.quantiles.kll import GroupedKll
from synopses.quantiles.req import GroupedReq

# As floats of 32 bits, today's times are two minutes apart, and whole numbers beyond 2^24 are lost.
# Days of dates are below. Of DOUBLE, answers tell by their rank error.
_TOO_COARSE = {
    ColumnType.TIMESTAMP: "times",
    ColumnType.BIGINT: "whole numbers beyond 16,777,216",
    ColumnType.INTEGER: "whole numbers beyond 16,777,216",
}


@dataclass(frozen=True, slots=True)
class RankSketch:
    """req: whether REQ is taken instead of KLL. high: of the ranks above the median.

    tail: what a rank error of REQ is a share of. reason: for EXPLAIN.
    """

    req: bool
    high: bool
    tail: float
    reason: str


@lru_cache(maxsize=1 << 12)
def rank_sketch(
    q: float, column: ColumnType | None, *, error: float, confidence: float
) -> RankSketch:
    """The smaller of the two sketches that meet the target, of a million values.

    KLL's rank error is the same everywhere, REQ's is in proportion to what is beyond the value:
    near the ends it meets a target with far fewer bytes.

    Args:
      q: of the quantile. column: its type.
      error: the rank error that is asked for, as a share of all ranks. confidence: of it.
    """
    high, tail = q >= 0.5, min(q, 1.0 - q)
    if column in _TOO_COARSE:
        reason = f"REQ's floats are too coarse for {_TOO_COARSE[column]}"
        return RankSketch(False, high, tail, reason)
    kll = _bytes_for(GroupedKll.profile, error, confidence)
    req = _bytes_for(GroupedReq.profile, error / tail if tail else 1.0, confidence)
    reason = f"KLL would take {_shown(kll)}, REQ {_shown(req)}"
    return RankSketch(req < kll, high, tail, reason)


def _bytes_for(profile: Profile, error: float, confidence: float) -> float:
    try:
        size = profile.for_error(error, confidence=confidence)
    except BadParameter:
        return math.inf
    return profile.bytes_of(size, TYPICAL)


def _shown(size_bytes: float) -> str:
    return f"{size_bytes / 1024:,.0f} KiB" if math.isfinite(size_bytes) else "more than it can"
