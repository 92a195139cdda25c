"""Verdicts: one value of an answer beside the truth, and whether its interval held."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from fractions import Fraction
from typing import Any

from shedder.cql.expressions.expression import JOINS, OF_PAIRS, AggregateFunction
from shedder.cql.statements.statement import Target, TargetKind
from synopses.frequent.heavy_share import Promise

_EPOCH = datetime(1970, 1, 1)
_ULP = 2.0**-53

# Spark and the engine both compute variances stably, but not in the same order.
_VARIANCE_SLACK = 1e-9
# Where the mean is much larger than the spread, the data's own rounding shows in the variance: its
# relative error is some roundings times the condition number, mean / spread (Chan, Golub and
# LeVeque, "Algorithms for computing the sample variance", 1983).
_CONDITIONED = 8 * 2.0**-53
# Numbers of pairs are whole, and exact below 2^53; beyond, doubles are added in any order.
_PAIRS_SLACK = 1e-12


@dataclass(frozen=True, slots=True)
class Claim:
    """What an answer says of one value.

    value, low, high: as Arrow gives them to Python; low or high None: open on that side.
    bound: 'exact', 'interval' or 'none'. met: what the answer says of its target; None without.
    """

    value: Any
    low: Any
    high: Any
    bound: str
    met: bool | None


@dataclass(frozen=True, slots=True)
class Ranks:
    """Where a claimed quantile lies among the group's n values, by exact counts.

    below_low: values < low. to_high: values <= high. below, upto: values < and <= the claimed one.
    """

    n: int
    below_low: int
    to_high: int
    below: int
    upto: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """One claimed value, judged.

    held: the truth is in the interval (within rounding, for sums of floats).
    error: |value - truth| as a share of |truth|; of the ranks for quantiles. None: not defined, or
      not finite.
    half_width: of the interval, as a share of |truth| (of |value| for quantiles); None: none.
    place: (truth - value) as a share of the half width on that side; in [-1, 1] when held.
    attained: whether the error is within the target; None without a target or with an unknown.
    truth: the exact value; for a quantile its rank error's text.
    """

    claim: Claim
    truth: Any
    held: bool
    error: float | None
    half_width: float | None
    place: float | None
    attained: bool | None


def judge_value(
    function: AggregateFunction,
    claim: Claim,
    truth: Any,
    target: Target | None,
    absolute_sum: float = 0.0,
    rows: int = 0,
) -> Verdict:
    """Judge a claimed value by the exact one.

    Args:
      function: what was aggregated; sums and means of floats are given rounding room.
      claim: what the answer says.
      truth: the exact value, or None for NULL.
      target: the query's.
      absolute_sum: sum of |x| over the rows, for the rounding of SUM and AVG; for that of functions
        of pairs the largest that they could be.
      rows: how many there are.
    """
    unread = claim.value is None and claim.bound == "interval"
    if (
        truth is None
        or not isinstance(number(truth), float)
        or (claim.value is None and not unread)
    ):
        return _judge_plain(claim, truth)
    true = _float(truth)
    slack = _rounding(function, true, absolute_sum, rows)
    low = -math.inf if claim.low is None else _float(claim.low)
    high = math.inf if claim.high is None else _float(claim.high)
    if unread:
        held = low - slack <= true <= high + slack
        return Verdict(claim, truth, held, None, None, None, None)
    value = _float(claim.value)
    if claim.bound == "exact":
        low = high = value
    held = low - slack <= true <= high + slack
    error = 0.0 if true == value else abs(value - true)
    return Verdict(
        claim,
        truth,
        held,
        _share(error, true),
        _share(_half_width(value, low, high), true) if true else None,
        _place(value, low, high, true) if held or error > slack else 0.0,
        _attained(target, error, value, slack),
    )


def _held_by(ranks: Ranks) -> str:
    """The ranks of the values that equal a claimed one, as text."""
    first, last = ranks.below + 1, ranks.upto
    if first > last:
        return f"none, between {last:,} and {first:,}"
    return f"{first:,}" if first == last else f"{first:,}–{last:,}"


def judge_quantile(claim: Claim, q: float, ranks: Ranks, target: Target | None) -> Verdict:
    """Judge a claimed discrete quantile: the value of rank max(1, ceil(q n)) by ascending order.

    It lies in [low, high] exactly when fewer than that many values are below low and at least that
    many are not above high, so counting suffices; nothing is sorted.
    """
    if claim.value is None and ranks.n and claim.bound == "interval":
        held = _between_ranks(q, ranks)
        return Verdict(claim, f"one of {ranks.n} values", held, None, None, None, None)
    if ranks.n == 0 or claim.value is None:
        return _judge_plain(claim, None if ranks.n == 0 else f"one of {ranks.n} values")
    rank = max(1, math.ceil(Fraction(repr(q)) * ranks.n))
    held = _between_ranks(q, ranks)
    off = max(ranks.below + 1 - rank, rank - ranks.upto, 0)
    value, low, high = _float(claim.value), claim.low, claim.high
    width = None
    if low is not None and high is not None:
        width = _half_width(value, _float(low), _float(high))
    attained = None
    if target is not None and target.kind is TargetKind.RANK:
        attained = off / ranks.n <= target.size
    elif target is not None and claim.met:
        attained = held  # The interval is within the target around the value, and so is the truth.
    return Verdict(
        claim,
        f"rank {rank:,} of {ranks.n:,}; claimed value has {_held_by(ranks)}",
        held,
        off / ranks.n,
        _share(width, value) if width is not None and value else None,
        None,
        attained,
    )


def _between_ranks(q: float, ranks: Ranks) -> bool:
    """Return whether the quantile lies within the claim; q as written: 0.07 of 100 is 7."""
    rank = max(1, math.ceil(Fraction(repr(q)) * ranks.n))
    return ranks.below_low < rank <= ranks.to_high


def judge_items(
    claim: Claim, true_counts: Mapping[Any, int], target: Target | None
) -> list[Verdict]:
    """Judge a list of TOP or FREQUENT: one verdict per item, by the exact count of its value."""
    verdicts = []
    for item in claim.value or []:
        certain = claim.bound == "exact" or item["low"] == item["high"]
        bound = claim.bound if claim.bound == "none" else ("exact" if certain else "interval")
        one = Claim(item["count"], item["low"], item["high"], bound, claim.met)
        truth = true_counts.get(item["value"], 0)
        verdicts.append(judge_value(AggregateFunction.COUNT, one, truth, target))
    return verdicts


def judge_listed(claim: Claim, counts: Mapping[Any, int], *, complete: bool) -> list[Verdict]:
    """Judge a list by the exact list, which has the largest counts: one verdict per item.

    Args:
      claim: a list of TOP or FREQUENT.
      counts: of the values of the exact list.
      complete: whether it has every value; else another one occurs at most as often as the last.
    """
    verdicts: list[Verdict] = []
    for item in claim.value or []:
        if complete or item["value"] in counts:
            verdicts += judge_items(replace(claim, value=[item]), counts, None)
        elif counts:  # Else nothing is known of it.
            most = min(counts.values())
            bound = "none" if claim.bound == "none" else "interval"
            one = Claim(item["count"], item["low"], None, bound, claim.met)
            held = bound == "none" or item["low"] <= most
            verdicts.append(Verdict(one, f"at most {most:,}", held, None, None, None, None))
    return verdicts


def judge_top(claim: Claim, true_counts: Mapping[Any, int], outside: int, most: int) -> Verdict:
    """Judge which values a list of TOP has: one verdict, by the most frequent that it lacks.

    Args:
      claim: the list. true_counts: of its values.
      outside: how often the most frequent value is there that is not listed; 0: there is none.
      most: so many values were asked for.
    """
    items = claim.value or []
    sure = [item["value"] for item in items if claim.bound == "exact" or item["guaranteed"]]
    held = all(true_counts.get(value, 0) >= outside for value in sure)
    held &= claim.bound != "exact" or len(items) >= most or not outside
    held |= claim.bound == "none"
    truth = f"what is not listed is there {outside:,} times at most"
    return Verdict(claim, truth, held, None, None, None, None)


def judge_promise(claim: Claim, frequent: Collection[Any], promise: Promise) -> Verdict:
    """Judge which values a list of FREQUENT has: one verdict, by those that are frequent."""
    listed = [item["value"] for item in claim.value or []]
    sure = [item["value"] for item in claim.value or [] if item["guaranteed"]]
    there = set(frequent)
    held = there.issuperset(listed if promise is Promise.NO_FALSE_POSITIVES else sure)
    held &= promise is Promise.NO_FALSE_POSITIVES or there.issubset(listed)
    held &= claim.bound != "exact" or there == set(listed)
    held |= claim.bound == "none"
    return Verdict(claim, f"{len(there):,} frequent values", held, None, None, None, None)


def number(value: Any) -> Any:
    """Numbers, truth values, times and dates as float; everything else as it is."""
    match value:
        case bool() | int() | float():
            return float(value)
        case datetime():
            return (value.replace(tzinfo=None) - _EPOCH).total_seconds() * 1e6
        case date():
            return float((value - _EPOCH.date()).days)
        case _:
            return value


def _judge_plain(claim: Claim, truth: Any) -> Verdict:
    """NULL on either side, or values that have an order and no distance."""
    if truth is None or claim.value is None:
        held = (truth is None and claim.value is None) or claim.bound == "none"
        if not held and claim.value is None and claim.bound == "interval":
            held = _between(claim, truth)
    elif claim.bound == "exact":
        held = bool(claim.value == truth)
    else:
        held = claim.bound == "none" or _between(claim, truth)
    return Verdict(claim, truth, held, None, None, None, None)


def _between(claim: Claim, truth: Any) -> bool:
    """Return whether the truth is between the ends; text is ordered by its UTF-8 bytes."""
    low, high, true = (_key(part) for part in (claim.low, claim.high, truth))
    return (low is None or low <= true) and (high is None or true <= high)


def _key(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else number(value)


def _float(value: Any) -> float:
    return float(number(value))


def _rounding(function: AggregateFunction, truth: float, absolute_sum: float, rows: int) -> float:
    """Return how far two exact computations in floating point may lie apart (Higham 2002, §4.2)."""
    if not math.isfinite(absolute_sum):
        return 0.0
    match function:
        case AggregateFunction.SUM:
            return rows * _ULP * absolute_sum
        case AggregateFunction.AVG:
            return _ULP * absolute_sum + 2 * _ULP * abs(truth)
        case AggregateFunction.VAR:  # Here `absolute_sum` is the mean.
            return max(_VARIANCE_SLACK * truth, _CONDITIONED * absolute_sum * math.sqrt(truth))
        case AggregateFunction.STDDEV:
            return max(_VARIANCE_SLACK * truth, _CONDITIONED * absolute_sum)
        case function if function in OF_PAIRS:
            return _VARIANCE_SLACK * absolute_sum
        case function if function in JOINS:
            return _PAIRS_SLACK * abs(truth)
        case _:
            return 0.0


def _half_width(value: float, low: float, high: float) -> float:
    return max(high - value, value - low)


def _share(part: float, whole: float) -> float | None:
    """Part of |whole|; None where that is no finite number: of what is infinite, or next to 0."""
    share = part / abs(whole) if whole else (math.inf if part else 0.0)
    return share if math.isfinite(share) else None


def _place(value: float, low: float, high: float, truth: float) -> float | None:
    side = high - value if truth > value else value - low
    if truth == value:
        return 0.0
    if not math.isfinite(side):
        return None
    return (truth - value) / side if side > 0 else math.copysign(math.inf, truth - value)


def _attained(target: Target | None, error: float, value: float, slack: float) -> bool | None:
    match target:
        case None:
            return None
        case Target(kind=TargetKind.RELATIVE, size=size):
            return error <= size * abs(value) + slack
        case Target(kind=TargetKind.ABSOLUTE, size=size):
            return error <= size + slack
        case _:
            return None
