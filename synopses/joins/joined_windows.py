"""Windows of a join with one key, and products of their sums by key, bucket and class.

A tuple of panes has one pane of each window. The pairs of a key are a sum over tuples of panes.
Where the key is heavy in all panes of a tuple, their sum is exact. The rest R_k of the key is known
if the key is sampled at the highest level of the panes. Else R_k is between certain bounds. These
come from heavy counts and bucket sums, which count every row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from synopses.intervals.key_totals.sampled_keys import CertainParts
from synopses.joins.closed_panes import ClosedPane
from synopses.joins.key_tables import Floats, Longs, Words
from synopses.joins.pane_kernels import PARTS, buckets_of
from synopses.joins.window_sums import KnownKeys, RowTerm, WindowBounds, WindowSums, by_class

ROUNDING = 1e-12  # Relative, of sums of whole numbers; ends move outward by it.
WHOLE_MAX = float(1 << 53)  # Doubles hold all whole numbers up to it.
_UNIT = 2.0**-52  # Relative, of one addition of doubles.


@dataclass(frozen=True, slots=True, eq=False)
class CountProducts:
    """Products of the counts of all windows but one, cumulative over the classes.

    heavy: [classes, heavy], of panes where a key is heavy.
    kept, kept_heavy: [classes, kept], of all panes, and of those where a key is heavy.
    """

    heavy: Floats
    kept: Floats
    kept_heavy: Floats


@dataclass(frozen=True, slots=True, eq=False)
class CountBounds:
    """The most that products of counts are, cumulative over the classes.

    most: [classes, heavy], of all panes. buckets: [classes, buckets], of other keys.
    """

    most: Floats
    buckets: Floats


@dataclass(frozen=True, slots=True, eq=False)
class TermTotals:
    """What the pairs of a join add up to, of one term of one window.

    heavy: [heavy], exact, of tuples of panes in all of which a key is heavy.
    parts: [classes, kept], rests of the kept keys; they count where the class is known.
    rests: bounds of the rests of heavy keys. buckets: of the rests of all other keys. Where all
      keys are known, both are empty.
    gross_heavy: [heavy], as `heavy` without signs. gross_kept: [kept], of all panes.
    rounding: relative error of the sums.
    """

    heavy: Floats
    parts: Floats
    rests: CertainParts
    buckets: CertainParts
    gross_heavy: Floats
    gross_kept: Floats
    rounding: float


@dataclass(slots=True, eq=False)
class JoinedWindows:
    """Some windows whose keys are equal in all of them.

    windows: panes of each window, all with multiples of one number of buckets.
    secrets: as of the panes.
    whole: of each window, which expressions have whole numbers only; empty: none has.
    """

    windows: Sequence[Sequence[ClosedPane]]
    secrets: Words
    whole: Sequence[Sequence[bool]] = ()
    _keys: KnownKeys | None = field(init=False)
    _sums: dict[tuple[int, RowTerm], WindowSums] = field(init=False)
    _bounds: dict[tuple[int, RowTerm], WindowBounds] = field(init=False)
    _products: dict[int, CountProducts] = field(init=False)
    _heavy_buckets: Longs | None = field(init=False)
    _rows: dict[int, float] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._sums, self._bounds, self._products, self._keys = {}, {}, {}, None
        self._heavy_buckets = None
        if all(self.windows):
            panes = [pane for window in self.windows for pane in window]
            self._keys = KnownKeys.of(panes, self.secrets)

    @property
    def is_empty(self) -> bool:
        """Return whether a window has no panes."""
        return self._keys is None

    @property
    def keys(self) -> KnownKeys:
        """The keys of all panes; no window is empty."""
        assert self._keys is not None
        return self._keys

    def sums(self, window: int, term: RowTerm) -> WindowSums:
        """Return the sums of a term over a window."""
        found = self._sums.get((window, term))
        if found is None:
            found = WindowSums.of(self.windows[window], self.keys, term)
            self._sums[window, term] = found
        return found

    def bounds(self, window: int, term: RowTerm) -> WindowBounds:
        """Return the bounds of a term over a window."""
        found = self._bounds.get((window, term))
        if found is None:
            buckets = min(len(pane.sums) for of in self.windows for pane in of)
            if self._heavy_buckets is None:
                self._heavy_buckets = buckets_of(self.keys.heavy, self.secrets[1], buckets)
            found = self._bounds[window, term] = WindowBounds.of(
                self.windows[window],
                self.keys,
                term,
                buckets=buckets,
                heavy_buckets=self._heavy_buckets,
            )
        return found

    def rows(self, window: int) -> float:
        """Return the rows of a window."""
        if window not in self._rows:
            panes = self.windows[window]
            rows = sum(int(of.heavy.counts.sum()) + int(of.sums.sum()) for of in panes)
            self._rows[window] = float(rows)
        return self._rows[window]

    def ends(self, window: int, expression: int) -> tuple[float, float]:
        """Return the least and the largest value of an expression in a window."""
        ends = [pane.ends[:, expression] for pane in self.windows[window]]
        return min(float(it[0]) for it in ends), max(float(it[1]) for it in ends)

    def is_whole(self, window: int, expression: int) -> bool:
        """Return whether an expression has whole numbers only."""
        return bool(self.whole) and self.whole[window][expression]

    def others(self, window: int) -> CountProducts:
        """Return the products of the counts of the other windows."""
        found = self._products.get(window)
        if found is None:
            counts = [self.sums(at, RowTerm()) for at in range(len(self.windows)) if at != window]
            heavies = [self.keys.of_kept(each.heavy) for each in counts]
            found = self._products[window] = CountProducts(
                _product([each.heavy for each in counts]),
                _product([own + each.rest for own, each in zip(heavies, counts, strict=True)]),
                _product(heavies),
            )
        return found

    def count_bounds(self, window: int) -> CountBounds:
        """Return the most that the products of the counts of the other windows are."""
        others = [at for at in range(len(self.windows)) if at != window]
        heavies = [self.sums(at, RowTerm()).heavy for at in others]
        bounds = [self.bounds(at, RowTerm()) for at in others]
        most = [own + each.missing_up for own, each in zip(heavies, bounds, strict=True)]
        return CountBounds(_product(most), _product([each.bucket_up for each in bounds]))

    def totals(self, window: int, term: RowTerm) -> TermTotals | None:
        """Return the totals of a term; None: a value or a sum is not finite."""
        if term.expression is not None and not all(
            _are_finite(pane, term.expression) for pane in self.windows[window]
        ):
            return None
        keys, others, ours = self.keys, self.others(window), self.sums(window, term)
        own = keys.of_kept(ours.heavy)
        sums = others.kept * (own + ours.rest) - others.kept_heavy * own
        gross = keys.of_kept(ours.gross_heavy[None])[0] + ours.gross_rest
        rests, buckets = self._certain(window, term)
        found = TermTotals(
            others.heavy[-1] * ours.heavy[-1],
            by_class(sums),
            rests,
            buckets,
            others.heavy[-1] * ours.gross_heavy,
            others.kept[-1] * gross,
            self._rounding(window, term),
        )
        bounds = (rests.up, rests.down, buckets.up, buckets.down)
        total = sum(float(each.sum()) for each in (found.gross_heavy, found.gross_kept, *bounds))
        return found if math.isfinite(total * 2.0 ** float(keys.levels[-1])) else None

    def _certain(self, window: int, term: RowTerm) -> tuple[CertainParts, CertainParts]:
        """Return bounds of the rests of heavy keys, and of all other keys by bucket."""
        if self.keys.all_known:
            none = np.zeros((1, 0))
            return CertainParts(none, none), CertainParts(none, none)
        others, most = self.others(window), self.count_bounds(window)
        ours = self.bounds(window, term)
        return (
            CertainParts(
                _rising(most.most * (ours.up + ours.missing_up) - others.heavy * ours.up),
                _rising(most.most * (ours.down + ours.missing_down) - others.heavy * ours.down),
            ),
            CertainParts(
                _rising(most.buckets * ours.bucket_up), _rising(most.buckets * ours.bucket_down)
            ),
        )

    def rests_elsewhere(self, window: int, term: RowTerm, side: int) -> CertainParts:
        """Return bounds of the rests of heavy keys, with rows of one window where they are light.

        side: the window whose rows are those of panes where a key is not heavy.
        """
        if self.keys.all_known:
            none = np.zeros((1, 0))
            return CertainParts(none, none)
        ours, factors = self.bounds(window, term), list[Floats]()
        for at in range(len(self.windows)):
            if at != window:
                missing = self.bounds(at, RowTerm()).missing_up
                own = self.sums(at, RowTerm()).heavy
                factors.append(missing if at == side else own + missing)
        most = _product(factors)
        if window == side:
            return CertainParts(_rising(most * ours.missing_up), _rising(most * ours.missing_down))
        return CertainParts(
            _rising(most * (ours.up + ours.missing_up)),
            _rising(most * (ours.down + ours.missing_down)),
        )

    def _rounding(self, window: int, term: RowTerm) -> float:
        """Return the relative error of sums of a term."""
        if term.expression is None or term.is_present:
            return ROUNDING
        known = self.sums(window, term)
        gross = float(known.gross_heavy.sum() + known.gross_rest.sum())
        is_whole = term.shift == 0.0 and self.is_whole(window, term.expression)
        if is_whole and gross <= WHOLE_MAX:
            return ROUNDING
        rows = self.rows(window) + len(self.keys.kept) + len(self.keys.heavy)
        return 2.0 * _UNIT * (rows + 64.0)


def _are_finite(pane: ClosedPane, expression: int) -> bool:
    """Return whether all values and sums of an expression are finite."""
    low, high = pane.ends[:, expression]
    if low > high:  # All are NULL.
        return True
    parts = slice(PARTS * expression, PARTS * (expression + 1))
    of_keys = (each.values[:, parts] for each in (pane.heavy, pane.sampled))
    sums = (*of_keys, pane.value_sums[2 * expression : 2 * expression + 2])
    return bool(np.isfinite([low, high]).all()) and all(np.isfinite(each).all() for each in sums)


def _product(of: Sequence[Floats]) -> Floats:
    return math.prod(of[1:], start=of[0])


def _rising(sums: Floats) -> Floats:
    """Return what each class adds to cumulative sums that do not fall, except by rounding."""
    return np.maximum(by_class(sums), 0.0)
