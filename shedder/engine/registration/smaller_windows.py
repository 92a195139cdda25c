"""Smaller windows for a query that exceeds its limits: candidates, and the cases without any."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import lru_cache

from shedder.cql.expressions.expression import SET_FUNCTIONS, AggregateFunction
from shedder.cql.expressions.expression_text import text_of
from shedder.cql.statements.bound_query import BoundQuery
from shedder.cql.statements.pane_coarsening import Coarsening, Collapse
from shedder.cql.statements.statement import RangeWindow, Rewrite, Window
from shedder.streams.windows import PaneGrid

_TRIED_MAX = 1_000
_DEPTHS_MAX = 25
_KEPT = 256  # Windows whose smaller ones are kept: many queries have the same window.
_RATES = (2, 3, 4, 8, 16, 32, 64, 128)  # Cells beyond them are hardly of use.


def range_is_fixed(query: BoundQuery) -> str | None:
    """Return why the window of a query must not get shorter; None where it may.

    The two cases of CIDR 2003, section 5.1.1. Duplicate elimination: distinct values per unit of
    time grow as windows shrink (D(a + b) <= D(a) + D(b)), by an unknown factor, so an
    answer over less time says nothing of the longer one's. Negation: what stands on the right of
    one, in DISTINCT_ONLY and JACCARD or below a HAVING (COUNT(*) FILTER (WHERE failed) = 0 is NOT
    EXISTS), lets more pass when it shrinks: results would be wrong, not only fewer.
    """
    for aggregate in query.aggregates:
        if aggregate.function in (AggregateFunction.DISTINCT_ONLY, AggregateFunction.JACCARD):
            return f"{text_of(aggregate)} would take values for new that came before it"
        if aggregate.function in (AggregateFunction.COUNT_DISTINCT, *SET_FUNCTIONS):
            return f"{text_of(aggregate)} eliminates duplicates over it"
    if query.groups and not query.aggregates:
        return "GROUP BY without aggregates eliminates duplicates over it"
    if query.having is not None:
        return f"HAVING {text_of(query.having)} might let groups pass that it refuses now"
    return None


def windows_of(query: BoundQuery, rewrites: Collection[Rewrite]) -> list[Window]:
    """The query's window, then smaller ones that are permitted, each of fewer panes.

    Where SLIDE may change, RANGE stays: for a number of panes P = RANGE / SLIDE + 1, a coarser
    slide makes answers older by half of what it grows, RANGE / (2 (P - 1)) at most, and a shorter
    range leaves out RANGE - (P - 1) SLIDE, which is more for every P > 2; and at P = 2, where
    RANGE = SLIDE, both are as small as they get. Nor are old panes collapsed there: where the
    longest cells have g panes, windows begin (g - 1) / 2 panes too early in the mean, which is by
    how much a slide g times as coarse makes answers older; and it has at most as many panes as
    there are cells. Where it may not change, they are, before RANGE is shortened.
    """
    window = query.window
    if not isinstance(window, RangeWindow):
        return [window]  # One pane; a window that slides would take more.
    if Rewrite.SLIDE in rewrites:
        return [window, *_coarser(window)]
    found: list[Window] = [window]
    if Rewrite.COLLAPSE in rewrites and window.collapse is None:
        found += _collapsed(window)
    if Rewrite.RANGE in rewrites and range_is_fixed(query) is None:
        least = min(PaneGrid.of(each).panes_live for each in found)
        found += [each for each in _shorter(window) if PaneGrid.of(each).panes_live < least]
    return found


@lru_cache(maxsize=_KEPT)
def _coarser(window: RangeWindow) -> tuple[Window, ...]:
    times = _multiples(window.range_us // window.slide_us)
    return _fewer(window, [replace(window, slide_us=n * window.slide_us) for n in times])


@lru_cache(maxsize=_KEPT)
def _collapsed(window: RangeWindow) -> tuple[Window, ...]:
    """Windows that begin earlier and earlier, each of fewer cells than those before."""
    panes = window.range_us // window.width_us
    ways = [
        Collapse(rate, depth)
        for rate in _RATES
        for depth in _few(_multiples(panes))
        if 1 < Coarsening.of(panes, Collapse(rate, depth)).longest <= panes
    ]
    cells = {way: Coarsening.of(panes, way) for way in ways}
    ways.sort(key=lambda way: (cells[way].longest, sum(cells[way].cells_max(panes))))
    return _fewer(window, [replace(window, collapse=way) for way in ways])


def _few(numbers: list[int]) -> list[int]:
    return numbers[:: -(-len(numbers) // _DEPTHS_MAX)]


@lru_cache(maxsize=_KEPT)
def _shorter(window: RangeWindow) -> tuple[Window, ...]:
    times = reversed(_multiples(window.range_us // window.slide_us))
    return _fewer(window, [replace(window, range_us=n * window.slide_us) for n in times])


def _multiples(most: int) -> list[int]:
    """Whole numbers up to `most`, ascending; all of its divisors among them, up to a million."""
    some = range(1, min(most, _TRIED_MAX) + 1)
    return sorted({*some, *(most // n for n in some)})


def _fewer(window: RangeWindow, smaller: list[RangeWindow]) -> tuple[Window, ...]:
    """Those that have fewer panes than the window and all that come before them."""
    found: list[Window] = []
    least = PaneGrid.of(window).panes_live
    for each in smaller:
        panes = PaneGrid.of(each).panes_live
        if panes < least:
            least = panes
            found.append(each)
    return tuple(found)
