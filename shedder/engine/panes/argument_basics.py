"""Basics (count, nulls, min, max) of a synopsis's argument, taken before thinning."""

from __future__ import annotations

from shedder.engine.synopsis_plans.synopsis_plan import ENDS_IN_TIME, SynopsisSpec
from shedder.streams.frame import ArgumentBasics, Frame


def known_of(part: SynopsisSpec, view: Frame, first: int, last: int) -> ArgumentBasics:
    """The basics of a part's argument in a view's rows first to last (exclusive)."""
    if part.argument is None:
        return ArgumentBasics(last - first, None, None)
    if part.second is not None:
        return view.known_pairs((part.argument, part.second), first, last)
    if part.kind in ENDS_IN_TIME:
        return view.known_in_time(part.argument, first, last)
    return view.known(part.argument, first, last)
