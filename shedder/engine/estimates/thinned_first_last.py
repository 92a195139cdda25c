"""FIRST and LAST from thinned parts: bounds that allow for the skipped values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shedder.engine.panes.level_segment import Segment
from synopses.model.estimate import Bound, Estimates

SOURCE = "thinned panes"
_UNSEEN = "no value of the group was read, and tuples were skipped"
_TEXT = "a text that was skipped may be the first or the last one"
_INFINITE = "the column has infinite values, and tuples were skipped"


def thinned_end(whole: Any, segments: Sequence[Segment], *, is_first: bool) -> Estimates:
    """The first or the last value of each group, for certain.

    The basics know between which times and between which values everything lies that a stratum
    skipped. Where all of that is later than the first value that was read, it is the first: exact.
    Elsewhere the first one is the one that was read, or a skipped one of the known range.

    Args:
      whole: what was read in full. segments: what was read thinned.
    """
    ends = whole.select(np.arange(whole.groups))
    for segment in segments:
        ends.merge(segment.synopsis)
    found: Estimates = ends.first() if is_first else ends.last()
    times = ends.first_times() if is_first else ends.last_times()
    null = np.asarray(found.null, np.bool_)
    low, high = found.low, found.high
    unsure = np.zeros(len(found), np.bool_)
    for segment in [s for s in segments if s.skipped]:
        reached = _reaches(segment, times, is_first=is_first) | null
        unsure |= reached
        if segment.low is not None and segment.high is not None:
            low = np.where(reached, np.minimum(low, segment.low), low)
            high = np.where(reached, np.maximum(high, segment.high), high)
    if not unsure.any():
        return replace(found, source=SOURCE)
    text = found.value.dtype == np.dtype(object)
    endless = np.zeros(len(found), np.bool_)
    if not text:
        endless = unsure & (np.isinf(low.astype(np.float64)) | np.isinf(high.astype(np.float64)))
    cut = found.bound == Bound.NONE
    none = cut | (unsure & (null | endless | text))
    bound = np.where(unsure, np.uint8(Bound.INTERVAL), np.uint8(Bound.EXACT))
    bound = np.where(none, np.uint8(Bound.NONE), bound).astype(np.uint8)
    reason = ""
    if none.any():
        reason = _TEXT if text else _UNSEEN if (none & null).any() else _INFINITE
    return Estimates(found.value, low, high, bound, null, 1.0, SOURCE, reason)


def _reaches(segment: Segment, times: NDArray[np.int64], *, is_first: bool) -> NDArray[np.bool_]:
    """For which groups a skipped value could be before their first one, or after their last one."""
    if segment.low_beside is None or segment.high_beside is None:
        return np.ones(len(times), np.bool_)
    if is_first:
        return times >= np.int64(segment.low_beside)
    return times <= np.int64(segment.high_beside)
