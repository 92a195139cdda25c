"""Totals over sampled keys whose values have a common bound: a distribution-free interval.

Let Y_k >= 0 be the value of key k and J the sum of all. Each key is kept with probability p,
independently of the others, with its whole value: J' = (1/p) * the sum of the kept Y. Two facts are
certain and do not depend on which keys were kept: every Y_k <= M, and the sum of Y_k^2 <= Q.

The two steps are those of `sampled_keys`. There the groups of keys are known, and each has a bound;
here one bound is that of every key, however many there are. The variance of J' is (1-p)/p * the sum
of Y_k^2. Y_k/p - Y_k is at most M(1-p)/p above its mean and at most M below it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from synopses.intervals.interval import Intervals
from synopses.intervals.key_totals.sampled_keys import (
    END_SHARE,
    VARIANCE_SHARE,
    deviation_max,
    mean_max,
)
from synopses.model.parameters import error_share


@dataclass(frozen=True, slots=True)
class CertainRange:
    """What is known of the values of all keys for certain, whichever keys are sampled.

    value_max: M, of one key. squares_max: Q, of the sum of squares. total_max: of the sum.
    All finite, >= 0.
    """

    value_max: float
    squares_max: float
    total_max: float


def bounded_key_total(
    kept: NDArray[np.float64], share: float, known: CertainRange, *, confidence: float
) -> Intervals:
    """The total over all keys, one interval.

    Args:
      kept: values of the sampled keys, finite, 0 <= value <= known.value_max.
      share: p, probability with which a key is sampled, in (0, 1].
      known: of all keys.
      confidence: in (0, 1).
    """
    error = error_share(confidence)
    total = float(kept.sum())
    if share >= 1.0 or known.value_max <= 0.0:
        exact = np.array([total])
        return Intervals.of(exact, exact, exact, exact=True)
    value = total / share
    most = known.value_max
    odds = (1.0 - share) / share
    squares = float(np.square(kept / most).sum())
    mean = mean_max(squares, math.log(1.0 / (VARIANCE_SHARE * error)))
    variance = odds * min(known.squares_max, most * most * mean / share)
    weight = math.log(1.0 / (END_SHARE * error))
    low = max(total, value - deviation_max(variance, most * odds, weight))
    high = min(known.total_max, value + deviation_max(variance, most, weight))
    ends = np.array([low]), np.array([max(high, low)])
    return Intervals.of(np.array([value]), *ends)
