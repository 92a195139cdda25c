"""COUNT, SUM and AVG over an equi-join of windows, by a label of the keys, from their panes.

A label is a value of the rows of one window, such as the region of a client. It is known of each
key that a pane of this window holds. Let Y_k be the pairs of key k whose row of this window has the
label g. If all known keys have one label each, Y_k is known of every sampled key: the pairs of the
key, or none. So the total of a label has the interval of a join's total (join_totals.py), with the
same bounds of unknown keys. Only a heavy key is bounded better. Its rows in panes of this window
where it is heavy all have its label. So another label has at most the rows of other panes.

Labels that no known key has are not known. Their pairs are in one further total: the pairs of all
keys, without the known pairs of the labels that are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from synopses.intervals.interval import Intervals
from synopses.intervals.key_totals.sampled_keys import CertainParts
from synopses.joins.join_totals import JoinTotals
from synopses.joins.joined_windows import ROUNDING, JoinedWindows, TermTotals
from synopses.joins.key_tables import Floats, Longs, Words
from synopses.joins.window_sums import KnownKeys, RowTerm
from synopses.model.estimate import Bound

NONE = -1  # Number of the label of a key that has none.


@dataclass(frozen=True, slots=True, eq=False)
class KeyNumbers:
    """Numbers of the labels of some keys.

    keys: ascending. labels: of each, below `number`, or NONE.
    """

    keys: Words
    labels: Longs
    number: int

    def of(self, keys: Words) -> Longs:
        """Return the numbers of some keys; NONE for keys that are not among these."""
        if not len(self.keys):
            return np.full(len(keys), NONE)
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[at] == keys, self.labels[at], NONE)


@dataclass(slots=True, eq=False)
class _LabelTotals:
    """Totals of the terms of a join, of the keys of one label. kept, heavy: their places.

    whole: totals of a term of all keys, and bounds of the rests of heavy keys of other labels.
    """

    windows: JoinedWindows
    kept: Longs
    heavy: Longs
    whole: Callable[[int, RowTerm], tuple[TermTotals, CertainParts] | None]
    keys: KnownKeys = field(init=False)

    def __post_init__(self) -> None:
        self.keys = self.windows.keys.at(self.kept)

    def totals(self, window: int, term: RowTerm) -> TermTotals | None:
        """As `JoinedWindows.totals`."""
        found = self.whole(window, term)
        if found is None:
            return None
        totals, others = found
        rests = totals.rests
        if not self.keys.all_known:
            up, down = others.up.copy(), others.down.copy()
            up[:, self.heavy], down[:, self.heavy] = (
                each[:, self.heavy] for each in (rests.up, rests.down)
            )
            rests = CertainParts(up, down)
        return replace(
            totals,
            heavy=totals.heavy[self.heavy],
            parts=totals.parts[:, self.kept],
            rests=rests,
            gross_heavy=totals.gross_heavy[self.heavy],
            gross_kept=totals.gross_kept[self.kept],
        )


@dataclass(slots=True, eq=False)
class JoinLabels:
    """Aggregates of each label that is shown, and then of the other pairs if there may be any.

    window: whose rows have the labels. numbers: of the labels of all keys that are known.
    labels_max: labels that are shown: those with the most known pairs.
    totals: over all keys.
    labels: numbers of the labels that are shown.
    has_others: a further row stands for the other pairs.
    """

    windows: JoinedWindows
    window: int
    numbers: KeyNumbers
    labels_max: int
    totals: JoinTotals = field(init=False)
    labels: Longs = field(init=False)
    has_others: bool = field(init=False)
    _of_labels: list[JoinTotals] = field(init=False)
    _others: JoinTotals | None = field(init=False)  # Of the other pairs, if all keys are known.
    _numbers: tuple[Longs, Longs] = field(init=False)  # Shown labels of kept and heavy keys.
    _wholes: dict[tuple[int, RowTerm], tuple[TermTotals, CertainParts] | None] = field(
        init=False, repr=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        none = np.empty(0, np.int64)
        self.totals, self.has_others, self._others = JoinTotals(self.windows), False, None
        self.labels, self._of_labels, self._numbers = none, [], (none, none)
        if self.windows.is_empty:
            return
        keys = self.windows.keys
        kept, heavy = (self.numbers.of(each) for each in (keys.kept, keys.heavy))
        pairs = self._known(RowTerm(), 0, kept, heavy)
        if pairs is None:
            raise OverflowError("sums of pairs beyond doubles")
        by_label, hidden = pairs
        most = np.argsort(-by_label, kind="stable")[: self.labels_max]
        self.labels = np.sort(most[by_label[most] > 0.0])
        is_shown = np.isin(np.arange(self.numbers.number), self.labels)
        hidden += float(by_label[~is_shown].sum())
        self.has_others = not keys.all_known or hidden > 0.0
        shown = np.append(np.where(is_shown, np.arange(self.numbers.number), NONE), NONE)
        self._numbers = shown[kept], shown[heavy]
        places = [_places(each, self.labels) for each in self._numbers]
        self._of_labels = [self._of(*each) for each in zip(*places, strict=True)]
        if keys.all_known and self.has_others:
            self._others = self._of(*(np.flatnonzero(each == NONE) for each in self._numbers))

    def pairs(self, *, confidence: float) -> Intervals:
        """COUNT(*) of each label and of the other pairs, as `JoinTotals.pairs`."""

        def of_keys(totals: JoinTotals) -> Intervals:
            return totals.pairs(confidence=confidence)

        return self._counted(RowTerm(), 0, of_keys)

    def present(self, window: int, expression: int, *, confidence: float) -> Intervals:
        """COUNT of an expression of one window, as `pairs`."""

        def of_keys(totals: JoinTotals) -> Intervals:
            return totals.present(window, expression, confidence=confidence)

        return self._counted(RowTerm(expression, is_present=True), window, of_keys)

    def sum(self, window: int, expression: int, *, confidence: float) -> Intervals:
        """SUM of an expression of one window, as `JoinTotals.sum`."""
        found = [each.sum(window, expression, confidence=confidence) for each in self._of_labels]
        if self._others is not None:
            found.append(self._others.sum(window, expression, confidence=confidence))
        elif self.has_others:
            total = self.totals.sum(window, expression, confidence=confidence)
            pairs = _last(self.present(window, expression, confidence=confidence))
            ends = self.windows.ends(window, expression)
            low = min(ends[0] * float(pairs.low[0]), ends[0] * float(pairs.high[0]))
            high = max(ends[1] * float(pairs.low[0]), ends[1] * float(pairs.high[0]))
            found.append(_between(_rest(total, found), low, high, total, pairs))
        return _joined(found)

    def average(self, window: int, expression: int, *, confidence: float) -> Intervals:
        """AVG of an expression of one window, as `JoinTotals.average`."""
        found = [
            each.average(window, expression, confidence=confidence) for each in self._of_labels
        ]
        if self._others is not None:
            found.append(self._others.average(window, expression, confidence=confidence))
        elif self.has_others:
            total = _last(self.sum(window, expression, confidence=confidence))
            pairs = _last(self.present(window, expression, confidence=confidence))
            value = _number(total.value) / max(float(pairs.value[0]), 1.0)
            found.append(_between(value, *self.windows.ends(window, expression), total, pairs))
        return _joined(found)

    def _counted(
        self, term: RowTerm, window: int, of_keys: Callable[[JoinTotals], Intervals]
    ) -> Intervals:
        found = [of_keys(each) for each in self._of_labels]
        if self._others is not None:
            found.append(of_keys(self._others))
        elif self.has_others:
            found.append(self._other_count(term, window, of_keys(self.totals), found))
        return _joined(found)

    def _other_count(
        self, term: RowTerm, window: int, total: Intervals, shown: Sequence[Intervals]
    ) -> Intervals:
        """Return how many of all pairs have another label. They are not known pairs of a shown one.

        total: of all pairs. shown: of each label.
        """
        known = self._known(term, window, *self._numbers)
        if known is None or self.windows.is_empty:
            return total
        by_label, hidden = known
        high = float(total.high[0]) - float(by_label.sum())
        high = np.ceil(high + ROUNDING * abs(float(total.high[0])))
        low = np.floor(min(hidden, high) * (1.0 - ROUNDING))
        value = np.array([_rest(total, shown)])
        return Intervals.of(value, np.array([low]), np.array([max(high, low)]))

    def _known(
        self, term: RowTerm, window: int, kept: Longs, heavy: Longs
    ) -> tuple[Floats, float] | None:
        """Return what is known of each label, and of NONE; None: a value or a sum is not finite.

        kept, heavy: labels of the keys.
        """
        found = self._whole(window, term)
        if found is None:
            return None
        totals, keys = found[0], self.windows.keys
        is_known = np.arange(len(keys.levels))[:, None] < keys.known
        parts = np.where(is_known, totals.parts, 0.0).sum(axis=0)
        number = self.numbers.number + 1
        sums = np.bincount(kept + 1, parts, number) + np.bincount(heavy + 1, totals.heavy, number)
        by_label: Floats = sums[1:].astype(np.float64)
        return by_label, float(sums[0])

    def _whole(self, window: int, term: RowTerm) -> tuple[TermTotals, CertainParts] | None:
        """Return the totals of a term of all keys, and bounds of heavy keys for another label."""
        if (window, term) not in self._wholes:
            totals = self.windows.totals(window, term)
            found = None
            if totals is not None:
                found = totals, self.windows.rests_elsewhere(window, term, self.window)
            self._wholes[window, term] = found
        return self._wholes[window, term]

    def _of(self, kept: Longs, heavy: Longs) -> JoinTotals:
        """Return the totals of some keys."""
        return JoinTotals(self.windows, _LabelTotals(self.windows, kept, heavy, self._whole))


def _places(labels: Longs, wanted: Longs) -> list[Longs]:
    """Return the places of each of the wanted labels, which ascend."""
    order = np.argsort(labels, kind="stable")
    first = np.searchsorted(labels[order], wanted)
    end = np.searchsorted(labels[order], wanted, "right")
    return [order[slice(*each)] for each in zip(first, end, strict=True)]


def _joined(of: Sequence[Intervals]) -> Intervals:
    """Return intervals one behind the other."""
    names = ("value", "low", "high", "bound", "variance")
    none = Intervals.of(*np.empty((3, 0)))
    columns = (np.concatenate([getattr(each, name) for each in (none, *of)]) for name in names)
    return Intervals(*columns)


def _last(of: Intervals) -> Intervals:
    """Return the last interval alone."""
    return Intervals(of.value[-1:], of.low[-1:], of.high[-1:], of.bound[-1:], of.variance[-1:])


def _number(value: Floats) -> float:
    """Return 0 for the NaN of no pairs."""
    return 0.0 if np.isnan(value[0]) else float(value[0])


def _rest(total: Intervals, shown: Sequence[Intervals]) -> float:
    return _number(total.value) - sum(_number(each.value) for each in shown)


def _between(
    value: float, low: float, high: float, total: Intervals, pairs: Intervals
) -> Intervals:
    """Return an interval, or none if there are no pairs or the total has no bound."""
    none = np.array([np.nan])
    if pairs.high[0] <= 0.0:
        return replace(pairs, value=none, low=none, high=none)
    if total.bound[0] == Bound.NONE:
        return Intervals.of(none, np.array([-np.inf]), np.array([np.inf]))
    found = Intervals.of(np.array([value]), np.array([low]), np.array([max(high, low)]))
    return replace(found, value=none) if pairs.value[0] <= 0.0 else found
