"""Totals over keys of which each is sampled with one probability: a distribution-free interval.

Let Y_k >= 0 be the value of key k and J the sum of all. Each key is kept with probability p,
independently of the others, with its whole value: J' = (1/p) * the sum of the kept Y. Two facts are
certain and do not depend on which keys were kept: every Y_k <= M, and the sum of Y_k^2 <= Q.

Step 1, the variance of J', (1-p)/p * the sum of Y_k^2. It is at most (1-p)/p * Q for certain. The
kept (Y_k/M)^2 are independent and in [0, 1]. So their sum s has mean mu with
P(s is so small) <= exp(-h(s, mu)), where h(s, mu) = s ln(s/mu) - s + mu (Chernoff; Boucheron,
Lugosi and Massart 2013, Concentration Inequalities, section 2.2). The largest mu with
h <= ln(1/d1) gives the sum of Y_k^2 <= M^2 mu / p, except with probability d1.

Step 2, both ends. Y_k/p - Y_k is at most M(1-p)/p above its mean and at most M below it. Bennett's
inequality (the same book, theorem 2.9) gives P(J' - J >= t) <= exp(-V/R^2 g(R t/V)) with
g(x) = (1+x) ln(1+x) - x, for R = M(1-p)/p above and R = M below. V is not random, so the ends need
no independence of step 1: the union bound adds d1 + d2 + d3.

Source of the two steps: Estan and Naughton 2006 (ICDE) and Huang et al. 2019 (PVLDB 13(4)) sample
joins by key; their intervals are normal, which fails for skewed keys (docs/answers.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from synopses.intervals.interval import Intervals
from synopses.model.parameters import error_share

_VARIANCE_SHARE, _END_SHARE = 0.2, 0.4  # Of the error probability: of step 1, and of each end.
_STEPS = 64  # Of a bisection; each halves the relative error.


@dataclass(frozen=True, slots=True)
class CertainRange:
    """What is known of the values of all keys for certain, whichever keys are sampled.

    value_max: M, of one key. squares_max: Q, of the sum of squares. total_max: of the sum.
    All finite, >= 0.
    """

    value_max: float
    squares_max: float
    total_max: float


def sampled_key_total(
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
    mean = _mean_max(squares, math.log(1.0 / (_VARIANCE_SHARE * error)))
    variance = odds * min(known.squares_max, most * most * mean / share)
    weight = math.log(1.0 / (_END_SHARE * error))
    low = max(total, value - deviation_max(variance, most * odds, weight))
    high = min(known.total_max, value + deviation_max(variance, most, weight))
    ends = np.array([low]), np.array([max(high, low)])
    return Intervals.of(np.array([value]), *ends)


def deviation_max(variance: float, range_max: float, weight: float) -> float:
    """Return t with V/R^2 g(R t/V) = weight, Bennett's bound for a probability exp(-weight).

    variance: V >= 0, of a sum of independent terms. range_max: R > 0, of each above its mean.
    """
    if variance <= 0.0:
        return 0.0
    wanted = weight * range_max * range_max / variance
    # Bernstein's bound is above Bennett's, and g grows with x.
    low, high = 0.0, wanted / 3.0 + math.sqrt(wanted * wanted / 9.0 + 2.0 * wanted)
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        if (1.0 + middle) * math.log1p(middle) - middle < wanted:
            low = middle
        else:
            high = middle
    return high * variance / range_max


def _mean_max(seen: float, weight: float) -> float:
    """Return the largest mean with which a sum of variables in [0, 1] is as small as seen.

    The probability of that is at most exp(-weight).
    """
    if seen <= 0.0:
        return weight
    # For mu = seen + d, h >= d^2 / (2 mu), so d <= weight + sqrt(weight^2 + 2 weight seen).
    low, high = seen, seen + weight + math.sqrt(weight * weight + 2.0 * weight * seen)
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        if seen * math.log(seen / middle) - seen + middle < weight:
            low = middle
        else:
            high = middle
    return high
