"""Sums of one window of a join by key, bucket and level, from its panes.

Panes of several windows are read at their own levels. Class l has the panes whose level is at most
that of l. So all sums are cumulative over the classes. A product of sums of several windows then
has the pairs of those panes whose highest level is that of l, or a lower one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from synopses.intervals.key_totals.sampled_keys import cumulative
from synopses.joins.closed_panes import ClosedPane, KeySums, folded
from synopses.joins.key_merges import places_among, united
from synopses.joins.key_tables import Floats, Longs, Words
from synopses.joins.pane_kernels import (
    NEGATIVE,
    PARTS,
    POSITIVE,
    PRESENT,
    VALUE_BUCKET,
    sampled,
)


@dataclass(frozen=True, slots=True, eq=False)
class KnownKeys:
    """The keys of all panes of all windows.

    levels: of the classes, ascending: those of the first, the middle and the last pane in order of
      levels. A pane is read at the next of them. More classes need more memory for an answer.
    heavy: keys that are heavy in some pane.
    kept: keys of which some class is known; known: how many classes. Both ascend.
    heavy_at: where a kept key is among the heavy ones; -1: it is not.
    """

    levels: Longs
    heavy: Words
    kept: Words
    known: Longs
    heavy_at: Longs
    _kept_heavy: Longs  # Places of kept keys that are heavy.
    _places: dict[int, Longs] = field(init=False, repr=False, default_factory=dict)

    @classmethod
    def of(cls, panes: Sequence[ClosedPane], secrets: Words) -> KnownKeys:
        """The keys of some panes. secrets: as of the panes."""
        levels = np.sort([pane.level for pane in panes])
        levels = np.unique(levels[[0, len(levels) // 2, -1]])
        heavies = {id(pane.heavy.keys): pane.heavy.keys for pane in panes}
        heavy = united(list(heavies.values()))
        kept = united([*(pane.sampled.keys for pane in panes), heavy])
        heavy_at = np.full(len(kept), -1)
        heavy_at[places_among(heavy, kept)] = np.arange(len(heavy))
        known = np.full(len(kept), np.count_nonzero(levels == 0))
        for level in levels[levels > 0]:
            known += sampled(kept, secrets[0], level)
        is_kept = known > 0
        if not is_kept.all():
            kept, known, heavy_at = kept[is_kept], known[is_kept], heavy_at[is_kept]
        return cls(levels, heavy, kept, known, heavy_at, np.flatnonzero(heavy_at >= 0))

    def at(self, kept: Longs) -> KnownKeys:
        """Return the same with some of the kept keys. kept: their places."""
        heavy_at = self.heavy_at[kept]
        is_heavy = np.flatnonzero(heavy_at >= 0)
        keys, known = self.kept[kept], self.known[kept]
        return KnownKeys(self.levels, self.heavy, keys, known, heavy_at, is_heavy)

    @property
    def all_known(self) -> bool:
        """Return whether all classes of all keys are known."""
        return bool(self.levels[-1] == 0)

    def of_kept(self, heavy: Floats) -> Floats:
        """Return sums of heavy keys, [classes, heavy], for the kept keys; 0 for others."""
        found = np.zeros((len(heavy), len(self.kept)))
        found[:, self._kept_heavy] = heavy[:, self.heavy_at[self._kept_heavy]]
        return found

    def heavy_places(self, pane: ClosedPane) -> Longs:
        """Return where the heavy keys of a pane are in `heavy`."""
        return self._place(pane.heavy.keys, self.heavy)

    def kept_places(self, pane: ClosedPane) -> Longs:
        """Return where the sampled keys of a pane are in `kept`."""
        return self._place(pane.sampled.keys, self.kept)

    def _place(self, keys: Words, among: Words) -> Longs:
        found = self._places.get(id(keys))
        if found is None:
            found = self._places[id(keys)] = places_among(keys, among)
        return found


@dataclass(frozen=True, slots=True)
class RowTerm:
    """What each row of a window adds to a total.

    expression: whose value v it is; None: each row adds 1.
    shift: it adds v - shift, and 0 for NULL. is_present: it adds 1 unless v is NULL.
    """

    expression: int | None = None
    shift: float = 0.0
    is_present: bool = False

    @property
    def is_signed(self) -> bool:
        """Return whether a row may take away from a total."""
        return self.expression is not None and not self.is_present


@dataclass(frozen=True, slots=True, eq=False)
class WindowSums:
    """Sums of a term over a window, cumulative over the classes.

    heavy: [classes, heavy], of heavy keys in panes where they are heavy.
    rest: [classes, kept], what other panes add to kept keys; it counts where the class is known.
    gross_heavy, gross_rest: [heavy], [kept], of all classes, without signs.
    """

    heavy: Floats
    rest: Floats
    gross_heavy: Floats
    gross_rest: Floats

    @classmethod
    def of(cls, panes: Sequence[ClosedPane], keys: KnownKeys, term: RowTerm) -> WindowSums:
        """The sums of one window."""
        classes = len(keys.levels)
        heavy, rest = np.zeros((classes, len(keys.heavy))), np.zeros((classes, len(keys.kept)))
        gross_heavy, gross_rest = np.zeros(len(keys.heavy)), np.zeros(len(keys.kept))
        is_signed = term.is_signed
        for pane in panes:
            first = int(np.searchsorted(keys.levels, pane.level))
            net, gross = _of_keys(pane.heavy, pane.centres, term)
            at = keys.heavy_places(pane)
            heavy[first, at] += net
            if is_signed:
                gross_heavy[at] += gross
            net, gross = _of_keys(pane.sampled, pane.centres, term)
            at = keys.kept_places(pane)
            rest[first, at] += net
            if is_signed:
                gross_rest[at] += gross
        if not is_signed:
            gross_heavy, gross_rest = heavy.sum(axis=0), rest.sum(axis=0)
        return cls(cumulative(heavy), cumulative(rest), gross_heavy, gross_rest)


@dataclass(frozen=True, slots=True, eq=False)
class WindowBounds:
    """The most that keys add to sums over a window, for certain; cumulative over the classes.

    up, down: [classes, heavy], positive and negative parts by pane, where a key is heavy.
    missing_up, missing_down: [classes, heavy], the most that other panes may add, or take away.
    bucket_up, bucket_down: [classes, buckets], of positive and negative parts of other keys.
    """

    up: Floats
    down: Floats
    missing_up: Floats
    missing_down: Floats
    bucket_up: Floats
    bucket_down: Floats

    @classmethod
    def of(
        cls,
        panes: Sequence[ClosedPane],
        keys: KnownKeys,
        term: RowTerm,
        *,
        buckets: int,
        heavy_buckets: Longs,
    ) -> WindowBounds:
        """The bounds of one window. buckets: their number. heavy_buckets: of the heavy keys."""
        classes = len(keys.levels)
        up, missing_up = np.zeros((2, classes, len(keys.heavy)))
        down, missing_down = np.zeros((2, classes, len(keys.heavy)))
        bucket_up = np.zeros((classes, buckets))
        bucket_down = np.zeros((classes, buckets)) if term.is_signed else np.zeros((1, 1))
        for pane in panes:
            first = int(np.searchsorted(keys.levels, pane.level))
            net, _ = _of_keys(pane.heavy, pane.centres, term)
            at = keys.heavy_places(pane)
            up[first, at] += np.maximum(net, 0.0)
            positive, negative = _of_buckets(pane, term, buckets)
            is_missing = np.ones(len(keys.heavy), np.bool_)
            is_missing[at] = False
            bucket_up[first] += positive
            missing_up[first] += np.where(is_missing, positive[heavy_buckets], 0.0)
            if term.is_signed:
                down[first, at] += np.maximum(-net, 0.0)
                bucket_down[first] += negative
                missing_down[first] += np.where(is_missing, negative[heavy_buckets], 0.0)
        for each in (up, down, missing_up, missing_down, bucket_up, bucket_down):
            cumulative(each)
        bucket_down = np.broadcast_to(bucket_down, bucket_up.shape)
        return cls(up, down, missing_up, missing_down, bucket_up, bucket_down)


def by_class(sums: Floats) -> Floats:
    """Return what each class adds to cumulative sums."""
    return sums if len(sums) == 1 else np.diff(sums, axis=0, prepend=0.0)


def _of_keys(of: KeySums, centres: Floats, term: RowTerm) -> tuple[Floats, Floats]:
    """Return the sums of a term for each key, and what they are without signs."""
    if term.expression is None:
        plain: Floats = of.counts.astype(np.float64)
        return plain, plain
    at = PARTS * term.expression
    positive, negative, present = (
        of.values[:, at + part] for part in (POSITIVE, NEGATIVE, PRESENT)
    )
    if term.is_present:
        return present, present
    shift = (term.shift - centres[term.expression]) * present
    return positive - negative - shift, positive + negative + np.abs(shift)


def _of_buckets(pane: ClosedPane, term: RowTerm, buckets: int) -> tuple[Floats, Floats]:
    """Return the most that keys of each bucket can add, and can take away."""
    rows, none = folded(pane.sums.astype(np.float64), buckets), np.zeros(buckets)
    if not term.is_signed:
        return rows, none
    assert term.expression is not None
    lowest, highest = pane.ends[:, term.expression]
    if not lowest <= highest:
        return none, none
    at = 2 * term.expression
    sums = folded(pane.value_sums[at : at + 2].astype(np.float64), buckets // VALUE_BUCKET)
    positive, negative = np.repeat(sums, VALUE_BUCKET, axis=1)
    shift = term.shift - float(pane.centres[term.expression])
    return (
        np.minimum(positive + max(-shift, 0.0) * rows, max(highest - term.shift, 0.0) * rows),
        np.minimum(negative + max(shift, 0.0) * rows, max(term.shift - lowest, 0.0) * rows),
    )
