"""Observed error: the widths of answers by synopsis, beside the predicted ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from shedder.cql.expressions.expression import AggregateFunction
from shedder.cql.statements.bound_query import BoundQuery
from shedder.cql.statements.statement import Contract
from shedder.engine.synopsis_plans.error_curves import SIZED, curve_of, fixed_error
from shedder.engine.synopsis_plans.synopsis_plan import ENDS_IN_TIME, SynopsisKind, SynopsisPlan
from shedder.engine.synopsis_plans.thinning_error import beside, skipping_error
from shedder.queries.evidence.confidence_budget import EXACT_IN_PANES, split_confidence
from shedder.queries.evidence.evidence import Evidence
from synopses.model.estimate import Bound, Estimates

GROUPS_MAX = 1_000  # Groups that are looked at in one answer.
_TRUST = 0.5  # What the newest measurement counts in the factor, on a logarithmic scale,
_NOISE = 1.5  # unless it is so many times the factor, or it so many times it: then it is believed.
_LEAST, _MOST = 0.5, 16.0  # Factors: fewer values than a summary has room for say little of others.
_SKIPPING_LEAST, _SKIPPING_MOST = 1 / 16, 1024.0  # Of a column of few values, as many are skipped.
_HIDING = 1.1  # Times what the size errs by: what skipping adds to less cannot be told from none.
_ENDS = (AggregateFunction.MIN, AggregateFunction.MAX)  # Their intervals say nothing of sums.


@dataclass(slots=True)
class Measured:
    """What a query's answers were measured to err by. Used by the apply thread.

    errors: of each part, the half width of the newest answer that was looked at, in the unit of the
    part's curve; nan: none was, or it has none.
    factors: of each part, measured by predicted error, smoothed; 1 before anything was measured.
    skipping: the same of what skipped tuples cost.
    wanted: whether the next answer is to be looked at.

    Factors are learned from windows with values that were read whole: what skipped tuples, late
    ones and groups without room widen an interval by says nothing of sizes. What skipping costs is
    learned from those that were read at one level.
    """

    parts: int
    errors: list[float] = field(init=False)
    factors: list[float] = field(init=False)
    skipping: list[float] = field(init=False)
    wanted: bool = True

    def want(self) -> None:
        """Have the next answer looked at."""
        self.wanted = True

    _levels: list[int | None] = field(init=False)  # That the newest answer was read at; None: none.

    def __post_init__(self) -> None:
        self.errors = [np.nan] * self.parts
        self.factors = [1.0] * self.parts
        self.skipping = [1.0] * self.parts
        self._levels = [None] * self.parts

    def look(self, query: BoundQuery, plan: SynopsisPlan, evidence: Evidence) -> None:
        """Measure an answer's intervals: of each part the widest aggregate that it answers.

        evidence: of the rows that the answer shows, with the intervals that it shows.
        """
        self.errors = [np.nan] * self.parts
        self._levels = self._levels_of(query, plan, evidence)
        for aggregate, part in zip(query.aggregates, plan.answers, strict=True):
            if (
                plan.parts[part].kind is SynopsisKind.FREQUENT
            ):  # Each item has an interval of its own.
                shares = evidence.share_errors.get(aggregate)
                error = np.nan if shares is None else _median(shares)
            else:
                ranks = evidence.rank_errors.get(aggregate)
                error = half_width(evidence.estimates[aggregate], ranks)
            self.errors[part] = float(np.fmax(self.errors[part], error))
        sized = any(part.kind in SIZED for part in plan.parts)
        self.wanted = sized and not np.isfinite(self.errors).any()  # There was no window yet.

    def _levels_of(
        self, query: BoundQuery, plan: SynopsisPlan, evidence: Evidence
    ) -> list[int | None]:
        """The level of each part that says something of its error: 0 of what was read whole."""
        found: list[int | None] = [None] * self.parts
        if evidence.late or evidence.others is not None:
            return found
        if evidence.thinning == 1.0:
            return [0] * self.parts
        levels, mixed = evidence.levels(), set[int]()
        for aggregate, part in zip(query.aggregates, plan.answers, strict=True):
            found[part] = levels.get(aggregate)
            if aggregate.function in _ENDS:
                mixed.add(part)
        return [None if part in mixed else level for part, level in enumerate(found)]

    def correct(
        self, query: BoundQuery, plan: SynopsisPlan, sizes: Sequence[int], tuples: float
    ) -> None:
        """Learn the factors from the newest errors, once.

        A promise is never planned with less than its curve says.

        Args:
          query, plan: of the errors.
          sizes: of the coarsest live pane, by part.
          tuples: of a group in a window; 0: not known.
        """
        levels, self._levels = self._levels, [None] * self.parts
        if all(level is None for level in levels):
            return
        promised = query.contract is Contract.FAIL
        skipping = skipping_predictions(query, plan, tuples) if tuples else {}
        for part, predicted in enumerate(predictions(query, plan, sizes)):
            measured, level, kind = self.errors[part], levels[part], plan.parts[part].kind
            if level is None or not np.isfinite(measured):
                continue
            if not level:
                if predicted > 0 and kind in SIZED:
                    ratio = min(max(measured / predicted, 1.0 if promised else _LEAST), _MOST)
                    self.factors[part] = _learned(self.factors[part], ratio)
            elif part in skipping and 0 < skipping[part][level] < 1:
                own = self.factors[part] * predicted if kind in SIZED else fixed_error(kind)
                beyond = beside(kind, max(measured, own * _HIDING), own)
                ratio = beyond / float(skipping[part][level])
                if measured <= own * _HIDING:
                    ratio = min(ratio, self.skipping[part])
                ratio = min(max(ratio, 1.0 if promised else _SKIPPING_LEAST), _SKIPPING_MOST)
                self.skipping[part] = _learned(self.skipping[part], ratio)


def _learned(factor: float, ratio: float) -> float:
    """A factor after one more ratio: a stream that has become another one is followed at once."""
    if max(ratio / factor, factor / ratio) > _NOISE:
        return ratio
    return float(factor ** (1 - _TRUST) * ratio**_TRUST)


def half_width(column: Estimates, ranks: NDArray[np.float64] | None) -> float:
    """The median over groups of an answer's error; nan where no group has one.

    By rank, what the sketch says of those that have values; else the larger half of the interval,
    relative to the value.
    """
    if ranks is not None:
        return _median(np.where(column.null, np.nan, ranks))  # Of no values, all ranks are known.
    if column.value.dtype.kind in "OB":  # Texts, lists, truth values.
        return np.nan
    some = slice(0, GROUPS_MAX)
    value, low, high = (
        np.asarray(ends[some], np.float64) for ends in (column.value, column.low, column.high)
    )
    known = (column.bound[some] != Bound.NONE) & ~column.null[some] & (value != 0)
    known &= np.isfinite(low) & np.isfinite(high)
    if not known.any():
        return np.nan
    value, low, high = value[known], low[known], high[known]
    exact = column.bound[some][known] == Bound.EXACT
    errors = np.where(exact, 0.0, np.maximum(high - value, value - low) / np.abs(value))
    return float(np.median(errors))


def _median(errors: NDArray[np.float64]) -> float:
    found = errors[:GROUPS_MAX]
    found = found[~np.isnan(found)]
    return float(np.median(found)) if found.size else np.nan


def skipping_predictions(
    query: BoundQuery, plan: SynopsisPlan, tuples: float
) -> dict[int, NDArray[np.float64]]:
    """What skipping is predicted to cost parts at each level, uncorrected.

    Parts of which that is measured; tuples: of a group in a window, > 0.
    """
    confidences = split_confidence(query, EXACT_IN_PANES)
    found = dict[int, NDArray[np.float64]]()
    for aggregate, part in zip(query.aggregates, plan.answers, strict=True):
        kind = plan.parts[part].kind
        if part not in found and kind not in (*ENDS_IN_TIME, SynopsisKind.EXTREMES):
            confidence, grouped = confidences[aggregate], bool(query.groups)
            found[part] = skipping_error(kind, tuples, confidence, grouped=grouped)
    return found


def predictions(query: BoundQuery, plan: SynopsisPlan, sizes: Sequence[int]) -> list[float]:
    """What each part's answers are predicted to err by, uncorrected; 0 for what is exact."""
    confidences = split_confidence(query, EXACT_IN_PANES)
    found = [0.0] * len(plan.parts)
    for aggregate, part in zip(query.aggregates, plan.answers, strict=True):
        if plan.parts[part].kind in SIZED:
            curve = curve_of(query, aggregate, confidences[aggregate])
            found[part] = max(found[part], curve.error(sizes[part]))
    return found
