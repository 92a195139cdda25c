"""Totals over keys of a nested sample: a distribution-free interval.

The value of a key has one part for each class of pairs, and class l is read at level L_l, that is
with probability p_l = 2^-L_l. A key is drawn once: if class l of a key is known, so are all classes
of lower levels. Keys are drawn independently of each other. With Y_kl, the part of key k in class
l, J' = the sum of Y_kl / p_l over what is known has the mean J, the sum of all Y_kl. Keys lie in
groups. For certain, the positive parts of class l of a group sum to at most U_l, and the negative
ones to at most D_l in absolute value. Groups do not depend on which keys were drawn.

Step 1, the variance of J'. With odds o_l = 1/p_l - 1 and G_kl, the sum of Y_km over the classes
m >= l, the variance is the sum over k and l of (o_l - o_(l-1)) G_kl^2: two classes of one key
covary by 1/max(p_l, p_m) - 1. It is at most what the U_l and D_l of all groups allow, for certain.
It is also the mean of a sum T of independent terms, one for each key, that lie in [0, T_max]. So
P(T is so small) <= exp(-h(T/T_max, V/T_max)), where h(s, mu) = s ln(s/mu) - s + mu (Chernoff;
Boucheron, Lugosi and Massart 2013, Concentration Inequalities, section 2.2). The largest V with
h <= ln(1/d1) is exceeded with probability d1 at most.

Step 2, both ends. A key deviates from its mean by R at most. Bennett's inequality (the same book,
theorem 2.9) gives P(J' - J >= t) <= exp(-V/R^2 g(R t/V)) with g(x) = (1+x) ln(1+x) - x. V is not
random, so the ends need no independence of step 1: the union bound adds d1 + d2 + d3.

Source of the two steps: Estan and Naughton 2006 (ICDE) and Huang et al. 2019 (PVLDB 13(4)) sample
joins by key; their intervals are normal, which fails for skewed keys (docs/answers.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from synopses.intervals.interval import Intervals
from synopses.model.parameters import error_share

Floats = NDArray[np.float64]

VARIANCE_SHARE, END_SHARE = 0.2, 0.4  # Of the error probability: of step 1, and of each end.
_STEPS = 64  # Of a bisection; each halves the relative error.


@dataclass(frozen=True, slots=True, eq=False)
class SampledParts:
    """What is known of the keys.

    parts: float64 [classes, keys], finite; a part that is not known counts for nothing.
    known: int64 [keys], how many classes of a key are known: the first ones.
    levels: int64 [classes], ascending.
    """

    parts: Floats
    known: NDArray[np.int64]
    levels: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class CertainParts:
    """What is certain of all keys: U and D of each class and group, whichever keys are drawn.

    up, down: float64 [classes, groups], finite, >= 0.
    """

    up: Floats
    down: Floats


def sampled_key_total(
    sample: SampledParts, certain: CertainParts, *, confidence: float
) -> Intervals:
    """The total over all keys, one interval; EXACT where no key was left out.

    Args:
      sample: the keys of which some class is known, once each.
      certain: of all keys. confidence: in (0, 1).
    """
    shares = np.exp2(-sample.levels.astype(np.float64))
    odds = 1.0 / shares - 1.0
    is_known = np.arange(len(shares))[:, None] < sample.known
    parts = np.where(is_known, sample.parts, 0.0)
    seen = parts.sum(axis=1)
    total = float(seen.sum())
    is_drawn = odds > 0.0
    up, down = certain.up[is_drawn], certain.down[is_drawn]
    if not (up.any() or down.any()):
        exact = np.array([total])
        return Intervals.of(exact, exact, exact, exact=True)
    error = error_share(confidence)
    value = float((seen / shares).sum())
    weight = math.log(1.0 / (VARIANCE_SHARE * error))
    drawn = SampledParts(
        parts[is_drawn], sample.known - np.count_nonzero(~is_drawn), sample.levels[is_drawn]
    )
    unit = float(max(up.max(), down.max()))  # Squares of parts of it are doubles.
    up, down = up / unit, down / unit
    drawn = replace(drawn, parts=drawn.parts / unit)
    variance = _variance_max(drawn, CertainParts(up, down), odds[is_drawn], weight)
    above, below = _reach(odds[is_drawn], up, down), _reach(odds[is_drawn], down, up)
    weight = math.log(1.0 / (END_SHARE * error))
    reach = deviation_max(variance, above, weight), deviation_max(variance, below, weight)
    low = max(value - unit * reach[0], total - unit * float(down.sum()))
    high = min(value + unit * reach[1], total + unit * float(up.sum()))
    low = max(low, -float(certain.down.sum()))
    high = max(min(high, float(certain.up.sum())), low)
    return Intervals.of(np.array([value]), np.array([low]), np.array([high]))


def _reach(odds: Floats, up: Floats, down: Floats) -> float:
    """Return how far the estimate of a key can be above its value.

    The first classes of the key are known, and each adds its odds; the others add what is missing.
    """
    zero = np.zeros((1, up.shape[1]))
    known = np.concatenate([zero, cumulative(odds[:, None] * up)])
    missing = np.concatenate([_tails(down), zero])
    return float((known + missing).max())


def _tails(parts: Floats) -> Floats:
    """Return the sums over each class and all classes behind it."""
    return cumulative(parts[::-1].copy())[::-1]


def cumulative(parts: Floats) -> Floats:
    """Add to each class all classes before it, and return the parts.

    There are few classes, and many parts of each: numpy adds these faster than by `cumsum`.
    """
    for number in range(1, len(parts)):
        parts[number] += parts[number - 1]
    return parts


def _variance_max(
    sample: SampledParts, certain: CertainParts, odds: Floats, weight: float
) -> float:
    """Return what the variance exceeds with probability exp(-weight) at most."""
    steps = np.diff(odds, prepend=0.0)
    ends = np.square(_tails(certain.up)), np.square(_tails(certain.down))
    squares_max = float(steps @ (ends[0] + ends[1]).sum(axis=1))
    if certain.down.any():
        is_whole = sample.known == len(odds)
        deepest = odds[-1] + 1.0
        terms = deepest * (steps @ np.square(_tails(sample.parts[:, is_whole])))
        term_max = float(deepest * (steps @ np.maximum(*ends)).max())
    else:
        terms = _weighted(sample.parts, odds)
        term_max = float(_weighted(certain.up, odds).max())
    if term_max <= 0.0:
        return 0.0
    mean = mean_max(float((terms / term_max).sum()), weight)
    return min(squares_max, term_max * mean)


def _weighted(parts: Floats, odds: Floats) -> Floats:
    """Return for each key its known terms of the variance, each over its probability.

    The product of two classes is known where the deeper one is. parts: not negative.
    """
    own = odds[:, None] * parts
    before = cumulative(own.copy()) - own
    terms = np.square(parts) * odds[:, None] + 2.0 * parts * before
    weighted: Floats = (odds + 1.0) @ terms
    return weighted


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


def mean_max(seen: float, weight: float) -> float:
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
