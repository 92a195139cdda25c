"""Parts of a window: synopses with their read shares, and the groups that may be missing."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from shedder.cql.expressions.expression import Aggregate
from shedder.cql.text.sampling_fractions import share_text
from shedder.engine.estimates.full_estimators import FullPart
from shedder.engine.estimates.thinned_estimators import THINNED, ThinnedPart
from shedder.engine.estimates.thinned_sketches import keeps_what_was_read
from shedder.engine.estimates.window_part import WindowPart
from shedder.engine.panes.level_segment import Segment
from shedder.engine.panes.synopsis_resizing import merged as together
from shedder.engine.synopsis_plans.synopsis_plan import SKETCHES, SynopsisKind
from shedder.engine.window_state.merged_window import Merged
from shedder.engine.window_state.query_state import QueryState
from shedder.queries.answers.answer import MissingGroups
from shedder.queries.sampling.stratified import missing_from_parts
from synopses.counters.count_min import GroupedCountMin
from synopses.histogram.log_histogram import GroupedLogBuckets
from synopses.hll.hyperloglog import GroupedDistinct
from synopses.moments.counts import GroupedCount
from synopses.moments.moments import GroupedMoments
from synopses.quantiles.rank_sketches import RankSketches
from synopses.theta.theta_sketch import GroupedTheta

_TAKE_ALL_MAX = 0.5  # Rows read in full for a row of a level: 0.1 on average, more where few are.
_ANY_CONFIDENCE = 0.95  # Whether there are any values does not depend on it.


def window_parts(
    query_state: QueryState, merged: Merged, aggregates: Collection[Aggregate]
) -> dict[Aggregate, WindowPart]:
    """The part of the window that answers each aggregate."""
    query, plan = query_state.query, query_state.plan
    is_chance = smallest_share(merged) < 1.0 and bool(query.groups)
    found: dict[Aggregate, WindowPart] = {}
    for aggregate, *places in zip(query.aggregates, plan.answers, plan.partners, strict=True):
        if aggregate not in aggregates:
            continue
        of_two = [at for at in places if at is not None]
        if aggregate.function in THINNED.refused:
            sides = [_at_one_share(merged, at) for at in of_two]
            found[aggregate] = FullPart(*sides, shown_by_chance=is_chance)
        elif any(was_thinned(merged, at) for at in of_two):
            first, *others = (_thinned_part(query_state, merged, at) for at in of_two)
            found[aggregate] = replace(first, partner=others[0]) if others else first
        else:
            found[aggregate] = FullPart(*(merged.pane.parts[at] for at in of_two))
    return found


def _thinned_part(query_state: QueryState, merged: Merged, part: int) -> ThinnedPart:
    kind, synopsis = query_state.plan.parts[part].kind, merged.pane.parts[part]
    return ThinnedPart(kind, synopsis, list(_of(merged, part)), query_state.keys is None)


def _at_one_share(merged: Merged, part: int) -> GroupedTheta:
    """The theta sketch of what was read at any level, at the smallest share."""
    whole: GroupedTheta = merged.pane.parts[part]
    if not merged.pane.segments:
        return whole
    groups = np.arange(whole.groups)
    whole = whole.select(groups)
    for level, segment in _of(merged, part):
        thinned = segment.synopsis.select(groups)
        thinned.thin(level)
        whole = together(whole, thinned)
    return whole


def _of(merged: Merged, part: int) -> Iterator[tuple[int, Segment]]:
    """A part's levels and segments, in order of level."""
    for (at, level), segment in sorted(merged.pane.segments.items(), key=lambda item: item[0]):
        if at == part and segment.population:
            yield level, segment


def was_thinned(merged: Merged, part: int) -> bool:
    """Return whether any tuples of the window were read thinned by a part."""
    return any(True for _ in _of(merged, part))


def adds_sketch_error(query_state: QueryState, merged: Merged, part: int) -> bool:
    """Return whether a part errs although it was read, or may do so: it is a sketch."""
    kind = query_state.plan.parts[part].kind
    if kind is SynopsisKind.DISTINCT and was_thinned(merged, part):
        return not keeps_what_was_read(merged.pane.parts[part], list(_of(merged, part)))
    return kind in SKETCHES


def levels_of(query_state: QueryState, merged: Merged) -> dict[Aggregate, int]:
    """At which level all of the values of aggregates were read, where it was one level."""
    plan, found = query_state.plan, dict[Aggregate, int]()
    for aggregate, part, other in zip(
        query_state.query.aggregates, plan.answers, plan.partners, strict=True
    ):
        of = {_level_of(merged, at) for at in (part, other) if at is not None}
        level = of.pop()
        if level is not None and not of:
            found[aggregate] = level
    return found


def _level_of(merged: Merged, part: int) -> int | None:
    """The level that a part was read at; None: at several, or partly in full.

    Few rows that were read in full are those of the take-all stratum.
    """
    leveled = list(_of(merged, part))
    if len(leveled) != 1:
        return None
    [(level, segment)], whole = leveled, merged.pane.parts[part]
    few = segment.read * _TAKE_ALL_MAX
    if isinstance(whole, GroupedMoments):
        return level if whole.counts().sum() <= few else None
    if isinstance(whole, GroupedCount):
        return level if whole.counts.sum() <= few else None
    return level if _is_empty(whole) else None


def _is_empty(synopsis: Any) -> bool:
    """Return whether it is known to have read nothing."""
    match synopsis:
        case GroupedDistinct() | GroupedTheta():
            return not synopsis.distinct(_ANY_CONFIDENCE).value.any()
        case GroupedCountMin():
            return not synopsis.totals().any()
        case GroupedMoments() | RankSketches():
            return not synopsis.counts().any()
        case GroupedCount() | GroupedLogBuckets():
            return not synopsis.counts.any()
        case _:
            return False


def smallest_share(merged: Merged) -> float:
    """The smallest share at which any tuples of the window were read."""
    levels = [level for (_, level), s in merged.pane.segments.items() if s.population]
    return 2.0 ** -max(levels, default=0)


def skipped_rows(merged: Merged) -> int:
    """Tuples of the window that the count of rows did not read: no group can have more of them."""
    return sum(segment.skipped for _, segment in _of(merged, 0))


def missing_groups(merged: Merged, confidence: float) -> MissingGroups | None:
    """A bound on groups of which no tuple was read, all at once; None: none can be missing."""
    sizes = [(s.population, s.read) for _, s in _of(merged, 0) if s.skipped]
    return missing_from_parts(sizes, confidence=confidence)


def note_of(merged: Merged) -> str:
    """Return how much of the window was read at which share."""
    shares = [
        f"{segment.read:,} of {segment.population:,} at {share_text(level)}"
        for level, segment in _of(merged, 0)
    ]
    return f"thinned: tuples read {', '.join(shares)}" if shares else "thinned"
