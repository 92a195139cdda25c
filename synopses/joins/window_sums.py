"""Sums of one window of a join by key, bucket and level, from its panes.

Panes of several windows are read at their own levels. Class l has the panes whose level is at most
that of l. So all sums are cumulative over the classes. A product of sums of several windows then
has the pairs of those panes whose highest level is that of l, or a lower one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from synopses.joins.closed_panes import NO_KEYS, ClosedPane, KeySums, folded
from synopses.joins.pane_kernels import (
    NEGATIVE,
    PARTS,
    POSITIVE,
    PRESENT,
    VALUE_BUCKET,
    Floats,
    Longs,
    Words,
    buckets_of,
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
    buckets: of the heavy keys. bucket_number: the least of all panes.
    """

    levels: Longs
    heavy: Words
    kept: Words
    known: Longs
    heavy_at: Longs
    buckets: Longs
    bucket_number: int

    @classmethod
    def of(cls, panes: Sequence[ClosedPane], secrets: Words) -> KnownKeys:
        """The keys of some panes. secrets: as of the panes."""
        levels = np.sort([pane.level for pane in panes])
        levels = np.unique(levels[[0, len(levels) // 2, -1]])
        heavy = _union([pane.heavy.keys for pane in panes])
        kept = _union([*(pane.sampled.keys for pane in panes), heavy])
        known = np.zeros(len(kept), np.int64)
        for level in levels:
            known += sampled(kept, secrets[0], level)
        kept, known = kept[known > 0], known[known > 0]
        heavy_at = np.full(len(kept), -1)
        if len(heavy):
            at = np.minimum(np.searchsorted(heavy, kept), len(heavy) - 1)
            heavy_at = np.where(heavy[at] == kept, at, -1)
        bucket_number = min(len(pane.sums) for pane in panes)
        buckets = buckets_of(heavy, secrets[1], bucket_number)
        return cls(levels, heavy, kept, known, heavy_at, buckets, bucket_number)

    def of_kept(self, heavy: Floats) -> Floats:
        """Return sums of heavy keys, [classes, heavy], for the kept keys; 0 for others."""
        if not len(self.heavy):
            return np.zeros((len(heavy), len(self.kept)))
        return np.where(self.heavy_at >= 0, heavy[:, self.heavy_at], 0.0)


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
    up, down: of their positive and negative parts by pane.
    missing_up, missing_down: [classes, heavy], the most that other panes may add, or take away.
    rest: [classes, kept], what other panes add to kept keys; it counts where the class is known.
    bucket_up, bucket_down: [classes, buckets], of positive and negative parts.
    gross_heavy, gross_rest: [heavy], [kept], of all classes, without signs.
    """

    heavy: Floats
    up: Floats
    down: Floats
    missing_up: Floats
    missing_down: Floats
    rest: Floats
    bucket_up: Floats
    bucket_down: Floats
    gross_heavy: Floats
    gross_rest: Floats

    @classmethod
    def of(cls, panes: Sequence[ClosedPane], keys: KnownKeys, term: RowTerm) -> WindowSums:
        """The sums of one window."""
        classes, number = len(keys.levels), keys.bucket_number
        heavy, up, missing_up = np.zeros((3, classes, len(keys.heavy)))
        down, missing_down = np.zeros((2, classes, len(keys.heavy)))
        rest, bucket_up = np.zeros((classes, len(keys.kept))), np.zeros((classes, number))
        bucket_down = np.zeros((classes, number)) if term.is_signed else np.zeros((1, 1))
        gross_heavy, gross_rest = np.zeros(len(keys.heavy)), np.zeros(len(keys.kept))
        for pane in panes:
            first = int(np.searchsorted(keys.levels, pane.level))
            net, gross = _of_keys(pane.heavy, pane.centres, term)
            at = np.searchsorted(keys.heavy, pane.heavy.keys)
            heavy[first, at] += net
            up[first, at] += np.maximum(net, 0.0)
            down[first, at] += np.maximum(-net, 0.0)
            gross_heavy[at] += gross
            positive, negative = _of_buckets(pane, term, number)
            is_missing = np.ones(len(keys.heavy), np.bool_)
            is_missing[at] = False
            bucket_up[first] += positive
            missing_up[first] += np.where(is_missing, positive[keys.buckets], 0.0)
            if term.is_signed:
                bucket_down[first] += negative
                missing_down[first] += np.where(is_missing, negative[keys.buckets], 0.0)
            net, gross = _of_keys(pane.sampled, pane.centres, term)
            at = np.searchsorted(keys.kept, pane.sampled.keys)
            rest[first, at] += net
            gross_rest[at] += gross
        for each in (heavy, up, down, missing_up, missing_down, rest, bucket_up, bucket_down):
            np.cumsum(each, axis=0, out=each)
        bucket_down = np.broadcast_to(bucket_down, bucket_up.shape)
        of_heavy = (heavy, up, down, missing_up, missing_down)
        return cls(*of_heavy, rest, bucket_up, bucket_down, gross_heavy, gross_rest)


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


def _union(keys: Sequence[Words]) -> Words:
    return np.unique(np.concatenate(keys)) if keys else NO_KEYS
