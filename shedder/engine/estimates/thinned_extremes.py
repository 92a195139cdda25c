"""MIN and MAX of parts that were read thinned: what was read, and the known range of the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shedder.engine.estimates.thinned_sketches import SOURCE
from shedder.engine.panes.level_segment import Segment
from synopses.model.estimate import Bound, Estimates

_INFINITE = "the column has infinite values, and tuples were skipped"
_TEXT = "the least and the greatest text may be among the tuples that were skipped"
_UNSEEN = "no value of the group was read, and tuples were skipped"


def thinned_extreme(
    synopses: Sequence[Any], segments: Sequence[Segment], *, is_min: bool, ungrouped: bool
) -> Estimates:
    """The least or the greatest number of each group, for certain.

    The value that was read is one end, the range of a segment that skipped any the other.

    Args:
      synopses: of what was read in full, and of each segment.
      segments: what was read thinned.
      is_min: whether the least is asked for.
      ungrouped: whether the ranges are of the one group.
    """
    best = np.minimum if is_min else np.maximum
    found, null = None, np.ones(1, np.bool_)
    for synopsis in synopses:
        ends = synopsis.minimum() if is_min else synopsis.maximum()
        if found is None:
            found, null = ends.value, ends.null
            continue
        both = np.where(null, ends.value, best(found, ends.value))
        found, null = np.where(ends.null, found, both), null & ends.null
    assert found is not None
    thinned = [s for s in segments if s.skipped]
    there = [end for s in thinned if (end := s.low if is_min else s.high) is not None]
    if not there:
        return Estimates.exact(found, SOURCE, null)
    far = np.full(len(found), min(there) if is_min else max(there), found.dtype)
    if ungrouped:
        return Estimates.exact(np.where(null, far, best(found, far)), "basics")
    sure = ~null & (best(found, far) == found)
    far = np.where(sure, found, far)
    bound = np.where(sure, np.uint8(Bound.EXACT), np.uint8(Bound.INTERVAL))
    endless = np.isinf(far.astype(np.float64)) & ~sure
    bound = np.where(endless, np.uint8(Bound.NONE), bound).astype(np.uint8)
    # Of a group of which no value was read, there is none or one in the known range.
    ends = [end for s in thinned if (end := s.high if is_min else s.low) is not None]
    near = np.where(null, max(ends) if is_min else min(ends), found).astype(found.dtype)
    low, high = (far, near) if is_min else (near, far)
    reason = _UNSEEN if null.any() else _INFINITE if endless.any() else ""
    return Estimates(found, low, high, bound, null, 1.0, SOURCE, reason)


def thinned_text(merged: Any, *, is_min: bool, skipped: int) -> Estimates:
    """The least or the greatest text of each group; a text that was skipped may be beyond it."""
    found: Estimates = merged.minimum() if is_min else merged.maximum()
    if not skipped:
        return found
    none = np.full(len(found), np.uint8(Bound.NONE))
    return replace(found, bound=none, source=SOURCE, reason=_TEXT)
